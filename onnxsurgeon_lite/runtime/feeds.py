"""Make or read the feeds of a run, and check them before the runtime gets them."""

import ast
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import TypeProto, ValueInfoProto

from onnxsurgeon_lite.errors import FeedsError, UnknownNameError
from onnxsurgeon_lite.graph import GraphIndex, known_size, shape_text, sizes_in, symbols_of
from onnxsurgeon_lite.graph.text import Dimension
from onnxsurgeon_lite.names import few, joined
from onnxsurgeon_lite.runtime.attention_feeds import usual_dims, usual_fill
from onnxsurgeon_lite.surgery import make_tensor, parse
from onnxsurgeon_lite.system import physical_memory
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Shape, Stored, is_array
from onnxsurgeon_lite.tensors.references import ReferenceSet, Samples, Tensors, open_references

Feeds = dict[str, Stored]
_MOST_AXES = 64  # of a numpy array
_FILLS = ("zeros", "ones", "normal", "uniform")
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class Recipe:
    """Options for generated feeds.

    Attributes:
        seed: for numpy's default generator; each input has its own stream.
        dims: sizes of symbolic dimensions, by name ('' for those without one); by default those of fills from files,
            else 1. A sum or product of other dimensions has its value.
        fills: input name -> `zeros`, `ones`, `normal`, `uniform:lo,hi`, numbers (`3`, `[1, 2]`) or a file with them. By
            default, floats are `normal`, integers 0 or 1, booleans either, strings 'a'; with an attention that has a
            cache, tokens are those of the vocabulary, the mask is ones, and positions follow the cache.

    Example:
        >>> index = osl.GraphIndex.of(osl.load("whole_model.onnx"))
        >>> feeds, told = osl.make_feeds(index, osl.Recipe(seed=1, fills={"input.1": "ones"}))
        >>> told
        ['input.1: float [1, 3, 20, 20] ones, seed 1']
    """

    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    fills: Mapping[str, str] = field(default_factory=dict)


def read_feeds(
    index: GraphIndex, path: Tensors, sample: int = 0, said: list[str] | None = None
) -> Feeds:
    """Read the feeds from a file or folder, and check them against the model.

    Args:
        said: receives a line for each feed that is cast.

    Raises:
        FeedsError: a feed is missing, has an unknown name, or another dtype or shape than declared.
        ReferenceSetError: the file cannot be read.
    """
    stored = open_references(path, index.required_inputs, list(index.outputs), sample)
    return feeds_from(index, stored, said)


def require_inputs(index: GraphIndex, given: object) -> None:
    """Raise `FeedsError` if arrays are given by a name that no input has; a file may hold references as well."""
    if isinstance(given, Mapping):
        _refuse_unknown("input", given, index.inputs)


@dataclass(frozen=True)
class SampleFeeds(Sequence[Feeds]):
    """The feeds of each sample, read when they are needed.

    Attributes:
        dims: sizes that symbolic dimensions must have.
    """

    graph: GraphIndex
    samples: Samples
    dims: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, index: GraphIndex, given: Tensors | Sequence[Tensors], dims: Mapping[str, int]
    ) -> "SampleFeeds":
        """Return the samples at a place, or in arrays that hold rows of them."""
        return cls(
            index,
            Samples(given, index.required_inputs, list(index.outputs), _axes(index, dims)),
            dims,
        )

    @property
    def many(self) -> bool:
        """Whether there may be more than one sample."""
        return self.samples.count != 1

    def read(self, stored: ReferenceSet, said: list[str] | None = None) -> Feeds:
        """Return the feeds that a set holds.

        Raises:
            FeedsError: they do not fit the model, or contradict the sizes.
        """
        feeds = feeds_from(self.graph, stored, said)
        if self.dims:
            sizes_of(self.graph, feeds, self.dims)
        return feeds

    def __len__(self) -> int:
        return self.samples.count or 0

    def __getitem__(self, number: int) -> Feeds:  # type: ignore[override]  # no slices
        return self.read(self.samples.at(number))

    def __iter__(self) -> Iterator[Feeds]:
        return map(self.read, self.samples)


def _axes(index: GraphIndex, dims: Mapping[str, int]) -> dict[str, tuple[int, int | None]]:
    """Return how many axes each input has, and the size of its first one."""
    found = {}
    for name, declared in index.inputs.items():
        kind = declared.type.tensor_type
        if kind.HasField("shape"):
            # a size may be fixed, given by the user, or unknown
            sizes = [known_size(d) or dims.get(d.dim_param) for d in kind.shape.dim]
            found[name] = len(sizes), sizes[0] if sizes else None
    return found


def feeds_from(index: GraphIndex, stored: ReferenceSet, said: list[str] | None = None) -> Feeds:
    """Return a reference set's entries for the graph inputs, checked against the model."""
    missing = [name for name in index.required_inputs if name not in stored]
    if missing:
        have = few(list(stored)) or "none"
        raise FeedsError(
            f"{stored.place!r} has no tensor for input {joined(missing)}",
            f"it has {have}; give the feeds with --feeds",
        )
    return as_declared(index, {n: stored.read(n) for n in index.inputs if n in stored}, said)


def sizes_of(index: GraphIndex, feeds: Feeds, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes that feeds give to symbolic dimensions.

    Raises:
        FeedsError: they contradict each other, or these sizes.
    """
    # name -> (size, where it was found)
    found: dict[str, tuple[int, str]] = {name: (size, "--dim") for name, size in dims.items()}
    for name, value in feeds.items():
        shape = index.inputs[name].type.tensor_type.shape.dim
        sizes = value.shape if is_array(value) else ()
        for symbol, size in zip((d.dim_param for d in shape), sizes, strict=False):
            known, source = found.setdefault(symbol, (size, f"{name!r}"))
            # a dimension without a name ('') may have any size
            if symbol and known != size:
                raise FeedsError(
                    f"feed {name!r} has {symbol} = {size}, {source} has {symbol} = {known}",
                    f"give feeds of one size, or --dim {symbol}={size}",
                )
    return {symbol: size for symbol, (size, _) in found.items() if symbol}


def as_declared(index: GraphIndex, feeds: Feeds, said: list[str] | None = None) -> Feeds:
    """Cast float feeds to the float dtypes that the model declares, and check them.

    Raises:
        FeedsError: a feed still does not fit.
    """
    cast = {name: _declared(index.inputs.get(name), value) for name, value in feeds.items()}
    # only casts that happened are mentioned
    for name, value in cast.items():
        given = feeds[name]
        if said is not None and is_array(value) and is_array(given):
            said += [_cast_line(name, given, value)] if value is not given else []
    check_feeds(index, cast)
    return cast


def _declared(declared: ValueInfoProto | None, value: Stored) -> Stored:
    elem_type = declared.type.tensor_type.elem_type if declared is not None else 0
    if not elem_type or not is_array(value) or not dtypes.is_float(value.dtype):
        return value
    dtype = dtypes.numpy_dtype(elem_type)
    # numbers beyond the range become infinite; the line about the cast counts them
    with np.errstate(all="ignore"):
        return value.astype(dtype) if dtypes.is_float(dtype) and dtype != value.dtype else value


def _cast_line(name: str, given: Array, value: Array) -> str:
    lost = int((np.isfinite(given) & ~np.isfinite(value)).sum())
    overflow = f"; {lost} elements overflow" if lost else ""
    return f"feed {name!r} is {given.dtype}: cast to {value.dtype}, as the model declares{overflow}"


def check_feeds(index: GraphIndex, feeds: Mapping[str, object], option: str = "--feeds") -> None:
    """Raise `FeedsError` if a feed does not have a name, dtype and shape that the graph declares.

    Args:
        option: what gave them.
    """
    for name, value in feeds.items():
        check_feed(index, name, value, option)
    missing = [name for name in index.required_inputs if name not in feeds]
    if missing:
        raise FeedsError(
            f"no feed for input {', '.join(map(repr, missing))}",
            "give it with --feeds, or generate all feeds with --seed",
        )


def check_feed(index: GraphIndex, name: str, value: object, option: str = "--feeds") -> None:
    """Raise `FeedsError` if the graph has no such input, or declares another dtype or shape."""
    _refuse_unknown("input", [name], index.inputs)
    if is_array(value):
        _check_feed(index.inputs[name], value, option)


def _check_feed(declared: ValueInfoProto, array: Array, option: str) -> None:
    kind = declared.type.tensor_type
    # a sequence, or nothing is declared
    if not kind.elem_type:
        return
    given = dtypes.data_type_of_numpy(array.dtype)
    if given != kind.elem_type:
        raise FeedsError(
            f"feed {declared.name!r} has dtype {dtypes.dtype_name(given)}, "
            f"the model declares {dtypes.dtype_name(kind.elem_type)}",
            "convert it, for example with numpy's astype",
        )
    dims = sizes_in(declared.type)
    if dims is None:
        return
    # a size that is not declared fits any
    fits = len(dims) == array.ndim and all(
        d is None or d == size for d, size in zip(dims, array.shape, strict=True)
    )
    if not fits:
        raise FeedsError(
            f"feed {declared.name!r} has shape {list(array.shape)}, "
            f"the model declares {shape_text(declared.type)}",
            f"give it in that shape, or leave out {option} to generate it",
        )


def make_feeds(index: GraphIndex, recipe: Recipe) -> tuple[Feeds, list[str]]:
    """Return (a feed for every input without a default, a line for each that says how it was generated).

    Args:
        index: the model.
        recipe: how to generate them.

    Raises:
        FeedsError: the model lacks a fill's input or a dimension, or an input cannot be generated.

    Example:
        >>> index = osl.GraphIndex.of(osl.load("whole_model.onnx"))
        >>> feeds, told = osl.make_feeds(index, osl.Recipe(seed=1))
        >>> feeds["input.1"].shape
        (1, 3, 20, 20)
    """
    if min([recipe.seed, *recipe.dims.values()]) < 0:
        raise FeedsError("the seed, or a size, is negative", "give numbers from 0 on")
    names = index.required_inputs
    _refuse_unknown("input", recipe.fills, index.inputs)
    symbols = set(symbols_of(index.inputs[name] for name in names))
    _refuse_unknown("symbolic dimension", recipe.dims.keys() - {""}, symbols - {""})
    # fills that are files
    stored = {
        name: _stored(name, fill)
        for name, fill in recipe.fills.items()
        if not _is_known(fill) and isinstance(parse(fill), str)
    }
    read = {name: _declared(index.inputs[name], value) for name, value in stored.items()}
    for name, value in read.items():
        check_feed(index, name, value, "--fill")
    # sizes that the files have, then what the user gave
    dims = usual_dims(index, {**sizes_of(index, read, recipe.dims), **recipe.dims})
    feeds: Feeds = {}
    lines = []
    for number, name in enumerate(index.inputs):
        if name in read:
            feeds[name] = read[name]
            lines.append(_file_line(name, stored[name], read[name], recipe.fills[name]))
        # inputs with a default are only made on request
        if name in read or (name not in names and name not in recipe.fills):
            continue
        kind = index.inputs[name].type
        if not kind.tensor_type.elem_type:
            raise FeedsError(
                f"input {name!r} is not a tensor and cannot be generated", "give it with --feeds"
            )
        shape = [_size(d, dims) for d in kind.tensor_type.shape.dim]
        _require_possible(name, shape)
        # a stream for each input, so that another input does not change its numbers
        rng = np.random.default_rng([recipe.seed, number])
        fill = recipe.fills.get(name) or usual_fill(index, name, dims)
        feeds[name] = _filled(name, kind.tensor_type.elem_type, shape, fill, rng)
        dtype = dtypes.dtype_name(kind.tensor_type.elem_type)
        # a fill of fixed numbers depends on no seed
        seed = f", seed {recipe.seed}" if fill is None or _is_known(fill) else ""
        lines.append(f"{name}: {dtype} {shape} {fill or _default_fill(kind)}{seed}")
    check_feeds(index, feeds, "--fill")
    return feeds, lines


def _require_possible(name: str, shape: list[int]) -> None:
    """Raise `FeedsError` for a shape that no array has, or that no memory holds."""
    memory = physical_memory()
    # at least a byte for each element
    if len(shape) > _MOST_AXES or math.prod(shape) > memory or max(shape, default=0) > memory:
        raise FeedsError(
            # the first sizes of many
            f"input {name!r} of shape [{', '.join(map(str, shape[:8]))}{', ...' if len(shape) > 8 else ''}] "
            "cannot be made: it is too large",
            "choose other sizes with --dim",
        )


def _refuse_unknown(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            error = UnknownNameError(name, "the model", known, kind=kind)
            raise FeedsError(error.message, error.hint or "leave it out")


def _size(dim: Dimension, dims: Mapping[str, int]) -> int:
    fixed = known_size(dim)
    # a size, a symbol with a size, or an expression such as `past + 1`
    if fixed is not None or dim.dim_param in dims:
        return dims[dim.dim_param] if fixed is None else fixed
    return max(1, computed_size(dim.dim_param, dims) or 1)


def computed_size(text: str, dims: Mapping[str, int]) -> int | None:
    """Return the value of a dimension such as `past + sequence`; None for a plain name or other text."""
    try:
        parsed = ast.parse(text, mode="eval").body
        # a plain name has a size or none: nothing to compute
        return None if isinstance(parsed, ast.Name) else _computed(parsed, dims)
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError):
        return None


def _computed(term: ast.expr, dims: Mapping[str, int]) -> int:
    match term:
        case ast.Name(name):
            return dims.get(name, 1)
        case ast.Constant(int(number)):
            return number
        case ast.BinOp(left, sign, right) if type(sign) in _ARITHMETIC:
            return _ARITHMETIC[type(sign)](_computed(left, dims), _computed(right, dims))
    raise ValueError


def _default_fill(kind: TypeProto) -> str:
    dtype = dtypes.numpy_dtype(kind.tensor_type.elem_type)
    if dtype.kind == "O":
        return "'a'"
    return "0 or 1" if _holds_integers(dtype) else "normal"


def _filled(
    name: str, data_type: int, shape: list[int], fill: str | None, rng: "np.random.Generator"
) -> Stored:
    dtype = dtypes.numpy_dtype(data_type)
    if fill is not None and not _is_known(fill):
        # a single number fills the shape
        array = dtypes.to_array(make_tensor(name, parse(fill), data_type))
        return array if array.ndim else np.full(shape, array)
    # "uniform:0,255"
    kind, _, bounds = (fill or "").partition(":")
    if dtype.kind == "O":
        return np.full(shape, "a", dtype=object)
    numbers: np.ndarray[Shape, DType]
    match kind:
        case "zeros":
            numbers = np.zeros(shape)
        case "ones":
            numbers = np.ones(shape)
        case "uniform":
            low, high = _bounds(name, bounds)
            numbers = rng.uniform(low, high, shape)
        case "" if _holds_integers(dtype):
            numbers = rng.integers(0, 2, shape)
        case _:
            numbers = rng.standard_normal(shape)
    return _cast(np.asarray(numbers), dtype)


def _holds_integers(dtype: DType) -> bool:
    return dtype.kind in "iub" or "int" in dtype.name


def _cast(numbers: Array, dtype: DType) -> Array:
    """Cast numbers; those beyond the range of an integer dtype become its limits."""
    if _holds_integers(dtype) and dtype.kind != "b":
        # int4 and the like have no `iinfo`: the name has the bits
        unsigned = dtype.name.startswith("u")
        bits = int(dtype.name.lstrip("uint"))
        low, high = (0.0, 2.0**bits) if unsigned else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))
        # float64 cannot hold 2**63 - 1: the number before 2**63 instead
        numbers = np.clip(numbers, low, np.nextafter(high, 0) if bits > 53 else high - 1)
    with np.errstate(all="ignore"):
        return numbers.astype(dtype)


def _bounds(name: str, text: str) -> tuple[float, float]:
    try:
        # "0,255"
        low, high = map(float, text.split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if not (low <= high and math.isfinite(high - low)):
        raise FeedsError(
            f"fill 'uniform:{text}' of input {name!r} needs two numbers, the lower first",
            "write uniform:0,255",
        )
    return low, high


def _is_known(fill: str) -> bool:
    """Return whether a fill makes numbers at random, or all equal."""
    kind, colon, _ = fill.partition(":")
    # "uniform" needs bounds, the others have none
    return kind in _FILLS and bool(colon) == (kind == "uniform")


def _stored(name: str, path: str) -> Stored:
    """Read the fill of an input from a file: the tensor of its name, or the only one."""
    if not os.path.exists(path):
        raise FeedsError(
            f"{path!r}, the fill of input {name!r}, is not a known fill or a file",
            "write zeros, ones, normal, uniform:0,255, numbers ([1, 2]) or a file with them",
        )
    stored = open_references(path)
    if name in stored:
        return stored.read(name)
    if len(stored) != 1:
        raise FeedsError(f"{path!r} holds several tensors, none of them {name!r}")
    return stored.read(next(iter(stored)))


def _file_line(name: str, stored: Stored, fed: Stored, path: str) -> str:
    """Say from which file a feed comes, and how it was changed."""
    if not is_array(stored) or not is_array(fed):
        return f"{name}: a sequence, from {path!r}"
    kinds = [dtypes.dtype_name(dtypes.data_type_of_numpy(a.dtype)) for a in (stored, fed)]
    cast_from = "" if kinds[0] == kinds[1] else f", cast from {kinds[0]}"
    return f"{name}: {kinds[1]} {list(fed.shape)} from {path!r}{cast_from}"
