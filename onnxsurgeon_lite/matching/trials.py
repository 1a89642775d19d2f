"""Make feeds that distinguish two models, and run one on them: several seeds, counts and sizes above 1."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.errors import FeedsError, RuntimeFailure, RuntimeLost
from onnxsurgeon_lite.graph.index import GraphIndex, dims_of, has_shape, known_size
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.runtime.attention_feeds import usual_dims
from onnxsurgeon_lite.runtime.feeds import (
    Feeds,
    Recipe,
    computed_size,
    make_feeds,
)
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.comparison import EXACT, agrees
from onnxsurgeon_lite.tensors.dtypes import RunValue, Stored, is_array

_RANKS = (2, 1, 3, 4, 0)
_SCALARS = 2  # inputs that are a scalar where others are not
_SUMS = 12
_WIDE = 32  # networks halve their inputs often
_SPREAD = 32  # of standard normal numbers over integers of 8 bits
# elements of an input for each of its fixed ones: two images of 96 x 128 x 160
_MOST_ELEMENTS = 1 << 22
_SIZE_1 = "symbolic dimensions have size 1, where many edits make no difference: the model runs with no other"

Outputs = dict[str, RunValue]


@dataclass(frozen=True)
class Trial:
    """Feeds of a model, and the outputs that it gives for them."""

    feeds: Feeds
    outputs: Outputs


def run_trials(
    index: GraphIndex,
    recipe: Recipe,
    runtime: Runtime,
    known: Feeds | None = None,
    held: Mapping[str, int] | None = None,
) -> tuple[list[Trial], list[str]]:
    """Run a model on made feeds; return a line for each feed that says how it was made, too.

    Symbolic dimensions get distinct sizes above 1; if the model runs with none, those at one place of several inputs
    get one size, or one is the sum of two others, or all are equal. The second seed has other sizes than the first, and
    an input of unknown rank has several ranks. Loop counts are above 1, flags are on and off.

    Args:
        known: feeds that are not made.
        held: input -> a dtype that has to hold the numbers of its made feeds.

    Raises:
        FeedsError: an input cannot be made.
        RuntimeFailure: the runtime cannot run the model.
    """
    drawing = _Drawing(recipe, opened(index, runtime), known or {}, held or {})
    # an error ends the trials only if no rank of the inputs works
    failure: RuntimeFailure | FeedsError | None = None
    for ranked in _with_ranks(index):
        try:
            drawing.draw(ranked)
        except RuntimeLost:
            raise
        except (RuntimeFailure, FeedsError) as error:
            failure = error
    if failure is not None and not drawing.trials:
        raise failure
    return drawing.trials, [
        f"{text}, seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}" if seeds else text
        for text, seeds in drawing.lines.items()
    ]


def unmoved(trials: Sequence[Trial]) -> list[str]:
    """Return the outputs that no feed changes: they say nothing of an edit upstream."""
    if not any(trial.feeds for trial in trials):
        return []
    return [
        name
        for name in trials[0].outputs
        if _is_constant([trial.outputs[name] for trial in trials])
    ]


def unmoved_notes(names: Iterable[str]) -> list[str]:
    """Return a note for each output that no feed changed."""
    return [
        f"nothing was proved for output {name!r}: it is the same for all feeds" for name in names
    ]


def _is_constant(values: Sequence[RunValue]) -> bool:
    arrays = [value for value in values if is_array(value)]
    if len(arrays) < len(values):
        return False
    first, *others = arrays
    # a single run shows a constant only if all its numbers are equal
    if not others:
        return first.size > 1 and bool((first == first.flat[0]).all())
    return all(agrees(first, other, EXACT) for other in others)


@dataclass
class _Drawing:
    """Makes feeds and runs a model on them.

    Attributes:
        lines: how a feed is made -> its seeds.
    """

    recipe: Recipe
    once: Callable[[Feeds], Outputs]
    known: Feeds
    held: Mapping[str, int]

    def __post_init__(self) -> None:
        self.trials = list[Trial]()
        self.lines = dict[str, list[str]]()

    def draw(self, ranked: GraphIndex) -> None:
        """Run the model with two seeds, each at sizes of its own, where it runs so.

        Args:
            ranked: the model, with a rank for every input.
        """
        *drawn, smallest = _sizes(ranked)  # sizes above 1 first: at size 1 a broadcast hides errors
        # not at sizes at which one run would take long
        wider = [sizes for sizes in drawn if _is_small(ranked, sizes)]
        for sizes in wider:
            try:
                is_made = self._run(ranked, 0, sizes)
                break
            except RuntimeLost:
                raise
            except (RuntimeFailure, FeedsError):
                continue
        else:
            sizes = smallest
            try:
                is_made = self._run(ranked, 0, sizes)
            except RuntimeFailure as error:
                if wider and not isinstance(error, RuntimeLost):
                    asked = " ".join(f"--dim {name}=..." for name in wider[0] if name)
                    error.hint = f"give sizes at which the model runs: {asked}; or feeds: --feeds"
                raise
            self.lines |= {_SIZE_1: []} if wider else {}
        double = {name: 2 * size for name, size in sizes.items()}  # sums stay sums
        # the second seed at double sizes where these are small enough, else at the same ones
        for others in (double, sizes)[not _is_small(ranked, double) :] if is_made else ():
            try:
                self._run(ranked, 1, others)
                if defaults := _other_defaults(ranked):  # other numbers for inputs with a default
                    with suppress(RuntimeFailure, FeedsError):  # not every shape fits
                        self._run(ranked, 1, others, defaults)
                return
            except RuntimeLost:
                return
            except (RuntimeFailure, FeedsError):
                continue

    def _run(
        self,
        ranked: GraphIndex,
        number: int,
        sizes: Mapping[str, int],
        defaults: Feeds | None = None,
    ) -> bool:
        """Run the model with a seed and sizes; return whether any feed was made."""
        recipe, held = self.recipe, self.held
        # what is asked for comes before what is guessed
        made, told = make_feeds(
            ranked,
            Recipe(
                recipe.seed + number,
                {**sizes, **_sizes_of(ranked, self.known), **recipe.dims},
                {**_fills(ranked, number), **recipe.fills},
            ),
        )
        # numbers as another dtype holds them, so that an edit to that dtype can be compared exactly
        fitted = {name: _as_held(made[name], kind) for name, kind in held.items() if name in made}
        fitted = {n: v for n, v in fitted.items() if not np.array_equal(v, made[n])}
        feeds = {**(defaults or {}), **made, **fitted, **self.known}
        self.trials.append(Trial(feeds, self.once(feeds)))
        # how each feed was made, once for all seeds
        for line in told:
            # "x: uniform, seed 3" -> "x: uniform", "3"
            text, _, seed = line.partition(", seed ")
            name = next((name for name in fitted if text.startswith(f"{name}: ")), None)
            text += f" as {dtypes.dtype_name(held[name])} holds them" if name else ""
            if not text.startswith(tuple(f"{name}: " for name in self.known)):
                self.lines.setdefault(text, []).extend([seed] * bool(seed))
        return bool(made.keys() - self.known.keys())


def _with_ranks(index: GraphIndex) -> Iterator[GraphIndex]:
    """Yield a model with several ranks for the inputs that declare none: one for all, or a scalar among others."""
    unranked = [
        name
        for name in index.required_inputs
        if (kind := index.inputs[name].type).tensor_type.elem_type and not has_shape(kind)
    ]
    if not unranked:
        yield index
        return
    # one rank for all of them, then one of them a scalar
    ranks = [dict.fromkeys(unranked, rank) for rank in _RANKS]
    if len(unranked) > 1:
        ranks += (ranks[0] | {name: 0} for name in unranked[:_SCALARS])
    for each in ranks:
        model = index.model.copy()
        for info in model.graph.input:
            for axis in range(each.get(info.name, 0)):
                info.type.tensor_type.shape.dim.add(dim_param=f"{info.name}_dim{axis}")
        yield GraphIndex.of(model)


def _as_held(value: Stored, data_type: int) -> Stored:
    """Return made numbers as another dtype holds them: floats are spread over integers, so that they stay distinct."""
    if not is_array(value):
        return value
    kind = dtypes.numpy_dtype(data_type)
    # floats between -1 and 1 would be 0 as integers
    # a flag is a number above 0
    numbers = np.greater(value, 0) if kind == np.bool_ else value
    if dtypes.is_float(value.dtype) and kind.kind in "iu":
        limits = np.iinfo(str(kind))
        spread = np.abs(value) if kind.kind == "u" else value
        numbers = np.clip(np.rint(spread * _SPREAD), limits.min, limits.max)
    return numbers.astype(kind).astype(value.dtype)


def _sizes(index: GraphIndex) -> list[dict[str, int]]:
    """Return sizes of the symbolic dimensions, the most telling first, and at last size 1 for all."""
    # sizes that a caller may choose, in the order of the inputs
    symbols = dict[str, bool]()  # name -> whether it is always the first dimension
    fixed = usual_dims(index, {})
    places = dict[str, tuple[int, int]]()  # name -> the rank and the axis where it stands first
    for name in index.required_inputs:
        dims = dims_of(index.inputs[name].type)
        for axis, dim in enumerate(dims):
            is_free = dim.dim_param not in fixed and computed_size(dim.dim_param, {}) is None
            if known_size(dim) is None and is_free:
                symbols[dim.dim_param] = not axis and symbols.get(dim.dim_param, True)
                places.setdefault(dim.dim_param, (len(dims), axis))
    # distinct sizes show most; models that do not run so want some of them equal, or sums
    distinct = {name: number for number, name in enumerate(symbols, 2)}
    # a first dimension is a batch: it needs not be large
    wide = {name: n if symbols[name] else n * _WIDE for name, n in distinct.items()}
    # dimensions at one (rank, axis) of several inputs are probably one size: two batches, two lengths
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places.values()), 2)}
    alike = {name: numbers[place] for name, place in places.items()}
    free = [name for name, is_first in symbols.items() if not is_first]
    sums = [  # a mask is as long as the past and what is new
        distinct | {whole: distinct[part] + distinct[rest]}
        for whole in free
        for part, rest in combinations([name for name in free if name != whole], 2)
    ]
    most = sums if len(sums) <= _SUMS else []
    # several tokens behind a cache may need a batch of 1
    alone = {name: 1 if symbols[name] else number for name, number in distinct.items()}
    most += [alone] * bool(free) + [dict.fromkeys(symbols, 2), {}]
    return [distinct, wide, alike] + most if symbols else [{}]


def _is_small(index: GraphIndex, sizes: Mapping[str, int]) -> bool:
    """Return whether every input of these sizes is made and computed in little time."""
    return all(
        math.prod(sizes.get(dim.dim_param, 1) for dim in dims_of(info.type)) <= _MOST_ELEMENTS
        for info in index.inputs.values()
    )


def _sizes_of(index: GraphIndex, feeds: Feeds) -> dict[str, int]:
    """Return the sizes that known feeds give to symbolic dimensions."""
    return {
        dim.dim_param: size
        for name, value in feeds.items()
        if is_array(value)
        # of the dimensions that a symbol, or nothing, stands for
        for dim, size in zip(dims_of(index.inputs[name].type), value.shape, strict=False)
        if known_size(dim) is None
    }


def _other_defaults(index: GraphIndex) -> Feeds:
    """Return other integers for defaults of inputs: a caller may replace them, so no edit may rely on their shapes."""
    found: Feeds = {}
    for name in filter(index.is_default, index.inputs):
        tensor = index.dense(name)
        # int64 defaults are usually shapes, axes or sizes
        if tensor and tensor.data_type == TensorProto.INT64:
            array = index.model.array(tensor)
            found[name] = np.roll(array, 1) if array.size > 1 else array + 1
    return found


def _fills(index: GraphIndex, number: int) -> dict[str, str]:
    """Return fills for single numbers that steer: loops run several times, flags are on and then off."""
    # the trip counts and the conditions of loops
    counts, going = (_steering(index, slot) for slot in (0, 1))
    fills = {}
    for name in index.required_inputs:
        kind = index.inputs[name].type.tensor_type
        if not kind.HasField("shape") or any(known_size(dim) != 1 for dim in kind.shape.dim):
            continue
        if kind.elem_type == TensorProto.BOOL:
            # a flag that keeps a loop going stays on
            fills[name] = "zeros" if number and name not in going else "ones"
        elif name in counts:
            fills[name] = str(3 - number)
    return fills


def _steering(index: GraphIndex, slot: int) -> set[str]:
    """Return the values that an input of a Loop depends on."""
    loops = [node for node in walk.with_inner(index.nodes) if node.op_type == "Loop"]
    read = {node.input[slot] for node in loops if len(node.input) > slot}
    return read.union(index.inputs_of(index.ancestors(read)))
