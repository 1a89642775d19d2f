"""Mistakes in operators: another operator of the same kind, one too many, several too many."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, permutations

from onnx import NodeProto

from onnxsurgeon_lite.debug.causes.formulas import is_undefined
from onnxsurgeon_lite.debug.causes.hypothesis import Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.operations import composed
from onnxsurgeon_lite.debug.causes.place import Attribute, Place, wide
from onnxsurgeon_lite.passes import Pass, Remove, Replace, SetAttr, SetOp
from onnxsurgeon_lite.tensors.dtypes import Array, is_float

_IMAGE = 4  # axes of images
_MOST_AXES = 5  # axes whose permutations are tried
_PAIRS = 256  # pairs of values of a region between which all is left out
_VARIANTS: Mapping[str, Sequence[tuple[str, Attribute, str]]] = {
    "AveragePool": [("count_include_pad", 1, ", which counts the padding")],
    "LeakyRelu": [("alpha", alpha, f", alpha={alpha:g}") for alpha in (0.1, 0.2, 0.3, 0.25)],
    "Gelu": [("approximate", "tanh", ", approximate=tanh")],
    "HardSigmoid": [("alpha", 1 / 6, ", alpha=1/6")],
}
"""Operator -> (attribute, its other usual value, the words for it)."""
_ONLY = {"MaxPool": ("storage_order", "dilations"), "AveragePool": ("count_include_pad",)}
"""Operator -> its attributes that the others of its kind lack."""
_NEUTRAL = {"Mul": 0.0, "Div": 0.0, "Add": 1.0, "Sub": 1.0}
"""Operator -> the operand that others of its kind do not use."""
_KEEP = ("Relu", "LeakyRelu", "Elu", "Abs")
"""Operators that return positive numbers as they are."""
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
KINDS = sorted(
    (
        line.split()
        for line in (
            " ".join(_ARITHMETIC),
            "Max Min",
            "Relu Sigmoid Tanh Gelu Erf Exp Log Sqrt Reciprocal Softsign Softplus LeakyRelu Elu Selu HardSigmoid"
            " HardSwish Mish Neg Abs Identity Sin Cos",
            "ReduceMean ReduceSum ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp",
            "ArgMax ArgMin",
            "MaxPool AveragePool",
            "GlobalMaxPool GlobalAveragePool",
            "Softmax LogSoftmax",
            "Floor Ceil Round",
            "Less LessOrEqual Greater GreaterOrEqual Equal",
            "And Or Xor",
        )
    ),
    key=len,
)
"""Operators that one may stand in place of another; the fewer there are, the likelier is each."""


def other_operators(place: Place) -> Hypotheses:
    """Yield other operators of the same kind."""
    nodes = list(enumerate(place.nodes))
    for kind in KINDS:
        for number, node in nodes:
            if node.op_type in _ARITHMETIC and _has_number(place, node):
                continue
            for op_type in kind if node.op_type in kind else ():
                keeps = op_type in _KEEP and _is_positive(place, node)
                usual = op_type not in (node.op_type, "Identity") and not keeps
                if usual and not _is_undefined(place, node, op_type):
                    yield from _with(place, number, node, op_type)


def other_arithmetic(place: Place) -> Hypotheses:
    """Yield other operators with a number: a step too many that another takes back is the simpler mistake."""
    for number, node in enumerate(place.nodes):
        if node.op_type in _ARITHMETIC and _has_number(place, node):
            for op_type in _ARITHMETIC:
                if op_type != node.op_type and not _is_undefined(place, node, op_type):
                    yield from _with(place, number, node, op_type)


def _with(place: Place, number: int, node: NodeProto, op_type: str) -> Hypotheses:
    """Yield a node with another operator, and its usual attributes."""
    for steps, with_ in _set_op(place, number, node, op_type):
        sentence = f"{place.title(number)} should be {op_type}{with_}; with that"
        mistake = ("operator", node.op_type, op_type, with_)
        yield Hypothesis("operator", sentence, steps, mistake)


def _has_number(place: Place, node: NodeProto) -> bool:
    """Return whether a node scales or shifts by one number."""
    read = map(place.constant, node.input)
    return any(array is not None and array.size == 1 for array in read)


def _is_positive(place: Place, node: NodeProto) -> bool:
    """Return whether nothing tells an operator that keeps positive numbers from none at all."""
    read = place.operand(node.input[0])
    return read is not None and is_float(read.dtype) and bool((wide(read) >= 0).all())


def _is_undefined(place: Place, node: NodeProto, op_type: str) -> bool:
    """Return whether another operator is not defined for what a node reads."""
    read = list(map(place.operand, node.input))
    given = [wide(array) for array in read if array is not None and array.dtype.kind in "fViu"]
    return len(given) == len(read) and is_undefined(op_type, *given)


def _set_op(
    place: Place, number: int, node: NodeProto, op_type: str
) -> Iterator[tuple[Edits, str]]:
    """Yield the edits that set an operator, with its attributes."""
    token = place.only(number)
    has = {attribute.name for attribute in node.attribute}
    drop = tuple(name for name in _ONLY.get(node.op_type, ()) if name in has)
    first: Edits = (SetAttr(token, remove=drop),) if drop else ()
    yield (*first, SetOp(token, op_type)), ""
    for name, value, with_ in _VARIANTS.get(op_type, ()):
        yield (*first, SetOp(token, op_type), SetAttr(token, ((name, value),))), with_


def other_parts(place: Place) -> Hypotheses:
    """Yield one position instead of the mean or the largest of an axis, and the other way; other orders of elements."""
    yield from _pixels(place)
    yield from _turned(place)
    for number, node in enumerate(place.nodes):
        reduces = node.op_type in ("ReduceMean", "ReduceMax", "ReduceSum")
        data, made = place.operand(node.input[0]) if node.input else None, node.output[0]
        result = place.values.get(made)
        if data is None or result is None or result.ndim != data.ndim - 1:
            continue
        ends, title = ((node.input[0],), (made,)), place.title(number)
        axes = [a for a in range(data.ndim) if data.shape[:a] + data.shape[a + 1 :] == result.shape]
        for axis in axes if reduces else ():
            for at, which in ((0, "first"), (-1, "last")):
                inputs = (node.input[0], str(at))
                edit = Replace(inputs, (made,), "Gather", (("axis", axis),))
                sentence = f"{title} takes all positions of axis {axis}; with the {which} one alone"
                yield Hypothesis("position", sentence, (edit,), ("position", node.op_type, at))
        for axis in axes if node.op_type in ("Gather", "Squeeze") else ():
            for op_type in ("ReduceMean", "ReduceMax", "ReduceSum"):
                old = place.opset < (13 if op_type == "ReduceSum" else 18)
                attributes = (("keepdims", 0), *((("axes", [axis]),) if old else ()))
                inputs = (node.input[0], *(() if old else (f"[{axis}]",)))
                edit = Replace(inputs, ends[1], op_type, attributes)
                sentence = f"{title} takes one position of axis {axis}; with {op_type} of all"
                yield Hypothesis("position", sentence, (edit,), ("position", node.op_type, op_type))


def _turned(place: Place) -> Hypotheses:
    """Yield axes that are exchanged where they are laid out anew, and the other way."""
    for number, node in enumerate(place.nodes):
        data, result = place.operand(node.input[0]) if node.input else None, node.output[0]
        made = place.values.get(result)
        if data is None or made is None or data.ndim != made.ndim or data.ndim > _MOST_AXES:
            continue
        should_be = f"{place.title(number)} should be"
        if node.op_type == "Transpose" and data.shape != made.shape:
            sizes = str([*made.shape])
            edit = Replace((node.input[0], sizes), (result,), "Reshape")
            fixed = any(place.is_open(result, axis) for axis in range(made.ndim))
            mistake = ("laid out",)
            yield Hypothesis(
                "operator", f"{should_be} Reshape; with that", (edit,), mistake, fixed=fixed
            )
        for axes in permutations(range(data.ndim)) if node.op_type == "Reshape" else ():
            exchanged = [axis for axis in axes if data.shape[axis] > 1]
            fits = tuple(data.shape[axis] for axis in axes) == made.shape
            if fits and exchanged != sorted(exchanged):
                edit = Replace((node.input[0],), (result,), "Transpose", (("perm", [*axes]),))
                sentence = f"{should_be} Transpose {[*axes]}; with that"
                yield Hypothesis("operator", sentence, (edit,), ("turned", axes))


def _pixels(place: Place) -> Hypotheses:
    """Yield DepthToSpace and SpaceToDepth between values that have their shapes."""
    values = [(n, v.shape) for n, v in place.values.items() if v.ndim == _IMAGE and all(v.shape)]
    for (start, deep), (end, large) in permutations(values, 2):
        for op_type, a, b in (("DepthToSpace", deep, large), ("SpaceToDepth", large, deep)):
            size = b[2] // a[2]
            grown = (a[0], a[1] // size**2, a[2] * size, a[3] * size) if size > 1 else ()
            if grown != b or not place.index.ancestors([end], stop=[start]):
                continue
            for mode in ("CRD", "DCR") if op_type == "DepthToSpace" else ("",):
                attributes = (("blocksize", size), *((("mode", mode),) if mode else ()))
                edit = Replace((start,), (end,), op_type, attributes)
                sentence = f"what computes {end!r} from {start!r} orders pixels otherwise; with {op_type} {mode}"
                yield Hypothesis("pixels", sentence.rstrip(), (edit,), ("pixels", op_type, mode))


def extra_operations(place: Place) -> Hypotheses:
    """Yield nodes that should not be there, but for those that join two branches."""
    for hypothesis, joins in _extra(place):
        if not joins:
            yield hypothesis


def extra_joins(place: Place) -> Hypotheses:
    """Yield nodes that join two branches and should not be there: what reads one, may have to read the other."""
    for hypothesis, joins in _extra(place):
        if joins:
            yield hypothesis


def _extra(place: Place) -> Iterator[tuple[Hypothesis, bool]]:
    for number, node in enumerate(place.nodes):
        value = node.output[0]
        made = place.values.get(value)
        if made is None:
            continue
        for name in dict.fromkeys(node.input):
            read = place.operand(name) if name else None
            if read is None or read.size != made.size or read.dtype != made.dtype:
                continue
            if read.shape != made.shape and not _is_reshaped(place, node):
                continue
            if place.constant(name) is not None or _is_neutral(place, node, name):
                continue
            others = [n for n in node.input if n and n != name and place.constant(n) is None]
            joins = value != place.value and not all(_is_smaller(place, n, read) for n in others)
            edit: Pass = Replace((name,), (value,), op_type="Identity")
            sentence, instead = f"{place.title(number)} is one too many; without it", ""
            if others:
                edit, instead = _bypassed(place, number, name)
            mistake = ("extra", node.op_type)
            yield Hypothesis("extra operation", sentence, (edit,), mistake, instead=instead), joins


def _is_smaller(place: Place, name: str, read: Array) -> bool:
    other = place.operand(name)
    return other is not None and other.size < read.size


def _is_neutral(place: Place, node: NodeProto, name: str) -> bool:
    """Return whether another operator keeps what a node reads as it is: that is as likely as that it is too much."""
    others = [place.operand(other) for other in node.input if other != name]
    number = _NEUTRAL.get(node.op_type)
    return number is not None and any(o is not None and bool((o == number).all()) for o in others)


def _bypassed(place: Place, number: int, name: str) -> tuple[Pass, str]:
    """Return (the edit that connects what reads a node to one of its inputs, the value which that is then)."""
    node, token = place.nodes[number], place.only(number)
    if name not in place.inputs or node.output[0] != place.value:
        return Remove(token, bridge=name), name if node.output[0] == place.value else ""
    read = {n: a for n in node.input if n and (a := place.operand(n)) is not None}
    made = read.pop(name)  # what enters a region cannot be what leaves it
    return composed(place, name, node.output[0], made, "y = Identity(x)", {}, read), ""


def _is_reshaped(place: Place, node: NodeProto) -> bool:
    """Return whether nothing but another shape is made of a Transpose."""
    readers = place.consumers.get(node.output[0], [])
    reshaping = (place.nodes[n].op_type in ("Reshape", "Flatten") for n in readers)
    return node.op_type == "Transpose" and bool(readers) and all(reshaping)


def extra_steps(place: Place) -> Hypotheses:
    """Yield several nodes that should not be there."""
    values = list(place.values.items())
    pairs = ((one, other) for i, one in enumerate(values) for other in values[i + 1 :])
    for (start, read), (end, made) in islice(pairs, _PAIRS):
        if read.shape != made.shape or read.dtype != made.dtype or end in place.inputs:
            continue
        if len(place.index.ancestors([end], stop=[start])) > 1 and is_float(made.dtype):
            edit = Replace((start,), (end,), op_type="Identity")
            sentence = f"what computes {end!r} from {start!r} is one too many; without it"
            yield Hypothesis("extra operations", sentence, (edit,), ("extra", "several"))
