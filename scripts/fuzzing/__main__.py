"""Attack every command with mutants of models: `scripts/fuzz --help`.

Each mutant meets commands in a fork with limits of time and memory. What breaks is added to ``--broken``, with the
command that shows it: lines for ``corpus.jsonl``. The same seed gives the same mutants.
"""

import argparse
import base64
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

import assistant
import faults
import readers
import running
import sets
import signals
import trusted
import typed
import urls
from commands import FILES, HEAVY, LIGHT, commands
from mutants import cut_and_flipped, mutant
from oracle import disagreement
from seeds import seeds

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_BYTES = "inspect MODEL --value *\ncheck MODEL\nedit clean MODEL OUT"


def _numbers(model: bytes) -> dict[str, np.ndarray]:
    tensors = ModelProto.FromString(model).graph.initializer
    known = [tensor for tensor in tensors if tensor.data_type == TensorProto.FLOAT]
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in known}


_LASTS = 50  # mutants


class Attack:
    """Mutants of some models against commands; counts what was done, keeps what broke."""

    def __init__(self, folder: Path, broken: Path) -> None:
        self.scratch = self.folder = folder
        self.broken = broken
        self.runner = running.Runner()
        self.counts: Counter[str] = Counter()
        self.began = time.monotonic()

    def prepare(self, name: str, original: bytes) -> None:
        """Put beside the mutants of a model what commands read, with what it records."""
        self.folder = self.scratch / name
        if not self.folder.exists():
            self.folder.mkdir()
            for file, text in FILES.items():
                (self.folder / file).write_text(text)
            (self.folder / "original.onnx").write_bytes(original)
            (self.folder / "link").symlink_to("/etc/passwd")
            os.mkfifo(self.folder / "pipe")
            np.savez(self.folder / "weights.npz", **_numbers(original))
            running.run(["record", "original.onnx", "-o", "recorded"], self.folder)
        (self.folder / "weights.data").write_bytes(bytes(4096))

    def judge(self, name: str, data: bytes) -> None:
        """Compare what is loaded and saved with protobuf's own parse."""
        self.counts["mutants judged"] += 1
        found = disagreement(data, self.folder)
        if found:
            self.keep(name, data, found)

    def attack(
        self, name: str, data: bytes, chosen: list[list[str]], file: str = "mutant.onnx"
    ) -> None:
        """Run commands on a mutant, one after another; what breaks is run again, by itself."""
        self.counts["mutants attacked"] += 1
        suspected = []
        for ran in self.runner.run(chosen, self.folder, data, file):
            self.counts["commands"] += 1
            self.counts[f"exit {ran.code}"] += 1
            if ran.wrong:
                suspected.append(ran)
        if not self.counts["mutants attacked"] % _LASTS or suspected:
            self.close(name, data)
        for ran in suspected:
            again = running.run(ran.words, self.folder, data, file)
            wrong = again.wrong or f"after others: {ran.wrong}"
            output = (again if again.wrong else ran).output
            self.keep(name, data, f"{wrong}\n{output[-2000:]}", ran.words)

    def close(self, name: str = "", data: bytes = b"") -> None:
        """End the commands' fork; what it leaves is of one of the last mutants."""
        self.runner.close()
        if self.runner.left:
            self.keep(name, data, self.runner.left)
            self.runner.left = ""

    def keep(self, name: str, data: bytes, wrong: str, words: Sequence[str] = ()) -> None:
        """Keep what broke, and say so."""
        self.counts["broken"] += 1
        kept = {"name": name, "of": self.folder.name, "words": [*words], "wrong": wrong}
        with self.broken.open("a") as file:
            file.write(json.dumps({**kept, "data": base64.b64encode(data).decode()}) + "\n")
        print(f"BROKEN {name}: {' '.join(words)}: {wrong.splitlines()[0]}", flush=True)

    def report(self) -> None:
        """Print what was done."""
        seconds = time.monotonic() - self.began
        done = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        print(f"{seconds:.0f} s: {done}", flush=True)


def main() -> int:
    """Attack as the command line says; return 1 if something broke."""
    given = _parser().parse_args()
    given.broken = given.broken.absolute()
    running.prepare()
    models = seeds(FIXTURES if given.fixtures else None)
    with running.scratch() as folder:
        attack = Attack(folder, given.broken)
        for number, _ in enumerate(_WORK[given.what](attack, models, given), 1):
            if not number % 200:
                attack.report()
            if time.monotonic() - attack.began > given.seconds:
                break
        attack.close()
        attack.report()
    return int(attack.counts["broken"] > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/fuzz", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("what", nargs="?", default="models", choices=_WORK,
        help="mutants; truncations and flips of five models; a word for each other attack")  # fmt: skip
    add("--mutants", type=int, default=1000, help="how many")
    add("--first", type=int, default=0, help="the number of the first")
    add("--seed", default="0")
    add("--commands", type=int, default=-1, help="how many each mutant meets; all by default")
    add("--heavy", type=int, default=-1, help="how many of those that run models; all by default")
    add("--kinds", default="", help="of files for readers, such as rule,recipe; all by default")
    add("--verbs", action="store_true", help="one that runs models of each verb, instead")
    add("--seconds", type=float, default=1e9, help="stop after this time")
    add("--broken", type=Path, default=Path("broken.jsonl"), help="file that keeps what breaks")
    add("--corpus", type=Path, default=Path(__file__).with_name("corpus.jsonl"), help="what broke")
    add("--fixtures", action="store_true", help="mutate those of fixtures/, too")
    return parser


def mutants_of(
    attack: Attack, models: dict[str, bytes], given: argparse.Namespace
) -> Iterator[None]:
    """Attack with mutants of each model in turn."""
    names = list(models)
    for number in range(given.first, given.first + given.mutants):
        name = names[number % len(names)]
        original = models[name]
        known = ModelProto.FromString(original)
        attack.prepare(name, original)
        data = mutant(original, f"{given.seed}/{number}")
        label = f"{name}-{given.seed}-{number}"
        draw = Random(label)
        chosen = _drawn(commands(LIGHT, known), given.commands, draw)
        heavy = commands(HEAVY, known)
        chosen += _of_each_verb(heavy, draw) if given.verbs else _drawn(heavy, given.heavy, draw)
        attack.judge(label, data)
        attack.attack(label, data, chosen)
        yield


def _drawn(chosen: list[list[str]], number: int, draw: Random) -> list[list[str]]:
    return chosen if number < 0 else draw.sample(chosen, number)


def _of_each_verb(chosen: list[list[str]], draw: Random) -> list[list[str]]:
    verbs: dict[tuple[str, ...], list[list[str]]] = {}
    for words in chosen:
        verbs.setdefault(tuple(words[: 2 if words[0] == "edit" else 1]), []).append(words)
    return [draw.choice(each) for each in verbs.values()]


def every_byte(attack: Attack, models: dict[str, bytes], _: argparse.Namespace) -> Iterator[None]:
    """Attack with every truncation and bit flip of the five smallest models."""
    for name in sorted(models, key=lambda name: len(models[name]))[:5]:
        attack.prepare(name, models[name])
        chosen = commands(_BYTES, ModelProto.FromString(models[name]))
        for number, data in enumerate(cut_and_flipped(models[name])):
            attack.judge(f"{name}-byte-{number}", data)
            attack.attack(f"{name}-byte-{number}", data, [chosen[number % len(chosen)]])
            yield


def kept(attack: Attack, models: dict[str, bytes], given: argparse.Namespace) -> Iterator[None]:
    """Attack again with what broke once."""
    for line in given.corpus.read_text().splitlines():
        case = json.loads(line)
        data = base64.b64decode(case["data"])
        attack.prepare(case["of"], models[case["of"]])
        attack.judge(case["name"], data)
        attack.attack(case["name"], data, [case["words"]] if case["words"] else [])
        yield


_WORK = {
    "models": mutants_of,
    "bytes": every_byte,
    "readers": readers.mutants_of,
    "sets": sets.mutants_of,
    "typed": typed.mutants_of,
    "trusted": trusted.mutants_of,
    "assistant": assistant.mutants_of,
    "signals": signals.mutants_of,
    "urls": urls.mutants_of,
    "faults": faults.mutants_of,
    "kept": kept,
}


if __name__ == "__main__":
    sys.exit(main())
