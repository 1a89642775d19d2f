"""Turn the shapes that a user requests into sizes for the trials."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice

from onnx import TensorShapeProto

from onnxsurgeon_lite.errors import ShapeError, UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex, dims_of, known_size
from onnxsurgeon_lite.graph.text import shape_text
from onnxsurgeon_lite.surgery.resizing.plan import Symbol
from onnxsurgeon_lite.surgery.resizing.sizes import Size, primes

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
    for name in request:
        if name not in index.inputs:
            raise UnknownNameError(name, "the model", index.inputs, kind="input")
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
