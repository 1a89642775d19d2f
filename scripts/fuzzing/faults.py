"""Every command that writes is ended at its n-th write: it fails there, or it is killed there, or the disk is full.

Afterwards each file is the old one or the new one, whole; "nothing was changed" is true; only a kill leaves a temporary
file, which the next command removes.
"""

import argparse
import errno
import hashlib
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnx import ModelProto

import running
from commands import FILES, HEAVY, LIGHT, commands
from onnxsurgeon_lite import load, open_references, save, set_constant
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.model.storage import list_data

if TYPE_CHECKING:
    from __main__ import Attack

_CALLS = ("replace", "rename", "link", "unlink", "fsync", "mkdir")
_MOST = 12  # calls of a kind
_ROOM = (300, 3000)  # bytes that fit on a full disk

State = dict[str, str]


def mutants_of(
    attack: "Attack", models: dict[str, bytes], given: argparse.Namespace
) -> Iterator[None]:
    """Attack every command that writes, on a model with data beside it, over what is there already."""
    attack.prepare("weights", models["weights"])
    known = ModelProto.FromString(models["weights"])
    chosen = commands(LIGHT, known) + (commands(HEAVY, known) * bool(given.heavy))
    chosen = [words for words in chosen if _writes(words)]
    for words in chosen[given.first : given.first + given.mutants]:
        _Faulted(attack, models["weights"], [*words, *_force(words)]).attack()
        yield


def _writes(words: list[str]) -> bool:
    writing = {"-o", "--in-place", "--save", "split"} & {*words} or words[1] in ("gc", "move")
    return bool(writing) and "repl" not in words


def _force(words: list[str]) -> list[str]:
    forced = {"-o", "--save", "split"} & {*words} or "move" in words
    return ["--force"] if forced and "culprit" not in words else []


class _Faulted:
    """One command, ended everywhere."""

    def __init__(self, attack: "Attack", model: bytes, words: list[str]) -> None:
        self.attacked, self.words = attack, words
        self.folder, self.kept = attack.folder / "here", attack.folder / "kept"
        for folder in (self.folder, self.kept):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for name, text in FILES.items():
            (self.kept / name).write_text(text)
        (self.kept / "original.onnx").write_bytes(model)
        shutil.copytree(attack.folder / "recorded", self.kept / "recorded")
        shutil.copy(attack.folder / "weights.npz", self.kept)
        loaded = load(self.kept / "original.onnx")
        save(set_constant(loaded, "b", 0.25).model, self.kept / "mutant.onnx", external=True)
        for name in ("out.onnx", "mutant.split/part_0.onnx"):
            (self.kept / name).parent.mkdir(exist_ok=True)
            save(loaded, self.kept / name, external=True)

    def attack(self) -> None:
        """End it everywhere; say what is not whole, or not true."""
        self._restore()
        old = _state(self.folder)
        done = running.run(self.words, self.folder)
        new = _state(self.folder)
        if done.code:
            self.attacked.counts["commands that fail"] += 1
            return
        self.attacked.counts["commands that write"] += 1
        for call in _CALLS:
            for kill in (False, True):
                for number in range(1, _MOST):
                    what = f"{call} {number} {'kills' if kill else 'fails'}"
                    if not self._ended(partial(_plant, call, number, kill), old, new, what):
                        break
        for room in _ROOM:
            self._ended(partial(_fill, room), old, new, f"room for {room} bytes")

    def _ended(self, plant: Callable[[], None], old: State, new: State, what: str) -> bool:
        """Run the command with a fault; return whether it met it."""
        self._restore()
        ran = running.run(self.words, self.folder, plant=plant)
        killed = ran.code == -signal.SIGKILL
        met = "kills" if killed else "failures" if ran.code else "runs without a fault"
        self.attacked.counts[met] += 1
        found = _state(self.folder)
        names = old.keys() | found.keys()
        wrong = [n for n in names if found.get(n) not in (old.get(n), new.get(n))]
        left = [path.name for path in self.folder.rglob("*.writing")]
        problems = [
            f"neither old nor new: {wrong}" if wrong else "",
            f"ended with {ran.code}" if not killed and ran.code not in (0, 1, 2) else "",
            "untrue" if "nothing was changed" in ran.output and found != old else "",
            f"leaves {left}" if left and not killed else "",
            "says that it is done" if not ran.code and found != new else "",
        ]
        if any(problems):
            said = f"{what}: {'; '.join(filter(None, problems))}\n{ran.output[-600:]}"
            self.attacked.keep(f"fault-{self.words[0]}-{self.words[1]}", b"", said, self.words)
        return bool(ran.code)

    def _restore(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept, self.folder)


def _state(folder: Path) -> State:
    """Return what each output holds: models with their data, sets of tensors."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".writing":
            continue  # the next command removes it
        if path.suffix == ".onnx":
            found[path.name] = _digest(partial(_model, path))
        elif path.suffix == ".npz" or (path / "index.json").exists():
            found[path.name] = _digest(partial(_tensors, path))
        elif path.is_dir() and path.name != "state":
            found[path.name] = _digest(partial(_models, path))
    return found


def _digest(read: Callable[[], object]) -> str:
    try:
        return hashlib.blake2b(repr(read()).encode()).hexdigest()
    except SurgeonError as error:
        return f"unreadable: {error}"


def _models(folder: Path) -> object:
    return [_model(path) for path in sorted(folder.rglob("*.onnx"))]


def _model(path: Path) -> object:
    model = load(path)
    graph = model.proto.graph
    small = [t.SerializeToString() for t in graph.initializer if not t.external_data]
    nodes = [node.SerializeToString() for node in graph.node]
    return nodes, small, [(t.name, t.fingerprint) for t in list_data(model)]


def _tensors(path: Path) -> object:
    stored = open_references(path)
    return [(name, repr(stored.read(name))) for name in stored]


def _plant(call: str, number: int, kill: bool) -> None:
    """Let the n-th call of a kind fail, or be the last thing that happens."""
    real, calls = getattr(os, call), 0

    def faulty(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number and not kill:
            raise OSError(errno.EIO, "Input/output error")
        result = real(*arguments, **named)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(os, call, faulty)


def _fill(room: int) -> None:
    """Leave room for some bytes in each file."""
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
