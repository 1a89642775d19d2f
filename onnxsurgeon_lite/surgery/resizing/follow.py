"""Trace a model, and inline the functions in which something must change.

Of two exports of a network at different sizes, the constants that differ depend on the sizes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, combinations, islice
from math import prod

from onnx import TensorShapeProto

from onnxsurgeon_lite.errors import ShapeError, require_known
from onnxsurgeon_lite.graph import GraphIndex, dims_of, held, known_size, shape_text
from onnxsurgeon_lite.model import Model, function_key, is_external
from onnxsurgeon_lite.surgery.inlining import inline
from onnxsurgeon_lite.surgery.resizing.inference import MOST_ELEMENTS
from onnxsurgeon_lite.surgery.resizing.plan import ResizePlan, Symbol
from onnxsurgeon_lite.surgery.resizing.sizes import Size, constant, primes, product
from onnxsurgeon_lite.surgery.resizing.trace import Called, trace
from onnxsurgeon_lite.surgery.resizing.visit import Hints
from onnxsurgeon_lite.tensors import dtypes


def differences(first: Model, second: Model, symbols: Sequence[Symbol]) -> Hints:
    """Return the value at each trial of those small integer operands in which the second model differs."""
    one, two = GraphIndex.of(first), GraphIndex.of(second)
    names = [[node.op_type for node in index.nodes] for index in (one, two)]
    if names[0] != names[1]:
        raise ShapeError(
            f"the exports differ in more than sizes: {len(names[0])} and {len(names[1])} nodes",
            "export both the same way, and both at sizes above 1",
        )
    # a dimension that both exports have at the same size shows nothing
    sizes = {s: _size_in(two, s) for s in symbols if s.changes and s.own is not None}
    differing = {s: size for s, size in sizes.items() if size is not None and size != s.own}
    if not differing:
        raise ShapeError(
            "both exports have the same sizes in the dimensions to change",
            "export the second at another size",
        )
    hints: Hints = {}
    for position, (node, other) in enumerate(zip(one.nodes, two.nodes, strict=True)):
        for slot in range(min(len(node.input), len(other.input))):
            numbers, others = _numbers(one, node.input[slot]), _numbers(two, other.input[slot])
            if numbers is None or others is None or len(numbers) != len(others):
                continue
            # -1 means "the rest" and follows by itself
            if numbers != others and -1 not in numbers + others:
                hints[position, slot] = _all_following(
                    numbers, others, differing, one.describe(position)
                )
    return hints


def _size_in(index: GraphIndex, symbol: Symbol) -> int | None:
    """Return a dimension's size in another export; inputs are matched by position, because names can differ."""
    name, axis = symbol.places[0]
    info = index.inputs.get(name)
    dims = info.type.tensor_type.shape.dim if info is not None else ()
    return int(dims[axis].dim_value) if axis < len(dims) else None


def _numbers(index: GraphIndex, name: str) -> list[int] | None:
    """Return the elements of a small integer constant."""
    tensor = held(index, name)
    if tensor is None or is_external(tensor):
        return None
    array = dtypes.to_array(tensor)
    if array.dtype.kind != "i" or array.size > MOST_ELEMENTS:
        return None
    return [int(number) for number in array.ravel()]


def _all_following(
    numbers: list[int], others: list[int], differing: dict[Symbol, int], where: str
) -> list[Size] | ShapeError:
    """Return the sizes of an operand's elements, or the error to raise if nothing else determines them."""
    sizes = list[Size]()
    for own, other in zip(numbers, others, strict=True):
        found = _following(own, other, differing)
        if len(found) != 1:  # exactly one explanation, or the user must export again
            what = "depend on several dimensions" if found else "not be a multiple of a dimension"
            return ShapeError(
                f"{where} has {own} in one export and {other} in the other, which may {what}",
                "export the second model with every dimension changed by a different factor",
            )
        sizes += found
    return sizes


def _following(own: int, other: int, differing: dict[Symbol, int]) -> set[Size]:
    """Return the sizes that are `own` in one export and `other` in the other: multiples first, else with an offset."""
    if own == other:
        # the same in both exports: it does not depend on a size
        return {constant(own, len(next(iter(differing)).sizes))}
    # number = slope * size + offset, for each product of dimensions: two exports give two equations. A multiple (no
    # offset) is preferred; an offset is believed for a single dimension only.
    multiples = set[Size]()
    lines = set[Size]()
    for count in range(1, len(differing) + 1):
        for group in combinations(differing, count):
            sizes = product([symbol.sizes for symbol in group])
            there = prod(differing[symbol] for symbol in group)
            if there == sizes[0]:
                continue
            slope = Fraction(other - own, there - sizes[0])
            offset = own - slope * sizes[0]
            numbers = [slope * size + offset for size in sizes]
            # whole numbers at every trial
            if all(number.denominator == 1 for number in numbers) and (count == 1 or not offset):
                (lines if offset else multiples).add(tuple(int(number) for number in numbers))
    return multiples or lines


def follow(
    model: Model, symbols: Sequence[Symbol], second: Model | None = None
) -> tuple[Model, ResizePlan, list[str]]:
    """Trace a model; where dimensions of any sizes do not fit together, as the first ties that fit (see `tied`).

    Args:
        second: an export of the same network at another size: its constants show what depends on the size.

    Returns:
        The traced model, its plan, and the inlined functions.
    """
    failures = list[ShapeError]()
    found = list[tuple[Model, ResizePlan, list[str]]]()
    # as the dimensions are, then with ties
    for tries in chain([symbols], tied(symbols, GraphIndex.of(model))):
        try:
            found.append(_follow(model, tries, second))
        except ShapeError as error:
            failures.append(error)
            continue
        # every node fits: no other tie is better
        if not found[-1][1].unfit:
            break
    if not found:
        raise failures[0]
    return min(found, key=lambda each: each[1].unfit)


def _follow(
    model: Model, symbols: Sequence[Symbol], second: Model | None
) -> tuple[Model, ResizePlan, list[str]]:
    """Trace a model; inline a function in which something must change, because all its calls share its nodes."""
    inlined = list[str]()
    # One function at a time: after inlining, the trace starts again.
    while True:
        try:
            hints = None if second is None else differences(model, second, symbols)
            return model, trace(model, symbols, hints), inlined
        except Called as called:  # something in a function has to change, for this call alone
            key = function_key(called.function)
            name = "::".join(filter(None, key))
            inlined.append(name)
            model = inline(model, [key])
            second = None if second is None else inline(second, [key])
        except RecursionError as error:
            raise ShapeError("functions or bodies are nested too deep to be followed") from error
        except ShapeError as error:
            if inlined:
                error.add_note(f"ids are those after onnxdbg edit inline of {', '.join(inlined)}")
            raise


ShapeRequest = Mapping[str, Sequence[int | str]]
"""Input -> its shape: a number for a fixed size, a name for a symbolic one."""

_TRIALS = 5  # the model's own size, one that shows dependencies, and three with the requested sizes
_SUMS = 12  # dimensions that are tried as the sum of two others
_SYMBOLIC = 64  # the assumed own size of a symbolic dimension: networks can halve it often


@dataclass
class _Dimension:
    own: int | None
    target: int | str
    changes: bool
    places: list[tuple[str, int]] = field(default_factory=list)


def symbols_for(index: GraphIndex, request: ShapeRequest) -> list[Symbol]:
    """Return the dimensions of the inputs that change or are symbolic, each with a size for every trial."""
    require_known(request, index.inputs, "the model", "input")
    dimensions = dict[tuple[object, ...], _Dimension]()
    renamed = dict[str, int | str]()
    # names that the request gives to named dimensions, which other inputs may have, too
    for name, shape in request.items():
        for dim, target in zip(_dims(index, name, shape), shape, strict=True):
            _require_sensible(target)
            if dim.dim_param:
                renamed[dim.dim_param] = target
    for name, info in index.inputs.items():
        dims = dims_of(info.type)
        for axis, dim in enumerate(dims):
            own = known_size(dim)
            target = _target(request, renamed, name, axis, dim)
            if target == own and own is not None:  # nothing to follow
                continue
            # Dimensions with one name are one symbol; those without a name are each their own; those that become the
            # same number from the same size are one.
            place = () if target else (name, axis)
            key = (target, *place) if isinstance(target, str) else (target, own)
            changes = target != (dim.dim_param if own is None else own)
            dimension = dimensions.setdefault(key, _Dimension(own, target, changes))
            if own is not None and dimension.own is not None and own != dimension.own:
                raise ShapeError(
                    f"{target!r} means {dimension.own} in {dimension.places[0][0]!r} and "
                    f"{own} in {name!r}",
                    "give the two dimensions different names",
                )
            dimension.own = own if dimension.own is None else dimension.own
            dimension.changes |= changes
            dimension.places.append((name, axis))
    return [_symbol(number, d) for number, d in enumerate(dimensions.values())]


def tied(symbols: Sequence[Symbol], index: GraphIndex) -> Iterator[list[Symbol]]:
    """Yield the symbols with ties between those that stay symbolic, as a cache whose lengths have distinct names.

    Those at one axis of inputs of one rank get one size. Then one is the sum of two others, too: a mask is as long as
    the past and what is new.
    """
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, symbol in enumerate(symbols):
        if symbol.own is None and not symbol.changes:
            name, axis = symbol.places[0]
            alike[len(dims_of(index.inputs[name].type)), axis].append(number)
    # small groups first: caches are many
    groups = sorted(alike.values(), key=len)
    equal = {number: symbols[group[0]].sizes for group in groups for number in group}
    if len(equal) > len(groups):
        yield _sized(symbols, equal)
    for whole, one, other in islice(_sums(groups), _SUMS):
        # a group without the whole has the size of its first
        sizes = {
            number: symbols[group[0]].sizes for group in (*groups, one, other) for number in group
        }
        pairs = zip(sizes[one[0]], sizes[other[0]], strict=True)
        sizes[whole] = tuple(a + b for a, b in pairs)
        yield _sized(symbols, sizes)


def _sums(groups: Sequence[Sequence[int]]) -> Iterator[tuple[int, Sequence[int], Sequence[int]]]:
    """Yield each symbol as the sum of two groups without it."""
    for whole in chain.from_iterable(groups):
        parts = ([number for number in group if number != whole] for group in groups)
        for one, other in combinations(filter(None, parts), 2):
            yield whole, one, other


def _sized(symbols: Sequence[Symbol], sizes: Mapping[int, Size]) -> list[Symbol]:
    return [replace(s, sizes=sizes.get(n, s.sizes)) for n, s in enumerate(symbols)]


def _require_sensible(target: int | str) -> None:
    """Refuse a size below 1, and a name that looks like one; '' keeps a dimension."""
    numeric = str(target).lstrip("-+.")[:1].isdigit()
    if numeric and not (isinstance(target, int) and target > 0):
        raise ShapeError(
            f"{target!r} is neither a size nor a name",
            "write a number above 0, or a name such as N",
        )


def _dims(
    index: GraphIndex, name: str, shape: Sequence[int | str]
) -> Sequence[TensorShapeProto.Dimension]:
    kind = index.inputs[name].type
    dims = dims_of(kind)
    if not kind.tensor_type.HasField("shape") or len(dims) != len(shape):
        raise ShapeError(
            f"input {name!r} is {shape_text(kind)}, but the requested shape has {len(shape)} dimensions",
            "give one number or name for each dimension",
        )
    return dims


def _target(
    request: ShapeRequest,
    renamed: Mapping[str, int | str],
    name: str,
    axis: int,
    dim: TensorShapeProto.Dimension,
) -> int | str:
    """Return the new size or name: as requested, as for the same name elsewhere, or unchanged ('' without a name)."""
    if name in request:
        return request[name][axis]
    own = known_size(dim)
    return renamed.get(dim.dim_param, dim.dim_param) if own is None else own


def _symbol(number: int, dimension: _Dimension) -> Symbol:
    own, target = dimension.own, dimension.target
    steps = list(islice(primes(), (_TRIALS - 1) * number, (_TRIALS - 1) * (number + 1)))
    sizes: Size
    if isinstance(target, int):
        # own, one that shows dependencies, the requested size
        sizes = (target,) * _TRIALS if own is None else (own, own * steps[0]) + ((target,) * 3)
    else:
        base = own or _SYMBOLIC
        sizes = (base,) + tuple(base * step for step in steps)
    name = target if isinstance(target, str) else ""
    return Symbol(name, own, sizes, tuple(dimension.places), dimension.changes)
