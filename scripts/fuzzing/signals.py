"""Signals at random moments of commands: an exit code that says so, and files that are whole.

Each command runs in a fork of its own, which has everything imported; one in ten of them starts a runtime.
"""

import argparse
import faulthandler
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import onnx

import running

if TYPE_CHECKING:
    from __main__ import Attack

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS = 20
_COMMANDS = """
inspect m.onnx --value *
check m.onnx
print m.onnx
edit rename m.onnx x=z -o out.onnx
edit rename m.onnx x=z --in-place
edit clean m.onnx -o out.onnx
extract m.onnx --outputs y -o out.onnx
convert m.onnx --to float16 -o out.onnx
data move m.onnx moved.data
data gc m.onnx
data embed m.onnx -o out.onnx
data strip m.onnx -o out.onnx
inspect m.onnx --html out.html
diff m.onnx recorded/m.onnx
"""
_HEAVY = """
compare m.onnx recorded
run m.onnx -o out.npz
record m.onnx -o refs
bisect m.onnx --reference recorded -o culprit --quick
repl m.onnx -c run;where;save@out.onnx
test --config suite.toml
"""
_Files = Mapping[str, bytes]


@dataclass
class _Known:
    """A command without a signal.

    Attributes:
        seconds: how long it takes.
        code: its exit code.
        after: the files that it leaves.
    """

    seconds: float
    code: int
    after: _Files = field(repr=False)


def mutants_of(attack: "Attack", _: dict[str, bytes], given: argparse.Namespace) -> Iterator[None]:
    """Send signals to each command in turn."""
    folder = _prepared(attack.scratch)
    before = _files(folder)
    light, heavy = ([*_commands(text, folder, before)] for text in (_COMMANDS, _HEAVY))
    for number in range(given.first, given.first + given.mutants):
        draw = Random(f"{given.seed}/{number}")
        words, usual = draw.choice(heavy if number % 10 == 0 else light)
        sent = draw.choices(_SIGNALS, k=draw.choice((1, 1, 1, 2, 3)))
        moments = sorted(draw.uniform(0, 1.2 * usual.seconds) for _ in sent)
        code, text = _run(words, folder, list(zip(moments, sent, strict=True)))
        attack.counts["commands"] += 1
        attack.counts["ended by a signal"] += code >= 128
        if wrong := _wrong(code, text, sent, usual, before, _files(folder)):
            attack.keep(f"signal-{given.seed}-{number}", b"", f"{wrong}\n{text[-2000:]}", words)
        _restore(folder, before)
        yield


def _commands(text: str, folder: Path, before: _Files) -> Iterator[tuple[list[str], _Known]]:
    """Yield the words of each command, and what it does without a signal."""
    for line in text.strip().splitlines():
        words = [word.replace("@", " ") for word in line.split()]
        yield words, _known(words, folder, before)


def _prepared(scratch: Path) -> Path:
    """Make a folder with a model whose data lies beside it, with a gap, and what it records."""
    folder = scratch / "signals"
    folder.mkdir()
    text = "g (float[300] x) => (float[300] y) { a = Add(x, w) b = Mul(a, v) y = Relu(b) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    (folder / "m.data").write_bytes(bytes(range(250)) * 20)
    for number, name in enumerate("wv"):
        tensor = model.graph.initializer.add(name=name, data_type=1, dims=[300], data_location=1)
        for key, value in (("location", "m.data"), ("offset", 2400 * number), ("length", 1200)):
            tensor.external_data.add(key=key, value=str(value))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    (folder / "suite.toml").write_text('[[check]]\nmodel = "m.onnx"\nreference = "recorded"\n')
    running.run(["record", "m.onnx", "-o", "recorded"], folder)
    shutil.copy(folder / "m.onnx", folder / "recorded" / "m.onnx")
    shutil.copy(folder / "m.data", folder / "recorded" / "m.data")
    for name in ("output", "state"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).unlink(missing_ok=True)
    (folder / "tmp").mkdir()
    return folder


def _known(words: list[str], folder: Path, before: _Files) -> _Known:
    """Run a command twice without a signal; the second time is usual."""
    for _ in range(2):
        _restore(folder, before)
        began = time.monotonic()
        code, text = _run(words, folder, [])
        seconds = time.monotonic() - began
    known = _Known(seconds, code, _files(folder))
    _restore(folder, before)
    if code not in (0, 1):
        raise RuntimeError(f"{words} ended with {code}: {text}")
    return known


def _run(
    words: list[str], folder: Path, signals: list[tuple[float, signal.Signals]]
) -> tuple[int, str]:
    """Run a command, with signals after some seconds each; return its exit code and output."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        _be(words, folder, writer)
    os.close(writer)
    os.read(reader, 1)  # its handlers are set
    os.close(reader)
    began = time.monotonic()
    watched = os.pidfd_open(process)
    for moment, number in signals:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        signal.pidfd_send_signal(watched, number) if running.lives(process) else None
    code = running.awaited(process, watched, _SECONDS)
    os.close(watched)
    return code, (folder / "output").read_text(errors="replace")


def _be(words: list[str], folder: Path, ready: int) -> None:
    """Be the command's process, as `onnxsurgeon_lite.cli.main` is."""
    from onnxsurgeon_lite.cli.process import end_at_once

    try:
        os.chdir(folder)
        os.environ |= {"XDG_STATE_HOME": "state", "COLUMNS": "100", "TMPDIR": str(folder / "tmp")}
        running.tempfile.tempdir = None
        faulthandler.enable(2)  # where native code was that crashes
        end_at_once()
        os.write(ready, b".")
        os.close(ready)
        os._exit(running.command(words))
    finally:
        os._exit(70)


def _wrong(
    code: int, text: str, sent: list[signal.Signals], usual: _Known, before: _Files, after: _Files
) -> str:
    """Say what is wrong with how a command ended; '' for nothing."""
    if code not in {usual.code, *(128 + number for number in sent)}:
        return f"ended with {code} after {[number.name for number in sent]}"
    if "Traceback" in text:
        return "printed a traceback"
    if left := running.left_behind():
        return f"leaves {left}"
    if not _readable(after):
        return "leaves a model that cannot be read"
    for name in after.keys() - before.keys() - usual.after.keys() - _referred(after):
        return f"leaves {name!r}: {after[name][-2000:]!r}"
    for name in before.keys() | usual.after.keys():
        whole = {before.get(name), usual.after.get(name)}
        if after.get(name) in whole or _told_anew(name) or _is_same(name, before, usual, after):
            continue
        return f"{name!r} is neither as before nor as after"
    return ""


def _is_same(name: str, before: _Files, usual: _Known, after: _Files) -> bool:
    """Return whether a model is as before or as after, but for the name of the file of its data.

    Data that takes the place of other data is first there under a fresh name, to which the model refers meanwhile.
    """
    if not name.endswith(".onnx"):
        return False
    *either, now = (_with_data(files, name) for files in (before, usual.after, after))
    return now in either


def _with_data(files: _Files, name: str) -> bytes:
    """Return a model with its data in it."""
    model = onnx.ModelProto.FromString(files.get(name, b""))
    for tensor in model.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place:
            start, size = int(place.get("offset", 0)), int(place.get("length", 0))
            tensor.raw_data = files.get(place["location"], b"")[start : start + size]
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    return bytes(model.SerializeToString(deterministic=True))


def _referred(files: _Files) -> set[str]:
    """Return the files that the model in place refers to."""
    model = onnx.ModelProto.FromString(files.get("m.onnx", b""))
    entries = [entry for tensor in model.graph.initializer for entry in tensor.external_data]
    return {entry.value for entry in entries if entry.key == "location"}


def _told_anew(name: str) -> bool:
    """Return whether a file has times or paths in it, or is made of random numbers."""
    return name.startswith(("state/", "culprit/", "refs/")) or name.endswith((".html", ".npz"))


def _readable(after: _Files) -> bool:
    """Return whether the models refer to data files that are there, complete."""
    for name in ("m.onnx", "out.onnx"):
        model = onnx.ModelProto.FromString(after.get(name, b""))
        for tensor in model.graph.initializer:
            place = {entry.key: entry.value for entry in tensor.external_data}
            end = int(place.get("offset", 0)) + int(place.get("length", 0))
            if place and len(after.get(place["location"], b"")) < end:
                return False
    return True


def _files(folder: Path) -> dict[str, bytes]:
    """Return what all files hold, but what the command printed."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "output")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _restore(folder: Path, before: _Files) -> None:
    """Put the folder back as it was."""
    for name, data in _files(folder).items():
        if before.get(name) != data:
            (folder / name).unlink()
    for name, data in before.items():
        if not (folder / name).exists():
            (folder / name).write_bytes(data)
    for path in folder.iterdir():
        if path.is_dir() and path.name not in ("tmp", "recorded"):
            shutil.rmtree(path)
