"""The tables of what people mistake for each other: what they hold is true."""

import numpy as np
import pytest
from onnx import defs

from kit.causes import model, numbers, references
from onnxsurgeon_lite.debug.causes.formulas import FORMULAS, PARTS
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES

OPERATORS = {schema.name for schema in defs.get_all_schemas()}
COMPOSED = [name for name, (_, nodes) in MISTAKES["activations"].items() if nodes]


@pytest.mark.parametrize("activation", COMPOSED)
def test_the_nodes_of_an_activation_compute_its_formula(activation):
    _, nodes = MISTAKES["activations"][activation]
    constants = {name: np.float32(n) for name, n in MISTAKES["numbers"].items()}
    read = {name: n for name, n in constants.items() if f" {name})" in nodes}
    x = numbers(4, 8)

    made = references(model(f"g (float[4,8] x) => (float[4,8] y) {{ {nodes} }}", **read), x=x)["y"]

    np.testing.assert_allclose(made, {**FORMULAS, **PARTS}[activation](x), atol=1e-5)


def test_operators_that_are_written_in_place_of_each_other_exist():
    kinds = [line.split() for line in MISTAKES["operators"]["kinds"]]

    assert {name for kind in kinds for name in kind} <= OPERATORS
    assert {*MISTAKES["operators"]["missing"].split()} <= OPERATORS
    assert {*MISTAKES["variants"], *MISTAKES["only"]} <= {name for kind in kinds for name in kind}


def test_kinds_of_few_operators_come_first():
    lengths = [len(line.split()) for line in MISTAKES["operators"]["kinds"]]

    assert lengths == sorted(lengths)
