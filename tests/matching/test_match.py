"""Values of two sides side by side: what is the same is paired, what is not is left, whatever it is called."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers

from kit import FIXTURES
from onnxsurgeon_lite import ReferenceSet, load, open_references, save_tensors
from onnxsurgeon_lite.debug.bisection.bisect import bisect
from onnxsurgeon_lite.errors import FeedsError, GraphError, ReferenceSetError, UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.values import alignment, feeds_in_order
from onnxsurgeon_lite.matching.values.contents import agreeing, transposition
from onnxsurgeon_lite.matching.values.facts import Fact, side_of_model
from onnxsurgeon_lite.matching.values.pair_table import renumbered
from onnxsurgeon_lite.matching.values.run_both import (
    MatchResult,
    feeds_of_other,
    match_models,
    match_references,
)
from onnxsurgeon_lite.recording.from_model import computed
from onnxsurgeon_lite.recording.torch_recorder import record_module
from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe, make_feeds
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions
from onnxsurgeon_lite.tensors.signature import signature_of


def index_of(path: Path | str) -> GraphIndex:
    return GraphIndex.of(load(path))


def made(index: GraphIndex, seed: int = 0) -> Feeds:
    return make_feeds(index, Recipe(seed=seed))[0]


def exported(module: torch.nn.Module, given: torch.Tensor, path: Path, dynamo: bool) -> GraphIndex:
    torch.onnx.export(
        module.eval(),
        (given,),
        path,
        dynamo=dynamo,
        opset_version=18,
        external_data=False,
        input_names=["given"],
        verbose=False,
    )
    return index_of(path)


class Block(torch.nn.Module):
    """Attention without its fuss: two projections of one input, a product, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.q, self.k = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.out = torch.nn.Linear(16, 16)

    def forward(self, x):
        h = self.norm(x)
        scores = (self.q(h) @ self.k(h).transpose(1, 2)).softmax(-1)
        return x + self.out(scores @ h)


class Net(torch.nn.Module):
    """A folded BatchNorm, blocks, and on demand one more layer in the middle."""

    def __init__(self, extra: torch.nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = torch.nn.Sequential(
            torch.nn.Conv1d(4, 16, 3, padding=1), torch.nn.BatchNorm1d(16)
        )
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(16, 5)
        self.extra = extra
        for parameter in self.parameters():  # exporters share equal weights
            torch.nn.init.normal_(parameter, std=0.3)

    def forward(self, given):
        x = self.stem(given).relu().transpose(1, 2)
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == 1 and self.extra is not None:
                x = self.extra(x)
        return self.head(x.relu().mean(1))


GIVEN = torch.randn(1, 4, 10, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, GraphIndex]:
    """One module by both exporters, and a version with one more ReLU after a ReLU's place."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.warns():
        return {
            "torchscript": exported(Net(), GIVEN, folder / "ts.onnx", dynamo=False),
            "dynamo": exported(Net(), GIVEN, folder / "dynamo.onnx", dynamo=True),
            "tanh": exported(Net(torch.nn.Tanh()), GIVEN, folder / "tanh.onnx", dynamo=True),
        }


@pytest.fixture(scope="module")
def references(tmp_path_factory) -> ReferenceSet:
    folder = tmp_path_factory.mktemp("references") / "refs"
    record_module(Net(), (GIVEN,), folder=folder)
    return open_references(folder)


def pairs_of(result: MatchResult) -> dict[str, str]:
    return {pair.a: pair.b for pair in result.matching.pairs}


def wrong_pairs(result: MatchResult, a: GraphIndex, b: GraphIndex, runtime: Runtime) -> list:
    """The pairs whose values disagree on feeds that the matching has not seen."""
    feeds = made(a, seed=7)
    ones = dict(computed(a, feeds, runtime))
    others = dict(computed(b, feeds_of_other(b, feeds), runtime))
    wrong = []
    for pair in result.matching.pairs:
        one, other = ones[pair.a], others[pair.b]
        one = np.transpose(one, pair.axes) if pair.axes else one
        if one.size != other.size or not np.allclose(one.reshape(other.shape), other, atol=1e-4):
            wrong.append(pair)
    return wrong


def test_the_two_exports_of_a_module_are_matched_whole(models, runtime):
    a, b = models["dynamo"], models["torchscript"]

    result = match_models(a, b, made(a), runtime)

    assert not result.only_a
    assert not wrong_pairs(result, a, b, runtime)
    assert len(result.matching.pairs) >= 0.95 * len(a.producer)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_what_modules_returned_is_matched_with_each_export(exporter, models, references, runtime):
    index = models[exporter]
    feeds = feeds_in_order(index, references)

    result = match_references(references, index, feeds, runtime)

    paired = pairs_of(result)
    assert {"blocks.1.q", "blocks.1.k", "blocks.2.norm", "blocks.0", "head"} <= paired.keys()
    assert [value.name for value in result.only_a] == ["stem.0"]  # folded into what stem.1 returned
    for one, other in paired.items():
        actual = dict(computed(index, feeds, runtime, [other]))[other]
        np.testing.assert_allclose(references.read(one).reshape(actual.shape), actual, atol=1e-4)


def called_otherwise(references: ReferenceSet, old: str, new: str) -> ReferenceSet:
    """The references as if their modules had another name."""
    entries = {
        name: replace(entry, scope=entry.scope.replace(old, new))
        for name, entry in references.entries.items()
    }
    return replace(references, entries=entries)


def test_what_a_module_of_another_name_returned_is_found_by_its_content(
    models, references, runtime
):
    index = models["dynamo"]
    renamed = called_otherwise(references, "blocks", "block")
    feeds = feeds_in_order(index, references)

    results = [match_references(r, index, feeds, runtime) for r in (references, renamed)]

    first, second = ({(p.a, p.b) for p in result.matching.pairs} for result in results)
    assert first == second
    assert not results[1].matching.lost  # stem.0 was folded into stem.1, and its weight is there


def test_a_module_that_the_model_has_not_is_said_with_the_closest(torch_refs, runtime):
    index = index_of(FIXTURES / "faulty_attribute.onnx")
    renamed = called_otherwise(torch_refs, "convs3", "conv3")

    fitted = alignment(renamed, index, feeds_in_order(index, renamed), runtime).of(renamed, index)

    assert any("'conv3' (closest names: 'convs3'" in doubt for doubt in fitted.doubts)


def test_a_missing_module_is_told_only_where_something_mismatches(
    models, references, torch_refs, runtime
):
    healthy, faulty = models["dynamo"], index_of(FIXTURES / "faulty_attribute.onnx")
    results = []
    for index, stored in (
        (healthy, called_otherwise(references, "stem", "step")),
        (faulty, called_otherwise(torch_refs, "convs3", "conv3")),
    ):
        feeds = feeds_in_order(index, stored)
        fitted = alignment(stored, index, feeds, runtime).of(stored, index)
        assert fitted.doubts
        results.append(bisect(index.model, fitted, feeds, runtime))

    told = [any("the model does not have" in note for note in r.notes) for r in results]
    assert [result.verdict for result in results] == ["agrees", "mismatch"]
    assert told == [False, True]


def test_an_inserted_layer_is_listed_and_the_rest_is_matched_around_it(models, runtime):
    a, b = models["dynamo"], models["tanh"]

    result = match_models(a, b, made(a), runtime)

    assert [(value.op_type, value.place) for value in result.only_b] == [("Tanh", "extra (Tanh)")]
    assert not result.only_a
    scopes = {name: a.origins[position].scope for name, position in a.producer.items()}
    for pair in result.matching.pairs[1:]:
        assert scopes[pair.a] == b.origins[b.producer[pair.b]].scope


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_what_stands_behind_a_new_item_of_a_list_keeps_its_pairs(
    exporter, models, runtime, tmp_path
):
    longer = Net()
    new = Block()
    longer.blocks.insert(1, new)
    with pytest.warns():
        b = exported(longer, GIVEN, tmp_path / "longer.onnx", dynamo=exporter == "dynamo")
    a = models[exporter]

    result = match_models(a, b, made(a), runtime)

    assert not result.only_a
    assert result.only_b
    assert all(value.place.startswith("blocks.1") for value in result.only_b)
    moved = {"blocks.1": "blocks.2", "blocks.2": "blocks.3"}
    for pair in result.matching.pairs[1:]:
        there = b.origins[b.producer[pair.b]].scope
        was = a.origins[a.producer[pair.a]].scope
        head = ".".join(was.split(".")[:2])
        assert there == was.replace(head, moved.get(head, head), 1)


@pytest.mark.parametrize(
    ("ones", "others", "moves"),
    [
        ({0: "p", 1: "q"}, {0: "p", 1: "new", 2: "q"}, {1: 2}),
        ({0: "p", 1: "", 2: "q", 3: ""}, {0: "p", 1: "", 2: "new", 3: "q", 4: ""}, {2: 3, 3: 4}),
        ({0: "p", 1: "", 2: "q"}, {0: "new", 1: "p", 2: "", 3: "q"}, {0: 1, 1: 2, 2: 3}),
        ({0: "p", 1: "tuned", 2: "q"}, {0: "p", 1: "other", 2: "q"}, {}),
        ({0: "p", 1: "q", 2: "tuned"}, {0: "new", 1: "p", 2: "q", 3: "other"}, {0: 1, 1: 2, 2: 3}),
        ({0: "p", 1: "gone", 2: "q"}, {0: "p", 1: "q"}, {1: None, 2: 1}),
        ({0: "p", 1: "p"}, {0: "p", 1: "p", 2: "p"}, {}),
    ],
)
def test_the_items_of_a_list_are_where_their_weights_are(ones, others, moves):
    sides = [
        [
            Fact(f"{i}", i, f"list.{i}", known=True, weights=tuple(w.split()))
            for i, w in side.items()
        ]
        for side in (ones, others)
    ]

    found = renumbered(*sides, lambda fact: fact.scope)

    assert found == {f"list.{i}": f"list.{'?' if j is None else j}" for i, j in moves.items()}


def test_weights_say_more_than_names(model_of, runtime):
    v = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    w = v + (np.arange(8) == 7).astype(np.float32)[:, None]  # alike where x is not zero
    x = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32) * (np.arange(8) < 7)
    text = "g (float[8,8] x) => (float[8,4] t, float[8,4] u) { t = MatMul(x, T) u = MatMul(x, U) }"
    indexes = []
    for first, second in ((v, w), (w, v)):
        proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
        weights = (
            onnx.numpy_helper.from_array(first, "T"),
            onnx.numpy_helper.from_array(second, "U"),
        )
        proto.graph.initializer.extend(weights)
        indexes.append(GraphIndex.of(model_of(proto, f"{len(indexes)}.onnx")))

    result = match_models(*indexes, {"x": x.astype(np.float32)}, runtime)

    assert pairs_of(result) == {"x": "x", "t": "u", "u": "t"}


TWINS = """g (float[32] x) => (float[32] y, float[32] z) {
    a = Identity(x) b = Identity(x) y = Neg(a) z = Abs(b)
}"""


def test_values_of_equal_bytes_are_told_apart_by_structure_or_left(model_of, runtime):
    one = GraphIndex.of(model_of(TWINS))
    other = GraphIndex.of(model_of(TWINS.replace(" b", " q").replace("(b)", "(q)"), "other.onnx"))

    result = match_models(one, other, made(one), runtime)

    pairs = pairs_of(result)
    assert pairs["y"] == "y"
    assert pairs["z"] == "z"
    assert len({*pairs.values()}) == len(pairs)


@pytest.mark.parametrize("opt", ["basic", "all"])
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_the_runtime_s_optimized_graph_is_matched_without_a_wrong_pair(
    exporter, opt, models, runtime, tmp_path
):
    a = models[exporter]
    with Runtime(RuntimeOptions(opt=opt)) as optimizer:
        optimizer.open(a.model, optimized=tmp_path / "optimized.onnx")
    b = index_of(tmp_path / "optimized.onnx")

    result = match_models(a, b, made(a), runtime)

    assert not wrong_pairs(result, a, b, runtime)
    kept = [name for name in a.producer if name in b.producer]
    pairs = pairs_of(result)
    assert len(kept) >= 20
    assert {name: pairs.get(name) for name in kept} == {name: name for name in kept}


BLOCKS = """g (float[1,8,6,6] x, float[16,8,3,3] w, float[16,16,3,3] v) => (float[1,16,6,6] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(a) c = Conv<pads = [1, 1, 1, 1]>(b, v) y = Add(b, c)
}"""


def test_values_in_the_optimizer_s_blocked_layout_are_recognized(model_of, runtime, tmp_path):
    loose = GraphIndex.of(model_of(BLOCKS))
    rng = np.random.default_rng(0)
    proto = onnx.load(loose.model.path)
    for given in list(proto.graph.input)[1:]:
        shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
        array = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, given.name))
        proto.graph.input.remove(given)
    a = GraphIndex.of(model_of(proto))
    with Runtime(RuntimeOptions(opt="all")) as optimizer:
        optimizer.open(a.model, optimized=tmp_path / "optimized.onnx")
    b = index_of(tmp_path / "optimized.onnx")
    if not any(node.domain == "com.microsoft.nchwc" for node in b.nodes):
        pytest.skip("this processor's runtime has no blocked layout")

    result = match_models(a, b, made(a), runtime)

    blocked = {pair.a for pair in result.matching.pairs if pair.blocked}
    assert "b" in blocked
    assert all(pair.agrees for pair in result.matching.pairs if pair.blocked)
    assert "y" not in blocked


def test_a_fused_node_is_the_node_that_has_its_weight_or_the_value_after_it(model_of, runtime):
    weight = ", ".join(str(i % 7 - 2.5) for i in range(64))
    given = f"<float[8,8] w = {{{weight}}}, float[8] z = {{{', '.join('0' * 8)}}}>"
    two = "{ m = MatMul(x, w) h = Add(m, z) y = Sin(h) }"
    one = "{ g = Gemm(x, w, z) y = Sin(g) }"
    head = "g (float[4,8] x) => (float[4,8] y)"
    a = GraphIndex.of(model_of(f"{head}\n{given}\n{two}"))
    b = GraphIndex.of(model_of(f"{head}\n{given}\n{one}", "other.onnx"))

    result = match_models(a, b, made(a), runtime)

    pairs = pairs_of(result)
    assert pairs == {"x": "x", "m": "g", "y": "y"}
    assert result.matching.aliases == {"h": "m"}


def test_where_only_values_say_it_the_innermost_module_s_value_is_taken(
    model_of, runtime, tmp_path
):
    chain = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Dropout()))
    record_module(chain, (torch.randn(4, 8),), folder=tmp_path / "refs")
    index = GraphIndex.of(
        model_of("g (float[4,8] q) => (float[4,8] y) { h = Tanh(q) y = Identity(h) }")
    )
    stored = open_references(tmp_path / "refs")

    result = match_references(stored, index, feeds_in_order(index, stored), runtime)

    pairs = pairs_of(result)
    assert pairs["0.0"] == "h"
    assert {"0.1": "0.0", "0": "0.0"}.items() <= result.matching.aliases.items()


class Positions(torch.nn.Module):
    """Adds the positions from a first one on."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first
        self.register_buffer("table", torch.sin(torch.arange(640.0)).reshape(1, 20, 32))

    def forward(self, x):
        return x + self.table[:, self.first : self.first + x.shape[1]]


class CalledTwice(torch.nn.Module):
    def __init__(self, first: int) -> None:
        super().__init__()
        self.pe, self.norm, self.other = Positions(first), torch.nn.LayerNorm(32), torch.nn.Tanh()

    def forward(self, given):
        x, y = given[:, :9], given[:, 9:]
        return self.norm(self.pe(x)).mean(1, keepdim=True) + self.other(self.pe(y))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_calls_of_one_module_are_known_also_where_all_are_wrong(dynamo, runtime, tmp_path):
    given = torch.randn(2, 16, 32)
    record_module(CalledTwice(0), (given,), folder=tmp_path / "refs")
    index = exported(CalledTwice(3), given, tmp_path / "wrong.onnx", dynamo)
    stored = open_references(tmp_path / "refs")

    pairs = pairs_of(match_references(stored, index, feeds_in_order(index, stored), runtime))

    added = [node.output[0] for node in index.nodes if node.op_type == "Add"]
    assert [pairs.get("pe"), pairs.get("pe#2")] == added[:2]


def test_what_passes_a_tensor_on_is_known_also_where_the_model_is_wrong(
    model_of, runtime, tmp_path
):
    chain = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Dropout()))
    record_module(chain.eval(), (torch.randn(4, 8),), folder=tmp_path / "refs")
    index = GraphIndex.of(model_of("g (float[4,8] q) => (float[4,8] y) { y = Cos(q) }"))
    stored = open_references(tmp_path / "refs")

    result = match_references(stored, index, feeds_in_order(index, stored), runtime)

    (wrong,) = (pair.a for pair in result.matching.pairs if pair.agrees is False)
    assert result.matching.aliases == dict.fromkeys(("0.0", "0.1", "0"), wrong)


def test_nothing_is_invented_for_models_that_have_nothing_in_common(model_of, runtime):
    one = GraphIndex.of(model_of("g (float[32] x) => (float[32] y) { a = Exp(x) y = Neg(a) }"))
    text = "g (float[32] x) => (float[8,4] y) { s = Constant<value = int64[2] {8, 4}>() r = Reshape(x, s) y = Sin(r) }"
    other = GraphIndex.of(model_of(text, "other.onnx"))

    result = match_models(one, other, made(one), runtime)

    assert [(pair.a, pair.b) for pair in result.matching.pairs] == [("x", "x")]


KNOWN_SIZE = """g (float[4,8] x) => (float[8,4] y) {
    n = Constant<value = int64[2] {8, 4}>()
    s = Exp(x) t = Tanh(x) r = Reshape(s, n) q = Reshape(t, n) y = Sub(r, q)
}"""
MEASURED_SIZE = """g (float[4,8] x) => (float[8,4] y) {
    d = Transpose(x) k = Shape(d) e = Sqrt(x)
    s = Exp(e) t = Tanh(e) r = Reshape(s, k) q = Reshape(t, k) y = Sub(r, q)
}"""


def test_a_size_that_only_one_side_computes_is_no_difference(model_of, runtime):
    pairs = pairs_in_modules(KNOWN_SIZE, MEASURED_SIZE, model_of, runtime)

    assert pairs == {value: value for value in "xstrqy"}


HALVED_LAST = """g (float[4,8] x) => (float[4,8] y) {
    half = Constant<value = float {0.5}>()
    s = Exp(x) p = Mul(x, s) m = Mul(p, half) y = Tanh(m)
}"""
HALVED_FIRST = """g (float[4,8] x) => (float[4,8] y) {
    half = Constant<value = float {0.5}>()
    e = Sqrt(x) s = Exp(e) h = Mul(s, half) m = Mul(e, h) y = Tanh(m)
}"""


def test_a_node_that_may_have_a_counterpart_is_not_taken_for_inserted(model_of, runtime):
    pairs = pairs_in_modules(HALVED_LAST, HALVED_FIRST, model_of, runtime)

    assert pairs["s"] == "s"
    assert pairs.get("p") != "m"  # which is half of it


def pairs_in_modules(one: str, other: str, model_of, runtime: Runtime) -> dict[str, str]:
    a = GraphIndex.of(model_of(in_modules(one), "a.onnx"))
    b = GraphIndex.of(model_of(in_modules(other), "b.onnx"))
    return pairs_of(match_models(a, b, made(a), runtime))


def in_modules(text: str) -> onnx.ModelProto:
    """A graph whose nodes lie in module `layer`, and Sqrt in one that was inserted."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for node in proto.graph.node:
        scopes = ["", "extra" if node.op_type == "Sqrt" else "layer", node.output[0]]
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(scopes))
    return proto


def test_a_transposed_value_is_found_with_its_order_of_axes(model_of, runtime):
    one = GraphIndex.of(model_of("g (float[4,6,5] x) => (float[4,6,5] y) { y = Sin(x) }"))
    text = (
        "g (float[4,6,5] x) => (float[5,4,6] y) { t = Transpose<perm = [2, 0, 1]>(x) y = Sin(t) }"
    )
    other = GraphIndex.of(model_of(text, "other.onnx"))

    pair = match_models(one, other, made(one), runtime).matching.pairs[-1]

    assert (pair.a, pair.b, pair.axes) == ("y", "y", (2, 0, 1))


def test_a_shuffled_tensor_is_another_one():
    array = np.random.default_rng(0).normal(size=(8, 9)).astype(np.float32)
    shuffled = np.random.default_rng(1).permuted(array, axis=1)
    given = {
        "one": array,
        "same": array + np.float32(1e-6),
        "shuffled": shuffled,
        "turned": array.T,
    }
    one, same, shuffled, turned = (Fact(name, rank) for rank, name in enumerate(given))
    for fact in (one, same, shuffled, turned):
        fact.see(given[fact.name])

    assert agreeing(one, same)
    assert not agreeing(one, shuffled)
    assert agreeing(one, turned)
    assert transposition(one.signature, turned.signature) == (1, 0)
    assert transposition(one.signature, shuffled.signature) is None


@pytest.mark.parametrize(
    "array",
    [np.zeros((8, 8), np.float32), np.arange(64), np.ones(3, np.float32), np.full(64, np.nan)],
)
def test_what_says_too_little_has_no_signature(array):
    assert signature_of(array) is None


def test_a_value_that_is_mostly_zero_has_a_signature():
    values = np.random.default_rng(0).standard_normal((96, 96)).astype(np.float32)
    relu = np.maximum(values - 3, 0)

    assert (relu == 0).mean() > 0.99
    assert signature_of(relu) is not None


def test_models_of_other_inputs_are_not_matched(models, model_of, runtime):
    other = GraphIndex.of(model_of("g (float[2] x, float[2] b) => (float[2] y) { y = Add(x, b) }"))

    with pytest.raises(FeedsError, match="1 and 2 inputs"):
        match_models(models["dynamo"], other, made(models["dynamo"]), runtime)


# --- bisecting with references that are called otherwise ---


def bisected(index: GraphIndex, references: ReferenceSet, runtime: Runtime, how: str | None = None):
    feeds = feeds_in_order(index, references)
    named = alignment(references, index, feeds, runtime, how).of(references, index)
    return bisect(index.model, named, feeds, runtime)


@pytest.fixture(scope="module")
def torch_refs(tmp_path_factory) -> ReferenceSet:
    """What the modules of the tutorial's model return."""
    from onnxsurgeon_lite.recording.from_torch import record_factory

    folder = tmp_path_factory.mktemp("torch") / "refs"
    record_factory(f"{FIXTURES / 'whole_model.py'}:factory", folder)
    return open_references(folder)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_each_wrong_weight_is_found_by_the_modules_of_the_source(
    exporter, models, references, runtime, tmp_path
):
    right = models[exporter]
    weights = {
        name: position
        for position, node in enumerate(right.nodes)
        for name in node.input
        if name in right.initializers and node.op_type in ("MatMul", "LayerNormalization", "Conv")
    }
    for name, position in list(weights.items())[::3]:
        proto = onnx.load(right.model.path)
        tensor = next(t for t in proto.graph.initializer if t.name == name)
        array = onnx.numpy_helper.to_array(tensor) * np.float32(1.5) + np.float32(0.3)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, name))
        onnx.save(proto, tmp_path / "wrong.onnx")

        result = bisected(index_of(tmp_path / "wrong.onnx"), references, runtime)

        assert result.verdict == "mismatch", name
        assert f"@{position}" in result.culprits[0].region, (name, result.culprits[0].region)
        assert len(result.culprits[0].region) <= 8  # what lies between two modules


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("no json", ReferenceSetError),
        ('{"pairs": [{"a": "convs1.0"}]}', ReferenceSetError),
        (
            '{"pairs": [{"a": "convs1.0", "b": "21"}, {"a": "convs1.1", "b": "21"}]}',
            ReferenceSetError,
        ),
        ('{"pairs": [{"a": "convs9", "b": "21"}]}', UnknownNameError),
        ('{"pairs": [{"a": "convs1.0", "b": "211"}]}', UnknownNameError),
    ],
)
def test_a_map_that_is_none_is_refused(text, error, torch_refs, runtime, tmp_path):
    (tmp_path / "map.json").write_text(text)

    with pytest.raises(error):
        bisected(
            index_of(FIXTURES / "whole_model.onnx"), torch_refs, runtime, str(tmp_path / "map.json")
        )


def test_an_input_that_a_node_makes_is_told_though_its_maker_comes_first(model_of, runtime):
    text = "g (float[1] h) => (float[1] y) <float[1] x = {1}> { h = Neg (x) y = Relu (h) }"
    index = GraphIndex.of(model_of(text))
    feeds = {"h": np.ones(1, np.float32)}

    with pytest.raises(GraphError, match="value 'h' is an input, and Neg @0 makes it"):
        match_models(index, index, feeds, runtime)


def test_references_of_nothing_in_the_model_are_refused(model_of, runtime, tmp_path):
    index = GraphIndex.of(model_of("g (float[32] x) => (float[32] y) { y = Exp(x) }"))
    noise = np.random.default_rng(0).normal(size=40).astype(np.float32)
    save_tensors(tmp_path / "refs.npz", {"x": np.ones(32, np.float32), "other": noise})

    with pytest.raises(ReferenceSetError, match="no reference in"):
        bisected(index, open_references(tmp_path / "refs.npz"), runtime)


def test_a_second_export_with_one_more_layer_is_held_against_the_first_one_s_references(
    models, runtime, tmp_path
):
    from onnxsurgeon_lite.recording.from_model import record

    before = models["torchscript"]
    with pytest.warns():
        after = exported(Net(torch.nn.Identity()), GIVEN, tmp_path / "after.onnx", dynamo=True)
    record(before, made(before), runtime, tmp_path / "refs")
    stored = open_references(tmp_path / "refs")

    assert bisected(after, stored, runtime).verdict == "agrees"


@pytest.mark.parametrize("make", ["gpt2", "whisper"])
def test_transformers_modules_are_matched_with_their_export(make, runtime, tmp_path):
    torch.manual_seed(0)
    if make == "gpt2":
        config = transformers.GPT2Config(
            n_layer=3, n_embd=32, n_head=4, vocab_size=64, use_cache=False,
            attn_implementation="eager", bos_token_id=1, eos_token_id=1,
        )  # fmt: skip
        module, given = transformers.GPT2Model(config), torch.arange(16).reshape(1, 16)
    else:
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = transformers.WhisperConfig(
            d_model=32, encoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=64,
            max_source_positions=20, attn_implementation="eager",
        )  # fmt: skip
        module, given = WhisperEncoder(config), torch.randn(1, 80, 40)
    with pytest.warns():
        index = exported(module, given, tmp_path / "model.onnx", dynamo=True)
    record_module(module, (given,), folder=tmp_path / "refs")
    stored = open_references(tmp_path / "refs")

    result = match_references(stored, index, feeds_in_order(index, stored), runtime)

    assert {value.name for value in result.only_a} <= {"embed_positions"}  # folded into a constant
    known = {name: index.origins[position] for name, position in index.producer.items()}
    for pair in result.matching.pairs:
        entry = stored.entries[pair.a]
        if pair.b in known and known[pair.b].known and entry.scope:
            assert pair.agrees
            around = {"", *known[pair.b].around()}
            assert entry.scope in around or known[pair.b].scope in {"", *parents(entry.scope)}


def parents(scope: str) -> list[str]:
    parts = scope.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


@pytest.mark.parametrize("shape", [(40, 60), (1, 40, 60), (40, 1, 60, 1), (2400,), (2,) * 11])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_large_tensor_is_summed_up_where_it_is_as_it_would_be_here(runtime, shape, dtype):
    array = np.random.default_rng(0).normal(size=shape).astype(dtype)

    runtime.put("x", array)
    [(name, found, signature)] = runtime.signatures(["x"])
    runtime.forget(["x"])

    assert (name, found) == ("x", shape)
    expected = signature_of(array)
    assert (signature.shape, signature.half) == (shape, dtype == np.float16)
    np.testing.assert_array_equal(signature.packed(), expected.packed())
    assert len(signature.means) == len(expected.means)


def test_the_mean_over_the_other_axes_is_that_of_each_axis():
    array = np.random.default_rng(0).normal(size=(5, 1, 4, 3)).astype(np.float32)

    for axis, mean in enumerate(signature_of(array).means):
        others = tuple(other for other in range(4) if other != axis)
        np.testing.assert_allclose(mean, array.mean(axis=others), rtol=1e-4, atol=1e-6)


def test_a_large_tensor_of_one_number_has_its_shape_alone(runtime, model_of):
    index = GraphIndex.of(model_of("g (float[40,60] x) => (float[40,60] y) { y = Sub(x, x) }"))

    fact = side_of_model(index, made(index), runtime).facts["y"]

    assert (fact.shape, fact.signature, fact.small) == ((40, 60), None, None)


class Chain(torch.nn.Module):
    """Convolutions whose values have one shape: only what is around them tells them apart."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convs = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(5))

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(x))
        return x


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_value_behind_an_inserted_node_is_paired_by_its_module(tmp_path):
    given = torch.randn(1, 8, 16, 16)
    right = exported(Chain(), given, tmp_path / "right.onnx", dynamo=False)
    exported(Chain(), given, tmp_path / "wrong.onnx", dynamo=True)
    model = onnx.load(tmp_path / "wrong.onnx")
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    relu = next(node for node in model.graph.node if convs[3].input[0] in node.output)
    convs[3].input[0] = "more"
    model.graph.node.insert(
        list(model.graph.node).index(convs[3]),
        onnx.helper.make_node("Relu", [relu.output[0]], ["more"]),
    )
    weight = next(w for w in model.graph.initializer if w.name == convs[3].input[1])
    scaled = onnx.numpy_helper.to_array(weight) * np.float32(1.05)
    weight.CopyFrom(onnx.numpy_helper.from_array(scaled, weight.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    wrong = index_of(tmp_path / "wrong.onnx")

    with Runtime(RuntimeOptions(opt="none")) as runtime:
        result = match_models(right, wrong, made(right), runtime)

    assert [each.name for each in result.only_b] == ["more"]
    assert not result.only_a


class Norms(torch.nn.Module):
    """Norms over the channels around convolutions, as in ConvNeXt."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(16) for _ in range(3))
        self.convs = torch.nn.ModuleList(torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(3))

    def forward(self, x):
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = conv(norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        return x.permute(0, 2, 3, 1).abs()


@pytest.mark.filterwarnings("ignore")
def test_behind_an_error_a_convolution_is_not_taken_for_its_transposed_result(tmp_path):
    given = torch.randn(1, 16, 8, 8)
    right = exported(Norms(), given, tmp_path / "right.onnx", dynamo=False)
    exported(Norms(), given, tmp_path / "wrong.onnx", dynamo=True)
    model = onnx.load(tmp_path / "wrong.onnx")
    norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    next(a for a in norm.attribute if a.name == "epsilon").f = 1e-3
    onnx.save(model, tmp_path / "wrong.onnx")
    wrong = index_of(tmp_path / "wrong.onnx")

    with Runtime(RuntimeOptions(opt="none")) as runtime:
        result = match_models(right, wrong, made(right), runtime)

    operators = [
        (right.nodes[right.producer[pair.a]].op_type, wrong.nodes[wrong.producer[pair.b]].op_type)
        for pair in result.matching.pairs
        if pair.a in right.producer
    ]
    assert operators.count(("Conv", "Conv")) == 3
    assert all(one == other for one, other in operators)


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = torch.nn.Linear(12, 12), torch.nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(torch.tanh(self.enter(x)))


class Layer(torch.nn.Module):
    def __init__(self, through: bool, factor: float) -> None:
        super().__init__()
        self.inner, self.through, self.factor = Inner(), through, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.through:
            return x + self.factor * self.inner(x)
        return x + self.factor * self.inner.leave(torch.tanh(self.inner.enter(x)))


def test_a_module_whose_parent_another_forward_passes_over_is_paired_though_its_numbers_differ(
    runtime, tmp_path
):
    torch.manual_seed(0)
    right = torch.nn.Sequential(Layer(True, 1.0), Layer(True, 1.0)).eval()
    wrong = torch.nn.Sequential(Layer(False, 0.5), Layer(False, 1.0)).eval()
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(3, 12)
    with pytest.warns():
        index = exported(wrong, x, tmp_path / "wrong.onnx", dynamo=False)
    record_module(right, (x,), folder=tmp_path / "references")
    references = open_references(tmp_path / "references")

    result = match_references(references, index, feeds_in_order(index, references), runtime)

    made_in = {
        one: index.origins[index.producer[other]].scope
        for one, other in pairs_of(result).items()
        if other in index.producer
    }
    for layer in "01":
        assert made_in[f"{layer}.inner.enter"] == f"{layer}.enter"
        assert made_in[f"{layer}.inner.leave"] == f"{layer}.leave"
