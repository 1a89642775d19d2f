"""Mistakes that a seeded draw chooses: a kind, a network, an exporter, references, then a node that can have it.

Nobody chooses what is easy. A draw whose mistake has no place in the network, or changes nothing, is drawn again.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from cases import Case

import onnxsurgeon_lite as osl
from models import NETWORKS, network
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.passes import (
    Pass,
    Pipeline,
    Remove,
    Rewire,
    SetAttr,
    SetConstant,
    SetOp,
)

Export = Callable[[Case, str, Path], Path]
Planted = tuple[tuple[Pass, ...], str]
"""(the edits that make a mistake, a pattern of its true cause)."""

_ACTIVATIONS = {
    **{op: op for op in ("Relu", "Tanh", "Sigmoid", "HardSwish", "Softmax", "LogSoftmax")},
    **dict.fromkeys(("Gelu", "Erf"), "GELU|Gelu|Erf"),
}
_OTHERS = {"Relu": "LeakyRelu", "Tanh": "Sigmoid", "Sigmoid": "HardSigmoid", "ReduceMean": "ReduceMax", "Mul": "Add",
           "Sub": "Add", "Softmax": "LogSoftmax", "Gelu": "Relu"}  # fmt: skip


class Drawing:
    """A right export, its values, and the places of mistakes in it."""

    def __init__(self, path: Path, name: str) -> None:
        self.model = osl.load(path)
        self.index = GraphIndex.of(self.model)
        made = [value for node in self.index.nodes for value in node.output if value]
        feeds = {"given": network(name)[1].numpy()}
        self.feeds = feeds
        self.values = {**feeds, **osl.run(self.model, feeds=feeds, fetch=made)}

    def shows(self, wrong: osl.Model) -> bool:
        """Whether a model with a mistake runs, and computes something else."""
        right = self.values["made"]
        try:
            made = osl.run(wrong, feeds=self.feeds)["made"]
        except osl.SurgeonError:
            return False
        return made.shape != right.shape or np.abs(made - right).max() > 1e-3 * np.abs(right).max()

    def constant(self, name: str) -> np.ndarray | None:
        tensor = constant(self.index, name) if name else None
        return None if tensor is None else self.model.array(tensor)

    def computed(self, number: int) -> list[str]:
        """The values that a node reads and that are no constants."""
        return [n for n in self.index.nodes[number].input if n and self.constant(n) is None]

    def weights(self, ranks: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
        """Constants of numbers with one of these ranks."""
        for name in self.index.initializers:
            array = self.constant(name)
            if array is None or array.ndim not in ranks or array.dtype.kind != "f":
                continue
            if array.size > 8 and np.ptp(array) > 0:
                yield name, array


Kind = Callable[[Drawing], Iterator[Planted]]
Change = Callable[[np.ndarray], np.ndarray | None]


def _gone(number: int, instead: str) -> Pass:
    return Remove((f"@{number}",), bridge=instead)


def operand(at: Drawing) -> Iterator[Planted]:
    """A value that is not added."""
    for number, node in enumerate(at.index.nodes):
        read = at.computed(number)
        if node.op_type == "Add" and len(read) == 2:
            yield from (((_gone(number, name),), "not added") for name in read)


def bias(at: Drawing) -> Iterator[Planted]:
    """A constant that is not added."""
    for number, node in enumerate(at.index.nodes):
        read = at.computed(number)
        sizes = [np.size(at.constant(n)) for n in node.input if n not in read]
        if node.op_type == "Add" and len(read) == 1 and max(sizes) > 1:
            yield (_gone(number, read[0]),), "bias|not added"


def activation(at: Drawing) -> Iterator[Planted]:
    """An activation that is missing."""
    for number, node in enumerate(at.index.nodes):
        if node.op_type in _ACTIVATIONS:
            yield (_gone(number, node.input[0]),), _ACTIVATIONS[node.op_type]


def operator(at: Drawing) -> Iterator[Planted]:
    """Another operator."""
    for number, node in enumerate(at.index.nodes):
        if node.op_type in _OTHERS:
            steps = (SetOp((f"@{number}",), _OTHERS[node.op_type]),)
            named = f"with {node.op_type}|{node.op_type} is missing|is not {node.op_type}"
            yield steps, f"(?i){named}"


def factor(at: Drawing) -> Iterator[Planted]:
    """A factor that is not applied, or another one."""
    for number, node in enumerate(at.index.nodes):
        read = at.computed(number)
        if node.op_type in ("Mul", "Div") and len(read) == 1 and read[0] == node.input[0]:
            array = at.constant(node.input[1])
            if array is not None and array.size == 1:
                old = f"{float(array.reshape(-1)[0]):.4g}"[:5].replace(".", r"\.")
                pattern = rf"factor|multiplied|sqrt|with {old}|divided"
                yield (_gone(number, read[0]),), pattern
                new = (array * 2).astype(array.dtype)
                yield (SetConstant(node.input[1], new, (f"@{number}",)),), f"{pattern}|with|scaled"


def order(at: Drawing) -> Iterator[Planted]:
    """Two operands exchanged."""
    for number, node in enumerate(at.index.nodes):
        shapes = [np.shape(at.values.get(name)) for name in node.input]
        if node.op_type in ("Concat", "Sub", "Div", "MatMul") and len(at.computed(number)) == 2:
            one, two, to = *node.input[:2], (f"@{number}",)
            if shapes[0] == shapes[1] and one != two:
                yield (Rewire(one, two, to, 0), Rewire(two, one, to, 1)), "order|exchanged"


def other_value(at: Drawing) -> Iterator[Planted]:
    """A node that reads another value."""
    for number, node in enumerate(at.index.nodes):
        below = at.index.made_by(at.index.descendants([number]))
        for slot, old in enumerate(node.input):
            read = at.values.get(old)
            for new, value in at.values.items() if read is not None and read.ndim > 1 else ():
                alike = value.shape == read.shape and value.dtype == read.dtype
                if alike and new != old and new not in below and new not in node.output:
                    pattern = "reads|exchanged|one for the other|not added|missing|too many"
                    yield (Rewire(old, new, (f"@{number}",), slot),), pattern


def permutation(at: Drawing) -> Iterator[Planted]:
    """A Transpose whose last axes are exchanged."""
    for number, node in enumerate(at.index.nodes):
        shape = np.shape(at.values.get(node.output[0]))
        if node.op_type == "Transpose" and shape[-1] == shape[-2]:
            perm = [*node.attribute[0].ints]
            perm[-2:] = perm[:-3:-1]
            yield (SetAttr((f"@{number}",), (("perm", perm),)),), "perm|Transpose|transposed|order"


def epsilon(at: Drawing) -> Iterator[Planted]:
    """Another epsilon."""
    for number, node in enumerate(at.index.nodes):
        if any(attribute.name == "epsilon" for attribute in node.attribute):
            yield (SetAttr((f"@{number}",), (("epsilon", 0.05),)),), "epsilon"


def padding(at: Drawing) -> Iterator[Planted]:
    """Padding on the other side."""
    for number, node in enumerate(at.index.nodes):
        for attribute in node.attribute:
            pads = [*attribute.ints]
            if node.op_type in ("Conv", "MaxPool", "AveragePool") and attribute.name == "pads":
                half = len(pads) // 2
                if pads[0] and pads[half]:
                    pads[0], pads[half] = pads[0] + 1, pads[half] - 1
                    yield (SetAttr((f"@{number}",), (("pads", pads),)),), "pads"


def _weight(make: Change, ranks: tuple[int, ...], pattern: str) -> Kind:
    def planted(at: Drawing) -> Iterator[Planted]:
        for name, array in at.weights(ranks):
            made = make(array)
            if made is not None and not np.array_equal(made, array):
                yield (SetConstant(name, made.astype(array.dtype)),), pattern

    return planted


def _transposed(array: np.ndarray) -> np.ndarray | None:
    return array.T.copy() if array.shape[0] == array.shape[1] else None


def _without_a_row(array: np.ndarray) -> np.ndarray | None:
    if len(array) < 4:
        return None
    made = array.copy()
    made[3] = 0
    return made


def _in_bfloat16(array: np.ndarray) -> np.ndarray:
    return (array.view(np.uint32) & 0xFFFF0000).view(np.float32)


def other_weight(at: Drawing) -> Iterator[Planted]:
    """The constant of another layer."""
    known = [*at.weights((1, 2, 3, 4))]
    for name, array in known:
        for other, numbers in known:
            if other != name and numbers.shape == array.shape:
                yield (SetConstant(name, numbers),), "another layer|reads constant|exchanged"


KINDS: dict[str, Kind] = {
    **{
        made.__name__: made
        for made in (operand, bias, activation, operator, factor, order, other_value, permutation)
    },
    **{made.__name__: made for made in (epsilon, padding, other_weight)},
    "transposed": _weight(_transposed, (2,), "transposed"),
    "row": _weight(_without_a_row, (2,), r"zero at \[3\]"),
    "bfloat16": _weight(_in_bfloat16, (2, 3, 4), "bfloat16"),
    "scaled": _weight(lambda array: array * 1.2, (1, 2, 3, 4), "scaled"),
    "reversed": _weight(lambda array: array[::-1].copy(), (1, 2, 3, 4), "reversed|order"),
}


def drawn(seed: int, count: int, folder: Path, export: Export) -> Iterator[Case]:
    """Yield the cases that a seed draws, with their wrong models in a folder."""
    chosen, names = random.Random(seed), [name for name in NETWORKS if name != "llama"]  # opset 23
    while count:
        kind, name = chosen.choice([*KINDS]), chosen.choice(names)
        exporter, references = (
            chosen.choice(pair) for pair in (("torchscript", "dynamo"), ("model", "modules"))
        )
        at = Drawing(export(Case(name, "", exporter, references, ""), "", folder), name)
        found = [*KINDS[kind](at)]
        if not found:
            continue
        steps, pattern = chosen.choice(found)
        try:
            wrong = Pipeline(steps).apply(at.model).model
        except osl.SurgeonError:  # the model does not take it
            continue
        if at.shows(wrong):
            bug = f"{kind}{seed}{chosen.randrange(1000)}"
            osl.save(wrong, folder / f"{name}_{bug}_{exporter}.onnx", force=True)
            yield Case(name, bug, exporter, references, pattern)
            count -= 1
