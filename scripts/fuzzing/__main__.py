"""Attack every command with mutants of models: `scripts/fuzz --help`.

Each mutant meets commands in a fork with limits of time and memory. What breaks is written to ``--broken``, with the
command that shows it. The same seed gives the same mutants.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from onnx import ModelProto

import faults
import readers
import running
from commands import FILES, HEAVY, LIGHT, commands
from mutants import cut_and_flipped, mutant
from oracle import disagreement
from seeds import seeds

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_BYTES = "inspect MODEL --value *\ncheck MODEL\nedit clean MODEL OUT"
_KEPT = ("original.onnx", "mutant.onnx")
_MADE = ("out", "moved", "mutant.", "original.", "refs", "culprit", "ran", "judged", "saved")


class Attack:
    """Mutants of some models against commands; counts what was done, keeps what broke."""

    def __init__(self, folder: Path, broken: Path) -> None:
        self.folder, self.broken = folder, broken
        self.counts: Counter[str] = Counter()
        self.began = time.monotonic()

    def prepare(self, original: bytes) -> None:
        """Put beside the mutant what commands read."""
        running.emptied(self.folder)
        for file, text in FILES.items():
            (self.folder / file).write_text(text)
        (self.folder / "original.onnx").write_bytes(original)
        (self.folder / "weights.data").write_bytes(bytes(4096))
        (self.folder / "link").symlink_to("/etc/passwd")
        os.mkfifo(self.folder / "pipe")

    def judge(self, name: str, data: bytes) -> None:
        """Compare what is loaded and saved with protobuf's own parse."""
        self.counts["mutants judged"] += 1
        found = disagreement(data, self.folder)
        if found:
            self.keep(name, data, found)

    def attack(self, name: str, data: bytes, chosen: list[list[str]]) -> None:
        """Run commands on a mutant."""
        self.counts["mutants attacked"] += 1
        for words in chosen:
            (self.folder / "mutant.onnx").write_bytes(data)
            ran = running.run(words, self.folder)
            self.counts["commands"] += 1
            self.counts[f"exit {ran.code}"] += 1
            if ran.wrong:
                self.keep(name, data, f"{ran.wrong}\n{ran.output[-2000:]}", words)
            for path in self.folder.iterdir():
                if path.name.startswith(_MADE) and path.name not in _KEPT:
                    running.remove(path)

    def keep(self, name: str, data: bytes, wrong: str, words: list[str] | None = None) -> None:
        """Keep what broke, and say so."""
        self.counts["broken"] += 1
        self.broken.mkdir(parents=True, exist_ok=True)
        (self.broken / f"{name}.onnx").write_bytes(data)
        with (self.broken / "broken.txt").open("a") as file:
            file.write(f"{name}: {' '.join(words or ['judged'])}\n  {wrong}\n\n")
        print(f"BROKEN {name}: {' '.join(words or ())}: {wrong.splitlines()[0]}", flush=True)

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
        attack.report()
    return int(attack.counts["broken"] > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/fuzz", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("what", nargs="?", default="models", choices=_WORK,
        help="mutants of models; truncations and bit flips of five; other files; faults while writing")  # fmt: skip
    add("--mutants", type=int, default=1000, help="how many")
    add("--first", type=int, default=0, help="the number of the first")
    add("--seed", default="0")
    add("--commands", type=int, default=0, help="how many each mutant meets; 0 for all")
    add("--heavy", type=int, default=20, help="each so-manieth also meets those that run models")
    add("--seconds", type=float, default=1e9, help="stop after this time")
    add("--broken", type=Path, default=Path("broken"), help="folder for what breaks")
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
        attack.prepare(original)
        data = mutant(original, f"{given.seed}/{number}")
        label = f"{name}-{given.seed}-{number}"
        chosen = commands(LIGHT, known)
        if given.commands:
            chosen = Random(label).sample(chosen, given.commands)
        if given.heavy and not number % given.heavy:
            chosen += commands(HEAVY, known)
        attack.judge(label, data)
        attack.attack(label, data, chosen)
        yield


def every_byte(attack: Attack, models: dict[str, bytes], _: argparse.Namespace) -> Iterator[None]:
    """Attack with every truncation and bit flip of the five smallest models."""
    for name in sorted(models, key=lambda name: len(models[name]))[:5]:
        attack.prepare(models[name])
        chosen = commands(_BYTES, ModelProto.FromString(models[name]))
        for number, data in enumerate(cut_and_flipped(models[name])):
            attack.judge(f"{name}-byte-{number}", data)
            attack.attack(f"{name}-byte-{number}", data, [chosen[number % len(chosen)]])
            yield


_WORK = {
    "models": mutants_of,
    "bytes": every_byte,
    "readers": readers.mutants_of,
    "faults": faults.mutants_of,
}


if __name__ == "__main__":
    sys.exit(main())
