"""Cuts: the tutorial's own, open ones, broken graphs, and random graphs whose parts run as the whole does."""

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from kit import FIXTURES
from kit.graphs import FEEDS, SLOW, random_models, run
from onnxsurgeon_lite import (
    Expose,
    Extract,
    load,
    save,
)
from onnxsurgeon_lite.errors import CutError, GraphError, OpenCutError, UnknownNameError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.graph.cut import close, missing_inputs
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.surgery.types import downstream

WHOLE = FIXTURES / "whole_model.onnx"


def cut(inputs: str, outputs: str, **options):
    return Extract(tuple(inputs.split()), tuple(outputs.split()), **options).apply(load(WHOLE))


def values_of(model: Model) -> list[str]:
    return [node.output[0] for node in model.proto.graph.node]


@pytest.mark.parametrize(
    ("inputs", "outputs", "values"),
    [
        ("22", "28", "23 24 25 26 27 28"),
        ("22", "27 31", "23 24 25 26 27 28 29 30 31"),
        ("22 input.1", "28", "23 24 25 26 27 28"),
        ("24 26", "28", "25 27 28"),
        ("input.1", "31 23 25 27", "21 22 23 24 25 26 27 28 29 30 31"),
        ("", "22", "21 22"),
        ("28", "", "29 30 31"),
    ],
)
def test_the_tutorials_cuts_hold_what_lies_between(inputs, outputs, values):
    result = cut(inputs, outputs)

    graph = result.model.proto.graph
    assert values_of(result.model) == values.split()
    assert [v.name for v in graph.input] == (inputs.split() or ["input.1"])
    assert [v.name for v in graph.output] == (outputs.split() or ["31"])
    assert check(result.model, full=True).valid


def test_a_redundant_input_is_kept_and_reported():
    result = cut("22 input.1", "28")

    assert result.notes == ("no output depends on input 'input.1': kept",)


def test_an_open_cut_says_what_is_missing_and_what_would_work():
    with pytest.raises(OpenCutError) as caught:
        cut("24", "28")

    assert caught.value.missing == ("27",)
    assert caught.value.path == ("27", "28")
    assert f"onnxdbg extract {WHOLE} --inputs 24,27 --outputs 28" in caught.value.hint
    assert values_of(cut("24", "28", auto_inputs=True).model) == ["25", "28"]


RESIDUAL = """
    g (float[4] x, float[4] m) => (float[4] y) {
        a = Abs(x) b = Neg(a) c = Exp(b) d = Add(c, a) k = Abs(m) e = Mul(d, k) f = Add(e, k) y = Neg(f)
    }
"""


@pytest.mark.parametrize(
    ("inputs", "output", "added"),
    [
        ("b", "d", "a"),  # not 'c', which is computed from 'b'
        ("b", "y", "a k"),  # not 'x' and 'm', from which all is computed
        ("c", "y", "a k"),
        ("d", "y", "k"),
        ("x", "y", "k"),
        ("m", "y", "d"),
    ],
)
def test_what_closes_a_cut_is_beside_or_upstream_of_its_inputs_and_late(
    inputs, output, added, model_of
):
    index = GraphIndex.of(model_of(RESIDUAL))

    assert missing_inputs(index, [inputs], [output]) == added.split()
    assert not close(index, [inputs, *added.split()], [output]).unused


def test_an_input_is_saved_where_few_nodes_are_computed_again(model_of):
    names = [f"p{i}" for i in range(20)]
    chain = " ".join(f"p{i + 1} = Neg(p{i})" for i in range(19))
    text = f"""g (float[2] x, float[2] s) => (float[2] y) {{
        h = Abs(x) p0 = Abs(s) {chain} q = Exp(p0) r = Sin(p0) t = Add(h, q) u = Add(t, r) v = Add(u, LAST) y = Neg(v)
    }}"""
    near, far = (GraphIndex.of(model_of(text.replace("LAST", n))) for n in ("r", names[-1]))

    assert missing_inputs(near, ["h"], ["y"]) == ["p0"]
    assert missing_inputs(far, ["h"], ["y"]) == ["p0", names[-1]]


def test_an_output_upstream_of_the_input_is_refused():
    with pytest.raises(CutError, match="'22' lies upstream"):
        cut("28", "22")


def test_a_value_that_is_input_and_output_is_refused():
    with pytest.raises(CutError, match="both an input and an output"):
        cut("24", "24")


def test_an_unknown_value_comes_with_the_closest():
    with pytest.raises(UnknownNameError) as caught:
        cut("imput.1", "28")

    assert caught.value.closest == ["input.1"]


def broken(tmp_path, *nodes, functions=()) -> Model:
    vector = helper.make_tensor_type_proto(1, [4])
    graph = helper.make_graph(
        list(nodes),
        "broken",
        [helper.make_value_info("x", vector)],
        [helper.make_value_info("y", vector)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
    onnx.save(model, tmp_path / "broken.onnx")
    return load(tmp_path / "broken.onnx")


def test_a_cycle_is_named(tmp_path):
    model = broken(
        tmp_path,
        helper.make_node("Add", ["x", "b"], ["a"], "first"),
        helper.make_node("Neg", ["a"], ["b"], "second"),
        helper.make_node("Abs", ["b"], ["y"]),
    )

    with pytest.raises(GraphError, match="cycle of 2 nodes: .*'first'.*'second'"):
        Extract((), ("y",)).apply(model)


def test_two_producers_of_a_value_are_named(tmp_path):
    model = broken(
        tmp_path,
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Abs", ["x"], ["y"], "abs"),
    )

    with pytest.raises(GraphError, match="'y' has two producers: Neg @0 and Abs 'abs'"):
        Extract((), ("y",)).apply(model)


def test_a_function_that_calls_itself_is_named(tmp_path):
    call = helper.make_node("again", ["a"], ["b"], domain="local")
    function = helper.make_function(
        "local", "again", ["a"], ["b"], [call], [helper.make_opsetid("local", 1)]
    )
    top = helper.make_node("again", ["x"], ["y"], domain="local")

    with pytest.raises(GraphError, match="call themselves, directly or indirectly: 'local::again'"):
        Extract((), ("y",)).apply(broken(tmp_path, top, functions=[function]))


def chain(length: int, reverse: bool = False) -> onnx.ModelProto:
    nodes = [helper.make_node("Neg", [f"h{i}"], [f"h{i + 1}"]) for i in range(length)]
    vector = helper.make_tensor_type_proto(1, [4])
    ends = [helper.make_value_info(name, vector) for name in ("h0", f"h{length}")]
    graph = helper.make_graph(nodes[::-1] if reverse else nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("length", "reverse"), [(50_000, False), (3000, True)])
def test_long_chains_are_cut_without_recursion(tmp_path, length, reverse):
    onnx.save(chain(length, reverse), tmp_path / "chain.onnx")
    model = load(tmp_path / "chain.onnx")

    part = Extract((f"h{length // 2}",), (f"h{length // 2 + 100}",)).apply(model).model

    assert len(part.proto.graph.node) == 100
    assert len(GraphIndex.of(model).order) == length


def nested(depth: int) -> str:
    """An If in an If in an If: each captures `u` from the outermost graph, and shadows nothing."""
    if not depth:
        return "q0 = Add(u, u)"
    inner = nested(depth - 1)
    return f"""q{depth} = If(c) <
        then_branch = t{depth} () => (float[4] q{depth - 1}) {{ {inner} }},
        else_branch = e{depth} () => (float[4] z{depth}) {{ z{depth} = Neg(u) }}
    >"""


def test_what_deep_bodies_capture_is_kept(tmp_path, model_of):
    model = model_of(f"""
        deep (float[4] x, bool c) => (float[4] y) {{ u = Abs(x) {nested(5)} y = Neg(q5) }}
    """)

    index = GraphIndex.of(model)
    part = Extract(("x", "c"), ("q5",)).apply(model).model

    assert index.reads[1] == ["c", "u"]
    assert values_of(part) == ["u", "q5"]


def test_a_name_that_a_body_defines_itself_is_not_captured(model_of):
    model = model_of("""
        shadow (float[4] x, bool c) => (float[4] y) {
            u = Abs(x)
            y = If(c) <
                then_branch = t () => (float[4] q) { u = Neg(x) q = Add(u, u) },
                else_branch = e () => (float[4] z) { z = Neg(x) }
            >
        }""")

    part = Extract((), ("y",)).apply(model).model

    assert values_of(part) == ["y"]


def index_ancestors(model: Model, values: list[str]) -> set[str]:
    """What the values are computed from."""
    index = GraphIndex.of(model)
    return {name for p in index.ancestors(values) for name in index.nodes[p].output}


@SLOW
@given(random_models(), st.data())
def test_a_part_of_a_random_graph_computes_what_it_did_inside(tmp_path, runtime, proto, data):
    onnx.save(proto, tmp_path / "random.onnx")
    model = load(tmp_path / "random.onnx")
    inner = sorted(name for name in GraphIndex.of(model).producer)
    output = data.draw(st.sampled_from(inner))
    inputs = data.draw(
        st.lists(st.sampled_from([n for n in inner if n != output]), max_size=3, unique=True)
    )
    runtime_values = run(runtime, Expose(all_values=True).apply(model).model, FEEDS)
    exact = tuple(
        "name:" + name.replace("\\", "\\\\").replace(",", "\\,") for name in (*inputs, output)
    )

    try:
        part = Extract(exact[:-1], exact[-1:], auto_inputs=True).apply(model).model
    except CutError:
        assert set(index_ancestors(model, inputs)) & {output}
        return
    save(part, tmp_path / "part.onnx")

    loaded = load(tmp_path / "part.onnx")
    known = {**FEEDS, **runtime_values}
    feeds = {value.name: known[value.name] for value in loaded.proto.graph.input}
    assert set(inputs) <= feeds.keys()
    assert run(runtime, loaded, feeds)[output].tolist() == runtime_values[output].tolist()


@SLOW
@given(random_models(), st.data())
def test_the_proposed_inputs_close_the_cut_and_leave_the_given_ones_in_use(tmp_path, proto, data):
    onnx.save(proto, tmp_path / "random.onnx")
    index = GraphIndex.of(load(tmp_path / "random.onnx"))
    inner = sorted(index.producer)
    output = data.draw(st.sampled_from(inner))
    given_inputs = data.draw(st.lists(st.sampled_from(inner), max_size=2, unique=True))
    given_inputs = [name for name in given_inputs if name != output]

    try:
        close(index, given_inputs, [output])
        return
    except OpenCutError:
        found = missing_inputs(index, given_inputs, [output])
    except CutError:
        return

    closed = close(index, [*given_inputs, *found], [output])
    used = set(given_inputs).difference(close(index, [*given_inputs, "x0", "x1"], [output]).unused)
    assert used.isdisjoint(closed.unused)
    assert not set(found) & downstream(index, used)
    assert not set(found) & set(closed.unused)
    for name in set(found) & set(index.inputs):  # nothing nearer closes it
        others = [n for n in (*inner, *index.inputs) if n not in (name, output)]
        late = [n for n in others if n not in downstream(index, used)]
        with pytest.raises(CutError):
            close(index, [*given_inputs, *late], [output])


@pytest.mark.parametrize(
    ("inputs", "outputs", "problem"),
    [
        (["y"], ["x"], "'x' lies upstream of the inputs 'y'"),
        (["y"], ["z"], "'z' is an input of the graph"),
        (["x"], ["y", "z"], "'z' is an input of the graph"),
    ],
)
def test_an_input_of_the_graph_is_no_output_of_a_cut(model_of, inputs, outputs, problem):
    model = model_of(
        "g (float[2] x, float[2] z) => (float[2] y, float[2] w) { y = Abs(x) w = Add(y, z) }"
    )

    with pytest.raises(CutError, match=problem):
        close(GraphIndex.of(model), inputs, outputs)


def test_a_node_kept_for_its_other_outputs_drops_the_cut_name(model_of):
    model = model_of("""
        two (float[4] x) => (float[2] y) {
            a, b = Split<axis = 0, num_outputs = 2>(x)
            y = Add(a, b)
        }
    """)

    part = Extract(("x", "a"), ("y",)).apply(model).model

    assert part.proto.graph.node[0].output[0] not in ("a", "")
    assert part.proto.graph.node[0].output[1] == "b"
    assert check(part, full=True).valid
