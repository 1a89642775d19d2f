"""Align references with a model: by equal names, by a map, or by matching."""

import math
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from onnx import NodeProto, TypeProto, helper

from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError
from onnxsurgeon_lite.graph import BodyName, GraphIndex, constant
from onnxsurgeon_lite.graph.quantizers import PRODUCTS, Quantizers, plain_name
from onnxsurgeon_lite.matching.values.facts import (
    Side,
    is_of_modules,
    outputs_of,
    side_of_model,
    side_of_references,
)
from onnxsurgeon_lite.matching.values.mapping import (
    feeds_of_other,
    load_map,
    renamed,
    static_shapes,
)
from onnxsurgeon_lite.matching.values.packed import packed_of, with_packed
from onnxsurgeon_lite.matching.values.pair_table import Pair, outside_of_parents, tells_layout
from onnxsurgeon_lite.matching.values.pairing import Matching, key_of, lost_note, match
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.model.messages import assign
from onnxsurgeon_lite.names import first, rewrapped, wrapper_of
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress, quiet
from onnxsurgeon_lite.tensors.dtypes import Shape, is_array, is_float, numpy_dtype
from onnxsurgeon_lite.tensors.references import ReferenceSet

_SHOWN = 5  # values in one note
_COUNTED = re.compile(r"val_\d+|\d+")  # names that an exporter counts
_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "BatchNormalization")
"""Operators that a quantizer merges with the Relu after them."""


@dataclass(frozen=True)
class Alignment:
    """How references get the names of a model's values: as they are, or by pairs; of every sample alike.

    Attributes:
        pairs: (name in the references, value of the model); None where the names are the model's.
        shapes: of the model's values, -1 for a size that differs between samples. alone: references without a value.
        by_module: names that are modules' paths say the modules of the references.
        notes, doubts, left_over, exchanged: of the matching, as in `ReferenceSet`.
    """

    pairs: Sequence[Pair] | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    alone: Sequence[str] = ()
    by_module: bool = False
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()
    exchanged: str = ""

    def of(self, references: ReferenceSet, index: GraphIndex) -> ReferenceSet:
        """Return the references under the model's names."""
        if self.pairs is None:
            return references
        named = with_modules(references, index) if self.by_module else references
        named = with_packed(named, packed_of(named, index) if self.by_module else {})
        fitted = renamed(named, list(self.pairs), index, self.shapes, self.alone)
        notes = references.notes + self.notes
        return replace(
            fitted,
            notes=notes,
            doubts=self.doubts,
            left_over=self.left_over,
            exchanged=self.exchanged,
        )

    def confirmed(
        self,
        first: Feeds,
        second: Callable[[], tuple[ReferenceSet, Feeds]],
        index: GraphIndex,
        runtime: Runtime,
        how: str | None,
        progress: Progress = quiet,
    ) -> "Alignment":
        """Return the alignment with names that the second sample confirms, where its sizes are others.

        What is added to an empty cache equals the cache, and which sizes a value has elsewhere shows only there.
        """
        if not self.pairs:
            return self
        try:
            stored, feeds = second()
            if _shapes(first) == _shapes(feeds):
                return self
            other = alignment(stored, index, feeds, runtime, how, progress)
        except (FeedsError, ReferenceSetError):
            return self  # nothing matches there: the samples say what differs
        # the second sample contradicts some pairs, and shows which sizes vary
        return self._agreeing(other, stored, index.outputs)

    def _agreeing(
        self, other: "Alignment", stored: ReferenceSet, outputs: Container[str]
    ) -> "Alignment":
        """Return the alignment without inner pairs that another sample contradicts, and shapes for both samples.

        Args:
            stored: the references of that sample.
        """
        # a pair stands where both samples have it, or the other sample says nothing of its values
        pairs, others = self.pairs or (), other.pairs or ()
        there = {(pair.a, pair.b) for pair in others}
        taken = {pair.a for pair in others}, {pair.b for pair in others}

        def stands(pair: Pair) -> bool:
            if (pair.a, pair.b) in there:
                return True
            shape = other.shapes.get(pair.b)
            fits = shape is None or math.prod(shape) == np.size(stored.read(pair.a))
            return fits and pair.a not in taken[0] and pair.b not in taken[1]

        kept = [pair for pair in pairs if stands(pair)]
        # the partner in the other sample comes first
        for pair in (*others, *pairs):  # an output keeps one of two partners
            is_free = all(each.a != pair.a and each.b != pair.b for each in kept)
            if pair.b in outputs and is_free:
                kept.append(pair)
        both = {name: _both(shape, other.shapes.get(name)) for name, shape in self.shapes.items()}
        shapes = {name: shape for name, shape in both.items() if shape is not None}
        lost = len(pairs) - len(kept)
        left = f"{lost} of these are of other values at the second sample: not compared"
        return replace(
            self, pairs=kept, shapes=shapes, notes=self.notes + tuple([left] * bool(lost))
        )


def _shapes(feeds: Feeds) -> dict[str, Shape]:
    return {name: value.shape for name, value in feeds.items() if is_array(value)}


def _both(one: tuple[int, ...], other: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return a shape whose only size that differs is -1; None where several do."""
    if other is None or len(one) != len(other):
        return None
    shape = tuple(a if a == b else -1 for a, b in zip(one, other, strict=True))
    return shape if shape.count(-1) <= 1 else None


def alignment(
    references: ReferenceSet,
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    how: str | None = None,
    progress: Progress = quiet,
) -> Alignment:
    """Return how references get the model's names.

    Args:
        how: `names` keeps them, `auto` matches them, else a map file; None matches them if the names belong to
            another model.

    Raises:
        ReferenceSetError: no reference matches a value.
    """
    if not needs_alignment(references, index, how):
        return Alignment()
    if how is not None and how != "auto":
        return Alignment(load_map(Path(how)), static_shapes(index))
    # the values of the model as it runs, against the references
    side = side_of_model(unquantized(index), feeds, runtime, progress, with_weights=False)
    named = with_modules(references, index)
    packed = packed_of(named, index)
    named = with_packed(named, packed)
    theirs = side_of_references(named, outputs_of(named, index.outputs))
    returned, matching = theirs.outputs, match(theirs, side)
    # the model's value that each returned reference is, in the order of the module
    held = _held(matching, returned)
    pairs = [pair for pair in _comparable(matching, side) if pair.b in index.producer]
    # whether a projection is packed in this order, the numbers of one of them show
    if not any(pair.agrees for pair in pairs if pair.a in packed):
        pairs = [pair for pair in pairs if pair.a not in packed]
    if not pairs:
        raise ReferenceSetError(
            f"no reference in {references.place!r} matches a value of the model",
            lost_note(matching)
            or "record them again from the exported module: onnxdbg record FILE.py:FACTORY -o NEW",
        )
    # parts whose whole has a value are not missing in the model, and a whole without one is none
    paired = {pair.a for pair in pairs}
    own = set[str]()
    for whole, parts in packed.items():
        own.update(parts if whole in paired else [whole])
    return Alignment(
        pairs,
        side.shapes,
        [n for n in matching.only_a if n not in own and not named.entries[n].is_input],
        by_module=True,
        notes=(
            _summary(matching, named, len(pairs)),
            *(
                f"{pair.a!r} has the place and shape of {pair.b!r}, not its values: these are compared"
                for pair in _placed(matching)
            ),
        ),
        doubts=tuple(filter(None, [lost_note(matching), _doubt(matching)])),
        left_over=tuple(
            _left_over(matching, theirs, side, index, dict(zip(returned, held, strict=True)))
        ),
        exchanged=_exchanged(held, returned, index),
    )


def with_modules(references: ReferenceSet, index: GraphIndex) -> ReferenceSet:
    """Return the references with their names as module paths, if most of them are paths of the model's modules."""
    modules = {path for origin in index.origins for path in origin.around()}
    return named_as_modules(references, modules, index.inputs)


def named_as_modules(
    references: ReferenceSet, modules: Collection[str], inputs: Container[str]
) -> ReferenceSet:
    """Return the references with their names as module paths, if most of them are paths of these modules.

    A wrapper around all modules of one side does not matter, nor modules that only one side has around some.
    """
    # what no recorder described: a set of arrays with nothing but names
    plain = (
        n for n, e in references.entries.items() if not (e.is_input or e.scope or e.class_name)
    )
    # inputs are no modules
    names = [name for name in plain if name not in inputs]
    known = {f"{path}." for path in modules}
    way = wrapper_of([f"{name}." for name in names], known)
    paths = [rewrapped(f"{name}.", way)[:-1] for name in names]
    read = sum(path in modules for path in paths) + len(outside_of_parents(paths, modules))
    if not names or 2 * read < len(names):
        return references
    named = {name: replace(references.entries[name], scope=name) for name in names}
    return replace(references, entries={**references.entries, **named})


def _comparable(matching: Matching, side: Side) -> list[Pair]:
    """Return the pairs without those that are transposed though their shape permits another order, too.

    Which order the model should have is not known.
    """
    shapes = {pair.b: side.facts[pair.b].shape for pair in matching.pairs}
    return [p for p in matching.pairs if p.axes is None or tells_layout(shapes[p.b])]


def _placed(matching: Matching) -> list[Pair]:
    """Return the pairs that nothing but place and shape makes."""
    return [pair for pair in matching.pairs if pair.evidence[0] == "order" and not pair.agrees]


def _doubt(matching: Matching) -> str:
    """Say that the feeds may be others, if no reference equals a value; '' if one does."""
    if len(_placed(matching)) < len(matching.pairs):
        return ""
    return "no reference equals a value: are these the feeds and weights of the recording?"


def _held(matching: Matching, returned: Iterable[str]) -> list[str]:
    """Return the value of the model that each reference is; '' for none."""
    partner = {pair.a: pair.b for pair in matching.pairs}
    return [partner.get(matching.aliases.get(name, name), "") for name in returned]


def _exchanged(held: Sequence[str], returned: Sequence[str], index: GraphIndex) -> str:
    """Say that the outputs stand in another order than what they are compared with; '' if they do not.

    Args:
        held: the value of the model that each of `returned` is.
    """
    pairs = list(zip(returned, held, strict=True))
    # the right order, or outputs that are no permutation of each other
    is_right = list(held) == list(index.outputs) or sorted(held) != sorted(index.outputs)
    # a dict has no order, nor has a cache by layers: their names are more than a key
    if is_right or all(name != key_of(name) == key_of(value) for name, value in pairs):
        return ""
    order = ", ".join(f"{name!r} at {output!r}" for name, output in pairs)
    return f"the outputs are not in the order of what is compared with them: {order}"


def _left_over(
    matching: Matching, theirs: Side, ours: Side, index: GraphIndex, held: Mapping[str, str]
) -> list[str]:
    """Return the references after the last matched one, without feeds.

    Where every output has a reference, what only inner modules returned is no part of the export. A reference of a
    module that the model lacks is one only where it may be an output: has the shape of one.

    Args:
        held: the references of outputs, and the value of the model that each is.
    """
    # what follows the last match was probably not exported
    rest = matching.after_last(theirs.facts)
    if set(index.outputs) <= set(held.values()):
        rest = [name for name in rest if name in held]
    # a module that the export left out at its end is lost, too
    shapes = {ours.facts[name].shape for name in ours.outputs}
    lost = {name for name in matching.lost_names if theirs.facts[name].shape not in shapes}
    return [name for name in rest if name not in lost and name not in index.inputs]


# Where equal names also agree in operators and wiring, no numbers are needed.
# Values that are computed from inputs are listed, and no constants.
def aligned_models(
    references: ReferenceSet,
    other: GraphIndex,
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    how: str | None,
    progress: Progress,
    certain: bool = False,
) -> ReferenceSet:
    """Return the values that another model computes under the model's names; arguments and errors as of `alignment`.

    With `certain` there are no pairs whose numbers differ, unless equal nodes compute them from pairs.
    """
    if how == "names" or (how is None and names_settle(index, other)):
        return _of_equal_names(references, index, other)
    if how is not None and how != "auto":
        given = [pair for pair in load_map(Path(how)) if pair.a not in other.inputs]
        return renamed(references, given, index, static_shapes(index))
    ours = side_of_model(unquantized(index), feeds, runtime, progress)
    theirs = side_of_model(other, feeds_of_other(other, feeds), runtime, progress)
    found = match(theirs, ours)
    matching = _certain(found, other, index) if certain else found
    pairs = [
        pair
        for pair in _comparable(matching, ours)
        if pair.a in references and pair.b in index.producer
    ]
    if not pairs:
        raise ReferenceSetError(
            f"no value of {references.place!r} matches a value of the model",
            "are these two exports of one network? onnxdbg match shows what they share",
        )
    notes = [f"{len(pairs)} values of {references.place!r} match values of the model"]
    notes += _alone(ours, "the model", matching.only_b)
    notes += _alone(theirs, repr(references.place), matching.only_a)
    theirs_alone = [name for name in matching.only_a if name in references]
    fitted = renamed(references, pairs, index, ours.shapes, theirs_alone)
    order = _exchanged(_held(matching, other.outputs), list(other.outputs), index)
    return replace(fitted, notes=references.notes + tuple(notes), exchanged=order)


def _alone(side: Side, where: str, names: Iterable[str]) -> list[str]:
    """Say which computed values of a side have no partner."""
    alone = [side.facts[name] for name in names if side.facts[name].inputs]
    return _alone_note(where, [(f.op, f.name, f.scope) for f in alone])


def _certain(matching: Matching, other: GraphIndex, index: GraphIndex) -> Matching:
    """Return pairs whose numbers agree, and those that equal nodes compute from pairs."""
    there, kept = {name: name for name in index.inputs}, list[Pair]()
    computed = [pair for pair in matching.pairs if pair.b in index.producer]
    # in topological order, so that the pairs that a node reads are decided before
    for pair in sorted(computed, key=lambda pair: index.rank[pair.b]):
        node, theirs = index.nodes[index.producer[pair.b]], other.node_of(pair.a) or NodeProto()
        read = zip(node.input, theirs.input, strict=False)
        alike = node.op_type == theirs.op_type and all(
            there.get(n) == t for n, t in read if constant(index, n) is None
        )
        if pair.agrees or alike:
            there[pair.b] = pair.a
            kept.append(pair)
    left = [pair.a for pair in computed if pair.b not in there]
    return replace(matching, pairs=kept, only_a=matching.only_a + left)


def names_settle(index: GraphIndex, other: GraphIndex) -> bool:
    """Return whether equal names mean equal values in two models: their nodes are of one operator and wired alike.

    Nodes with one input that only one side has, such as casts and quantizers, are looked through. One node may be
    another: it may be the fault, unless the names of the two sides count otherwise.
    """
    if is_quantized_copy(index, other):
        return True
    # most values must have a name in common, and all outputs
    common = [name for name in index.producer if name in other.producer]
    inner = [name for name in common if name not in index.outputs]
    # at least half of the values between inputs and outputs
    if not common or 2 * len(inner) < len(index.producer.keys() - index.outputs.keys()):
        return False
    if not all(name in other for name in index.outputs):
        return False
    other_calls = [n for n in common if _call(index, other, n) != _call(other, index, n)]
    # "val_12" or "12": another count of nodes gives the same name to another value
    recounted = any(_COUNTED.fullmatch(name) for name in index.producer.keys() - other.producer)
    return len(other_calls) <= 1 and not (recounted and any(map(_COUNTED.fullmatch, other_calls)))


def is_quantized_copy(index: GraphIndex, other: GraphIndex) -> bool:
    """Return whether a model is another one, quantized: most values around its quantizers are named as in the other."""
    quantizers = Quantizers.of(index)
    # what a quantizer reads, and quantized nodes under another name
    around = set(quantizers.sources.values()) & index.producer.keys()
    around |= {
        name
        for name, position in index.producer.items()
        if plain_name(name) != name and index.nodes[position].op_type not in PRODUCTS
    }
    if not around or Quantizers.of(other).sources:
        return False
    named = [name for name in around if any(n in other for n in quantizers.origin(name))]
    # three quarters: a quantizer also makes values of its own
    return 4 * len(named) >= 3 * len(around)


def _call(index: GraphIndex, other: GraphIndex, name: str) -> list[str]:
    """Return the operator of a value, and what it reads as far as the other model has it too."""
    found = [index.operator_of(name)]
    for read in index.reads[index.producer[name]]:
        # upwards through nodes that only this model has, as long as they have one input
        while read in index.producer and read not in other.producer:
            before = [n for n in index.reads[index.producer[read]] if n not in index.initializers]
            if len(before) != 1:
                break
            read = before[0]
        if read in index.producer and read in other.producer:
            found.append(read)
    return found


def _alone_note(where: str, values: Sequence[tuple[str, str, str]]) -> list[str]:
    """Say which values only one side has, by operator, name and module."""
    shown = [f"{op} {name!r}" + (f" in {scope}" if scope else "") for op, name, scope in values]
    return [f"only {where} has {first(shown, _SHOWN)}"] if shown else []


def _inserted(index: GraphIndex, other: GraphIndex) -> list[tuple[str, str, str]]:
    """Return the values that only one of two models has, between values that both have."""
    found = [
        (name, position)
        for name, position in index.producer.items()
        if name not in other.producer and any(n in other for n in index.reads[position])
    ]
    return [(index.nodes[p].op_type, name, index.origins[p].scope) for name, p in found]


def _of_equal_names(references: ReferenceSet, index: GraphIndex, other: GraphIndex) -> ReferenceSet:
    """Return the references without values of equal names but other shapes or kinds of dtype."""
    index.learn_types(index.producer)
    other.learn_types(other.producer)
    alike = {
        name: entry
        for name, entry in references.entries.items()
        if name not in index.producer or _alike(index.types.get(name), other.types.get(name))
    }
    notes = _alone_note("the model", _inserted(index, other)) + _alone_note(
        repr(references.place), _inserted(other, index)
    )
    # copies of a float model differ in these everywhere
    is_copy = is_quantized_copy(index, other)  # its quantizers are no news
    said = references.notes if is_copy else references.notes + tuple(notes)
    # equal names of outputs, which may be in another order
    order = _exchanged(list(other.outputs), list(other.outputs), index)
    return replace(references, entries=alike, notes=said, exchanged=order)


def _alike(one: TypeProto | None, other: TypeProto | None) -> bool:
    """Return whether two types may be of one value; an unknown part fits everything."""
    if one is None or other is None:
        return True
    # floats of other widths are of one value; sizes that are not known fit
    a, b = one.tensor_type, other.tensor_type
    if a.elem_type and b.elem_type and a.elem_type != b.elem_type:
        kinds = (is_float(numpy_dtype(kind.elem_type)) for kind in (a, b))
        if not all(kinds):
            return False
    if not (a.HasField("shape") and b.HasField("shape")):
        return True
    dims = [[d.dim_value for d in kind.shape.dim] for kind in (a, b)]
    return len(dims[0]) == len(dims[1]) and all(
        not x or not y or x == y for x, y in zip(*dims, strict=True)
    )


def needs_alignment(references: ReferenceSet, index: GraphIndex, how: str | None) -> bool:
    return how != "names" and (how is not None or has_other_names(references, index))


def has_other_names(references: ReferenceSet, index: GraphIndex) -> bool:
    """Return whether the names of a set belong to another model: most inner ones are no values of this shape.

    Outputs of PyTorch modules have module paths as names; a model may have some of these by chance. Two exports of
    one network have the names of inputs and outputs in common.
    """
    # values in bodies have ids of a model: they say nothing by themselves
    names = [name for name, entry in references.entries.items() if not entry.is_input]
    computed = [name for name in names if not BodyName.of(name)]
    if len(computed) < len(names) and index.inputs.keys() >= set(computed):
        return False  # only values in bodies: their names are ids of this model
    values = [name for name in computed if name not in index.inputs]
    inner = [name for name in values if name not in index.outputs]
    # a set of outputs alone is judged by these
    inner = inner if inner or is_of_modules(references) else values
    # the name in the float model -> the value of a quantized one
    held = {plain_name(name): name for name in index.producer} | {n: n for n in index.producer}
    shapes = static_shapes(index)
    fitting = [
        name
        for name in inner
        if name in held and references.entries[name].may_have(shapes.get(held[name]))
    ]
    # the values that are quantized
    around = set(Quantizers.of(index).sources.values()) & index.producer.keys()
    if around and 2 * len(around & set(fitting)) >= len(around):
        return False  # of the float model
    return 2 * len(fitting) < len(inner) or not inner


def _summary(matching: Matching, references: ReferenceSet, pairs: int) -> str:
    computed = sum(not entry.is_input for entry in references.entries.values())
    doubtful = sum(pair.agrees is False for pair in matching.pairs)
    text = f"{pairs} of {computed} references match values of the model"
    copies = len(matching.aliases)
    verb = "is a copy of another" if copies == 1 else "are copies of others"
    passed_on = f", {copies} {verb}" if copies else ""
    return (
        f"{text}{passed_on}; {doubtful} matched by module or place, not by numbers"
        if doubtful
        else text + passed_on
    )


def unquantized(index: GraphIndex) -> GraphIndex:
    """Return the model with a copy, or the Relu that it stands for, in place of each pair of quantizers.

    The values keep their names.
    """
    quantizers = Quantizers.of(index)
    if not quantizers.sources:
        return index
    model = index.model.copy()
    graph = model.graph
    for name, source in quantizers.sources.items():
        grid = quantizers.grids[source]
        # a quantizer whose lowest number is its zero point cuts negative numbers off, so it replaces a Relu
        cuts = index.operator_of(source) in _LINEAR and bool((grid.zero == grid.low).all())
        node = helper.make_node("Relu" if cuts else "Identity", [source], [name])
        node.metadata_props.extend(index.nodes[index.producer[name]].metadata_props)
        graph.node[index.producer[name]].CopyFrom(node)
    # the quantizers themselves are no longer read
    read = set(walk.inputs(graph.node)) | index.outputs.keys()
    kept = [node for node in graph.node if read & set(node.output)]
    assign(graph.node, kept)
    return GraphIndex.of(model)
