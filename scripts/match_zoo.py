"""How much of real architectures `onnxdbg match` finds, and whether a pair is wrong: a table, measured on fresh feeds.

    python scripts/match_zoo.py [ARCHITECTURE ...] [--small] [--random]

Needs the test extra (torch, transformers); what of onnxslim and onnxsim is installed makes the simplified copies.
Weights are as transformers initialises them, which leaves biases zero and norms without effect: many values are equal;
`--random` adds noise to every parameter. `--small` takes fewer and narrower layers of each.

What exists on both sides is told without the matching: values of one content (sorted, so that layouts do not count),
as many of each as the side with fewer has. The version with one more layer in the middle is given that layer as an
identity for it, so that its values are those of the first version again.
"""

import argparse
import contextlib
import importlib
import json
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper
from transformers.models.whisper.modeling_whisper import WhisperEncoder

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.feeds import Feeds
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.match import Pair, feeds_in_order
from onnxsurgeon_lite.match.board import FOLD_INTO
from onnxsurgeon_lite.match.models import (
    MatchResult,
    feeds_of_other,
    match_models,
    match_references,
)
from onnxsurgeon_lite.recording import computed
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions
from onnxsurgeon_lite.torch_recorder import record_module

MIN_ELEMENTS = 17
_PLACES = 64
_NEAR = 1e-3
_EXTRA = "extra"
EXPORTERS = ("torchscript", "dynamo")

Version = Callable[[torch.nn.Module], torch.nn.Module]
Made = tuple[torch.nn.Module, dict[str, torch.Tensor], str]


def resnet(small: bool) -> Made:
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32, 32, 32], "depths": [1, 2, 3, 1]}
    module = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(**sizes if small else {})
    )
    return module, {"pixel_values": torch.randn(1, 3, *[64 if small else 224] * 2)}, "logits"


def vit(small: bool) -> Made:
    sizes = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    }
    sizes |= {"image_size": 64}
    config = transformers.ViTConfig(attn_implementation="eager", **sizes if small else {})
    image = torch.randn(1, 3, config.image_size, config.image_size)
    return transformers.ViTForImageClassification(config), {"pixel_values": image}, "logits"


def bert(small: bool) -> Made:
    sizes = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    }
    config = transformers.BertConfig(attn_implementation="eager", **sizes if small else {})
    tokens = torch.randint(0, config.vocab_size, (1, 32))
    return transformers.BertModel(config), {"input_ids": tokens}, "last_hidden_state"


def gpt2(small: bool) -> Made:
    sizes = {
        "n_embd": 48,
        "n_layer": 4,
        "n_head": 4,
        "vocab_size": 500,
        "bos_token_id": 1,
        "eos_token_id": 1,
    }
    config = transformers.GPT2Config(
        use_cache=False, attn_implementation="eager", **sizes if small else {}
    )
    tokens = torch.randint(0, config.vocab_size, (1, 32))
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens}, "logits"


def dpt(small: bool) -> Made:
    sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 6}
    if small:
        sizes = {
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "image_size": 96,
        }
        sizes |= {"fusion_hidden_size": 16, "neck_hidden_sizes": [16, 16, 16, 16]}
    config = transformers.DPTConfig(attn_implementation="eager", **sizes)
    image = torch.randn(1, 3, config.image_size, config.image_size)
    return transformers.DPTForDepthEstimation(config), {"pixel_values": image}, "predicted_depth"


def whisper(small: bool) -> Made:
    sizes = {
        "d_model": 48,
        "encoder_layers": 4,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 96,
    }
    sizes |= {"max_source_positions": 50}
    config = transformers.WhisperConfig(attn_implementation="eager", **sizes if small else {})
    given = torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions)
    return WhisperEncoder(config), {"input_features": given}, "last_hidden_state"


ARCHITECTURES: dict[str, Callable[[bool], Made]] = {
    "resnet": resnet, "vit": vit, "bert": bert, "gpt2": gpt2, "dpt": dpt, "whisper": whisper,
}  # fmt: skip


class Output(torch.nn.Module):
    """One tensor of what a transformers model returns."""

    def __init__(self, model: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(given), self.name)


class Scaled(torch.nn.Module):
    """A layer that changes every value after it, and is an identity where its weight is one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.37]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def as_it_is(module: torch.nn.Module) -> torch.nn.Module:
    return module


def with_extra_layer(module: torch.nn.Module) -> torch.nn.Module:
    """The same with one more layer at the end of the block in the middle."""
    lists = [
        m for m in module.modules() if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential))
    ]
    blocks = max(lists, key=len)
    block = blocks[len(blocks) // 2]
    before, block.extra = block.forward, Scaled()

    def forward(*args: object, **kwargs: object) -> object:
        made = before(*args, **kwargs)
        return (block.extra(made[0]), *made[1:]) if isinstance(made, tuple) else block.extra(made)

    block.forward = forward
    return module


def built(name: str, small: bool, noisy: bool) -> Made:
    torch.manual_seed(0)
    module, given, output = ARCHITECTURES[name](small)
    if noisy:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
    return module.eval(), given, output


def export(
    module: torch.nn.Module, given: torch.Tensor, path: Path, exporter: str
) -> GraphIndex | None:
    """The exported model; None where the exporter cannot."""
    options = {"opset_version": 18, "external_data": False, "verbose": False}
    try:
        with silence():
            torch.onnx.export(
                module.eval(), (given,), path, dynamo=exporter == "dynamo", input_names=["given"], **options
            )  # fmt: skip
    except torch.onnx.errors.OnnxExporterError:
        return None
    return index_of(path)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Exporters print whole graphs, one of them from C++."""
    sys.stdout.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    with open(os.devnull, "wb") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        for stream, own in zip((1, 2), kept, strict=True):
            os.dup2(own, stream)
            os.close(own)


def exported(
    name: str, folder: Path, version: Version, small: bool, noisy: bool
) -> dict[str, GraphIndex]:
    """By exporter, those that can."""
    found = {}
    for exporter in EXPORTERS:
        module, given, output = built(name, small, noisy)
        path = folder / f"{exporter}.{version.__name__}.onnx"
        index = export(Output(version(module), output), next(iter(given.values())), path, exporter)
        if index is not None:
            found[exporter] = index
    return found


def index_of(path: Path) -> GraphIndex:
    return GraphIndex.of(osl.load(path))


def optimised(index: GraphIndex, path: Path) -> GraphIndex:
    with Runtime(RuntimeOptions(opt="all")) as runtime:
        runtime.open(index.model, optimised=path)
    return index_of(path)


def simplified(index: GraphIndex, path: Path, tool: str) -> GraphIndex | None:
    try:
        library = importlib.import_module(tool)
    except ImportError:
        return None
    proto = onnx.load(index.model.path)
    made = library.slim(proto) if tool == "onnxslim" else library.simplify(proto)[0]
    onnx.save(made, path)
    return index_of(path)


def neutral(index: GraphIndex, path: Path) -> GraphIndex:
    """The version with one more layer, that layer an identity."""
    proto = onnx.load(index.model.path)
    extra = next(t for t in proto.graph.initializer if _EXTRA in t.name or _is(t, 1.37))
    extra.CopyFrom(numpy_helper.from_array(np.ones(tuple(extra.dims), np.float32), extra.name))
    onnx.save(proto, path)
    return index_of(path)


def _is(tensor: onnx.TensorProto, number: float) -> bool:
    return list(tensor.dims) == [1] and bool(
        np.isclose(numpy_helper.to_array(tensor), number).all()
    )


# --- the truth ---


@dataclass
class Content:
    """What two values that are one have in common, whatever their layout."""

    elements: int
    sorted: np.ndarray
    size: float

    @classmethod
    def of(cls, array: np.ndarray) -> "Content | None":
        if array.dtype.kind != "f" or array.size < MIN_ELEMENTS or not np.isfinite(array).all():
            return None
        places = np.linspace(0, array.size - 1, min(_PLACES, array.size)).astype(int)
        flat = np.sort(array.reshape(-1).astype(np.float64))
        return cls(array.size, flat[places], float(np.linalg.norm(flat)))

    def fits(self, other: "Content") -> bool:
        scale = max(np.abs(self.sorted).max(), np.abs(other.sorted).max(), 1e-30)
        apart = np.abs(self.sorted - other.sorted).max()
        return self.elements == other.elements and apart <= _NEAR * scale


class Classes:
    """Contents by number: equal ones have one."""

    def __init__(self) -> None:
        self._by_size: dict[int, list[tuple[int, Content]]] = {}

    def number(self, content: Content) -> int:
        shelf = self._by_size.setdefault(content.elements, [])
        for number, known in shelf:
            if known.fits(content):
                return number
        shelf.append((sum(map(len, self._by_size.values())), content))
        return shelf[-1][0]


@dataclass
class Row:
    nodes: tuple[int, int] = (0, 0)
    values: tuple[int, int] = (0, 0)
    pairs: int = 0
    wrong: tuple[Pair, ...] = ()
    missed: tuple[str, ...] = ()

    def __str__(self) -> str:
        def share(of: tuple[int, int]) -> str:
            return f"{of[0]:4} of {of[1]:4} {100 * of[0] / of[1] if of[1] else 100:6.1f} %"

        return f"{share(self.nodes)}   {share(self.values)}   {len(self.wrong):3} of {self.pairs:4}"


@dataclass
class Seen:
    """A side on feeds that the matching has not seen: its values, which of them count, which come of a weight."""

    values: Iterator[tuple[str, object]]
    weighted: Callable[[str], bool]
    counts: Callable[[str], bool] = lambda _: True


def judge(result: MatchResult, a: Seen, b: Seen, same_module: Callable[[Pair], bool]) -> Row:
    """Coverage and wrong pairs, by the values that both sides have on feeds that the matching has not seen."""
    classes, pairs = Classes(), result.matching.pairs
    back, partner = {pair.b: pair for pair in pairs}, {pair.a: pair.b for pair in pairs}
    arrays = {name: v for name, v in a.values if isinstance(v, np.ndarray)}
    kinds: list[dict[str, int]] = [{}, {}]
    for name, array in arrays.items():
        if a.counts(name) and (content := Content.of(array)) is not None:
            kinds[0][name] = classes.number(content)
    wrong = []
    for name, value in b.values:
        if not isinstance(value, np.ndarray):
            continue
        if (content := Content.of(value)) is not None:
            kinds[1][name] = classes.number(content)
        pair = back.get(name)
        if pair is not None and not pair.blocked and not _agree(arrays[pair.a], value, pair):
            wrong.append(pair)
    wrong += [pair for pair in pairs if pair not in wrong and not same_module(pair)]
    chosen = [{*filter(side.weighted, kinds[i])} for i, side in enumerate((a, b))]
    nodes, missed = _share(kinds, chosen, partner)
    values, more = _share(kinds, [{*side} for side in kinds], partner)
    return Row(nodes, values, len(pairs), tuple(wrong), tuple(dict.fromkeys(missed + more)))


def _share(
    kinds: list[dict[str, int]], names: list[set[str]], partner: dict[str, str]
) -> tuple[tuple[int, int], list[str]]:
    mine, theirs = (
        Counter(side[n] for n in chosen) for side, chosen in zip(kinds, names, strict=True)
    )
    there = mine & theirs
    found = Counter(kinds[0][n] for n in names[0] if n in partner) & there
    short = there - found
    return (found.total(), there.total()), [
        n for n in kinds[0] if n in names[0] and kinds[0][n] in short
    ]


def weighted_in(index: GraphIndex) -> Callable[[str], bool]:
    """Whether a value's node reads a weight, or what is made of weights alone."""
    weights = {
        name
        for name, tensor in index.initializers.items()
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= MIN_ELEMENTS
    }
    for position in index.order:
        node = index.nodes[position]
        if {*node.input} <= weights | index.initializers.keys() and not weights.isdisjoint(
            node.input
        ):
            weights.update(node.output)
    makers = index.producer
    return lambda name: name in makers and not weights.isdisjoint(index.nodes[makers[name]].input)


def from_feeds(index: GraphIndex, feeds: Feeds, runtime: Runtime) -> Iterator[tuple[str, object]]:
    """The values that depend on what is given."""
    depends = {*feeds}
    for position in index.order:
        if not depends.isdisjoint(index.reads[position]):
            depends.update(filter(None, index.nodes[position].output))
    for name, value in computed(index, feeds, runtime):
        if name in feeds or name in depends:
            yield name, value


def _agree(one: np.ndarray, other: np.ndarray, pair: Pair) -> bool:
    one = np.transpose(one, pair.axes) if pair.axes else one
    if one.size != other.size:
        return False
    if one.dtype.kind != "f":
        return bool((one.reshape(-1) == other.reshape(-1)).all())
    x, y = (np.nan_to_num(side.reshape(-1).astype(np.float64)) for side in (one, other))
    return bool(np.abs(x - y).max(initial=0) <= _NEAR * max(np.abs(x).max(initial=0), 1e-6))


def models_agree(a: GraphIndex, b: GraphIndex) -> Callable[[Pair], bool]:
    """Whether two nodes lie in one module, where both say in which."""
    ones, others = ({n: i.origins[p] for n, p in i.producer.items()} for i in (a, b))

    def same(pair: Pair) -> bool:
        one, other = ones.get(pair.a), others.get(pair.b)
        if one is None or other is None or not (one.stated and other.stated):
            return True
        folded = b.nodes[b.producer[pair.b]].op_type in FOLD_INTO
        return folded or _held(one.scope, other.scope)

    return same


def references_agree(a: osl.ReferenceSet, b: GraphIndex) -> Callable[[Pair], bool]:
    """Whether what a module returned is computed in it, or in what returned the same."""

    def same(pair: Pair) -> bool:
        position = b.producer.get(pair.b)
        if position is None or not a.entries[pair.a].scope or not b.origins[position].stated:
            return True
        folded = (
            b.nodes[position].op_type in FOLD_INTO and "BatchNorm" in a.entries[pair.a].class_name
        )
        return folded or _held(f"model.{a.entries[pair.a].scope}", b.origins[position].scope)

    return same


def _held(one: str, other: str) -> bool:
    """Whether two modules are one, or one lies in the other."""
    return (
        f"{other}.".startswith(f"{one}.")
        or f"{one}.".startswith(f"{other}.")
        or not one
        or not other
    )


# --- the table ---


def rows(name: str, folder: Path, small: bool, noisy: bool) -> Iterator[tuple[str, Row]]:
    module, inputs, _ = built(name, small, noisy)
    given = next(iter(inputs.values()))
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
            other = optimised(index, folder / "optimised.onnx")
            yield f"{exporter}, optimised", against(index, other, feeds, fresh, runtime)
            for tool in ("onnxslim", "onnxsim"):
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
