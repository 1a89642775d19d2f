"""Diffs: a shuffled, renamed copy is the same, one edit is one difference, and no weight is read in vain."""

import json
import random
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.graphs import model_of, models
from onnxsurgeon_lite import Tolerance, load
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.diff import Difference, diff
from onnxsurgeon_lite.matching.diff.outputs import with_outputs
from onnxsurgeon_lite.matching.diff.result import Change
from onnxsurgeon_lite.matching.trials import Trial
from onnxsurgeon_lite.model import DataFile, Model
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime

HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'


def parsed(text: str) -> Model:
    return Model(onnx.parser.parse_model(HEADER + text))


def lines(first: Model, second: Model, **options) -> list[str]:
    """Each difference as `status kind subject: what, what`."""
    return [line(difference) for difference in diff(first, second, **options).differences]


def line(difference: Difference) -> str:
    changes = ", ".join(change.what for change in difference.changes)
    return f"{difference.status} {difference.kind} {difference.subject}: {changes}"


# one random graph, shuffled, renamed, and edited once


def disguised(proto: ModelProto, seed: int, *, keep_ends: bool = True) -> ModelProto:
    """The same model with other names and another order."""
    rng = random.Random(seed)
    copy = ModelProto()
    copy.CopyFrom(proto)
    graph = copy.graph
    ends = {value.name for value in (*graph.input, *graph.output)} if keep_ends else set()
    numbers = iter(rng.sample(range(1_000_000), 100 + 5 * len(graph.node)))
    names: dict[str, str] = {"": ""}

    def renamed(name: str) -> str:
        return name if name in ends else names.setdefault(name, f"r{next(numbers)}")

    for node in graph.node:
        node.name = f"k{next(numbers)}"
        node.input[:] = map(renamed, node.input)
        node.output[:] = map(renamed, node.output)
    for named in (*graph.initializer, *graph.value_info, *graph.input, *graph.output):
        named.name = renamed(named.name)
    for repeated in (graph.node, graph.initializer):
        order = list(repeated)
        rng.shuffle(order)
        del repeated[:]
        repeated.extend(order)
    return copy


many = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@many
@given(models(), st.integers(0, 99), st.booleans())
def test_a_shuffled_renamed_copy_is_the_same(proto, seed, keep_ends):
    found = diff(Model(proto), Model(disguised(proto, seed, keep_ends=keep_ends)))

    assert found.same
    assert found.differences == []


@many
@given(models(), st.integers(0, 99), st.data())
def test_one_changed_attribute_is_one_difference(proto, seed, data):
    leaky = [i for i, node in enumerate(proto.graph.node) if node.op_type == "LeakyRelu"]
    assume(leaky)
    edited = ModelProto()
    edited.CopyFrom(proto)
    position = data.draw(st.sampled_from(leaky))
    edited.graph.node[position].attribute[0].f = 0.7

    found = lines(Model(proto), Model(disguised(edited, seed)))

    (line,) = found
    assert line.startswith(f"changed node LeakyRelu 'n{position}' (@{position}")
    assert line.endswith("): attribute alpha")


@many
@given(models(), st.integers(0, 99), st.data())
def test_one_changed_weight_is_one_difference(proto, seed, data):
    assume(proto.graph.initializer)
    edited = ModelProto()
    edited.CopyFrom(proto)
    tensor = data.draw(st.sampled_from(list(edited.graph.initializer)))
    tensor.CopyFrom(numpy_helper.from_array(np.array([5, 6, 7, 8], np.float32), tensor.name))

    (found,) = diff(Model(proto), Model(disguised(edited, seed))).differences

    assert (found.status, found.kind, found.before) == ("changed", "initializer", tensor.name)
    assert found.contents.differing == 4


@many
@given(models(), st.integers(0, 99), st.data())
def test_one_inserted_node_is_one_difference_and_so_is_its_removal(proto, seed, data):
    edited = ModelProto()
    edited.CopyFrom(proto)
    node = data.draw(st.sampled_from(list(edited.graph.node)))
    new = helper.make_node("Exp", [node.input[0]], ["new"], "new")
    node.input[0] = "new"
    edited.graph.node.insert(0, new)
    copy = Model(disguised(edited, seed))

    added, removed = diff(Model(proto), copy), diff(copy, Model(proto))

    assert [(d.status, d.kind) for d in added.differences] == [("added", "node")]
    assert [(d.status, d.kind) for d in removed.differences] == [("removed", "node")]


@many
@given(models(), st.integers(0, 99), st.data())
def test_another_operator_in_the_same_place_is_one_difference(proto, seed, data):
    edited = ModelProto()
    edited.CopyFrom(proto)
    position = data.draw(st.integers(0, len(proto.graph.node) - 1))
    node = edited.graph.node[position]
    node.op_type = "Pow" if len(node.input) == 2 else "Exp"
    del node.attribute[:]

    (found,) = diff(Model(proto), Model(disguised(edited, seed))).differences

    assert (found.status, found.before) == ("changed", f"@{position}")
    assert found.changes[0].what == "operator"


def test_equal_nodes_are_paired_by_the_inputs_that_read_them():
    text = "g (float[4] x, float[4] y) => (float[4] z) {{ {} }}"
    before = text.format("a = Add(x, y) b = Add(x, y) z = Sub(a, b)")
    after = text.format("p = Add(x, y) q = Add(x, y) z = Pow(q, p)")

    (found,) = diff(osl.build(before), osl.build(after)).differences

    assert (found.status, found.changes[0].what) == ("changed", "operator")


# edits by hand

CHAIN = """g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
    a = Relu(x)  b = Add(a, w)  c = Neg(b)  y = Mul(c, a)
}"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("c = Neg(b)", "c = Abs(b)", ["changed node Neg @2: operator"]),
        ("y = Mul(c, a)", "y = Mul(a, c)", ["changed node Mul @3: input 0, input 1"]),
        ("y = Mul(c, a)", "y = Mul(c, b)", ["changed node Mul @3: input 1"]),
        ("float[4] x", "float[N] x", ["changed input 'x': type"]),
        ("{1, 2, 3, 4}", "{1, 2, 3, 5}", ["changed initializer 'w' (float [4]): 1 of 4"]),
        ("float[4] y) <", "float[4] y, float[4] b) <", ["added output 'b' (float [4]): "]),
        (
            "float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}>",
            "float[4] x, float[4] w) => (float[4] y)",
            ["changed initializer 'w': kind"],
        ),
        (
            "c = Neg(b)",
            "d = Exp(b) e = Exp(d) c = Neg(e)",
            ["added node Exp @2: reads 'b', makes 'd'", "added node Exp @3: reads 'd', makes 'e'"],
        ),
        ("ir_version: 10", "ir_version: 9", ["changed metadata model: ir version"]),
        ('"" : 21', '"" : 22', ["changed opset ai.onnx: version"]),
        ('"local" : 1', '"local" : 1, "more" : 2', ["added opset more: version"]),
    ],
)
def test_an_edit_is_told_in_a_line(before, after, expected):
    text = HEADER + CHAIN
    assert before in text
    edited = Model(onnx.parser.parse_model(text.replace(before, after, 1)))

    found = lines(Model(onnx.parser.parse_model(text)), edited)

    assert len(found) == len(expected)
    assert all(map(str.startswith, found, expected)), found


@pytest.mark.parametrize("name", sorted(p.name for p in FIXTURES.glob("*.onnx")))
def test_a_model_is_the_same_as_itself(name):
    assert diff(load(FIXTURES / name), load(FIXTURES / name)).same


def deep(count: int, alpha: float = 0.1) -> ModelProto:
    nodes = [
        helper.make_node("LeakyRelu", [f"v{i}"], [f"v{i + 1}"], alpha=alpha) for i in range(count)
    ]
    return model_of(nodes, ["v0"], [f"v{count}"])


def test_one_attribute_in_a_shuffled_renamed_chain_of_50_000_nodes_is_one_line():
    edited = deep(50_000)
    edited.graph.node[31_415].attribute[0].f = 0.2

    found = lines(Model(deep(50_000)), Model(disguised(edited, 7, keep_ends=False)))

    (line,) = found
    assert re.fullmatch(r"changed node LeakyRelu @31415, @\d+ in the second: attribute alpha", line)


def test_a_node_that_is_numbered_anew_is_known_by_the_ids_of_both_models():
    first = parsed("g (float[2] x) => (float[2] y) { h = Neg(x) y = LeakyRelu <alpha = 0.1> (h) }")
    second = osl.insert(osl.set_attr(first, "@1", {"alpha": 0.2}).model, "x", "Abs").model

    (changed,) = (line for line in lines(first, second) if line.startswith("changed"))

    assert changed.startswith("changed node LeakyRelu @1, @2 in the second: attribute alpha")


def test_initializers_that_nothing_reads_are_known_by_what_they_hold():
    def unread(**weights: list[float]) -> Model:
        given = ", ".join(
            f"float[2] {name} = {{{', '.join(map(str, numbers))}}}"
            for name, numbers in weights.items()
        )
        return parsed(f"g (float[2] x) => (float[2] y) <{given}> {{ y = Relu(x) }}")

    first = unread(a=[1.0, 2.0], b=[3.0, 4.0], c=[5.0, 6.0])

    assert lines(first, unread(r=[5.0, 6.0], s=[1.0, 2.0], t=[3.0, 4.0])) == []
    (found,) = lines(first, unread(r=[5.0, 6.0], s=[1.0, 2.0], t=[3.0, 9.0]))
    assert found.startswith("changed initializer 'b'")
    (found,) = lines(first, unread(r=[5.0, 6.0], t=[3.0, 4.0]))
    assert found.startswith("removed initializer 'a'")


def layers(numbers: list[int], scale: float = 1.0) -> Model:
    """A tower of equal layers (Q and K and a residual) that differ in their weights alone."""
    nodes, constants = [], []
    for place, number in enumerate(numbers):
        for part in "qk":
            rng = np.random.default_rng([number, ord(part)])
            weight = rng.normal(size=(4, 4)).astype(np.float32) * scale
            constants.append(numpy_helper.from_array(weight, f"{part}{place}"))
            nodes.append(
                helper.make_node("MatMul", [f"x{place}", f"{part}{place}"], [f"m{part}{place}"])
            )
        nodes.append(helper.make_node("Mul", [f"mq{place}", f"mk{place}"], [f"s{place}"]))
        nodes.append(helper.make_node("Add", [f"s{place}", f"x{place}"], [f"x{place + 1}"]))
    return Model(model_of(nodes, ["x0"], [f"x{len(numbers)}"], constants))


def test_nodes_that_exchanged_their_weights_are_named_with_them():
    first, second = layers([0, 1]), layers([0, 1])
    query, key = second.proto.graph.node[4:6]
    query.input[1], key.input[1] = key.input[1], query.input[1]

    found = diff(first, second)

    (query, key) = ((d.before, d.changes[0]) for d in found.differences)
    assert query == ("@4", Change("input 1", "'q1'", "'k1'"))
    assert key == ("@5", Change("input 1", "'k1'", "'q1'"))
    assert not found.renamed


def test_a_removed_layer_is_its_nodes_and_weights_and_no_other():
    found = diff(layers([0, 1, 2, 3, 4]), layers([0, 1, 3, 4])).differences

    assert [(d.status, d.kind, d.before) for d in found] == [
        *(("removed", "node", f"@{i}") for i in range(8, 12)),
        ("removed", "initializer", "q2"),
        ("removed", "initializer", "k2"),
    ]


def test_other_weights_everywhere_are_weights_and_no_nodes():
    found = diff(layers([0, 1, 2]), layers([0, 1, 2], scale=1.01))

    assert [(d.kind, d.before, d.after) for d in found.differences] == [
        ("initializer", name, name) for name in ("q0", "k0", "q1", "k1", "q2", "k2")
    ]
    assert diff(layers([0]), layers([0], scale=1.01), Tolerance(0.0, 0.1)).same


BODY = """
g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
    h = Relu(x)  k = Neg(x)
    y = If(c) <
        then_branch = yes () => (float[2] p) { q = Add(h, w) p = Mul(q, k) },
        else_branch = no () => (float[2] r) { r = Sub(h, w) }
    >
}"""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("p = Mul(q, k)", "p = Mul(q, h)", "changed node Mul (@2/then_branch/@1): input 1"),
        ("p = Mul(q, k)", "p = Div(q, k)", "changed node Mul (@2/then_branch/@1): operator"),
        ("r = Sub(h, w)", "s = Sub(h, w) r = Exp(s)", "added node Exp (@2/else_branch/@1): "),
        ("{1, 2}", "{1, 3}", "changed initializer 'w' (float [2]): 1 of 2 elements"),
    ],
)
def test_what_differs_in_a_body_is_told_there(before, after, expected):
    (found,) = lines(parsed(BODY), parsed(BODY.replace(before, after)))

    assert (
        found.replace("(", "")
        .replace(")", "")
        .startswith(expected.replace("(", "").replace(")", ""))
    )


FUNCTION = '<domain: "local", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }'
CALL = "g (float[2] x) => (float[2] y) { y = local.twice(x) }"


def test_a_function_is_compared_by_its_body():
    first = parsed(CALL + FUNCTION)

    assert diff(
        first, parsed(CALL + FUNCTION.replace("(a)", "(in)").replace("a, a", "in, in"))
    ).same
    (changed,) = lines(first, parsed(CALL + FUNCTION.replace("Add", "Mul")))
    assert changed == "changed node Add fn:local::twice/@0: operator"
    (removed,) = lines(parsed(CALL + FUNCTION + FUNCTION.replace("twice", "unused")), first)
    assert removed == "removed function 'local::unused': "


def whole() -> Model:
    return load(FIXTURES / "whole_model.onnx")


def set_text(proto: ModelProto, where: str) -> None:
    holder = {"model": proto, "graph": proto.graph, "node": proto.graph.node[3]}[where]
    holder.metadata_props.add(key="author", value="me")
    holder.doc_string = "said"


@pytest.mark.parametrize("where", ["model", "graph", "node"])
def test_metadata_and_doc_strings_count(where):
    edited = whole()
    set_text(edited.proto, where)

    found = [change.what for d in diff(whole(), edited).differences for change in d.changes]

    assert found == ["doc string", "metadata 'author'"]


def annotate(proto: ModelProto) -> None:
    note = proto.graph.quantization_annotation.add(tensor_name="23")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="convs1.0.bias")


def train(proto: ModelProto) -> None:
    proto.training_info.add().algorithm.node.append(helper.make_node("Relu", ["23"], ["t"]))


def unknown(proto: ModelProto) -> None:
    proto.MergeFromString(b"\xfa\x3f\x03new")


def untype(proto: ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def spread(proto: ModelProto) -> None:
    proto.configuration.add(name="two", num_devices=2)


def spread_node(proto: ModelProto) -> None:
    proto.graph.node[3].device_configurations.add(configuration_id="two")


def forget(proto: ModelProto) -> None:
    del proto.graph.value_info[2:]


@pytest.mark.parametrize("edit", [annotate, train, unknown, untype, spread, spread_node, forget])
def test_nothing_that_is_lost_goes_unseen(edit):
    edited = whole()
    edit(edited.proto)

    assert len(diff(edited, whole()).differences) == 1
    assert len(diff(whole(), edited).differences) == 1


def test_what_training_puts_where_counts():
    models = [whole(), whole()]
    for model, value in zip(models, ("new", "other"), strict=True):
        model.proto.training_info.add().update_binding.add(key="convs1.0.bias", value=value)

    (found,) = diff(*models).differences

    assert found.changes[0].what == "update binding 'convs1.0.bias'"


# contents of tensors


def big(folder: Path, array: np.ndarray, name: str, **options) -> Model:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    proto = model_of(nodes, ["x"], ["y"], [numpy_helper.from_array(array, "w")])
    onnx.save(proto, folder / f"{name}.onnx", **options)
    return load(folder / f"{name}.onnx")


EXTERNAL = {"save_as_external_data": True, "size_threshold": 0}
BIG = np.linspace(-1, 1, 1 << 19, dtype=np.float32)


@pytest.fixture
def reads(monkeypatch):
    """The bytes that were read of data files, so far."""
    counts: list[int] = []
    blocks = DataFile.blocks

    def counted(self, offset, length, *block):
        counts.append(length)
        return blocks(self, offset, length, *block)

    monkeypatch.setattr(DataFile, "blocks", counted)
    return counts


def test_weights_in_other_files_are_compared_by_content(tmp_path):
    other = BIG.copy()
    other[[3, 400_000]] += 0.5
    first = big(tmp_path, BIG, "first", location="first.bin", **EXTERNAL)

    assert diff(first, big(tmp_path, BIG, "inside")).same
    (found,) = diff(first, big(tmp_path, other, "second", location="b.bin", **EXTERNAL)).differences
    assert (found.contents.differing, found.contents.max_abs) == (2, 0.5)


def test_weights_in_the_same_place_are_not_read(tmp_path, reads):
    first = big(tmp_path, BIG, "first", location="first.bin", **EXTERNAL)
    second = load(tmp_path / "first.onnx")
    second.proto.graph.node[0].op_type = "Sub"

    assert len(diff(first, second).differences) == 1
    assert reads == []


def test_weights_of_another_size_are_not_read(tmp_path, reads):
    first = big(tmp_path, BIG, "first")
    second = big(tmp_path, BIG[:-1], "second")

    (found,) = lines(first, second)

    assert found == "changed initializer 'w' (float [524288]): shape"
    assert sum(reads) < 1000


@pytest.mark.parametrize("dtype", ["int8", "int64", "bool", "float16", "float64", "complex64"])
def test_any_dtype_is_compared(tmp_path, dtype):
    array = np.arange(5000).astype(dtype)
    other = array.copy()
    other[0] = 1

    first, second = big(tmp_path, array, "first"), big(tmp_path, other, "second")

    (found,) = diff(first, second).differences
    assert found.contents.differing == 1
    assert found.contents.max_abs == 1


def test_packed_elements_are_compared(tmp_path):
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["y"])]
    models = []
    for name, value in (("first", 1), ("second", 3)):
        values = [0] * 4000 + [value]
        tensor = helper.make_tensor("w", TensorProto.INT4, [4001], values)
        onnx.save(model_of(nodes, ["s"], ["y"], [tensor]), tmp_path / f"{name}.onnx")
        models.append(load(tmp_path / f"{name}.onnx"))

    (found,) = diff(*models).differences
    assert (found.contents.differing, found.contents.max_abs) == (1, 2)


# the command


def test_the_command_says_what_differs_and_exits_with_1():
    models = [str(FIXTURES / name) for name in ("whole_model.onnx", "faulty_attribute.onnx")]

    done = CliRunner().invoke(app, ["diff", *models, "--run", "--seed", "3"])

    assert done.exit_code == 1
    assert done.stdout.startswith(
        "changed node Conv 'Conv_6' (@6): attribute dilations [1, 1] -> [2, 2]; attribute pads"
    )
    assert "mismatch at value '31'" in done.stdout


def test_the_command_exits_with_0_when_nothing_differs():
    model = str(FIXTURES / "control_flow.onnx")

    done = CliRunner().invoke(app, ["diff", model, model, "--run", "--json"])

    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["same"]
    assert found["differences"] == []
    assert {output["match"] for output in found["outputs"].values()} == {True}


def test_a_run_feeds_renamed_inputs_by_what_they_are():
    proto = whole().proto
    first, second = Model(proto), Model(disguised(proto, 1, keep_ends=False))

    sides = GraphIndex.of(first), GraphIndex.of(second)
    feeds = {"input.1": np.ones((1, 3, 20, 20), np.float32)}
    with Runtime() as runtime:
        trial = Trial(feeds, run(sides[0], feeds, runtime))
        found = with_outputs(sides, diff(first, second), [trial], runtime)

    assert found.same
    assert found.outputs["31"].max_abs == 0


INTERFACE = "g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Sub(a, b) z = Exp(b) }"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (INTERFACE.replace("g (float", "h (float"), ["metadata graph 'g'"]),
        (INTERFACE.replace("float[2] a, float[2] b", "float[2] b, float[2] a"), ["input inputs"]),
        (INTERFACE.replace("float[2] y, float[2] z", "float[2] z, float[2] y"), ["output outputs"]),
        # 'a' is 'a', whatever reads it
        (INTERFACE.replace("Sub(a, b)", "Sub(b, a)"), ["node Sub @0"]),
    ],
)
def test_names_and_order_of_the_interface_are_compared(other, expected, model_of):
    found = diff(model_of(INTERFACE), model_of(other, "other.onnx"))

    assert [f"{d.kind} {d.subject}" for d in found.differences] == expected


def test_documentation_and_metadata_are_compared(model_of):
    model = model_of(INTERFACE)
    other = model.copy()
    graph = other.proto.graph
    for message in (other.proto, graph, graph.input[0], graph.output[0], graph.node[0]):
        message.doc_string = "another"
        message.metadata_props.add(key="k", value="v")

    found = diff(model, other).differences

    assert sorted(d.kind for d in found) == [
        "input",
        "metadata",
        "metadata",
        "metadata",
        "node",
        "output",
    ]


def test_a_model_equals_itself_where_an_input_is_undefined():
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>{INTERFACE}')
    proto.graph.node[0].input[1] = "nowhere"

    assert diff(Model(proto), Model(proto)).same


def scaled_twice(nodes: str) -> str:
    """Two products whose other factors only their numbers tell apart, and their sum."""
    w, v = (", ".join(str(i * step % 11 - 5.3) for i in range(64)) for step in (37, 29))
    return f"g (float[8,8] x) => (float[8,8] y) <float[8,8] w = {{{w}}}, float[8,8] v = {{{v}}}> {{ {nodes} }}"


@pytest.fixture
def swapped(tmp_path) -> list[str]:
    """One sum; of the second model the products come in the other order, and their factors too."""
    texts = (
        "p = Mul(x, w) q = Mul(x, v) y = Add(p, q)",
        "i = Mul(v, x) j = Mul(w, x) y = Add(i, j)",
    )
    paths = [tmp_path / "first.onnx", tmp_path / "second.onnx"]
    for path, nodes in zip(paths, texts, strict=True):
        onnx.save(onnx.parser.parse_model(HEADER + scaled_twice(nodes)), path)
    return list(map(str, paths))


@pytest.mark.parametrize("saved", [False, True])
def test_nodes_may_be_paired_by_their_values(saved, swapped, tmp_path):
    mapping = str(tmp_path / "map.json") if saved else "auto"
    if saved:
        CliRunner().invoke(app, ["match", *swapped, "--save", mapping])

    done = CliRunner().invoke(app, ["diff", *swapped, "--map", mapping])

    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "changed node Mul @0, @1 in the second: input 0 'x' -> 'w'; input 1 'w' -> 'x'",
        "changed node Mul @1, @0 in the second: input 0 'x' -> 'v'; input 1 'v' -> 'x'",
        "changed node Add @2: input 0 'p' -> 'i'; input 1 'q' -> 'j'",
    ]


def test_a_map_of_other_models_is_told(swapped, tmp_path):
    (tmp_path / "map.json").write_text('{"pairs": [{"a": "nowhere", "b": "nothing"}]}')

    done = CliRunner().invoke(app, ["diff", *swapped, "--map", str(tmp_path / "map.json")])

    assert done.exit_code == 2
    assert "'nowhere'" in done.output


def test_two_swapped_outputs_tell_nothing_of_the_dimensions_of_others():
    text = """g (float[N] x) => (float[%s] p, float[%s] q, float[more] r)
        <float[1] w = {1}> { %s = Concat<axis = 0>(x, w) %s = Concat<axis = 0>(x, w, w) r = Concat<axis = 0>(w, x) }"""
    one, other = (
        parsed(text % names) for names in (("more", "most", "p", "q"), ("most", "more", "q", "p"))
    )

    assert lines(one, other) == [
        "changed output 'p': comes from",
        "changed output 'q': comes from",
    ]


def test_a_type_that_is_declared_otherwise_is_found_among_many():
    nodes = "".join(f"v{i + 1} = Relu(v{i}) " for i in range(300))
    declared = ", ".join(f"float[2] v{i}" for i in range(1, 300))
    model = osl.build(f"many (float[2] v0) => (float[2] v300) <{declared}> {{ {nodes} }}")
    other = model.copy()
    other.proto.graph.value_info[150].type.tensor_type.shape.dim[0].dim_value = 3
    other.proto.graph.node[20].op_type = "Abs"

    found = osl.diff(model, other)

    assert "'v151': type float [2] -> float [3]" in str(found)
    assert "Relu @20" in str(found)
