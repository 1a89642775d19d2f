"""Mistakes in operations: another operator, one too many, one that is missing, one at another place."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, permutations, product
from types import MappingProxyType

import numpy as np
from onnx import parser

from onnxsurgeon_lite.debug.causes.attributes import text
from onnxsurgeon_lite.debug.causes.formulas import ACTIVATIONS, FORMULAS, computed, is_undefined
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import fitted
from onnxsurgeon_lite.debug.causes.place import (
    Ints,
    Place,
    RegionNode,
    but,
    fits,
    small,
    spread_over,
    titled,
    who,
)
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.model import loaded, walk
from onnxsurgeon_lite.passes import Insert, Pass, Remove, Replace, Rewire
from onnxsurgeon_lite.surgery.constants import Numbers
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    Arrays,
    Wide,
    data_type_of_numpy,
    dtype_name,
    from_array,
    has_floats,
    peak,
    wide,
)

_UNARY = MISTAKES["operators"]["missing"].split()
_USUAL = MISTAKES["factors"].items()
_ROUNDING = ("Floor", "Round")
_FIRST = 64  # elements that show what cannot fit
_INTEGERS = ("Ceil", "QuantizeLinear", "DynamicQuantizeLinear", "DequantizeLinear")
"""Operators beside which a rounding may be missing, and those that round."""
_PRODUCTS = ("MatMul", "Gemm", "Conv", "Einsum")  # results that are scaled
_ACTIVATED = _PRODUCTS + ("Add", "BatchNormalization", "LayerNormalization")
_COUNTING = ("Cast", "Range", "CumSum", "NonZero")
_PART = 1e-4  # a smaller difference is none
_FLAT = 3e-5  # a smaller one is noise
_MOST = 0.5  # of the numbers of a constant that was forgotten are not zero
_GELU, _TANH_LIKE = "Gelu (tanh)", (("approximate", "tanh"),)
_SCORING = ("MatMul", "Mul", "Div", "Add", "Where")
_SCALING = 4  # nodes between a product and its Softmax
_SMALLEST = 1e-2  # factor that follows from a size
_LARGEST_SIZE = 4097  # of a dimension that a factor follows from
_ACTIVATING = 12  # nodes of an activation
_AXES_READ = 13  # the opset since which Squeeze reads its axes
RESHAPING = ("Reshape", "Flatten")
OF_THE_LAST_AXIS = ("LayerNormalization", "RMSNormalization")
"""Normalizations that are the same for every position."""
_MOVED_NODES = 16  # of a region in which all nodes are moved anywhere; in a larger one norms alone
_FILLED: Mapping[str, tuple[str, Callable[[Wide, Wide], Wide]]] = {
    "Add": ("added to", np.add),
    "Sub": ("subtracted from", np.subtract),
    "Mul": ("multiplied with", np.multiply),
    "Div": ("dividing", np.divide),
}
"""Operator -> what is not done with another value, and what it makes of a value and the other one."""


Edge = tuple[str, Array, list[RegionNode]]


def operations(place: Place) -> Hypotheses:
    """Yield what is missing after a node."""
    # numpy shows only of what works on single elements whether it fits
    for step in _steps(place, place.value):
        if step.formula is None:
            mistake, where = ("missing", step.title), f"behind {place.maker}"
            yield step.missing(place, place.value, where, (), True, mistake)
    yield from _missing_steps(place)
    yield from _replaced(place, activations=False)


def other_operations(place: Place) -> Hypotheses:
    """Yield operations that are missing before a node."""
    yield from _lacking_operands_on_edges(place)
    yield from _missing_on_edges(place, edges(place))
    yield from _missing_operands_on_edges(place, "usual")
    yield from _missing_operands_on_edges(place, "rare")


@dataclass(frozen=True)
class ForgottenStep:
    """An operation with one input that somebody may have forgotten.

    Attributes:
        title: as sentences name it.
        constants: what its operator reads besides the value.
        nodes: its row in the table of activations where the opset has no operator for it; else empty.
        formula: what it makes of single elements; None of what arranges elements, or depends on others.
    """

    title: str
    op_type: str
    attributes: tuple[tuple[str, str | list[int] | int], ...] = ()
    constants: tuple[tuple[str, Numbers], ...] = ()
    nodes: str = ""
    formula: Callable[[Wide], Wide] | None = None

    def missing(
        self,
        place: Place,
        name: str,
        where: str,
        to: tuple[str, ...] = (),
        before: bool = False,
        mistake: tuple[object, ...] = (),
    ) -> Hypothesis:
        """Return the hypothesis that the operation is missing after a value, or before it gets its name."""
        edits: Edits
        if self.nodes:
            made = place.values[name]
            activated = partial(_activation, place, made=made, name=self.nodes)
            edits = put_in(name, activated, to, before)
        else:
            edit = Insert(name, self.op_type, (), self.attributes, "", to, before)
            edits = (replace(edit, constants=self.constants),)
        sentence = f"{self.title} is missing {where}; with it"
        return Hypothesis("missing operation", sentence, edits, mistake)


def _steps(place: Place, value: str) -> Iterator[ForgottenStep]:
    """Yield what may be missing after a value: operators, limits, activations that the opset has no operator for."""
    rounds, array = may_round(place), place.operand(value)
    for name in _UNARY + [_GELU]:
        if (rounds or name not in _ROUNDING) and _is_operator(place, name):
            attributes = _TANH_LIKE if name == _GELU else ()
            yield ForgottenStep(
                name, name.partition(" ")[0], attributes, formula=FORMULAS.get(name)
            )
    if array is None or not array.size:
        return
    wanted = place.wanted if value == place.value else array
    yield from _rearranging(array.shape, wanted.shape)
    least, most = array.min(), array.max()
    for low, high in MISTAKES["scalars"]["clips"]:
        if least < low or most > high:
            title, limits = f"Clip to {text(low)} .. {text(high)}", (("low", low), ("high", high))
            formula = partial(np.clip, a_min=low, a_max=high)
            yield ForgottenStep(title, "Clip", constants=limits, formula=formula)
    for name, (title, *_) in ACTIVATIONS.items():
        if name in FORMULAS and not _is_operator(place, name):
            yield ForgottenStep(title, name, nodes=name, formula=FORMULAS[name])


def _rearranging(shape: Ints, wanted: Ints | None = None) -> Iterator[ForgottenStep]:
    """Yield exchanged axes that give the wanted shape; without one, all that change what a Reshape makes of them."""
    rank = len(shape)
    for axes in permutations(range(rank)) if 1 < rank < 5 else ():
        # before a Reshape, axes of one number may as well stay
        stay = all(size > 1 or axes[axis] == axis for axis, size in enumerate(shape))
        fitting = stay if wanted is None else tuple(shape[a] for a in axes) == wanted
        if list(axes) != sorted(axes) and fitting:
            yield ForgottenStep(f"Transpose {list(axes)}", "Transpose", (("perm", list(axes)),))


def _candidates(place: Place, number: int, shape: Ints) -> Iterator[tuple[str, Array]]:
    """Yield the values that could be an operand of a node: what enters, what is made before it, what is nearby."""
    before = (name for name in place.values if place.producer.get(name, -1) < number)
    for name in dict.fromkeys(chain(before, place.nearby, place.beside)):
        array = place.nearby[name] if name in place.nearby else place.operand(name)
        if not has_floats(array) or array.size < 2:
            continue
        laid = _laid(array, len(shape), place.opset)
        if fits(laid.shape, shape):
            yield name, laid


def _laid(array: Array, rank: int, opset: int) -> Array:
    """Return a value without its last axes of size 1, or with more of them, where it has another rank."""
    shape = array.shape + (1,) * (rank - array.ndim)
    while len(shape) > rank and shape[-1] == 1:
        shape = shape[:-1]
    return array.reshape(shape) if opset >= _AXES_READ else array


def _joined(place: Place, edit: Insert, other: str, laid: Array) -> Edits:
    """Return the edits that put in a node which also reads another value, with as many axes as it needs."""
    array = place.nearby[other] if other in place.nearby else place.operand(other)
    if array is None or array.ndim == laid.ndim:
        return (edit,)
    operator = "Squeeze" if array.ndim > laid.ndim else "Unsqueeze"
    nodes = f"u = {operator}(x1, axes) y = {edit.op_type}({'u, x' if edit.inputs[0] == other else 'x, u'})"
    least, most = sorted((array.ndim, laid.ndim))
    axes = {"axes": np.arange(least, most)}
    made, unread = place.values[edit.value], {other: array}
    joined = partial(composed, place, made=made, nodes=nodes, numbers=axes, unread=unread)
    return put_in(edit.value, joined, edit.to, edit.before)


@dataclass(frozen=True)
class Right:
    """A value of a region, and what it should be.

    Attributes:
        where: where something is missing.
        maker: the node that makes it; None if what is read is wrong, not what is made.
        step: the reference without a value of the model that has the right numbers; else empty.
    """

    name: str
    made: Wide
    wanted: Wide
    where: str
    maker: RegionNode | None
    step: str = ""

    def edit(
        self,
        op_type: str,
        constants: tuple[tuple[str, Numbers], ...] = (),
        other: str = "",
    ) -> Insert:
        """Return the edit that puts there what is missing."""
        inputs, before = (self.name, other) if other else (), self.maker is not None
        return Insert(self.name, op_type, inputs, before=before, constants=constants)

    def is_close(self, formula: Callable[[Wide], Wide]) -> bool:
        """Return whether a formula gives what is wanted, at some elements: at few first."""
        at = spread_over(self.wanted)
        made, wanted = self.made[at].reshape(-1), self.wanted[at].reshape(-1)
        few = slice(_FIRST)
        return _is_small(formula, made[few], wanted[few]) and _is_small(formula, made, wanted)

    def filled_by(self, array: Array) -> Iterator[str]:
        """Yield the operators with which another value gives what is wanted."""
        at = spread_over(self.wanted)
        there = wide(np.broadcast_to(array, self.wanted.shape)[at])
        for op_type, (_, formula) in _FILLED.items() if there.any() else ():
            if _is_small(formula, self.made[at], self.wanted[at], there):
                yield op_type


def _is_small(formula: Callable[..., Wide], made: Wide, wanted: Wide, *others: Wide) -> bool:
    """Return whether a formula makes finite numbers that are nearly those wanted."""
    left = formula(made, *others) - wanted
    return bool(np.isfinite(left).all()) and small(left, wanted)


def right_values(place: Place) -> Iterator[Right]:
    """Yield what values should be that nodes make, that they read, or that only the references have."""
    for site in place.sites:
        if site.wanted is None:
            continue
        yield from _right(place, site.output, site.wanted, f"behind {site.title}", site)
        if site.op_type in ("Add", "Sub") and any(map(place.is_constant, site.input)):
            continue  # that constant is what is wrong
        for slot, name in enumerate(site.input):
            if name in place.inputs and site.input.count(name) == 1:
                needed = site.taken_back(slot, site.wanted)
                if needed is not None:
                    yield from _right(place, name, needed, f"behind {name!r}")
    for name, (step, right) in product(place.values, place.lacking.items()):
        where = f"behind {name!r}, where the references have {step!r}"
        yield from (replace(found, step=step) for found in _right(place, name, right, where))


def _right(
    place: Place, name: str, wanted: Array, where: str, maker: RegionNode | None = None
) -> Iterator[Right]:
    made = place.operand(name)
    if has_floats(made) and made.shape == wanted.shape:
        yield Right(name, wide(made), wide(wanted), where, maker)


def _missing_steps(place: Place) -> Hypotheses:
    """Yield what is missing after values: an activation, an operand, a constant, a factor."""
    for right in right_values(place):
        yield from missing_activation(place, right)
        # an operand is another value than those that the maker reads already
        maker, to, read = right.maker, repr(right.name), [right.name]
        if maker is not None:
            to, read = f"the result of {maker.title}", read + list(maker.input)
        number = 0 if maker is None else maker.number
        for other, array in _candidates(place, number, right.wanted.shape):
            for op_type in right.filled_by(array) if other not in read else ():
                sentence = f"{other!r} is not {_FILLED[op_type][0]} {to}; with it"
                edits = _joined(place, right.edit(op_type, other=other), other, array)
                yield Hypothesis("missing operand", sentence, edits)
        yield from _missing_constant(place, right)
        if maker is None:
            yield from _missing_factor(right)


def may_round(place: Place) -> bool:
    """Return whether a model has rounded values: elsewhere a Sigmoid that is rounded is the slope of a Relu."""
    return any(node.op_type in _ROUNDING + _INTEGERS for node in place.whole.nodes)


def missing_activation(place: Place, right: Right) -> Hypotheses:
    """Yield operators and activations whose formula gives what is wanted."""
    for step in _steps(place, right.name):
        if step.formula is not None and right.is_close(step.formula):
            before = right.maker is not None
            mistake = ("missing", step.title) if before else ()
            yield step.missing(place, right.name, right.where, (), before, mistake)


def _has_bias(place: Place, right: Right, shape: Ints) -> bool:
    """Return whether a constant that can hold what is missing is added to make a value, or to it: it is wrong then."""
    site = place.site_of(right.name)
    if site is None:
        return False
    # a bias of the node itself, else a constant that is added before or behind
    first = 2 if site.op_type in _PRODUCTS else -1
    if site.op_type != "Add" and any(map(place.is_constant, site.input[first:])):
        return True
    added = (each for each in chain([site], place.readers(right.name)) if each.op_type == "Add")
    for name in walk.inputs(each.node for each in added):
        array = place.constant(name)
        if array is not None and fits(shape, np.broadcast_shapes(array.shape, (1,) * len(shape))):
            return True
    return False


def _missing_constant(place: Place, right: Right) -> Hypotheses:
    """Yield a constant that was not added, as small as it can be."""
    # what is lacking must be the same along some axis
    lacks, scale = right.wanted - right.made, peak(right.wanted) or 1.0
    if not lacks.size or not np.isfinite(lacks).all():
        return
    off = [peak(lacks - lacks.mean(axis=a, keepdims=True)) for a in range(lacks.ndim)]
    flat = [a for a, size in enumerate(lacks.shape) if size > 1 and off[a] <= _FLAT * scale]
    if not flat or peak(lacks) <= _PART * scale:
        return
    numbers = lacks.mean(axis=tuple(flat), keepdims=True)
    if np.mean(np.abs(numbers) > _FLAT * scale) < _MOST:
        return  # what is wrong in some places is no operand that was forgotten
    if _has_bias(place, right, numbers.shape):
        return
    edit = right.edit("Add", constants=((f"{right.name}_bias", numbers),))
    vague = numbers.size > max(numbers.shape)
    what = f"a constant {list(numbers.shape)}" if vague else "a bias"
    what = what if numbers.size > 1 else f"{numbers.item():.6g}"
    sentence = f"{what} is not added {right.where}; with one that was solved for,"
    unknowns, equations = numbers.size, lacks.size
    yield Hypothesis("missing constant", sentence, (edit,), (), unknowns, equations, vague=vague)


def _missing_factor(right: Right) -> Hypotheses:
    """Yield the number, or the number by channel, with which a value is not multiplied."""
    made, wanted = right.made, right.wanted
    for axis in (None, *dict.fromkeys((made.ndim - 1, 1))) if made.ndim > 1 else (None,):
        # one factor for all, then one by channel: fewer numbers say more
        factor = fitted(made, wanted, None if axis is None else but(made, axis))[0]
        if not small(made * factor - wanted, wanted):
            continue
        what, numbers, known = "by channel", factor.reshape(factor.shape[axis or 0 :]), False
        if axis is None:
            what, number, known = as_size(float(factor.item()))
            numbers = np.array(number)
        if (np.abs(factor - 1) > _PART).all():
            edit = right.edit("Mul", constants=(("factor", numbers),))
            solved = "one that was solved for," if axis is not None else "it"
            sentence = f"a factor {what} is missing {right.where}; with {solved}"
            mistake = ("factor", what) if axis is None else ()
            unknowns, vague = 0 if known else factor.size, axis is not None
            yield Hypothesis(
                "missing factor", sentence, (edit,), mistake, unknowns, wanted.size, vague=vague
            )
        return


def as_size(factor: float) -> tuple[str, float, bool]:
    """Return (as text, number, whether a size explains it) of a factor that was solved for."""
    for over, power in (("1/", -2), ("", 2)):
        size = round(factor**power) if _SMALLEST < factor < 1 / _SMALLEST else 0
        number = size ** (1 / power) if size else 0.0
        if 1 < size < _LARGEST_SIZE and abs(number / factor - 1) < _PART:
            return f"{over}sqrt({size})", number, True
    return f"{factor:.6g}", float(f"{factor:.6g}"), False


def edges(place: Place) -> Iterator[Edge]:
    """Yield (value, its numbers, nodes that read it) of floats: the edges to all readers, then each edge."""
    for name, array in place.values.items():
        readers = place.readers(name)
        if readers and has_floats(array) and not place.holds_constant(name):
            yield name, array, readers
            if len(readers) > 1:
                yield from ((name, array, [reader]) for reader in readers)


def usual_steps(place: Place) -> Hypotheses:
    """Yield what people most often forget between two nodes: an activation between products, the 1 of a factor."""
    for row in MISTAKES["between"].values():
        found = [edge for edge in edges(place) if _is_usual(place, edge, row["readers"])]
        yield from _missing_on_edges(place, found, row["forgotten"])


def _is_usual(place: Place, edge: Edge, operators: Sequence[str]) -> bool:
    """Return whether operators of a kind read a value; a product only what a product, its bias or its norm makes."""
    name, _, readers = edge
    maker = place.site_of(name)
    fits = maker is not None and (maker.op_type in _ACTIVATED or "Mul" in operators)
    return fits and all(reader.op_type in operators for reader in readers)


def _missing_on_edges(place: Place, there: Iterable[Edge], only: Sequence[str] = ()) -> Hypotheses:
    """Yield operators and activations between a value and what reads it, one after the other."""
    found = [
        (step, name, array, readers)
        for name, array, readers in there
        for step in _steps(place, name)
        if not only or step.title in only
    ]
    # each wherever it may be missing: somebody may have forgotten all of them
    titles = list(dict.fromkeys(step.title for step, *_ in found))
    found.sort(key=lambda each: titles.index(each[0].title))
    for step, name, array, readers in found:
        if is_undefined(step.op_type, wide(array)):
            continue
        to = place.those(readers)
        where = f"between {name!r} and {who(readers)}"
        missing = step.missing(place, name, where, to, mistake=("between", step.title))
        # a transposed product of query and key is a product of key and query
        rank = array.ndim
        exchanged = (("perm", [*range(rank - 2), rank - 1, rank - 2]),)
        scores = _scores(place, name) if step.attributes == exchanged else None
        if scores is not None:
            sentence = f"query and key are exchanged in {scores}, whose result is transposed; transposed back"
            missing = replace(missing, sentence=sentence)
        yield missing


def missing_transposes(place: Place) -> Hypotheses:
    """Yield exchanged axes that are missing before a Reshape: channels that are not moved to the end."""
    for name, array, readers in edges(place):
        if all(reader.op_type in RESHAPING for reader in readers):
            to = place.those(readers)
            where = f"between {name!r} and {who(readers)}"
            for step in _rearranging(array.shape):
                yield step.missing(place, name, where, to, mistake=("between", step.title))


def _scores(place: Place, name: str) -> str | None:
    """Return the product of two computed values that a value is, scaled or masked; None if it is none."""
    whole = place.whole
    for _ in range(_SCALING):
        position = whole.producer.get(name, -1)
        node = whole.nodes[position]
        computed = [n for n in node.input if constant(whole, n) is None]
        if position < 0 or not computed or node.op_type not in _SCORING:
            return None
        if node.op_type == "MatMul" and len(computed) == 2:
            return titled(whole, position)
        name = computed[-1]
    return None


def _missing_operands_on_edges(place: Place, how_often: str) -> Hypotheses:
    """Yield values that do not go into what a node reads: residuals, embeddings, norms, gates.

    Args:
        how_often: the row of the table of forgotten operations: `usual`, `rare`.
    """
    # only what is made before the first reader can go into it
    for op_type, first, said in MISTAKES["operands"][how_often]:
        for name, array, readers in edges(place):
            earliest = min(reader.number for reader in readers)
            for other, laid in _candidates(place, earliest, array.shape):
                if other != name or op_type == "Mul":
                    operands = (name, other) if first else (other, name)
                    edit = Insert(name, op_type, operands, to=place.those(readers))
                    sentence = f"{said.format(name=name, other=other)}; with it"
                    edits = _joined(place, edit, other, laid)
                    yield Hypothesis("missing operand", sentence, edits)


def _lacking_operands_on_edges(place: Place) -> Hypotheses:
    """Yield references that no value has and that are the same for all of a batch: an embedding of positions."""
    # smaller than the value, so that it is the same for all of a batch
    for (name, array), (step, right) in product(place.entering.items(), place.lacking.items()):
        are_floats = has_floats(array) and has_floats(right)
        if are_floats and 1 < right.size < array.size and fits(right.shape, array.shape):
            edit = Insert(name, "Add", constants=(("lacking", right.astype(array.dtype)),))
            sentence = f"the references' {step!r} is not added to {name!r}; with its numbers"
            yield Hypothesis("missing operand", sentence, (edit,))


_SLOPES = {name: float(name[11:-1]) for name in ACTIVATIONS if name.startswith("LeakyRelu (")}


def other_activations(place: Place) -> Hypotheses:
    """Yield other activations in place of those that a region has: people confuse them most."""
    yield from _replaced(place, activations=True)


def _replaced(place: Place, activations: bool) -> Hypotheses:
    """Yield activations in place of all nodes between two values of the same shape.

    Args:
        activations: whether the nodes are an activation now.
    """
    results = dict[str, dict[str, Wide]]()
    for start, end in _between(place):
        # what each activation makes of the one value, and which one makes the other now
        if start not in results:
            given = place.some_of(start)
            results[start] = {name: computed(name, given) for name in ACTIVATIONS}
        found, made = results[start], place.some_of(end)
        allowed = _FLAT * peak(made)
        there = [name for name, result in found.items() if peak(result - made) <= allowed]
        if bool(there) != activations:
            continue
        has = f"{ACTIVATIONS[there[0]][0]} instead of" if there else "not"
        for name, (title, *_) in ACTIVATIONS.items():
            if place.close(found[name]) if end == place.value else name not in there:
                sentence = f"what computes {end!r} from {start!r} is {has} {title}; with {title}"
                edit = _activation(place, start, end, place.values[end], name)
                yield Hypothesis("activation", sentence, (edit,), ("activation", title))


def _between(place: Place) -> Iterator[tuple[str, str]]:
    """Yield two values of one shape: any and the wrong one, then an inner one that is a function of the other alone."""
    # which value the wrong one may be a function of
    values = {n: v for n, v in place.values.items() if has_floats(v) and v.size}
    for name, value in values.items():
        if name != place.value and value.shape == place.wanted.shape:
            yield name, place.value
    # inner values: between the two nothing but constants may be read
    for start, end, _ in spans(place):
        if end != place.value and place.values[start].shape == place.values[end].shape:
            yield start, end


def spans(place: Place) -> Iterator[tuple[str, str, set[str]]]:
    """Yield (start, end, the operators between) of floats: one is computed from the other alone, by a few nodes."""
    for site in reversed(place.sites):
        end, front, operators = site.output, {site.output}, set[str]()
        for _ in range(_ACTIVATING if has_floats(place.values.get(end)) else 0):
            # back through the latest node
            last = max(front, key=lambda name: place.producer.get(name, -1), default="")
            if last not in place.producer:
                break
            maker = place.sites[place.producer[last]]
            front.remove(last)
            front.update(name for name in maker.input if name in place.live)
            operators.add(maker.op_type)
            if len(front) == 1 and has_floats(place.values.get(start := next(iter(front)))):
                yield start, end, operators


def _is_operator(place: Place, name: str) -> bool:
    """Return whether the opset has one operator for an activation, or what is looked for is an operator anyway."""
    return name not in ACTIVATIONS or place.opset >= ACTIVATIONS[name][2]


def _activation(place: Place, start: str, end: str, made: Array, name: str) -> Pass:
    """Return a replacement by one operator, or by several where the opset has no such operator."""
    ends = (start,), (end,)
    if name in _SLOPES:
        return Replace(*ends, op_type="LeakyRelu", attributes=(("alpha", _SLOPES[name]),))
    if _is_operator(place, name):
        attributes = _TANH_LIKE if name == _GELU else ()
        return Replace(*ends, op_type=name.partition(" ")[0], attributes=attributes)
    numbers = {key: np.asarray(n, made.dtype) for key, n in MISTAKES["numbers"].items()}
    return composed(place, start, end, made, ACTIVATIONS[name][1], numbers)


def put_in(
    name: str, computed: Callable[[str, str], Pass], to: Sequence[str] = (), before: bool = False
) -> Edits:
    """Return the edits that put nodes behind a value, for all or some that read it, or before it gets its name.

    Args:
        computed: returns the edit that computes one value from another by these nodes.
    """
    new = f"{name}_before" if before else f"{name}_behind"
    ends = (new, name) if before else (name, new)
    return Insert(name, "Identity", to=tuple(to), before=before, output=new), computed(*ends)


def composed(
    place: Place,
    start: str,
    end: str,
    made: Array,
    nodes: str,
    numbers: Arrays,
    unread: Arrays = MappingProxyType({}),
    result: Array | None = None,
) -> Pass:
    """Return a replacement by nodes, as ONNX writes them as text: from `x` to `y` of its shape, with constants.

    Args:
        unread: what else is read: `x1`, `x2`.
        result: of another shape.
    """
    shaped, *more = map(_declared, chain([made], unread.values()))
    ends = shaped if result is None else _declared(result)
    version = place.index.model.proto.ir_version
    header = f'<ir_version: {version}, opset_import: ["" : {place.opset}]>'
    read = ", ".join(f"{kind} x{k or ''}" for k, kind in enumerate(chain([shaped], more)))
    parsed = parser.parse_model(f"{header} several ({read}) => ({ends} y) {{ {nodes} }}")
    # the numbers that the nodes read, and no others
    there = parsed.graph.node
    constants = set(walk.inputs(there)).difference(walk.outputs(there))
    tensors = (from_array(array, name) for name, array in numbers.items() if name in constants)
    parsed.graph.initializer.extend(tensors)
    return Replace((start, *unread), (end,), model=loaded(parsed))


def _declared(array: Array) -> str:
    """Return a dtype and a shape as ONNX writes them as text."""
    return f"{dtype_name(data_type_of_numpy(array.dtype))}[{', '.join(map(str, array.shape))}]"


def missing_factors(place: Place) -> Hypotheses:
    """Yield factors that sizes suggest, before a node or after the last one."""
    for name, _, readers in edges(place):
        # sizes are in the factors of products, bases in those of logarithms; a term of a sum may lack its half
        maker = place.site_of(name)
        are_terms = {reader.op_type for reader in readers} <= {"Add", "Sub"}
        some: Iterable[tuple[str, float]] = _USUAL if are_terms else ()
        if maker is not None and maker.op_type == "Log":
            some = MISTAKES["logarithms"].items()
        elif _may_be_scaled(place, name):
            some = factors(place)
        for what, factor in some:
            edit = Insert(name, "Mul", constants=(("factor", factor),), to=place.those(readers))
            sentence = f"{name!r} is not multiplied by {what} before {who(readers)}; with it"
            yield Hypothesis("missing factor", sentence, (edit,), ("factor", factor))
    # the same behind the last node, where numpy shows which factors fit; a resized value is one of several
    wanted, actual = place.wanted, place.actual
    if actual is None or not has_floats(wanted) or actual.shape != wanted.shape:
        return
    maker = place.site_of(place.value)
    several = maker is not None and maker.op_type == "Resize"
    for what, factor in factors(place):
        if several or place.close(place.some(actual) * factor):
            edit = Insert(place.value, "Mul", constants=(("factor", factor),), before=True)
            sentence = f"the result of {place.maker} is not multiplied by {what}; with it"
            yield Hypothesis("missing factor", sentence, (edit,), ("factor", factor))


def missing_terms(place: Place) -> Hypotheses:
    """Yield numbers that coordinates and counts lack: half a pixel, one."""
    for name, _, readers in edges(place):
        for what, term in MISTAKES["terms"].items() if _counts(place, name) else ():
            edit = Insert(name, "Add", constants=(("term", term),), to=place.those(readers))
            sentence = f"{what} is not added to {name!r} before {who(readers)}; with it"
            yield Hypothesis("missing term", sentence, (edit,), ("term", term))


def _counts(place: Place, name: str) -> bool:
    """Return whether a value enters the region or counts something, be it scaled."""
    maker = place.site_of(name)
    if maker is None or maker.op_type in _COUNTING:
        return True
    scaled = maker.op_type in ("Mul", "Div") and len(maker.computed) == 1
    return scaled and _counts(place, maker.computed[0])


def _may_be_scaled(place: Place, name: str) -> bool:
    """Return whether a value enters the region, is a product, which may have a bias, or is resized."""
    # factors go to products and what counts pixels, so a value that is neither is not scaled
    site = place.site_of(name)
    if site is None or site.op_type in (*_PRODUCTS, "Resize"):
        return True
    biased = site.op_type == "Add" and len(site.computed) == 1 < len(site.input)
    return biased and _may_be_scaled(place, site.computed[0])


def factors(place: Place) -> Iterator[tuple[str, float]]:
    """Yield (as text, factor) of the factors that sizes of the region suggest."""
    yield from _USUAL
    shapes = [value.shape for value in chain(place.values.values(), place.nearby.values())]
    for size in dict.fromkeys(size for size in chain.from_iterable(shapes) if size > 1):
        yield f"1/sqrt({size})", size**-0.5
        yield f"sqrt({size})", size**0.5
        yield f"1/{size}", 1 / size


def moved(place: Place) -> Hypotheses:
    """Yield a node with one input at another place: before the addition instead of after it."""
    few = len(place.sites) <= _MOVED_NODES
    for site in place.sites:
        anywhere = few or site.op_type.endswith("Normalization")
        data, made, read = site.computed, site.made, None
        if len(data) == 1 and site.op_type not in ("Identity", "Cast", "Reshape"):
            read = place.operand(data[0])
        if made is None or read is None or made.shape != read.shape:
            continue
        known, name = site.attributes, data[0]
        attributes = tuple((a.name, known[a.name]) for a in site.node.attribute if a.name in known)
        # over one node before it, or behind it
        maker = place.site_of(name)
        near = {reader.output for reader in site.readers} | set(maker.computed if maker else ())
        wrong = f"{site.title} stands at the wrong place"
        # a function of elements may stand anywhere, one of rows where rows are as long
        shape = () if site.op_type in _UNARY else made.shape
        shape = shape[-1:] if site.op_type in OF_THE_LAST_AXIS else shape
        for value, readers in _spots(place, site, shape):
            if not (anywhere or value in near):
                continue
            there = Rewire(value, site.output, place.those(readers))
            edits = (Rewire(site.output, name), Rewire(name, value, site.only), there)
            sentence = f"{wrong}; between {value!r} and {who(readers)}"
            mistake = ("moved", site.op_type, "between")
            yield Hypothesis("moved operation", sentence, edits, mistake)
        if anywhere and site.output != place.value:
            end = place.value
            inputs = tuple(end if read == name else read for read in site.input)
            behind = Insert(end, site.op_type, inputs, attributes, site.node.domain, before=True)
            moved = (Remove(site.only, bridge=name), behind)
            sentence = f"{wrong}; behind {place.maker}"
            mistake = ("moved", site.op_type, "behind")
            yield Hypothesis("moved operation", sentence, moved, mistake)


def _spots(place: Place, moved: RegionNode, shape: Ints) -> Iterator[tuple[str, list[RegionNode]]]:
    """Yield (value, nodes that read it) where a node could stand: each reader, and all but additions."""
    for value, array in place.values.items():
        readers = [site for site in place.readers(value) if site is not moved]
        fitting = array.shape[array.ndim - len(shape) :] == shape and has_floats(array)
        if value in moved.node.output or not fitting:
            continue
        yield from ((value, [reader]) for reader in readers)
        others = [site for site in readers if site.op_type != "Add"]
        if len(others) > 1:
            yield value, others
