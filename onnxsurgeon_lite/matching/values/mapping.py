"""Save and load matchings as editable files, and rename references with them."""

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.atomic import Staging
from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError, UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex, fixed_shape
from onnxsurgeon_lite.matching.values.pair_table import Pair
from onnxsurgeon_lite.matching.values.pairing import Matching
from onnxsurgeon_lite.runtime.feeds import Feeds, as_declared, feeds_from
from onnxsurgeon_lite.tensors.dtypes import Shape, Stored, is_array, is_float, numpy_dtype
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet
from onnxsurgeon_lite.untrusted import UNREADABLE, text_of

FORMAT = "onnxsurgeon-map"
ALONE = " (reference)"
"""Ends the name of a reference without a value in the model that has another value's name."""
_RESHAPE_ONLY = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")


def save_map(matching: Matching, path: Path) -> None:
    """Write the pairs: `{"format": "onnxsurgeon-map", "pairs": [{"a": ..., "b": ...}, ...]}`; other keys optional."""
    pairs = ",\n  ".join(json.dumps(vars(pair)) for pair in matching.pairs)
    text = f'{{"format": "{FORMAT}", "version": 1, "pairs": [\n  {pairs}\n]}}\n'
    with Staging() as staging:
        with staging.open(path) as file:
            file.write(text.encode())
        staging.commit()


def load_map(path: Path) -> list[Pair]:
    """Load the pairs of a map file."""
    try:
        found = json.loads(text_of(path))
        pairs = [_pair(item) for item in found["pairs"]]
    except UNREADABLE as error:
        raise ReferenceSetError(
            f"{str(path)!r} is not a map: {error}",
            "write one with: onnxdbg match A B --save map.json",
        ) from error
    for side in ("a", "b"):
        names = Counter(getattr(pair, side) for pair in pairs)
        twice = next((name for name, times in names.items() if times > 1), None)
        if twice is not None:
            raise ReferenceSetError(f"{str(path)!r} names {twice!r} twice on side {side}")
    return pairs


def _pair(item: Mapping[str, object]) -> Pair:
    axes = item.get("axes")
    order = tuple(int(axis) for axis in axes) if isinstance(axes, list) else None
    return Pair(
        str(item["a"]), str(item["b"]), ("map",), 1.0, axes=order, blocked=bool(item.get("blocked"))
    )


def rearranged(entry: Entry, axes: Shape | None, shape: Shape | None) -> Stored:
    """Read a stored tensor into another layout; a size of -1 is what is left."""
    stored = entry.read()
    if not is_array(stored):
        return stored
    array = stored if axes is None else np.transpose(stored, axes)
    if shape is None:
        return array
    # -1 stands for one size, which follows from the number of elements
    known = math.prod(size for size in shape if size >= 0)
    fits = known and array.size % known == 0 if -1 in shape else known == array.size
    # another number of elements cannot have this shape: the comparison says so
    return array.reshape(shape) if fits else array


def renamed(
    references: ReferenceSet,
    pairs: list[Pair],
    index: GraphIndex,
    shapes: Mapping[str, Shape],
    alone: Collection[str] = (),
) -> ReferenceSet:
    """Rename references to a model's names and reshape them, also for values that only reshape them.

    Args:
        shapes: known shapes of the model's values.
        alone: references without a value in the model, which keep their names.
    """
    entries = dict[str, Entry]()
    sources = dict[str, str]()
    for pair in pairs:
        if pair.blocked:  # the model stores this value in another layout
            continue
        if pair.a not in references:
            raise UnknownNameError(pair.a, repr(references.place), references)
        index.require(pair.b)
        # what a reshape makes of a value has the same numbers, so it has the same reference
        same = [name for name in _reshaped(index, pair.b) if name in shapes]
        for name in (pair.b, *same):
            sources[name] = pair.a
            entry = references.entries[pair.a]
            shape = shapes.get(name)
            read = partial(rearranged, entry, pair.axes, shape)
            fixed = None if -1 in (shape or ()) else shape
            own = replace(entry, read=read, shape=fixed, is_input=False, stored_as=pair.a)
            # a pair of its own comes before what follows from another one
            entries[name] = own if name == pair.b else entries.get(name, own)

    for name in alone:
        # an unmatched reference must not take the name of a value that it is not
        free = f"{name}{ALONE}" if name in index or name in entries else name
        sources[free], entries[free] = name, references.entries[name]
    # in the order of the set, as a file of many tensors is read from front to back
    place = {name: number for number, name in enumerate(references)}
    entries = dict(sorted(entries.items(), key=lambda item: place[sources[item[0]]]))

    def prefetch(names: Sequence[str]) -> None:
        references.prefetch(list(dict.fromkeys(sources[name] for name in names)))

    def inside(name: str) -> Mapping[str, Entry]:
        return bodies(sources[name]) if bodies is not None and name in sources else {}

    bodies = references.bodies
    return replace(
        references,
        entries=entries,
        prefetch=prefetch,
        bodies=None if bodies is None else inside,
        outputs=(),
    )


def _reshaped(index: GraphIndex, name: str) -> list[str]:
    """Return the values connected by reshapes, or by the cast of an output, which hold the same numbers."""
    # up to what was reshaped, and down to what reshapes it
    found = []
    pending = [name]
    while pending:
        here = pending.pop()
        node = index.node_of(here)
        near = []
        if node is not None and node.op_type in _RESHAPE_ONLY:
            near.append(str(node.input[0]))
        for user in index.users(here):
            node = index.nodes[user]
            copies = node.op_type in _RESHAPE_ONLY or _widens_output(index, node)
            if copies and node.input[0] == here:
                near.append(str(node.output[0]))
        fresh = [n for n in near if n in index.producer and n != name and n not in found]
        found += fresh
        pending += fresh
    return found


def _widens_output(index: GraphIndex, node: NodeProto) -> bool:
    """Return whether a node gives an output its declared float type, as a conversion to half precision does."""
    kinds = [a.i for a in node.attribute if node.op_type == "Cast" and a.name == "to"]
    return bool(kinds) and node.output[0] in index.outputs and is_float(numpy_dtype(kinds[0]))


def feeds_of_other(index: GraphIndex, feeds: Feeds) -> Feeds:
    """Map feeds to another model: by name if all names fit, else in order; floats are cast to what it declares.

    Raises:
        FeedsError: the number of inputs differs, or a feed does not fit.
    """
    required = index.required_inputs
    if all(name in feeds for name in required):
        return _fitted(index, {n: feeds[n] for n in index.inputs if n in feeds})
    if len(required) != len(feeds):
        raise FeedsError(
            f"the models take {len(feeds)} and {len(required)} inputs",
            "cut them to the same inputs with onnxdbg extract",
        )
    return _fitted(index, dict(zip(required, feeds.values(), strict=True)))


def outputs_of_other(index: GraphIndex, other: GraphIndex, links: str | None) -> dict[str, str]:
    """Map the other model's values to those of the model: by a map file, else outputs of other names in order.

    Args:
        links: `names`, `auto` or a map file.
    """
    if links not in (None, "auto"):
        return {} if links == "names" else {pair.a: pair.b for pair in load_map(Path(links))}
    ours = [name for name in index.outputs if name not in other.outputs]
    theirs = [name for name in other.outputs if name not in index.outputs]
    return dict(zip(theirs, ours, strict=True)) if len(ours) == len(theirs) else {}


def _fitted(index: GraphIndex, feeds: Feeds) -> Feeds:
    try:
        return as_declared(index, feeds)
    except FeedsError as error:
        raise FeedsError(
            f"the other model takes other inputs: {error.message}",
            "give both the same sizes: onnxdbg edit set-shape, edit rebatch",
        ) from error


def feeds_in_order(
    index: GraphIndex, references: ReferenceSet, said: list[str] | None = None
) -> Feeds:
    """Read feeds from a set by name, else in order of its recorded inputs.

    Args:
        said: receives a line for each feed that is cast.

    Raises:
        FeedsError: an input has no tensor, or its tensor does not fit.
    """
    required = index.required_inputs
    given = [name for name, entry in references.entries.items() if entry.is_input]
    left = [name for name in given if name not in required]
    unnamed = [name for name in required if name not in references]
    # by name alone, unless as many recorded inputs are left over as inputs have no feed
    if not unnamed or len(left) != len(unnamed):
        return feeds_from(index, references, said)
    names = {name: name for name in required} | dict(zip(unnamed, left, strict=True))
    return as_declared(index, {name: references.read(names[name]) for name in required}, said)


def static_shapes(index: GraphIndex) -> dict[str, Shape]:
    """Return the fixed shapes of values, declared or inferred."""
    index.learn_types(index.producer)
    found = ((name, fixed_shape(index.types.get(name))) for name in index.producer)
    return {name: shape for name, shape in found if shape is not None}
