"""How much of real architectures `onnxdbg match` finds, and whether a pair is wrong: a table, measured on fresh feeds.

    python scripts/matching [ARCHITECTURE ...] [--small] [--random]

Needs the test extra (torch, transformers); what of onnxslim and onnxsim is installed makes the simplified copies.
Weights are as transformers initializes them, which leaves biases zero and norms without effect: many values are equal;
`--random` adds noise to every parameter. `--small` takes fewer and narrower layers of each.

What exists on both sides is told without the matching: values of one content (sorted, so that layouts do not count),
as many of each as the side with fewer has. The version with one more layer in the middle is given that layer as an
identity for it, so that its values are those of the first version again.
"""

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

import onnxsurgeon_lite as osl
from architectures import ARCHITECTURES, as_it_is, built, with_extra_layer
from exporting import SIMPLIFIERS, exported, neutral, optimized, simplified
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.values import feeds_in_order
from onnxsurgeon_lite.matching.values.run_both import (
    MatchResult,
    feeds_of_other,
    match_models,
    match_references,
)
from onnxsurgeon_lite.recording.torch_recorder import record_module
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions
from truth import Row, Seen, from_feeds, judge, models_agree, references_agree, weighted_in


def rows(name: str, folder: Path, small: bool, noisy: bool) -> Iterator[tuple[str, Row]]:
    module, given, _ = built(name, small, noisy)
    record_module(module, (given,), folder=folder / "refs")
    record_module(module, (fresh_of(given),), folder=folder / "fresh")
    exports = exported(name, folder, as_it_is, small, noisy)
    newer = exported(name, folder, with_extra_layer, small, noisy)
    feeds = {"given": given.numpy()}
    fresh = {"given": fresh_of(given).numpy()}
    with Runtime(RuntimeOptions(opt="none", lean=True)) as runtime:
        for exporter, index in exports.items():
            yield f"modules, {exporter}", against_modules(module, folder, index, fresh, runtime)
        if len(exports) == 2:
            row = against(*exports.values(), feeds, fresh, runtime)
            yield ", ".join(exports), row
        for exporter, index in exports.items():
            other = optimized(index, folder / "optimized.onnx")
            yield f"{exporter}, optimized", against(index, other, feeds, fresh, runtime)
            for tool in SIMPLIFIERS:
                copy = simplified(index, folder / f"{tool}.onnx", tool)
                if copy is not None:
                    yield f"{exporter}, {tool}", against(index, copy, feeds, fresh, runtime)
        for exporter, index in exports.items():
            for other, version in newer.items():
                same = neutral(version, folder / "neutral.onnx")
                row = against(index, version, feeds, fresh, runtime, same)
                yield f"{exporter}, v2 {other}", row


def fresh_of(given: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(1)
    if given.dtype == torch.float32:
        return torch.randn_like(given)
    return torch.randint(0, int(given.max()), given.shape)


def against_modules(
    module: torch.nn.Module, folder: Path, index: GraphIndex, fresh: Feeds, runtime: Runtime
) -> Row:
    stored, truth = osl.open_references(folder / "refs"), osl.open_references(folder / "fresh")
    result = match_references(stored, index, feeds_in_order(index, stored), runtime)
    names = distinct(folder / "fresh", result)
    own = {path for path, part in module.named_modules() if [*part.parameters(recurse=False)]}
    returned = Seen(
        ((name, truth.read(name)) for name in truth),
        lambda name: not own.isdisjoint(names[name]),
        lambda name: name in names,
    )
    return judge(result, returned, seen(index, fresh, runtime), references_agree(stored, index))


def distinct(folder: Path, result: MatchResult) -> dict[str, set[str]]:
    """One name for each tensor, and the modules that return it: they pass on what those inside them returned."""
    values = json.loads((folder / "index.json").read_text())["values"]
    paired = {pair.a for pair in result.matching.pairs}
    names = {v["offset"]: v["name"] for v in sorted(values, key=lambda v: v["name"] in paired)}
    found: dict[str, set[str]] = {}
    for v in values:
        found.setdefault(names[v["offset"]], set()).add(v.get("scope", ""))
    return found


def against(
    a: GraphIndex, b: GraphIndex, feeds: Feeds, fresh: Feeds, runtime: Runtime, truth: GraphIndex | None = None
) -> Row:  # fmt: skip
    """truth: a model of b's nodes and names whose values are a's."""
    result = match_models(a, b, feeds, runtime)
    others = seen(truth or b, feeds_of_other(b, fresh), runtime)
    return judge(result, seen(a, fresh, runtime), others, models_agree(a, b))


def seen(index: GraphIndex, fresh: Feeds, runtime: Runtime) -> Seen:
    return Seen(from_feeds(index, fresh, runtime), weighted_in(index))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[*ARCHITECTURES], metavar="ARCHITECTURE")
    parser.add_argument("--small", action="store_true", help="fewer and narrower layers")
    parser.add_argument("--random", action="store_true", help="noise on every parameter")
    parser.add_argument(
        "--keep", type=Path, help="folder for the models, which are deleted without it"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="list wrong pairs and missed nodes"
    )
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in ARCHITECTURES]:
        parser.error(f"no architecture {unknown[0]!r}; there are: {', '.join(ARCHITECTURES)}")
    warnings.simplefilter("ignore")
    logging.disable()
    print(f"{'':8} {'':26} {'weighted nodes':20}   {'floats > 16':20}   wrong pairs")
    worst = 0
    for name in given.names:
        with tempfile.TemporaryDirectory() as temporary:
            folder = given.keep / name if given.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            for what, row in rows(name, folder, given.small, given.random):
                print(f"{name:8} {what:26} {row}", flush=True)
                worst += len(row.wrong)
                if given.verbose:
                    for pair in row.wrong:
                        print(f"    wrong: {pair}")
                    print(f"    missed: {', '.join(row.missed[:40])}")
    return int(worst > 0)


if __name__ == "__main__":
    sys.exit(main())
