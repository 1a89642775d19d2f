"""Selectors: value name, node name, id, operator, glob; lists of them."""

import pytest

from onnxsurgeon_lite.errors import AmbiguousNameError, UnknownNameError, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import select_node, select_nodes, select_values

TEXT = """
g (float[4] x) => (float[4] out) {
    ["first"] h1 = Relu (x)
    ["second"] h2 = Neg (h1)
    ["out"] "a,b" = Relu (h2)
    s1, s2 = Split <axis = 0, num_outputs = 2> ("a,b")
    ["twin"] "@7" = Abs (s1)
    ["twin"] "op:Relu" = Abs (s2)
    ["h1"] "h*" = Concat <axis = 0> ("@7", "op:Relu")
    "new
line" = Relu ("h*")
    "-lead" = Neg ("new
line")
    out = Identity ("-lead")
}
"""


@pytest.fixture
def index(model_of):
    return GraphIndex.of(model_of(TEXT))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["x"], ["x"]),
        (["h1"], ["h1"]),
        (["h1,h2"], ["h1", "h2"]),
        (["h1", "h2,x"], ["h1", "h2", "x"]),
        (["a,b"], ["a,b"]),
        (["a,b", "x"], ["a,b", "x"]),
        ([r"a\,b,x"], ["a,b", "x"]),
        (["@7"], ["@7"]),
        (["op:Relu"], ["op:Relu"]),
        (["h*"], ["h*"]),
        (["name:h*"], ["h*"]),
        (["out"], ["out"]),
        (["-lead"], ["-lead"]),
        (["new\nline"], ["new\nline"]),
        (["h?"], ["h1", "h2", "h*"]),
        (["op:Neg"], ["h2", "-lead"]),
        (["op:Neg[1]"], ["-lead"]),
        (["@0"], ["h1"]),
    ],
)
def test_values_are_found(index, arguments, names):
    selection = select_values(index, arguments)

    assert selection.names == names
    assert selection.notes == []


@pytest.mark.parametrize("argument", ["second", "name:second"])
def test_a_node_stands_for_its_output_and_it_is_said(index, argument):
    selection = select_values(index, [argument])

    assert selection.names == ["h2"]
    assert selection.notes == [f"{argument!r} is a node: using its output 'h2'"]


def test_an_unknown_name_comes_with_the_closest(index):
    with pytest.raises(UnknownNameError) as caught:
        select_values(index, ["h1,h3"])

    assert caught.value.name == "h3"
    assert {"h1", "h2"} <= set(caught.value.closest)


@pytest.mark.parametrize("argument", ["@99", "op:Gemm", "op:Neg[2]", "z*", "name:second*", ""])
def test_what_fits_nothing_is_unknown(index, argument):
    with pytest.raises(UnknownNameError):
        select_values(index, [argument])


@pytest.mark.parametrize("kind", ["op:Neg", "pattern:gelu-erf"])
def test_a_number_of_thousands_of_digits_chooses_nothing(index, kind):
    with pytest.raises(UnknownNameError):
        select_values(index, [f"{kind}[{'9' * 5000}]"])


@pytest.mark.parametrize("arguments", [["h1,h1"], ["h1", "first"], ["h1", "h?"]])
def test_a_value_listed_twice_is_refused(index, arguments):
    with pytest.raises(UsageError, match="named more than once: 'h1'"):
        select_values(index, arguments)


def test_a_node_with_several_outputs_is_no_value(index):
    with pytest.raises(AmbiguousNameError, match="2 places") as caught:
        select_values(index, ["op:Split"])

    assert caught.value.candidates == ("s1", "s2")


def test_nodes_of_one_name_are_told_by_their_ids(index):
    with pytest.raises(AmbiguousNameError) as caught:
        select_values(index, ["twin"])

    assert caught.value.candidates == ("@4", "@5")


@pytest.mark.parametrize(
    ("argument", "positions"),
    [
        ("first", [0]),
        ("h1", [6]),  # a node of that name comes before the value's producer
        ("h2", [1]),
        ("@3", [3]),
        ("op:Relu", [0, 2, 7]),
        ("op:Relu[1]", [2]),
        ("twin", [4, 5]),
        ("tw*", [4, 5]),
    ],
)
def test_nodes_are_found(index, argument, positions):
    if argument == "op:Relu":  # a value is called that, too
        positions = [5]

    assert select_nodes(index, argument) == positions


def test_one_node_is_not_chosen_of_several(index):
    with pytest.raises(AmbiguousNameError):
        select_node(index, "twin")
    with pytest.raises(UnknownNameError, match="has no node 'nothing'"):
        select_node(index, "nothing")


def test_the_closest_operators_are_offered(model_of):
    index = GraphIndex.of(model_of("g (float[2] x) => (float[2] y) { h = Softmax(x) y = Relu(h) }"))

    for select in (lambda a: select_values(index, [a]), lambda a: select_nodes(index, a)):
        with pytest.raises(UnknownNameError, match="no operator 'Sofmax'") as caught:
            select("op:Sofmax")
        assert caught.value.closest == ["Softmax"]


def test_nodes_without_names_are_counted_by_their_ids(model_of):
    model = model_of(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { h = Neg(x) y = Abs(h) }'
    )

    with pytest.raises(UnknownNameError, match=r"no node '@9' \(it has 2\)"):
        select_nodes(GraphIndex.of(model), "@9")
