"""Measure `onnxdbg` against other tools: whole processes, side by side in one run.

``scripts/bench [ROW...]`` runs the rows that are named, all of them by default; ``--list`` shows them. Two commands
alternate (A B A B ...), ``--rounds`` times; the ratios of each pair give median and spread. Peak memory is the largest
resident set of any one process that a command starts. The models are made once, in ``--folder``, and used again.
"""

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import bisecting
import cutting
import debugging
import names
import starting
from measuring import MB, BenchError, Outcome, err, hold
from models import MAKERS, make_model, model_folder
from showing import as_data, show

ROWS = {**cutting.ROWS, **bisecting.ROWS, **names.ROWS, **debugging.ROWS, **starting.ROWS}


def measure(names: Sequence[str], root: Path, rounds: int) -> list[Outcome]:
    """Measure rows, one after another; what their commands wrote is removed."""
    outcomes = []
    for name in names:
        out = root / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        for model in ROWS[name].models:
            _warm(model_folder(root, model))
        for contest in ROWS[name].contests(root, out):
            outcomes += hold(contest, rounds)
        shutil.rmtree(out)
    return outcomes


def _warm(folder: Path) -> None:
    """Read the files once: every command finds them in the page cache, if they fit."""
    for path in filter(Path.is_file, folder.iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Two benchmarks at once in one folder would overwrite each other's results."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BenchError(f"another benchmark is running in '{root}'") from error
        yield


def prepare(names: Sequence[str], root: Path) -> None:
    """Say what it takes, make sure that there is room, make the models that are missing."""
    wanted = dict.fromkeys(model for name in names for model in ROWS[name].models)
    missing = [model for model in wanted if not model_folder(root, model).exists()]
    models = sum(MAKERS[model][0] for model in missing)
    scratch = max(ROWS[name].scratch for name in names)
    free = shutil.disk_usage(root).free
    err.print(
        f"disk in '{root}': {_size(models)} for models that are not there yet (they stay for the next run), "
        f"{_size(scratch)} for results (removed at the end); {_size(free)} are free"
    )
    if models + scratch > free:
        raise BenchError("there is not enough room: choose another --folder, or fewer rows")
    for model in missing:
        make_model(root, model)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / MB:.0f} MB"


def show_rows() -> None:
    """What `--list` prints."""
    for name, row in ROWS.items():
        size = sum(MAKERS[model][0] for model in row.models) + row.scratch
        print(f"{name:18}{row.about} (disk: {_size(size)})")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows to measure; all by default")
    parser.add_argument("--list", action="store_true", help="show the rows and stop")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there, too")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(os.environ.get("TMPDIR") or "/var/tmp", "onnxsurgeon-bench"),
        help="where models and results go (default: %(default)s)",
    )
    given = parser.parse_args()
    given.rows = given.rows or list(ROWS)
    if unknown := [name for name in given.rows if name not in ROWS]:
        parser.error(f"no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    if given.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return given


def main() -> int:
    """Measure and show; 1 when a target is missed, 2 when it could not be done."""
    given = options()
    if given.list:
        show_rows()
        return 0
    root = given.folder.resolve()
    try:
        with alone(root):
            prepare(given.rows, root)
            outcomes = measure(given.rows, root, given.rounds)
    except BenchError as error:
        err.print(f"error: {error}", markup=False)
        return 2
    show(outcomes)
    load = os.getloadavg()[0]
    if load > 1 + (os.cpu_count() or 1):
        print(
            f"the machine was busy with other work (load {load:.1f}): times are not to be relied on"
        )
    if given.json:
        given.json.write_text(json.dumps(as_data(outcomes, given.rounds), indent=1) + "\n")
    return int(any(verdict != "reached" for outcome in outcomes for verdict in outcome.verdicts()))


if __name__ == "__main__":
    sys.exit(main())
