"""Ask every verb what it may do to every model: `scripts/sweep --help`.

    scripts/sweep                                 # the onnx package's own cases and variants of them
    scripts/sweep --small                         # a few small models, as the tests do
    scripts/sweep --export exports; scripts/sweep exports --backend --page docs/explanation/sweep.md
    scripts/sweep FOLDER...                       # every .onnx of folders; a.npz beside a.onnx has its feeds
    scripts/sweep --verbs fold,opset --models test_softmax

A result must be valid where the model is, load, run, and have the model's values on every feed that the model accepts;
it may lose nothing that its verb does not touch, nor give two nodes one name; a command may end with 0, 1 or 2. What
does not is listed with the commands that show it, and `--broken` has the model that they are typed on as model.onnx.
"""

import argparse
import json
import multiprocessing
import os
import re
import sys
import time
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzzing"))
import running
from diet import Case, cases, decorated, feeds_for, small
from judging import Original, judge
from lines import FILES, Step, steps

KINDS = ("wrong", "invalid", "lost", "exit 70")
_PLAIN = re.compile(r"(?!\d+$)[\w./:-]+")
_SECONDS = 1200  # a model, on a busy machine


def main() -> int:
    """Sweep as the command line says; return 1 if something is wrong."""
    given = _parser().parse_args()
    if given.export:
        from exports import write

        write(given.export)
        return 0
    running.prepare()
    running.SECONDS = 60
    diet = small() if given.small else cases(given.folders, given.backend)
    todo = [each for each in diet if re.search(given.models, each.name)]
    # mixed: one that is stopped is a sample
    todo = sorted(todo, key=_turn)[given.first :: given.every]
    table = Table(given.broken, given.journal)
    todo = [each for each in todo if each.name not in table.swept]
    began = time.monotonic()
    with running.scratch() as folder:
        workers = Workers(todo, given, folder)
        for number, (case, found) in enumerate(workers.results(), 1):
            table.add(case, found)
            if given.refused:
                print(
                    "\n".join(
                        f"{s.verb} of {case.name}: {told}"
                        for s, how, told in found
                        if how == "refused"
                    )
                )
            if not number % 100:
                print(
                    f"{number} of {len(todo)} in {time.monotonic() - began:.0f} s: {table.sum()}",
                    flush=True,
                )
            if time.monotonic() - began > given.seconds:
                workers.stop()
    print(table)
    if given.page:
        table.write(given.page)
    return int(bool(table.failures))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/sweep", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add(
        "folders", nargs="*", type=Path, help="folders of models; the onnx package's own by default"
    )
    add("--export", type=Path, help="write exports of transformers into this folder, and end")
    add("--backend", action="store_true", help="the onnx package's own cases, besides folders")
    add("--small", action="store_true", help="some small models instead, as the tests do")
    add("--models", default="", help="regular expression that names match")
    add("--verbs", type=lambda text: frozenset(filter(None, text.split(","))), default=frozenset())
    add("--every", type=int, default=1, help="take each n-th model")
    add("--first", type=int, default=0, help="the number of the first")
    add("--jobs", type=int, default=2)
    add("--seconds", type=float, default=1e9, help="stop after this time")
    add("--broken", type=Path, help="folder for the models that show what is wrong")
    add("--refused", action="store_true", help="print why verbs refuse, too")
    add(
        "--journal",
        type=Path,
        help="file of what was found: a sweep that is stopped goes on from it",
    )
    add("--page", type=Path, help="page to write the table to")
    return parser


Found = tuple[Step, str, str]
"""A step, what it came to, and details."""


class Workers:
    """Processes that sweep one model after another; one that dies takes one model with it."""

    def __init__(self, todo: list[Case], given: argparse.Namespace, scratch: Path) -> None:
        self._todo, self._only, self._scratch = todo, given.verbs, scratch
        self._waiting = list(range(len(todo)))[::-1]
        self._busy: dict[Connection, tuple[BaseProcess, int, float]] = {}
        for _ in range(min(given.jobs, len(todo))):
            self._begin()

    def results(self) -> Iterator[tuple[Case, list[Found]]]:
        """Yield what was found, as it comes."""
        while self._busy:
            for here in wait(list(self._busy), timeout=5):
                yield self._received(here)
            for process, _, began in self._busy.values():
                if time.monotonic() - began > _SECONDS:
                    process.kill()

    def stop(self) -> None:
        """Let each process end after the model that it is at."""
        self._waiting.clear()

    def _received(self, here: Connection) -> tuple[Case, list[Found]]:
        process, number, _ = self._busy.pop(here)
        try:
            found = here.recv()
        except (EOFError, ConnectionResetError):
            found = [(_NOTHING, "exit 70", "the sweep's own process died")]
            if self._waiting:
                self._begin()
        else:
            self._feed(here, process)
        return self._todo[number], found

    def _begin(self) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        words = (there, self._todo, self._only, self._scratch)
        process = context.Process(target=_work, args=words)
        process.start()
        there.close()
        self._feed(here, process)

    def _feed(self, here: Connection, process: BaseProcess) -> None:
        number = self._waiting.pop() if self._waiting else -1
        here.send(number)
        if number < 0:
            process.join()
        else:
            self._busy[here] = (process, number, time.monotonic())


_NOTHING = Step("(the sweep)", (), frozenset(), "")


def _work(connection: Connection, todo: list[Case], only: frozenset[str], scratch: Path) -> None:
    """Be a worker: a folder and a fork that runs commands."""
    folder = scratch / str(os.getpid())
    folder.mkdir()
    sys.setrecursionlimit(10000)
    runner = running.Runner()
    while (number := connection.recv()) >= 0:
        try:
            found = list(swept(todo[number], only, folder, runner))
        except Exception:
            found = [(_NOTHING, "exit 70", traceback.format_exc())]
        connection.send(found)
    runner.close()
    os._exit(0)


def swept(
    case: Case, only: frozenset[str], folder: Path, runner: running.Runner
) -> Iterator[Found]:
    """Yield what each step makes of a model."""
    running.emptied(folder)
    turn = _turn(case)
    model = decorated(case.model, named=bool(turn % 2))
    onnx.save(model, folder / "model.onnx")
    original = Original.of(model, feeds_for(case))
    for file, text in FILES.items():
        (folder / file).write_text(text)
    names = names_of(original, folder)
    given = {*os.listdir(folder), "state", "output"}
    for step in steps(names, only, turn // 2):
        yield (step, *_asked(step, original, folder, runner))
        # the runner looks at every file around each command
        for name in {*os.listdir(folder)} - given:
            running.remove(folder / name)


def _turn(case: Case) -> int:
    """A number that a model has in each sweep, by which it takes some lines and not others."""
    return zlib.crc32(case.name.encode())


def _asked(step: Step, original: Original, folder: Path, runner: running.Runner) -> tuple[str, str]:
    for words in step.commands:
        redirected = words[:-2] if words[-2] == ">" else words
        (ran,) = runner.run([redirected], folder)
        if ran.wrong:
            return "exit 70", f"{ran.wrong}: {ran.output.strip()[-600:]}"
        if ran.code:
            return "refused", ran.output.strip()[:300]
        if redirected != words:
            kept = [
                line for line in ran.output.splitlines() if not line.startswith(("note:", "wrote "))
            ]
            (folder / words[-1]).write_text("\n".join(kept))
    if "looks" in step.expect or not (folder / step.out).exists():
        return "same", ""
    judged = judge(original, onnx.load(folder / step.out), step.expect)
    for kind in KINDS[:3]:
        if told := getattr(judged, kind):
            return kind, told
    return ("changed" if judged.changed else "same"), ""


def names_of(original: Original, folder: Path) -> dict[str, str]:
    """Return what the capitals of the lines stand for in a model; files with numbers are written."""
    graph = original.model.graph
    opset = max([e.version for e in original.model.opset_import if not e.domain] or [1])
    names = {"NEXT": str(opset + 1), "PREVIOUS": str(max(opset - 1, 1)), "LATEST": "23"}
    names["RULES"] = "\0".join(_rules())
    weights = {each.name: each for each in graph.initializer}
    if graph.node:
        names["NODE"] = f"@{len(graph.node) // 2}"
    floats = [name for name, each in weights.items() if each.data_type == 1]
    _put(names, "WEIGHT", [*floats, *weights])
    feeds, values = original.runs[0] if original.runs else ({}, {})
    arrays = [name for name, value in feeds.items() if isinstance(value, np.ndarray)]
    _put(names, "INPUT", [*(n for n in arrays if feeds[n].dtype == np.float32), *arrays])
    known = [n for n, v in values.items() if isinstance(v, np.ndarray)]
    _put(names, "FED", [name for name in arrays if feeds[name].dtype.kind not in "OUSb"])
    outputs = [each.name for each in graph.output if each.name in known]
    real = [name for name in outputs if values[name].dtype == np.float32]
    _put(names, "OUTPUT", [*real, *outputs])
    _put(names, "REAL", real)
    made = [name for node in graph.node for name in node.output]
    inner = [n for n in made if n in known and values[n].dtype == np.float32]
    _put(names, "VALUE", _inner(inner, outputs))
    if "INPUT" in names:
        array = feeds[names["INPUT"]]
        np.save(folder / "input.npy", array)
        if array.ndim:
            names["SIZES"] = ",".join(map(str, array.shape))
            names["SYMBOLS"] = ",".join(["N", *map(str, array.shape[1:])])
    if "WEIGHT" in names:
        np.save(folder / "weight.npy", numpy_helper.to_array(weights[names["WEIGHT"]]))
        kept = {
            n: numpy_helper.to_array(t) for n, t in weights.items() if t.data_type in (1, 7, 10, 11)
        }
        np.savez(folder / "weights.npz", **kept)
    _cut(names, graph, weights)
    return names


def _inner(inner: list[str], outputs: list[str]) -> list[str]:
    within = [name for name in inner if name not in outputs]
    return [*within[len(within) // 2 :], *within, *inner]


def _put(names: dict[str, str], name: str, found: list[str]) -> None:
    plain = [each for each in found if _PLAIN.fullmatch(each)]
    if plain:
        names[name] = plain[0]


def _cut(names: dict[str, str], graph: onnx.GraphProto, weights: object) -> None:
    """Name the region of one node: that which makes VALUE."""
    node = next((n for n in graph.node if names.get("VALUE") in n.output), None)
    if node is None:
        return
    made = {name for each in graph.node for name in each.output} | {e.name for e in graph.input}
    read = [name for name in dict.fromkeys(node.input) if name in made and name not in weights]
    outputs = [name for name in node.output if name]
    if read and all(map(_PLAIN.fullmatch, [*read, *outputs])):
        names["IN"], names["MADE"] = ",".join(read), ",".join(outputs)


def _rules() -> list[str]:
    from onnxsurgeon_lite.graph import patterns

    return sorted(
        path.stem for path in (Path(patterns.__file__).parent / "rules").glob("*.onnxtxt")
    )


class Table:
    """Verb -> how many models came to what; and each failure."""

    def __init__(self, broken: Path | None, journal: Path | None) -> None:
        self.swept: set[str] = set()
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.failures: list[dict[str, str]] = []
        self._broken, self._journal = broken, None
        if broken:
            broken.mkdir(parents=True, exist_ok=True)
        if journal and journal.exists():
            for line in journal.read_text().splitlines():
                self._count(*json.loads(line))
        self._journal = journal

    def add(self, case: Case, found: list[Found]) -> None:
        """Count what the verbs made of a model, and keep what is wrong."""
        rows = [(step.verb, came_to, told, step.text) for step, came_to, told in found]
        if self._journal:
            short = [row if row[1] in KINDS else (*row[:2], "", "") for row in rows]
            with self._journal.open("a") as file:
                file.write(json.dumps((case.name, short)) + "\n")
        failures = self._count(case.name, rows)
        if failures and self._broken:
            onnx.save(
                decorated(case.model, named=bool(_turn(case) % 2)),
                self._broken / f"{case.name.replace('/', '-')}.onnx",
            )
            with (self._broken / "failures.jsonl").open("a") as file:
                file.writelines(json.dumps(failure) + "\n" for failure in failures)

    def _count(self, model: str, rows: Sequence[Sequence[str]]) -> list[dict[str, str]]:
        """Count; return the failures."""
        self.swept.add(model)
        for verb in {verb for verb, *_ in rows}:
            self.counts[verb]["models"] += 1
        failures = []
        for verb, came_to, told, text in rows:
            self.counts[verb][came_to] += 1
            if came_to in KINDS:
                self.counts[verb]["changed"] += came_to != "exit 70"
                again = f"scripts/sweep --models '^{model}$' --verbs '{verb}'"
                failures.append(
                    {
                        "verb": verb,
                        "model": model,
                        "kind": came_to,
                        "told": told,
                        "type": text,
                        "again": again,
                    }
                )
        self.failures += failures
        return failures

    def sum(self) -> str:
        """One line."""
        total: Counter[str] = sum(self.counts.values(), Counter())
        return ", ".join(f"{total[kind]} {kind}" for kind in ("changed", *KINDS, "refused"))

    def rows(self) -> list[list[str]]:
        """The verbs with their counts."""
        counts = sorted(self.counts.items())
        return [[verb, *(str(c[kind]) for kind in _COLUMNS)] for verb, c in counts]

    def __str__(self) -> str:
        lines = [
            "".join(f"{cell:>10}" if place else f"{cell:26}" for place, cell in enumerate(row))
            for row in [["verb", *_COLUMNS], *self.rows()]
        ]
        lines += [
            f"{f['kind']}: {f['verb']} of {f['model']}: {f['told'][:300]}\n    {f['type']}\n    {f['again']}"
            for f in self.failures
        ]
        return "\n".join([*lines, f"{len(self.swept)} models: {self.sum()}"])

    def write(self, page: Path) -> None:
        """Put the table, and what is wrong, into a page, in the place of the last ones."""
        rows = [["verb", *_COLUMNS], ["---", *["---:"] * len(_COLUMNS)], *self.rows()]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines += ["", f"{len(self.swept)} models: {self.sum()}.", ""]
        lines += [
            f"- {f['kind']}: `{f['verb']}` of `{f['model']}`, `{f['again']}`" for f in self.failures
        ]
        head = page.read_text().partition(_MARK)[0]
        page.write_text(head + _MARK + "\n\n" + "\n".join(lines).rstrip() + "\n")


_COLUMNS = ("models", "changed", *KINDS, "refused")
_MARK = "<!-- (`scripts/sweep` writes what follows) -->"


if __name__ == "__main__":
    sys.exit(main())
