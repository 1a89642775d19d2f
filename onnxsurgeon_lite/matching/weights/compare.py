"""Find each initializer's parameter by contents or place, and compare them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, permutations

import numpy as np
from onnx import NodeProto, TensorProto

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.block_quantized import blocks_of
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.weights.belonging import (
    Belonging,
    Places,
    apart,
    layout_finding,
    usual_senses,
)
from onnxsurgeon_lite.matching.weights.blocks import (
    Head,
    block_nodes,
    examined,
    find_blocks,
    scales_and_zeros,
)
from onnxsurgeon_lite.matching.weights.folding import (
    PLUS_ONE,
    BatchNorm,
    FoldedWeight,
    batch_norms,
    common_epsilon,
    find_fold,
    kind,
    settled,
    sums,
)
from onnxsurgeon_lite.matching.weights.pieces import Pieces, PieceTable
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import integer, operand
from onnxsurgeon_lite.shown import Progress, Shown, hidden, quiet
from onnxsurgeon_lite.tensors import dtypes as tensors
from onnxsurgeon_lite.tensors.comparison import EXACT, Comparison, Tolerance, compare
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Shape
from onnxsurgeon_lite.tensors.in_file import Rows, digest, whole
from onnxsurgeon_lite.tensors.references import ReferenceSet

_FOLDED = Tolerance(1e-5, 1e-4, scaled=True)
COUNTER = "num_batches_tracked"  # only training uses it
_FOLDING = "Conv", "ConvTranspose", "Gemm"  # a BatchNorm after them is folded into them
_MOVERS = {"Concat", "Expand", "Pad", "Reshape", "Slice", "Tile", "Transpose", "Where"}
_MATRIX = 2  # axes
_MAX_AXES = 4
_CLEAR = (
    0.5  # the largest distance (1 - cosine) of an order of axes, relative to that of another order
)
ALIKE = 0.5
"""The least cosine similarity that distinguishes one parameter from another."""


@dataclass
class Weight:
    """An initializer and its parameter.

    Attributes:
        how: `same`, `transposed`, `reshaped`, `folded with X` for a folded BatchNorm X, `folded as 1 + it` for a norm
            that multiplies with 1 + weight, or `pieces` for rows or gates that the export gathered.
        order: the parameter's axes in the order of the initializer's; None if reshaped or folded.
        finding: what is suspicious although the numbers agree: an epsilon that the other BatchNorms do not have, a
            square weight that its node needs transposed.
        rivals: other ways to make it that fit about as well: orders of axes, parameters, a BatchNorm folded in.
        fold: the fold; `axis` is that of the channels of a weight, None for a bias. pieces: what was gathered.
        parts: the parameters that it joins, in order, if there are several or it is in blocks.
        added: the dtype in which 1 was added to the parameter.
        equal: the parameters that have its contents. is_placed: its name or its module says which parameter it is.
    """

    name: str
    parameter: str
    how: str
    comparison: Comparison
    finding: str = ""
    order: Shape | None = hidden(None)
    rivals: tuple[str, ...] = hidden(())
    fold: FoldedWeight | None = hidden(None)
    axis: int | None = hidden(None)
    pieces: Pieces | None = hidden(None)
    parts: tuple[str, ...] = hidden(())
    added: "DType | None" = hidden(None)
    equal: tuple[str, ...] = hidden(())
    is_placed: bool = hidden(False)


@dataclass
class WeightsResult(Shown):
    """The comparison of a model's weights with a checkpoint.

    Attributes:
        weights: initializers with their parameter. only_model: float initializers with several elements without one.
        only_checkpoint: parameters whose contents no initializer has. epsilon: of most folded BatchNorms.
        updated: the weights that got other numbers. kept: those that did not, with the reason. branches: those that
            got a branch of an adapter. model: the model with all that.
    """

    weights: list[Weight]
    only_model: list[str]
    only_checkpoint: list[str]
    epsilon: float | None
    updated: list[str] | None = None
    kept: dict[str, str] = field(default_factory=dict)
    branches: list[str] = field(default_factory=list)
    model: Model | None = hidden(None)

    @property
    def match(self) -> bool:
        """True when every found weight matches its parameter, and nothing about them is suspicious."""
        return all(weight.comparison.match and not weight.finding for weight in self.weights)


def compare_weights(
    index: GraphIndex,
    checkpoint: ReferenceSet,
    tolerance: Tolerance | None = None,
    progress: Progress = quiet,
) -> WeightsResult:
    """Find each initializer's parameter and compare them, with one tensor per side in memory.

    An initializer with a parameter's contents is that parameter, unless its module has another parameter of that
    shape. Other initializers are compared with parameters of their name or module.

    Args:
        tolerance: None requires copies to be equal, and folded or cast weights to be within the dtype's tolerance.
    """
    return _WeightSearch(index, apart(checkpoint, index), tolerance, progress).run()


@dataclass
class _WeightSearch:
    index: GraphIndex
    checkpoint: ReferenceSet
    tolerance: Tolerance | None
    progress: Progress

    def __post_init__(self) -> None:
        self.places = Places(self.index, self.checkpoint.entries.keys())
        self.norms = batch_norms(self.checkpoint)
        self.in_blocks = block_nodes(self.index)
        # scales and zero points are part of the weight in blocks, not weights; what is in blocks may be floats
        apart = set(chain.from_iterable(map(scales_and_zeros, self.in_blocks.values())))
        apart.update(self.in_blocks)
        # parameter -> its largest row; see `blocks.py`
        self.heads = dict[str, Head]()
        self.belonging = Belonging(self.index, {p: self._shape(p) for p in self.checkpoint})
        # single numbers are weights only by their name
        self.floats = {
            n: t
            for n, t in self.index.initializers.items()
            if isinstance(t, TensorProto)
            and tensors.is_float(tensors.numpy_dtype(t.data_type))
            and n not in apart
            and (np.prod(t.dims) > 1 or self.places.called(n))
        }
        self.found = dict[str, Weight]()
        # name of a weight -> its fold, and the parameter that it was folded into
        self.folds = dict[str, tuple[FoldedWeight, str]]()
        self.used = set[str]()
        # digest of 1 + parameter -> the parameters
        self.sums: dict[bytes | str, list[str]] = defaultdict(list)
        # norms, as `kind` names them, that multiply with 1 + weight
        self.plus_one = set[str]()
        self.epsilon: float | None = None

    def run(self) -> WeightsResult:
        # by contents first: an equal parameter is the surest
        contents = self._contents()
        equal = {}
        for number, name in enumerate(self.floats):
            self.progress(f"{number} weights compared")
            equal[name] = contents.get(digest(self._tensor(name)), [])
            self._by_content(name, equal[name])
        # what an export computed of parameters, then what only place and name say
        self._find_folds(equal)
        rest = [n for n in self.floats if n not in self.found and not self._by_fold(n)]
        self._find_plus_one(rest)
        # what is in blocks is no piece of another weight: it is not read for these
        blocks = self._find_blocks()
        self._find_pieces(equal, blocks)
        for name in rest:
            if name not in self.found and not self._by_place(name):
                self._take(name, equal[name])
            # norms at the same place of other layers may be 1 + the parameter
            weight = self.found.get(name)
            is_off = weight is not None and not weight.comparison.match and weight.how == "same"
            if weight is not None and is_off and kind(weight.parameter) in self.plus_one:
                self._add_plus_one(name, weight.parameter, differs=True)
        # what is left of the checkpoint, and what is suspicious of all that is found
        self.used.update(chain.from_iterable(equal.values()))
        self._place(equal)
        self.found |= blocks
        self._require_own()
        self._find_transposed()
        self._find_misplaced()
        names = list(self.floats) + list(self.in_blocks)
        left = [p for p in self.checkpoint if p not in self.used and not p.endswith(COUNTER)]
        return WeightsResult(
            [self.found[name] for name in names if name in self.found],
            [name for name in names if name not in self.found],
            left,
            self.epsilon,
        )

    def _require_own(self) -> None:
        """Raise an error where nothing that is found says that this is the model's checkpoint."""
        # zeros and ones that are found in another place are chance
        sure = (
            name not in self.floats
            or weight.is_placed
            or not weight.comparison.match
            or np.ptp(self._array(name))
            for name, weight in self.found.items()
        )
        if any(sure):
            return
        raise ReferenceSetError(
            f"{self.checkpoint.place!r} has no weight of the model",
            "give the checkpoint that the model was exported from",
        )

    def _contents(self) -> dict[str, list[str]]:
        """Map order-independent digests to parameters, cast to each dtype of the model."""
        # digest -> parameters
        found = defaultdict(list)
        # a parameter of another size is in no initializer
        kinds = {(tensors.numpy_dtype(t.data_type), np.prod(t.dims)) for t in self.floats.values()}
        for number, name in enumerate(self.checkpoint):
            self.progress(f"{number} parameters read")
            stored = self.checkpoint.rows(name)
            if stored.size > 1 and tensors.is_float(stored.dtype):
                if self.in_blocks and stored.ndim == _MATRIX:
                    self.heads[name] = Head.of(stored)
                # an exporter may have cast it to a dtype of the model
                dtypes = [dtype for dtype, size in kinds if size == stored.size]
                for dtype in dtypes:
                    found[digest(stored, dtype)].append(name)
                # the weight of a norm may multiply as 1 + it
                if stored.ndim == 1 and not name.endswith("bias"):
                    made = {digest(s) for dtype in dtypes for _, s in sums(stored[:], dtype)}
                    for key in made:
                        self.sums[key].append(name)
        return found

    def _read(self, parameter: str) -> Array:
        return whole(self.checkpoint.rows(parameter))

    def _tensor(self, name: str) -> Rows:
        return self.index.model.rows(self.floats[name])

    def _array(self, name: str) -> Array:
        return whole(self._tensor(name))

    # --- finding ---

    def _by_content(self, name: str, equal: list[str]) -> None:
        """Take the parameter with equal contents that fits the place; none if the place has another one."""
        # the parameter of its own module decides, where that has the shape
        same = set(equal)
        # an equal parameter elsewhere is chance, where the place itself has another one of this shape
        fitting = [p for p in self.places.own(name) if p in same or self._fits(name, p)]
        here = [p for p in fitting if p in same]
        if here or not fitting:
            # best first: of the place, near it, not yet used, any
            near = [p for p in self.places.near(name) if p in same] if len(equal) > 1 else []
            free = [p for p in equal if p not in self.used]
            self._take(name, here + near + free + equal)

    def _find_folds(self, equal: Mapping[str, Sequence[str]]) -> None:
        """Find the convolutions' weights that have a BatchNorm folded in, and the epsilon of most of these."""
        # BatchNorms that the model does not compute as such: folded, or missing
        self._gone = self._norms_without_node(equal)
        nodes = [(n, node) for n in self.floats if (node := self._convolution(n, 1)) is not None]
        for name, node in nodes:
            if name not in self.found:
                self._find_fold(name, _channels(node))
            else:
                self._find_hidden_fold(name, node)
            # the bias takes what the fold gives, so it is free again
            if name in self.folds:  # whatever else has the numbers of its bias
                self.found.pop(operand(node, 2), None)
        self.epsilon = common_epsilon([fold for fold, _ in self.folds.values()])
        self.folds = {n: (settled(f, self.epsilon), p) for n, (f, p) in self.folds.items()}

    def _norms_without_node(self, equal: Mapping[str, Sequence[str]]) -> list[BatchNorm]:
        """Return the checkpoint's BatchNorms that no node of the model computes."""
        # input 4 of BatchNormalization is the variance
        nodes = (self.index.nodes[at] for at in self.index.operators.get("BatchNormalization", ()))
        variances = [node.input[4] for node in nodes if len(node.input) > 4]
        alive = set(chain.from_iterable(equal.get(name, ()) for name in variances))
        alive |= {self.found[name].parameter for name in variances if name in self.found}
        alive |= set(chain.from_iterable(map(self.places.called, variances)))
        return [norm for norm in self.norms if f"{norm.name}.running_var" not in alive]

    def _find_hidden_fold(self, name: str, node: NodeProto) -> None:
        """Find a BatchNorm that changes nothing of a weight: the bias beside it says whether it was folded in."""
        # a weight that a fold leaves as it is shows the fold only in its bias
        bias = self.floats.get(operand(node, 2))
        array, parameter = self._array(name), self.found[name].parameter
        stored, axis = self._read(parameter), _channels(node)
        if bias is None or stored.shape != array.shape or not self._gone:
            return
        # numbers say that the weight did not change; now whether its bias did
        fold = find_fold(array, stored, axis, self._gone)
        if fold is None or not _agrees(array, fold.weight(stored, axis).astype(array.dtype)):
            return
        own = _bias_of(parameter)
        before = self._read(own) if own in self.checkpoint else None
        made, there = fold.bias(before).astype(array.dtype), self.index.model.array(bias)
        if not _agrees(there, made):
            return
        # both explanations fit: the update must know
        if before is not None and np.array_equal(before.astype(there.dtype), there):
            for each in (name, bias.name):
                if each in self.found:
                    self.found[each].rivals += (f"folded with {fold.norm.name}",)
            return
        self.folds[name] = fold, parameter
        del self.found[name]

    def _find_fold(self, name: str, axis: int) -> None:
        array = self._array(name)
        near = [p for p in self.places.near(name) if self._shape(p) == array.shape]
        found = ((find_fold(array, self._read(p), axis, self.norms), p) for p in near)
        folds = [(fold, p) for fold, p in found if fold is not None]
        if folds:
            self.folds[name] = min(folds, key=lambda each: each[0].error)

    def _find_plus_one(self, names: Iterable[str]) -> None:
        """Find norms that are 1 + a parameter, unless norms at the same place of other layers are the parameter."""
        # of equal numbers, those of its place come first, then those that no weight has
        plain = {kind(w.parameter) for w in self.found.values() if w.comparison.match}
        for name in (name for name in names if len(self.floats[name].dims) == 1):
            array = self._array(name)
            near, own = self.places.near(name), self.places.own(name)
            fitting = [p for p in self.sums.get(digest(array), ()) if kind(p) not in plain]
            # where all numbers are equal, only a parameter of this place counts
            fitting = [p for p in fitting if p in own or (array != array[0]).any()]
            fitting.sort(key=lambda p: (p in self.used, p not in own, p not in near))
            if fitting and self._add_plus_one(name, fitting[0]):
                self.found[name].equal = tuple(fitting)
                self.plus_one.add(kind(fitting[0]))

    def _add_plus_one(self, name: str, parameter: str, differs: bool = False) -> bool:
        array = self._array(name)
        # 1 is added in float32 or in the dtype of the parameter: both may have been exported
        for added, made in sums(self._read(parameter), array.dtype):
            if made.shape != array.shape:
                return False
            comparison = compare(array, made, self.tolerance or EXACT)
            if comparison.match or differs:
                self.found[name] = Weight(name, parameter, PLUS_ONE, comparison, added=added)
                self.used.add(parameter)
                return True
        return False

    def _convolution(self, name: str, slot: int) -> NodeProto | None:
        """Return the convolution that reads a value there."""
        users = (self.index.nodes[position] for position in self.index.users(name))
        reading = (node for node in users if operand(node, slot) == name)
        return next((node for node in reading if node.op_type in _FOLDING), None)

    def _by_fold(self, name: str) -> bool:
        """Compare a convolution's weight with a folded BatchNorm, or the bias beside such a weight."""
        if name in self.folds:
            fold, parameter = self.folds[name]
            node = self._convolution(name, 1)
            axis = _channels(node) if node is not None else 0
            return self._add_folded(
                name, parameter, fold, fold.weight(self._read(parameter), axis), axis
            )
        node = self._convolution(name, 2)
        if node is None or node.input[1] not in self.folds:
            return False
        fold, weight = self.folds[node.input[1]]
        parameter = _bias_of(weight)
        bias = self._read(parameter) if parameter in self.checkpoint else None
        own = f"{fold.norm.name}.bias" if bias is None else parameter
        return self._add_folded(name, own, fold, fold.bias(bias))

    def _by_place(self, name: str) -> bool:
        """Take the parameter of its name, else an unused one of its module, else of a sibling module.

        Inputs of data movement only, under other names, were computed from parameters during export.
        """
        called = self.places.called(name)
        # what only moves data may be a constant of the exporter
        users = {self.index.nodes[p].op_type for p in self.index.users(name)}
        near = [] if users <= _MOVERS else self.places.near(name)
        free = [parameter for parameter in near if parameter not in self.used]
        return self._take(name, [p for p in called + free if self._fits(name, p)])

    def _find_pieces(
        self, equal: Mapping[str, Sequence[str]], blocks: Mapping[str, Weight]
    ) -> None:
        """Find weights that were gathered from parameters that no weight is a copy of."""
        unknown = [
            n for n in self.floats if n not in self.found or not self.found[n].comparison.match
        ]
        # pieces are searched in parameters that no weight is a copy of
        copied = set(chain.from_iterable(equal[n] for n in self.floats if n not in unknown))
        copied.update(*(weight.parts for weight in blocks.values()))
        free = {p: self._shape(p) for p in self.checkpoint if p not in copied}
        table = PieceTable(free, self.checkpoint.rows)
        for name in unknown:
            # a fold or an equal parameter explains it better
            weight = self.found.get(name)
            if (weight and weight.fold) or any(self._holds(name, p) for p in equal[name]):
                continue
            pieces = table.find(self._tensor(name), partial(self.belonging.rival, name))
            if pieces is not None:
                parameter = ", ".join(pieces.parameters)
                # equal by construction: every piece was found
                same = compare(self._tensor(name), self._tensor(name), EXACT)
                self.found[name] = Weight(
                    name, parameter, "pieces", same, pieces=pieces, parts=pieces.runs()
                )
                self.used.update(pieces.parameters)

    def _find_blocks(self) -> dict[str, Weight]:
        """Find what the weights in blocks were rounded from."""
        found = dict[str, Weight]()
        for name, node in self.in_blocks.items():
            self.progress(f"{len(self.found)} weights compared")
            blocks = blocks_of(self.index, node)
            if isinstance(blocks, str):
                continue
            parameters = find_blocks(name, blocks, self.heads, self.belonging)
            if parameters:
                # the finding says what is wrong, not the comparison
                finding, same = examined(blocks, list(map(self.checkpoint.rows, parameters)))
                how, parts = f"rounded with {blocks.bits} bits", tuple(parameters)
                found[name] = Weight(name, ", ".join(parts), how, same, finding, parts=parts)
                self.used.update(parts)
        return found

    def _find_misplaced(self) -> None:
        """Find weights that hold what belongs elsewhere."""
        # of weights whose numbers agree, whole or packed, names say whether they belong there
        known = {name: weight for name, weight in self.found.items() if weight.comparison.match}
        packed = {name: weight.parts for name, weight in known.items()}
        whole = {name: (w.parameter,) + w.equal for name, w in known.items() if not w.parts}
        for name, finding in self.belonging.misplaced(whole, packed).items():
            weight = known[name]
            weight.finding = "; ".join(filter(None, [finding, weight.finding]))

    def _holds(self, name: str, parameter: str) -> bool:
        array, stored = self._array(name), self.checkpoint.rows(parameter)
        laid_out = (whole(each) for _, _, each in _layouts(stored, array.shape))
        return any(np.array_equal(array, each) for each in laid_out)

    def _place(self, equal: Mapping[str, Sequence[str]]) -> None:
        """Note which weights have the contents of several parameters, and which are known by their place."""
        for name, weight in self.found.items():
            if weight.parameter in equal[name]:
                weight.equal = tuple(equal[name])
            weight.is_placed = self._is_placed(name, weight.parameter)
            if not weight.comparison.match and weight.fold is None:
                weight.rivals += tuple(self._foldable(name))
                if equal[name] and weight.parameter not in equal[name]:
                    weight.finding = f"holds {equal[name][0]!r} where {weight.parameter!r} belongs"

    def _is_placed(self, name: str, parameter: str) -> bool:
        own = self.places.called(name) or self.places.own(name)
        return [p for p in own if self._fits(name, p)] == [parameter]

    def _foldable(self, name: str) -> Iterator[str]:
        """Yield the BatchNorms beside a convolution whose weight or bias differs, which may be folded into it."""
        if self._convolution(name, 1) is None and self._convolution(name, 2) is None:
            return
        near = set(self.places.near(name))
        # a BatchNorm of this module that is gone, with as many channels
        for norm in self._gone:
            if f"{norm.name}.running_var" in near and norm.mean.size in self.floats[name].dims:
                yield f"folded with {norm.name}"

    # --- comparing ---

    def _take(self, name: str, parameters: Iterable[str]) -> bool:
        """Compare with the first parameter, in the layout that agrees best."""
        # the first candidate in every layout; the others only say whether it is clear
        candidates = list(parameters)
        found = list(self._laid_out(name, candidates[0])) if candidates else []
        if not found:
            return False
        # a match first, then the nearest numbers
        best = max(found, key=lambda w: (w.comparison.match, w.comparison.metric("cosine")))
        if best.comparison.match:
            near = [w for w in found if w.comparison.match and w is not best]
        else:
            # a name or module that settles the parameter excludes the others
            if not self._is_placed(name, best.parameter):
                found += chain.from_iterable(self._laid_out(name, p) for p in candidates[1:])
            # explanations that are about as good
            near = [w for w in found if w is not best and not _is_clear(best, w)]
        best.rivals = tuple(map(as_text, near))
        self.found[name] = best
        self.used.add(best.parameter)
        return True

    def _laid_out(self, name: str, parameter: str) -> Iterator[Weight]:
        """Yield the comparison with a parameter in each layout."""
        ours = self._tensor(name)
        for how, order, stored in _layouts(self.checkpoint.rows(parameter), ours.shape):
            # other dtypes are compared with the tolerance of the dtype
            exact = EXACT if ours.dtype == stored.dtype else None
            comparison = compare(ours, stored, self.tolerance or exact)
            yield Weight(name, parameter, how, comparison, order=order)

    def _add_folded(
        self, name: str, parameter: str, fold: FoldedWeight, folded: Array, axis: int | None = None
    ) -> bool:
        array = self._array(name)
        if folded.shape != array.shape:
            return False
        comparison = compare(array, folded.astype(array.dtype), self.tolerance or _folded(array))
        how = f"folded with {fold.norm.name}"
        finding = ""
        # only a weight shows its epsilon; `axis` is None for a bias
        if axis is not None and fold.epsilon != self.epsilon:
            finding = f"epsilon is {fold.epsilon:.3g}, {self.epsilon:.3g} in the other BatchNorms"
        self.found[name] = Weight(name, parameter, how, comparison, finding, fold=fold, axis=axis)
        parts = ("weight", "bias", "running_mean", "running_var")
        self.used |= {parameter}.union(f"{fold.norm.name}.{part}" for part in parts)
        return True

    def _find_transposed(self) -> None:
        """Find square weights that are transposed, or not, although their nodes need the opposite."""
        # weights that are not square say how most products read their parameters
        known = {n: weight.order for n, weight in self.found.items() if weight.order is not None}
        square = {name for name, order in known.items() if self._is_square(name, order)}
        usual = usual_senses(self.index, [(n, o) for n, o in known.items() if n not in square])
        for name in square:
            weight, order = self.found[name], known[name]
            stays = order == tuple(sorted(order))
            if weight.comparison.match and not (stays and not weight.parameter.endswith(".weight")):
                weight.finding = layout_finding(self.index, name, order, usual)

    def _is_square(self, name: str, order: Shape) -> bool:
        """Return whether the shape permits another order of the axes, too."""
        # the order leaves the shape as it is
        dims = list(self.floats[name].dims)
        moved = [dims[axis] for axis in order]
        # a matrix is ambiguous if it is square, more axes if they moved without a trace
        return moved == dims and (
            moved[::-1] == dims if len(dims) == 2 else order != tuple(sorted(order))
        )

    def _fits(self, name: str, parameter: str) -> bool:
        """Return whether the shapes are equal up to the order of axes."""
        return sorted(self._shape(parameter)) == sorted(self.floats[name].dims)

    def _shape(self, parameter: str) -> Shape:
        known = self.checkpoint.entries[parameter].shape
        return self._read(parameter).shape if known is None else tuple(known)


def _channels(node: NodeProto) -> int:
    """Return the axis of the output channels in a weight."""
    if node.op_type == "Gemm":
        return 0 if integer(node, "transB") else 1
    return int(node.op_type == "ConvTranspose")


def _bias_of(weight: str) -> str:
    """Return the name of the bias in the module of a weight."""
    return f"{weight.rpartition('.')[0]}.bias".removeprefix(".")


def _folded(array: Array) -> Tolerance | None:
    """Return the tolerance of folded numbers: their dtype's, where that is wider than the fold's own rounding."""
    return _FOLDED if array.dtype.itemsize > 2 else None


def _agrees(array: Array, folded: Array) -> bool:
    return array.shape == folded.shape and compare(array, folded, _folded(array)).match


def _is_clear(best: Weight, other: Weight) -> bool:
    """Return whether one explanation of numbers that differ excludes another."""
    if best.parameter != other.parameter:
        return other.comparison.metric("cosine") < ALIKE
    return 1 - best.comparison.metric("cosine") <= _CLEAR * (1 - other.comparison.metric("cosine"))


def as_text(weight: Weight) -> str:
    """Say which parameter a weight is, and how."""
    how = "as it is" if weight.how == "same" else weight.how
    order = f" to {list(weight.order)}" if weight.order and weight.how == "transposed" else ""
    return f"{weight.parameter!r} {how}{order}"


def _layouts(stored: Rows, shape: Shape) -> Iterator[tuple[str, Shape | None, Rows]]:
    """Yield a parameter in every order of axes with the given shape, unchanged first, else reshaped."""
    # axes of one element move freely: such an order is no transposition
    axes = tuple(range(stored.ndim))
    if stored.shape == shape:
        yield "same", axes, stored
    if stored.ndim <= _MAX_AXES and sorted(stored.shape) == sorted(shape):
        long = [axis for axis in axes if stored.shape[axis] > 1]
        for order in permutations(axes):
            # another order of the axes that are longer than 1
            moves = order != axes and [axis for axis in order if axis in long] != long
            if (moves or stored.shape != shape) and tuple(stored.shape[a] for a in order) == shape:
                yield "transposed", order, np.ascontiguousarray(np.transpose(whole(stored), order))
    elif stored.size == np.prod(shape, dtype=int):
        yield "reshaped", None, stored.reshape(shape)
