"""Hostile arguments to the tools of `mcp`: an answer, new files in the folder that they may write in, and nothing else.

Each command runs in a fork, as its own process does, under an audit hook of Python.
"""

import argparse
import json
import os
import py_compile
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import typer

import onnxsurgeon_lite as osl
import running
from onnxsurgeon_lite.cli import assistant
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.runtime import script
from trusted import PLACES
from watch import Watch

if TYPE_CHECKING:
    from __main__ import Attack

_SECONDS = 10
_MEMORY = 12 << 30  # bytes, of addresses
_GOOD = {
    "model": ("m.onnx", "other.onnx"), "models": ("m.onnx", "other.onnx"), "first": ("m.onnx",), "second": ("m.onnx",),
    "actual": ("m.onnx", "a.npz"), "reference": ("recorded", "a.npz"), "against": ("other.onnx", "a.npz"),
    "feeds": ("a.npz",), "map": ("auto", "names", "map.json"), "names": ("h=k",), "links": ("y=x",), "value": ("h",),
    "values": ("h",), "nodes": ("@0", "op:Relu"), "node": ("@1",), "inputs": ("x",), "outputs": ("y", "h"),
    "at": ("h",), "op_type": ("Abs",), "attributes": ("to=1",), "rules": ("rule.onnxtxt",), "numbers": ("1",),
    "text": ("text.txt",), "recipe": ("recipe.toml",), "config": ("config.json",), "shapes": ("x=2",), "of": ("y",),
    "types": ("x=float",), "what": ("other.onnx",), "fields": ("doc_string=a",), "constants": ("c=1",), "new": ("x",),
    "old": ("h",), "fails": ("wrong", "crash"), "output": ("new.onnx", "new"), "seconds": ("1",), "runs": ("1",),
    "to": ("float16", "y", "2"), "fill": ("zeros",), "a": ("opt=none", "m.onnx"), "b": ("opt=all", "other.onnx"),
}  # fmt: skip
_BEFORE = (
    "", "optimized:", "optimized=all:", "optimized:optimized:", "./", "././/", " ", "\t", "h=", "a,", "=", "opt=none,",
    "b/=", "@", "x:", "~/", "FILE:", "torch:", "hf:", "provider=qnn,backend_path=", "runtime=", "runtime=command:",
    "python=", "opt=none,version=", "ru\\ntime=command:", " runtime=command:",
)  # fmt: skip
_OPTIONS = (
    "--html=ran.html", "--html=../ran.html", "--in-place", "--runtime=command:./program", "--runtime", "--", "-o",
    "--output=ran.onnx", "--force", "--allow-scripts", "--ops=evil.py", "-oran.onnx", "--save=ran.npz", "--help",
    "--journal=ran", "--factory=evil.py:edit", "--python=./program",
)  # fmt: skip
_CODE = (
    "evil.pyc:edit", "evil.pyc", "evil.py:edit", "../evil.py:edit", "./evil.py:edit", "module.so:edit", "./program",
    "hf:came", "evil.py:edit,opt=none", "1.20.1", "<1.20", "evil.py", "evil.PY:edit", "evil.py :edit", "evil.pyw:edit",
)  # fmt: skip
_OUTPUTS = (
    "there.onnx", "there", "new.onnx", "new", "new/new.onnx", "../ran.onnx", "../m.onnx", "up/ran.onnx", "model.onnx",
    "loop", "/tmp/ran.onnx", ".", "", "..", "new.onnx/", "out/../../ran.onnx", "new\0.onnx", "/dev/full", "pipe",
)  # fmt: skip
_WRONG: tuple[object, ...] = (
    True, False, [], {}, [[]], {"a": 1}, [True], [None], 10**400, -1, 0, 2**63, 1e308, float("nan"), float("inf"), "",
    "9" * 5000, "x" * 200_000, "h" * 300, "a\0b", "\ud800", "\x1b[31m", "\r\n", "1e999", ["m.onnx", "--html=ran.html"],
)  # fmt: skip


def mutants_of(attack: "Attack", _: dict[str, bytes], given: argparse.Namespace) -> Iterator[None]:
    """Call tools, with a folder to write in and without."""
    tree = _prepared(attack.scratch)
    folder = (tree / "out").resolve()
    beside = attack.scratch / "beside"
    for name in ("state", "cache", "tmp"):
        (beside / name).mkdir(parents=True)
    os.environ |= {"XDG_STATE_HOME": f"{beside}/state", "XDG_CACHE_HOME": f"{beside}/cache"}
    tempfile.tempdir = os.environ["TMPDIR"] = f"{beside}/tmp"
    group = typer.main.get_command(app)
    offered = {where: assistant.Tools(group, where) for where in (None, folder)}
    called = _Called(attack, tree, beside)
    for number in range(given.first, given.first + given.mutants):
        draw = Random(f"{given.seed}/{number}")
        tools = offered[draw.choice((None, folder, folder))]
        tool = draw.choice([*tools.commands])
        arguments = _arguments(draw, tools, tool)
        attack.counts["calls"] += 1
        if wrong := called(tools, tool, arguments):
            label = f"assistant-{given.seed}-{number}"
            attack.keep(label, json.dumps(arguments).encode(), wrong, [tool, str(tools.folder)])
        yield


class _Called:
    """Calls of tools, judged by what they answer and what they leave."""

    def __init__(self, attack: "Attack", tree: Path, beside: Path) -> None:
        self.attacked, self.tree, self.beside = attack, tree, beside
        self.watch = Watch(tree, self._may)
        self.before = _stamps(tree)
        self.folder = tree  # where the command runs
        self.writes = self.killed = False
        self.usual, script.run_to_end = script.run_to_end, self._run

    def __call__(self, tools: assistant.Tools, tool: str, arguments: Mapping[str, object]) -> str:
        """Call a tool; return what is wrong, '' for nothing."""
        self.folder, self.writes = tools.folder or self.tree, tools.folder is not None
        os.chdir(self.folder)
        self.killed = False
        wrong, text = "", ""
        try:
            code, text = tools.call(tool, arguments)
            self.attacked.counts[f"exit {code}"] += 1
            wrong = f"ended with {code}" if code not in (0, 1, 2) else ""
        except BaseException as error:  # noqa: BLE001  it is no answer
            wrong = f"{type(error).__name__}: {error}"
        traced = "printed a traceback" if "Traceback (most recent" in text else ""
        problems = [wrong, traced, *self.watch.reached(), *self._left()]
        problems += ["leaves a process"] if running.left_behind() else []
        return "\n".join(["; ".join(filter(None, problems)), text[-2000:]]) if any(problems) else ""

    def _may(self, real: str, writes: bool) -> bool:
        within = Path(real).is_relative_to
        if not writes or within(self.beside) or real.startswith(("/dev/null", "/proc/")):
            return True
        return self.writes and within(self.folder)

    def _run(self, program: Sequence[str], *_: object) -> tuple[int, bytes]:
        """Be `run_to_end`: run the command in a fork."""
        self.attacked.counts["commands"] += 1
        for text in program:  # as a new process is given its words
            if b"\0" in os.fsencode(text):
                raise ValueError("embedded null byte")
            if len(text) > 1 << 17:
                raise OSError("Argument list too long")
        os.chdir(self.beside)
        process = os.fork()
        if not process:
            self._be(list(program[program.index("-c") + 2 :]))
        watched = os.pidfd_open(process)
        began = time.monotonic()
        code = running.awaited(process, watched, _SECONDS)
        os.close(watched)
        if code == -9 and time.monotonic() - began >= _SECONDS:
            self.attacked.counts["left at the limit"] += 1
            self.killed = True
            raise TimeoutError(f"{program[-1]!r} did not end")
        return code, (self.beside / "output").read_bytes()

    def _be(self, words: list[str]) -> None:
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
            os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
            os._exit(running.command(words, self._begin))
        finally:
            os._exit(70)

    def _begin(self) -> None:
        script.run_to_end = self.usual
        os.chdir(self.folder)
        self.watch.is_on = True

    def _left(self) -> Iterator[str]:
        """Say what is there, or is not as before; put the folder back."""
        after = _stamps(self.tree)
        for name in sorted(after.keys() | self.before.keys()):
            if after.get(name) == self.before.get(name):
                continue
            is_new = name not in self.before and name.startswith("out/")
            if not (is_new and self.writes):
                yield f"{'writes' if name not in self.before else 'changes'} {name!r}"
            elif name.endswith(".writing"):
                yield f"leaves {name!r}"
        for name in sorted(after.keys() - self.before.keys()):
            if os.path.lexists(self.tree / name):
                running.remove(self.tree / name)
        self.before = _stamps(self.tree)
        if left := os.listdir(self.beside / "tmp"):
            if not self.killed:  # which alone leaves some
                yield f"leaves {left} among temporary files"
            running.emptied(self.beside / "tmp")


def _stamps(tree: Path) -> dict[str, tuple[int, ...]]:
    """Return what is in a folder, with what tells whether it is another, or is changed."""
    found = {}
    for path in tree.rglob("*"):
        status = path.lstat()
        changed = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
        found[path.relative_to(tree).as_posix()] = (status.st_ino, status.st_mode, *changed)
    return found


def _prepared(scratch: Path) -> Path:
    """Make a folder with models and what is hostile, and in it one to write in."""
    tree = (scratch / "tree").resolve()
    (tree / "out").mkdir(parents=True)
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { h = Add(x, w) y = Relu(h) }"
    model, other = osl.build(text), osl.build(text.replace("2}", "3}"))
    onnx.save(model.proto, tree / "m.onnx")
    onnx.save(other.proto, tree / "other.onnx")
    np.savez(tree / "a.npz", x=np.ones(2, np.float32), y=np.ones(2, np.float32))
    running.run(["record", "m.onnx", "-o", "recorded"], tree)
    shutil.rmtree(tree / "state", ignore_errors=True)
    (tree / "output").unlink()
    for name, content in {
        "evil.py": "open('ran', 'w').close()\ndef edit(*_):\n    return 1\n", "text.txt": text, "module.so": "no",
        "rule.onnxtxt": "pattern (x) => (y) { y = Relu(x) } replacement (x) => (y) { y = Abs(x) }",
        "map.json": '{"format": "onnxsurgeon-map", "version": 1, "pairs": []}', "config.json": '{"vocab_size": 8}',
        "recipe.toml": '[[step]]\nverb = "clean"\n[[step]]\nverb = "script"\nfile = "evil.py"\n',
        "program": "#!/bin/sh\ntouch ran\n", "out/there.onnx": "there", "out/text.txt": text,
    }.items():  # fmt: skip
        (tree / name).write_text(content)
    (tree / "program").chmod(0o755)
    py_compile.compile(str(tree / "evil.py"), str(tree / "evil.pyc"))
    (tree / "evil.pyw").write_bytes((tree / "evil.py").read_bytes())
    (tree / "out/there").mkdir()
    for name, target in (("up", ".."), ("model.onnx", "../m.onnx"), ("loop", "loop")):
        (tree / "out" / name).symlink_to(target)
    for place in (tree, tree / "out"):
        os.mkfifo(place / "pipe")
    return tree


def _arguments(draw: Random, tools: assistant.Tools, tool: str) -> dict[str, object]:
    """Return what a call gives: what it must, some of the rest, and some that the tool does not take."""
    known, every = tools.parameters(tool), tools.commands[tool][2]
    found = {}
    for each in every:
        likely = 0.97 if each.required or each.name == "output" else 0.1
        if draw.random() < (likely if each.name in known else 0.01):
            found[each.name] = _value(draw, each, tools)
    return found


def _value(draw: Random, parameter: Any, tools: assistant.Tools) -> object:
    """Return a value of the type that a parameter has, most times."""
    schema: Any = assistant._schema(parameter)
    if draw.random() < 0.06:
        return draw.choice(_WRONG)
    if schema["type"] == "array":
        schema = schema["items"]
        return [_one(draw, parameter.name, schema, tools) for _ in range(draw.choice((1, 1, 2, 3)))]
    return _one(draw, parameter.name, schema, tools)


def _one(draw: Random, name: str, schema: Any, tools: assistant.Tools) -> object:
    kind = schema["type"]
    if kind == "boolean":
        return draw.random() < 0.7
    if kind in ("integer", "number"):
        return draw.choice((0, 1, 1, 2, 3, -1, 2**31, 2**63, 10**30))
    if "enum" in schema and draw.random() < 0.9:
        return draw.choice(schema["enum"])
    if name in _GOOD and draw.random() < 0.7:
        text = draw.choice(_GOOD[name])
        is_ours = name != "output" and tools.folder and (tools.folder.parent / text).exists()
        return f"../{text}" if is_ours else text
    if name == "output" or name in assistant._OUTPUTS:
        return draw.choice(_OUTPUTS)
    text = draw.choice(draw.choice((PLACES, _CODE, _OPTIONS, ("h", "x", "@0", "y=z"))))
    return draw.choice(_BEFORE) + text if draw.random() < 0.4 else text
