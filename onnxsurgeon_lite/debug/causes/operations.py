"""Mistakes in operations: another operator, one too many, one that is missing, one at another place."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from onnx import parser

from onnxsurgeon_lite.debug.causes.attributes import text
from onnxsurgeon_lite.debug.causes.formulas import FORMULAS
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.linear import taken_back, wanted_at
from onnxsurgeon_lite.debug.causes.place import Indices, Place, Wide, fits, small, spread_over, wide
from onnxsurgeon_lite.model import loaded
from onnxsurgeon_lite.passes import Insert, Pass, Replace, Rewire
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    data_type_of_numpy,
    dtype_name,
    from_array,
    is_float,
)

_UNARY = (
    *("Relu", "Gelu", "Sigmoid", "Tanh", "Softmax", "Neg", "Exp", "Sqrt", "Reciprocal", "Abs", "Erf", "Softplus"),
    *("LeakyRelu", "Elu", "HardSwish", "Mish", "Floor", "Round", "Log", "LogSoftmax"),
)  # fmt: skip
_CLIPS = ((0.0, 6.0), (-1.0, 1.0), (0.0, 1.0), (0.0, 255.0), (-128.0, 127.0))
_PRODUCTS = ("MatMul", "Gemm", "Conv", "Einsum")  # results that are scaled
_LARGEST_SIZE = 4097  # of a dimension that a factor follows from
_ACTIVATING = 12  # nodes of an activation
_MOVED_NODES = 16  # nodes of a region in which nodes are moved
_IN_FRONT = (
    ("Add", True, "{other!r} is not added to {name!r}"),
    ("Mul", True, "{other!r} is not multiplied with {name!r}"),
    ("Sub", True, "{other!r} is not subtracted from {name!r}"),
    ("Div", True, "{name!r} is not divided by {other!r}"),
    ("Sub", False, "{name!r} is not subtracted from {other!r}"),
    ("Div", False, "{other!r} is not divided by {name!r}"),
)
"""Operations of two operands: operator, True if the value that is read is the first one, what is missing."""
_NAMES = {"Add": "added to", "Mul": "multiplied with", "Sub": "subtracted from", "Div": "dividing"}


def operations(place: Place) -> Iterator[Hypothesis]:
    """Yield what is missing behind a node."""
    yield from _missing_at_the_end(place)
    yield from _missing_steps(place)
    yield from _missing_operands(place)
    yield from _replaced(place)


def other_operations(place: Place) -> Iterator[Hypothesis]:
    """Yield operations that are missing in front of a node, or at another place."""
    yield from _lacking_operands_on_the_way(place)
    yield from _missing_on_the_way(place)
    yield from _missing_operands_on_the_way(place)
    if len(place.index.nodes) <= _MOVED_NODES:
        yield from _moved(place)


def _missing_at_the_end(place: Place) -> Iterator[Hypothesis]:
    """Yield operators behind the wrong value, where their formula gives what is wanted."""
    value, actual = place.value, place.actual
    if actual is None or not is_float(actual.dtype):
        return
    alike = actual.shape == place.wanted.shape
    some = place.some(actual) if alike else np.empty(0)
    with np.errstate(all="ignore"):
        close = [n for n, formula in FORMULAS.items() if alike and place.close(formula(some))]
    for op_type, attributes, more in _operators(place, value):
        if op_type in ("Transpose", "Softmax", "LogSoftmax") or (op_type + more) in close:
            edit = Insert(value, op_type, attributes=attributes, before=True)
            sentence = f"{op_type}{more} is missing behind {place.maker}; with it"
            yield Hypothesis("missing operation", sentence, (edit,), ("missing", op_type, more))
    for low, high in _CLIPS if alike else ():
        if place.close(np.clip(some, low, high)):
            edit = Insert(value, "Clip", constants=(("low", low), ("high", high)), before=True)
            clip = f"Clip to {text(low)} .. {text(high)}"
            sentence = f"{clip} is missing behind {place.maker}; with it"
            yield Hypothesis("missing operation", sentence, (edit,), ("missing", "Clip", low, high))


def _operators(
    place: Place, value: str
) -> Iterator[tuple[str, tuple[tuple[str, str | list[int] | int], ...], str]]:
    """Yield (operator, attributes, as text) of nodes with one input."""
    yield from ((op_type, (), "") for op_type in _UNARY)
    yield "Gelu", (("approximate", "tanh"),), " (tanh)"
    array = place.operand(value)
    for axis in range(array.ndim - 1 if array is not None else 0):
        yield "Softmax", (("axis", axis),), f" along axis {axis}"
    if array is not None and 1 < array.ndim < 5:
        for axes in permutations(range(array.ndim)):
            wanted = place.wanted.shape if value == place.value else array.shape
            if [*axes] != [*range(array.ndim)] and tuple(array.shape[a] for a in axes) == wanted:
                yield "Transpose", (("perm", list(axes)),), f" {list(axes)}"


def _missing_operands(place: Place) -> Iterator[Hypothesis]:
    """Yield operands that were not added or not multiplied, found among the recorded values and the constants."""
    for number, node in enumerate(place.index.nodes):
        value = node.output[0]
        wanted, computed = wanted_at(place, number), place.values.get(value)
        if wanted is None or computed is None or computed.shape != wanted.shape:
            continue
        lacks = Lacking.of(wanted, wide(computed))
        for name, array in _candidates(place, number, wanted.shape):
            if name in node.input:
                continue
            for op_type in lacks.filled_by(array):
                edit = Insert(value, op_type, (value, name), before=True)
                sentence = f"{name!r} is not {_NAMES[op_type]} the result of {place.title(number)}; with it"
                yield Hypothesis("missing operand", sentence, (edit,))
        yield from _missing_bias(place, number, wanted - wide(computed))


@dataclass(frozen=True)
class Lacking:
    """What turns a result into the wanted one, by operator, at some of its elements."""

    at: tuple[Indices, ...]
    shape: tuple[int, ...]
    wanted: Wide
    made: Wide

    @classmethod
    def of(cls, wanted: Wide, made: Wide) -> "Lacking":
        at = spread_over(wanted)
        return cls(at, wanted.shape, wanted[at], made[at])

    def filled_by(self, array: Array) -> Iterator[str]:
        """Yield the operators with which a value gives what is wanted."""
        there = wide(np.broadcast_to(array, self.shape)[self.at])
        if not np.abs(there).max(initial=0.0) > 0:
            return
        with np.errstate(all="ignore"):
            given = {
                "Add": self.made + there,
                "Sub": self.made - there,
                "Mul": self.made * there,
                "Div": self.made / there,
            }
        for op_type, result in given.items():
            if np.isfinite(result).all() and small(result - self.wanted, self.wanted):
                yield op_type


def _candidates(place: Place, number: int, shape: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    given = {n: v for n, v in place.inputs.items() if isinstance(v, np.ndarray)}
    before = place.index.nodes[:number]
    made = {n: place.values[n] for node in before for n in node.output if n in place.values}
    beside = {n: a for n in place.beside if (a := place.constant(n)) is not None}
    for name, array in {**given, **made, **place.nearby, **beside}.items():
        if is_float(array.dtype) and array.size > 1 and fits(array.shape, shape):
            yield name, array


def _missing_bias(place: Place, number: int, lacks: Wide) -> Iterator[Hypothesis]:
    """Yield a bias per channel that was not added, solved for."""
    node, scale = place.index.nodes[number], place.scale or 1.0
    value = node.output[0]
    biases = [*node.input[2 if node.op_type in _PRODUCTS else -1 :]]
    around = (node, *(place.index.nodes[n] for n in place.index.consumers.get(value, [])))
    biases += (name for each in around if each.op_type == "Add" for name in each.input)
    if any(place.constant(name) is not None for name in biases):
        return  # that constant is what is wrong
    for axis in dict.fromkeys((lacks.ndim - 1, 1)) if lacks.ndim > 1 else ():
        others = tuple(a for a in range(lacks.ndim) if a != axis)
        bias = lacks.mean(axis=others, keepdims=True)
        with np.errstate(invalid="ignore"):  # infinities
            flat = bool((np.abs(lacks - bias) <= 1e-4 * scale).all())
        if lacks.shape[axis] == lacks.size or not flat or not (np.abs(bias) > 1e-4 * scale).any():
            continue
        numbers = bias.reshape(bias.shape[axis:]).astype(place.values[value].dtype)
        edit = Insert(value, "Add", constants=((f"{value}_bias", numbers),), before=True)
        title = place.title(number)
        sentence = f"a bias is not added to the result of {title}; with one that was solved for,"
        yield Hypothesis("missing bias", sentence, (edit,), (), bias.size, lacks.size)
        return


def _missing_steps(place: Place) -> Iterator[Hypothesis]:
    """Yield what is missing between an input of the region and all that reads it."""
    for name, right, where in right_inputs(place):
        given = place.operand(name)
        if given is None or given.shape != right.shape or not is_float(given.dtype):
            continue
        made, wanted = wide(given), wide(right)
        yield from _missing_activation(name, made, wanted, where)
        lacks = Lacking.of(wanted, made)
        for other, array in _candidates(place, 0, wanted.shape):
            for op_type in lacks.filled_by(array) if other != name else ():
                edit = Insert(name, op_type, (name, other))
                sentence = f"{other!r} is not {_NAMES[op_type]} {name!r}; with it"
                yield Hypothesis("missing operand", sentence, (edit,))
        yield from _missing_factor(name, made, wanted, where)
        yield from _missing_constant(name, given, wanted, where)


def right_inputs(place: Place) -> Iterator[tuple[str, Array, str]]:
    """Yield (input, what it should be, where that is known from)."""
    for name, (step, right) in product(place.inputs, place.lacking.items()):
        yield name, right, f"behind {name!r}, where the references have {step!r}"
    for number, node in enumerate(place.index.nodes):
        wanted = wanted_at(place, number)
        has_constant = any(place.constant(name) is not None for name in node.input)
        if has_constant and node.op_type in ("Add", "Sub"):
            continue  # that constant is what is wrong
        for slot, name in enumerate(node.input):
            if wanted is None or name not in place.inputs or list(node.input).count(name) != 1:
                continue
            needed = taken_back(place, node, slot, wanted)
            if needed is not None:
                yield name, needed, f"behind {name!r}"


def _missing_activation(name: str, made: Wide, wanted: Wide, where: str) -> Iterator[Hypothesis]:
    for title, formula in FORMULAS.items():
        op_type, _, more = title.partition(" ")
        with np.errstate(all="ignore"):
            close = small(formula(made) - wanted, wanted)
        if close and op_type not in ("Identity", "Silu") and more != "(sigmoid)":
            edit = Insert(name, op_type, attributes=(("approximate", "tanh"),) if more else ())
            sentence = f"{title} is missing {where}; with it"
            yield Hypothesis("missing operation", sentence, (edit,))


def _missing_constant(name: str, given: Array, wanted: Wide, where: str) -> Iterator[Hypothesis]:
    """Yield a constant that was not added, as small as it can be."""
    lacks, scale = wanted - wide(given), float(np.abs(wanted).max(initial=0.0)) or 1.0
    if lacks.size and np.ptp(lacks) <= 1e-5 * scale:
        return  # a number, not an operand
    flat = [
        a
        for a, size in enumerate(lacks.shape)
        if size > 1 and (np.abs(lacks - lacks.mean(axis=a, keepdims=True)) <= 1e-5 * scale).all()
    ]
    if not flat or not (np.abs(lacks) > 1e-4 * scale).any():
        return
    numbers = lacks.mean(axis=tuple(flat), keepdims=True)
    edit = Insert(name, "Add", constants=((f"{name}_bias", numbers.astype(given.dtype)),))
    what = "a bias" if numbers.size == max(numbers.shape) else f"a constant {list(numbers.shape)}"
    sentence = f"{what} is not added {where}; with one that was solved for,"
    vague = numbers.size > max(numbers.shape)
    yield Hypothesis(
        "missing constant", sentence, (edit,), (), numbers.size, lacks.size, vague=vague
    )


def _missing_factor(name: str, made: Wide, wanted: Wide, where: str) -> Iterator[Hypothesis]:
    """Yield the one number with which a value is not multiplied."""
    power = float(np.square(made).sum())
    factor = float((made * wanted).sum()) / power if np.isfinite(power) and power else 1.0
    if abs(factor - 1) < 1e-4 or not small(made * factor - wanted, wanted):
        return
    sizes = range(2, _LARGEST_SIZE)
    known = [(f"1/sqrt({n})", n**-0.5) for n in sizes] + [(f"sqrt({n})", n**0.5) for n in sizes]
    near = [(what, number) for what, number in known if abs(number / factor - 1) < 1e-4]
    what, factor = near[0] if near else (f"{factor:.6g}", float(f"{factor:.6g}"))
    edit = Insert(name, "Mul", constants=(("factor", factor),))
    sentence = f"a factor {what} is missing {where}; with it"
    yield Hypothesis(
        "missing factor", sentence, (edit,), ("factor", what), int(not near), wanted.size
    )


def _ways(place: Place) -> Iterator[tuple[str, Array, tuple[int, ...]]]:
    """Yield (value, its numbers, nodes that read it) of floats on their way: to all readers, then to each."""
    for name, array in place.values.items():
        readers = tuple(place.index.consumers.get(name, ()))
        if readers and is_float(array.dtype) and place.constant(name) is None:
            yield name, array, readers
            if len(readers) > 1:
                yield from ((name, array, (reader,)) for reader in readers)


def _missing_on_the_way(place: Place) -> Iterator[Hypothesis]:
    """Yield operators and activations between a value and what reads it."""
    for name, array, readers in _ways(place):
        to, who = tuple(map(place.node, readers)), " and ".join(map(place.title, readers))
        where = f"is missing between {name!r} and {who}; with it"
        kinds = tuple(place.index.nodes[reader].op_type for reader in readers)
        for op_type, attributes, more in _operators(place, name):
            edit = Insert(name, op_type, attributes=attributes, to=to)
            mistake = ("between", op_type, kinds)
            yield Hypothesis("missing operation", f"{op_type}{more} {where}", (edit,), mistake)
        for activation, (title, nodes) in _ACTIVATIONS.items():
            if nodes:
                new = f"{name}_activated"
                there = Insert(name, "Identity", to=to, output=new)
                edits = (there, _activation(place, name, new, array, activation, nodes))
                mistake = ("between", title, kinds)
                yield Hypothesis("missing operation", f"{title} {where}", edits, mistake)


def _missing_operands_on_the_way(place: Place) -> Iterator[Hypothesis]:
    """Yield values that do not go into what a node reads: residuals, embeddings, norms, gates."""
    for op_type, first, said in _IN_FRONT:
        for name, array, readers in _ways(place):
            to = tuple(map(place.node, readers))
            for other, _ in _candidates(place, min(readers), array.shape):
                if other != name or op_type == "Mul":
                    operands = (name, other) if first else (other, name)
                    edit = Insert(name, op_type, operands, to=to)
                    sentence = f"{said.format(name=name, other=other)}; with it"
                    yield Hypothesis("missing operand", sentence, (edit,))


def _lacking_operands_on_the_way(place: Place) -> Iterator[Hypothesis]:
    """Yield references that no value has and that are the same for all of a batch: an embedding of positions."""
    for (name, array), (step, right) in product(place.inputs.items(), place.lacking.items()):
        if not isinstance(array, np.ndarray) or not is_float(array.dtype):
            continue
        if 1 < right.size < array.size and is_float(right.dtype) and fits(right.shape, array.shape):
            constants = (("lacking", right.astype(array.dtype)),)
            edit = Insert(name, "Add", constants=constants)
            sentence = f"the references' {step!r} is not added to {name!r}; with its numbers"
            yield Hypothesis("missing operand", sentence, (edit,))


_ERF = "h = Mul(x, a) e = Erf(h) o = Add(e, one) m = Mul(x, o) y = Mul(m, half)"
_TANH = (
    "p = Mul(x, x) q = Mul(p, x) r = Mul(q, k) s = Add(x, r) t = Mul(s, c) u = Tanh(t) o = Add(u, one)"
    " m = Mul(x, o) y = Mul(m, half)"
)
_ACTIVATIONS = {
    "Gelu": ("GELU (erf)", _ERF),
    "Gelu (tanh)": ("GELU (tanh)", _TANH),
    "Gelu (sigmoid)": ("GELU (sigmoid)", "v = Mul(x, g) w = Sigmoid(v) y = Mul(x, w)"),
    "Silu": ("SiLU", "w = Sigmoid(x) y = Mul(x, w)"),
    **{op: (op, "") for op in ("Relu", "Tanh", "Sigmoid", "Softplus")},
    **{op: (op, "") for op in ("Elu", "Identity", "LeakyRelu", "HardSwish")},
}
"""Formula -> (title, its nodes in ONNX syntax where no operator has it)."""
_NUMBERS = {"a": 2**-0.5, "one": 1, "half": 0.5, "k": 0.044715, "c": (2 / np.pi) ** 0.5, "g": 1.702}


def _replaced(place: Place) -> Iterator[Hypothesis]:
    """Yield activations in place of all nodes between two values of the same shape."""
    for start, end in _between(place):
        given, made = place.some_of(start), place.some_of(end)
        for name, (title, nodes) in _ACTIVATIONS.items():
            with np.errstate(all="ignore"):
                result = FORMULAS[name](given)
            is_there = small(result - made, made)
            if place.close(result) if end == place.value else not is_there:
                what = f"what computes {end!r} from {start!r}"
                sentence = f"{what} is not {title}; with {title}"
                edits = _activation(place, start, end, place.values[end], name, nodes)
                yield Hypothesis("activation", sentence, (edits,), ("activation", title))


def _between(place: Place) -> Iterator[tuple[str, str]]:
    """Yield two values of one shape: any and the wrong one, then an inner one that is a function of the other alone."""
    values = {n: v for n, v in place.values.items() if is_float(v.dtype) and v.size}
    shape = place.wanted.shape
    yield from (
        (n, place.value) for n, v in values.items() if n != place.value and v.shape == shape
    )
    for start, end in permutations(values, 2):
        if end != place.value and values[start].shape == values[end].shape:
            nodes = place.index.ancestors([end], stop=[start])
            made = {name for number in nodes for name in place.index.nodes[number].output}
            read = {name for number in nodes for name in place.index.reads[number]} - made
            constants = {name for name in read if place.constant(name) is not None}
            if read - constants == {start} and len(nodes) <= _ACTIVATING:
                yield start, end


def _activation(place: Place, start: str, end: str, made: Array, name: str, nodes: str) -> Pass:
    """Return a replacement by one operator, or by several where the opset has no such operator."""
    ends = (start,), (end,)
    op_type, _, approximate = name.partition(" ")
    if not nodes or (op_type == "Gelu" and place.opset >= 20 and approximate != "(sigmoid)"):
        attributes = (("approximate", "tanh"),) if approximate else ()
        return Replace(*ends, op_type=op_type, attributes=attributes)
    kind = dtype_name(data_type_of_numpy(made.dtype))
    shape = ", ".join(map(str, made.shape))
    used = {name: value for name, value in _NUMBERS.items() if f"{name})" in nodes}
    header = (
        f'<ir_version: {place.index.model.proto.ir_version}, opset_import: ["" : {place.opset}]>'
    )
    ends_as_text = f"({kind}[{shape}] x) => ({kind}[{shape}] y)"
    parsed = parser.parse_model(f"{header} activation {ends_as_text} {{ {nodes} }}")
    parsed.graph.initializer.extend(
        from_array(np.asarray(value, made.dtype), name) for name, value in used.items()
    )
    return Replace(*ends, model=loaded(parsed))


def missing_factors(place: Place) -> Iterator[Hypothesis]:
    """Yield factors that sizes suggest, in front of a node or behind the last one."""
    for number, node in enumerate(place.index.nodes):
        for name in dict.fromkeys(node.input):
            array = place.operand(name) if name else None
            made = place.index.producer.get(name)
            if made is not None and place.index.nodes[made].op_type not in _PRODUCTS:
                continue
            if array is None or not is_float(array.dtype) or place.constant(name) is not None:
                continue
            for what, factor in factors(place):
                token = (place.node(number),)
                edit = Insert(name, "Mul", constants=(("factor", factor),), to=token)
                sentence = f"{name!r} is not multiplied by {what} in front of {place.title(number)}; with it"
                mistake = ("factor", what, node.op_type)
                yield Hypothesis("missing factor", sentence, (edit,), mistake)
    wanted, actual = place.wanted, place.actual
    if actual is None or not is_float(wanted.dtype) or actual.shape != wanted.shape:
        return
    for what, factor in factors(place):
        if place.close(place.some(actual) * factor):
            edit = Insert(place.value, "Mul", constants=(("factor", factor),), before=True)
            sentence = f"the result of {place.maker} is not multiplied by {what}; with it"
            yield Hypothesis("missing factor", sentence, (edit,), ("factor", what))


def factors(place: Place) -> Iterator[tuple[str, float]]:
    """Yield (as text, factor) of the factors that sizes of the region suggest."""
    shapes = [value.shape for value in (*place.values.values(), *place.nearby.values())]
    sizes = dict.fromkeys(size for shape in shapes for size in shape if size > 1)
    for size in sizes:
        yield f"1/sqrt({size})", size**-0.5
        yield f"sqrt({size})", size**0.5
        yield f"1/{size}", 1 / size
    yield from (("1/255", 1 / 255), ("2", 2.0), ("0.5", 0.5))


def _moved(place: Place) -> Iterator[Hypothesis]:
    """Yield a node with one input at another place: before the addition instead of after it."""
    index = place.index
    for number, node in enumerate(index.nodes):
        data = [name for name in node.input if name and place.constant(name) is None]
        made = place.values.get(node.output[0])
        read = place.operand(data[0]) if len(data) == 1 else None
        if made is None or read is None or made.shape != read.shape:
            continue
        if node.op_type in ("Identity", "Cast", "Reshape"):
            continue
        away = Replace((data[0],), (node.output[0],), op_type="Identity")
        known = place.attributes(node)
        attributes = tuple((a.name, known[a.name]) for a in node.attribute if a.name in known)
        wrong = f"{place.title(number)} stands at the wrong place"
        own, mistake = (place.node(number),), ("moved", node.op_type, "between")
        for value, readers in _edges(place, number, made.shape):
            inputs = tuple(value if name == data[0] else name for name in node.input)
            to = tuple(map(place.node, readers))
            there = Insert(value, node.op_type, inputs, attributes, node.domain, to)
            sentence = f"{wrong}; between {value!r} and {' and '.join(map(place.title, readers))}"
            yield Hypothesis("moved operation", sentence, (there, away), mistake)
            if node.output[0] in place.samples[0].wanted:  # which moves with its node
                made_there = Rewire(value, node.output[0], to)
                edits = (Rewire(node.output[0], data[0]), Rewire(data[0], value, own), made_there)
                yield Hypothesis("moved operation", sentence, edits, mistake)
        if node.output[0] != place.value:
            end = place.value
            inputs = tuple(end if name == data[0] else name for name in node.input)
            there = Insert(end, node.op_type, inputs, attributes, node.domain, before=True)
            mistake = ("moved", node.op_type, "behind")
            sentence = f"{wrong}; behind {place.maker}"
            yield Hypothesis("moved operation", sentence, (there, away), mistake)


def _edges(
    place: Place, moved: int, shape: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (value, nodes that read it) where a node could stand: each reader, and all but additions."""
    for value, array in place.values.items():
        readers = [n for n in place.index.consumers.get(value, []) if n != moved]
        if array.shape != shape or not readers or not is_float(array.dtype):
            continue
        yield from ((value, (reader,)) for reader in readers)
        others = tuple(n for n in readers if place.index.nodes[n].op_type != "Add")
        if len(others) > 1:
            yield value, others
