"""Damaged files led by coverage: `python scripts/fuzzing/guided.py KIND SECONDS`, after `pip install atheris`.

Inputs that reach something new are kept in ``--corpus``; what breaks a reader, once for each place in the code, in
``--broken``.
"""

import argparse
import os
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["onnxsurgeon_lite", "zipfile", "json", "tomllib", "ast"]):
    import readers
    from oracle import disagreement

from onnxsurgeon_lite import limits, native
from onnxsurgeon_lite.errors import SurgeonError
from running import scratch

_SEEDS = Path(__file__).resolve().parents[2] / "fixtures" / "fuzzing"
_MEMORY = 8 << 30  # bytes of addresses
_LONGEST = 1 << 14  # bytes of an input
_SLOW = 2.0  # seconds of the processor: others may work on the machine
_TOLD = 20_000  # inputs


class _Guided:
    """One reader under attack.

    Attributes:
        known: the places in the code that broke.
    """

    def __init__(self, kind: str, folder: Path, broken: Path, seconds: float) -> None:
        self.kind, self.broken = kind, broken
        name, self.read, self.seed = readers.KINDS[kind]
        self.path = folder / name
        self.known: set[str] = set()
        self.count, self.until = 0, time.monotonic() + seconds

    def attack(self, data: bytes) -> None:
        """Read one input."""
        if time.monotonic() > self.until:
            print(f"{self.kind}: {self.count} inputs, {len(self.known)} broken", flush=True)
            os._exit(bool(self.known))
        self.count += 1
        if not self.count % _TOLD:
            left = self.until - time.monotonic()
            print(f"{self.kind}: {self.count} inputs, {left:.0f} s left", flush=True)
        self.path.write_bytes(data)
        began = time.process_time()
        try:
            with readers.timed():
                self.read(self.path)
            wrong = disagreement(data, self.path.parent) if self.kind == "model" else ""
        except SurgeonError:
            wrong = ""
        except BaseException as error:  # noqa: BLE001  whatever it is, it is not in words
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            where = ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
            wrong = f"{type(error).__name__} at {where}"
        if time.process_time() - began > _SLOW:
            wrong = wrong or "takes too long"
        if wrong and wrong not in self.known:
            self.known.add(wrong)
            print(f"BROKEN {self.kind}: {wrong}", flush=True)
            (self.broken / f"{self.kind}-{len(self.known)}-{os.getpid()}").write_bytes(data)

    def mutate(self, data: bytes, largest: int, seed: int) -> bytes:
        """Damage an input as libFuzzer does, or as the other fuzzers do."""
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, largest))
        return readers.damaged(data, data, random)[:largest]


def main() -> None:
    """Attack as the command line says, until the time is over."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=readers.KINDS)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--broken", type=Path, default=Path("broken"))
    given = parser.parse_args()
    corpus = given.corpus.absolute() / given.kind
    for folder in (corpus, given.broken.absolute()):
        folder.mkdir(parents=True, exist_ok=True)
    limits._SECONDS = _SLOW
    native._forks.serves = (
        True  # forks for one request each are slow, and what they reach is not seen
    )
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with scratch() as folder:
        attacked = _Guided(given.kind, folder, given.broken.absolute(), given.seconds)
        attacked.path.parent.mkdir(parents=True, exist_ok=True)
        (corpus / "seed").write_bytes(attacked.seed(folder))
        for path in readers.examples(given.kind):
            shutil.copy(path, corpus)
        kept = _SEEDS / ("rule" if given.kind == "match" else given.kind)
        if kept.is_dir():
            shutil.copytree(kept, corpus, dirs_exist_ok=True)
        options = [
            f"-max_len={_LONGEST}",
            "-handle_alrm=0",
            "-timeout=0",
            "-rss_limit_mb=0",
            "-print_final_stats=0",
        ]
        atheris.Setup(
            [sys.argv[0], str(corpus), *options], attacked.attack, custom_mutator=attacked.mutate
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
