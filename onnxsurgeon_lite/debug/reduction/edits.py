"""What can be made smaller or plainer in a model: a table of edits, made of the passes that exist."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
from onnx import NodeProto, TensorProto

from onnxsurgeon_lite.debug.reduction.conditions import Failing, SeenValues
from onnxsurgeon_lite.errors import EditError, ShapeError, SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, schema_of
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.names import python
from onnxsurgeon_lite.passes import (
    Extract,
    Freeze,
    Inline,
    Pipeline,
    Promote,
    Remove,
    RemoveInput,
    RemoveOutput,
    Rename,
    Rewire,
    Set,
    SetAttr,
    SetConstant,
    SetShape,
)
from onnxsurgeon_lite.passes.set import header
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.tensors.dtypes import Array, arrays_in, is_array

_NOISY = 64  # elements, from which on numbers say more than their values: weights leave


def _noise(array: Array) -> Array:
    if array.dtype.kind != "f" or array.size < _NOISY:
        return array
    return np.random.default_rng(0).normal(size=array.shape).round(1).astype(array.dtype)


FILLS: dict[str, Callable[[Array], Array]] = {
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "noise": _noise,
    "digits": lambda array: array.round(1) if array.dtype.kind == "f" else array,
}
"""How numbers become plainer, the plainest first."""


def not_plain(failing: Failing) -> Iterator[str]:
    """Yield the constants and feeds that are neither all 0 nor all 1.

    An integer alone is as plain as another, but for the iterations of a Loop.
    """
    loops = {n.input[0] for n in failing.index.nodes if n.op_type == "Loop" and n.input}
    # constants and feeds alike: (name, value)
    held = [(name, failing.model.array(each)) for name, each in failing.constants.items()]
    for name, value in chain(held, failing.feeds.items()):
        arrays = arrays_in(value)
        short = name not in loops and all(a.size < 2 and a.dtype.kind in "iub" for a in arrays)
        if not short and not all((a == 0).all() or (a == 1).all() for a in arrays):
            yield name


def plainer(failing: Failing, name: str, how: str) -> Failing:
    """Return the model with plainer numbers in a constant or a feed.

    Raises:
        EditError: these are no plainer.
    """
    is_fed = name in failing.feeds
    value = failing.feeds[name] if is_fed else failing.model.array(failing.constants[name])
    if not is_array(value):
        raise EditError(f"{name!r} has no {how}")
    filled = FILLS[how](value)
    return failing.fed(name, filled) if is_fed else failing.edited(SetConstant(name, filled))


def widths(failing: Failing) -> Iterator[tuple[str, str]]:
    """Yield the sizes that dimensions of weights have, the largest first."""
    dims = {size for each in failing.constants.values() if len(each.dims) > 1 for size in each.dims}
    yield from (("", str(size)) for size in sorted(dims, reverse=True) if size > 1)


def narrowed(failing: Failing, size: int) -> Failing:
    """Return the model with 1 in the place of one size, in weights and inputs at once; other values follow."""

    def cut(array: Array) -> Array:
        # the first element of each axis of that size
        return array[tuple(slice(1 if length == size else None) for length in array.shape)]

    weights = {
        name: cut(failing.model.array(each))
        for name, each in failing.constants.items()
        # a vector of int64 is likely a shape or a list of axes: its length is no width
        if size in each.dims and (len(each.dims) > 1 or each.data_type != TensorProto.INT64)
    }
    fed = {
        name: cut(value)
        for name, value in failing.feeds.items()
        if is_array(value) and size in value.shape
    }
    shapes = {name: each.shape for name, each in (weights | fed).items()}
    # weights become inputs for a moment, so that all sizes change at once and are followed through the model
    steps = Promote(tuple(weights)), SetShape(shapes), Freeze(tuple(weights.items()))
    return failing.edited(Pipeline(steps), fed)


def axes(failing: Failing) -> Iterator[tuple[str, str]]:
    """Yield the dimensions of inputs that can become smaller; of constants in a model without inputs."""
    held = {name: list(each.dims) for name, each in failing.constants.items()}
    fed = {n: v.shape for n, v in failing.feeds.items() if is_array(v)}
    for name, shape in (fed if failing.feeds else held).items():
        yield from ((name, str(axis)) for axis, size in enumerate(shape) if size > 1)


def shortened(failing: Failing, name: str, axis: int) -> Failing:
    """Return the model with a dimension of an input that is 1, which is followed through the model.

    A dimension of a constant is not followed: operators broadcast it, or the model fails in another way.
    """
    if name in failing.constants:
        numbers = failing.model.array(failing.constants[name])
        return failing.edited(SetConstant(name, numbers.take([0], axis)))
    fed = {n: v for n, v in failing.feeds.items() if is_array(v)}
    smaller = {name: fed[name].take([0], axis)}
    # every dimension is symbolic: another feed is enough
    if all(dim.dim_param for dim in failing.index.inputs[name].type.tensor_type.shape.dim):
        return failing.fed(name, smaller[name])
    # inputs of one shape may have to agree
    alike = {n: v.take([0], axis) for n, v in fed.items() if v.shape == fed[name].shape}
    with suppress(ShapeError):
        return _resized(failing, smaller)
    return _resized(failing, alike)


def _resized(failing: Failing, feeds: Mapping[str, Array]) -> Failing:
    return failing.edited(SetShape({name: each.shape for name, each in feeds.items()}), feeds)


Target = tuple[str, ...]
"""What an edit is done to; it begins with the value or node that it is about."""

_SMALL = 16  # elements of a value that becomes a constant
_SEEN = 1024  # of one that the condition sees in no other way
_NAMED = 8  # nodes to look at first; more say little
# operators that most models have: few fail
_USUAL = re.findall(
    r"\w+",
    "Add Cast Concat Constant Conv Gather Gemm Identity MatMul Mul Neg Relu Reshape Shape Sigmoid Slice Softmax"
    " Squeeze Sub Tanh Transpose Unsqueeze",
)


def cuttable(failing: Failing) -> list[int]:
    """Return the nodes that can be left out, the last ones first: what follows a failure may show it, too.

    Constant nodes go with their readers.
    """
    nodes = failing.index.nodes
    order = reversed(failing.index.order)
    return [place for place in order if nodes[place].op_type != "Constant"]


def keeping(failing: Failing, kept: Collection[int], seen: SeenValues, frozen: bool) -> Failing:
    """Return the model with some nodes alone, and the constants that they read.

    What they read from others becomes an input, with the value that a run saw; if `frozen`, a constant.

    Raises:
        EditError: no node is kept, or a value that they read is not known.
    """
    if not kept:
        raise EditError("a model needs a node")
    index = failing.index
    # Constant nodes come along with their readers
    makers = index.makers(index.read_by(kept))
    nodes = {*kept, *(place for place in makers if index.nodes[place].op_type == "Constant")}
    inputs = sorted(index.read_by(nodes) - index.made_by(nodes) - index.initializers.keys())

    # what they make for others, and what a node makes for none
    ends = list[str]()
    for place in sorted(nodes):
        own = list(index.outputs_of([place]))
        readers = index.readers(own)
        for_others = [n for n in own if n in index.outputs or not nodes.issuperset(readers[n])]
        # an output that others read is an output of the cut; a node that none reads keeps its first one
        ends += for_others if any(readers.values()) else for_others or own[:1]
    # inputs of the cut that are no inputs of the model get a seen value
    new = {name: name for name in inputs if name not in failing.feeds}
    cut = failing.edited(Extract(tuple(inputs), tuple(ends)), seen.values(failing, new, index))
    if not frozen:
        return cut
    arrays = {name: value for name, value in cut.feeds.items() if is_array(value)}
    if sum(array.size for array in arrays.values()) > _SEEN:
        raise EditError("these constants are large")
    return cut.edited(Freeze(tuple(arrays.items())))


def _words(message: str) -> set[str]:
    return set(re.split(r"[\s'\"(),;:]", message))


def operated(failing: Failing, message: str) -> set[int]:
    """Return the nodes whose operator a message has."""
    # messages name operators and nodes among other words: `Failed to run Gemm node fc1`
    words = _words(message)
    nodes = failing.index.nodes
    return {place for place in cuttable(failing) if nodes[place].op_type in words}


def guesses(failing: Failing, message: str) -> list[set[int]]:
    """Return where to look first: at the operators and names of a message, then at rare operators."""
    index = failing.index
    words = _words(message)
    typed = operated(failing, message)
    nodes = {place: index.nodes[place] for place in cuttable(failing)}
    named = {p for p, n in nodes.items() if words & {n.name, *n.output, index.node_id(p)} - {""}}
    # operators that few models have are likelier to fail; of these, those that occur least often here
    rare = groups(
        ((node.domain, node.op_type), place)
        for place, node in nodes.items()
        if node.domain or node.op_type not in _USUAL
    )
    fewest = min(map(len, rare.values()), default=0)
    # the last of its kind: what is before it stays out of the cut
    first = {places[-1] for places in rare.values() if len(places) == fewest}
    return [found for found in (typed, named, first) if 0 < len(found) <= _NAMED]


def around(failing: Failing, near: set[int], steps: int) -> set[int]:
    """Return nodes with those that are so many steps away."""
    index = failing.index
    for _ in range(steps):
        near = near.union(index.makers(index.read_by(near)), index.reading(index.made_by(near)))
    return near


def opened(failing: Failing, message: str, seen: SeenValues) -> Iterator[Failing]:
    """Yield functions inlined, and bodies as models, if these alone have an operator of a message."""
    if not operated(failing, message):
        edits = [(edit, target) for edit in _OPENING for target in edit.targets(failing)]
        for edit, target in edits:
            with suppress(SurgeonError):
                inner = edit.apply(failing, target, seen)
                if operated(inner, message):
                    yield inner


@dataclass(frozen=True)
class ShrinkingEdit:
    """One way to make a model smaller: what it can be done to, and what does it, with values seen in a run."""

    name: str
    targets: Callable[[Failing], Iterable[Target]]
    apply: Callable[[Failing, Target, SeenValues], Failing]


def _once(_: Failing) -> list[Target]:
    return [("",)]


def _made(failing: Failing) -> Iterator[Target]:
    """Yield what nodes make, the last ones first, those of bodies before those of the main graph."""
    return (target for target, node in _makers(failing) if node.op_type != "Constant")


def _makers(failing: Failing) -> Iterator[tuple[Target, NodeProto]]:
    bodies = ((f"{body.path}/", body.nodes) for body in failing.index.inner_bodies)
    for path, nodes in chain(bodies, [("", failing.index.nodes)]):
        made = [node for node in nodes if any(node.output[:1])]
        yield from (((path + node.output[0],), node) for node in reversed(made))


def _inner(failing: Failing) -> Iterator[Target]:
    """Yield what can become a constant: a graph without what its outputs need would be another cut."""
    return (target for target in _made(failing) if target[0] not in failing.index.outputs)


def _bodies(failing: Failing) -> Iterator[Target]:
    for place in failing.index.bodied:
        for name, _ in walk.bodies(failing.index.nodes[place]):
            yield (f"@{place}/{name}",)


def _hoisted(failing: Failing, target: Target, seen: SeenValues) -> Failing:
    """Return a body as the model, with what its first iteration was given."""
    step = Extract(part=target)
    body = GraphIndex.of(step.apply(failing.model).model)
    # what the body captures keeps its name; what it is given is `@5/body/x[0]`, the value of the first iteration
    outer = {name: name for name in body.inputs if name in failing.index}
    inner = {name: f"{target[0]}/{name}[0]" for name in body.inputs}
    return failing.edited(step, seen.values(failing, inner | outer, body))


def _all_constant(failing: Failing, _: Target, seen: SeenValues) -> Failing:
    """Return the last nodes with what a run saw as constants, which the condition sees in no other way."""
    for target in _inner(failing):
        with suppress(SurgeonError, KeyError):
            failing = _constant(failing, target, seen, _SEEN)
    unread = [name for name, readers in failing.index.readers(failing.feeds).items() if not readers]
    return failing.edited(RemoveInput(tuple(unread))) if unread else failing


def _constant(failing: Failing, target: Target, seen: SeenValues, most: int = _SMALL) -> Failing:
    """Return the model with a value as a constant: what a run saw, in a body in its first iteration."""
    place = target[0] if target[0] in failing.index else f"{target[0]}[0]"
    value = np.asarray(seen.computed(failing, [place])[place])
    # an activation can be an input; what decides shapes, bounds and axes often cannot
    large = value.size > most or value.ndim > 1 and most == _SMALL
    if large or value.dtype.hasobject:
        raise EditError(f"{place!r} is large")
    # constants are written as text, in which bools are 0 and 1
    numbers = value.astype(np.int64) if value.dtype.kind == "b" else value
    return failing.edited(Rewire(target[0], python(numbers.tolist())))


def _attributes(failing: Failing) -> Iterator[Target]:
    """Yield the attributes that a node has; what it requires cannot be removed."""
    nodes = [n for n in failing.index.nodes if n.op_type != "Constant" and n.output]
    yield from ((node.output[0], each.name) for node in nodes for each in node.attribute)


def _without_attribute(failing: Failing, target: Target, _: SeenValues) -> Failing:
    value, name = target
    # none where an edit before this one removed the node
    nodes = tuple(map(failing.index.node_id, failing.index.makers([value])))
    return failing.edited(SetAttr(nodes, remove=(name,)))


def _notes(failing: Failing) -> Iterator[Target]:
    """Yield what a model and its nodes say of themselves: (node, fields)."""
    kept = ("ir_version", "graph.name", "opset_import")
    fields = header(failing.model.proto)
    yield ("",) + tuple(name for name in fields if not name.startswith(kept))
    nodes = {failing.index.node_id(place): node for place, node in enumerate(failing.index.nodes)}
    for body in failing.index.inner_bodies:
        nodes |= {body.node_id(place): node for place, node in enumerate(body.nodes)}
    # imports of domains that no node uses, and the ONNX one always stays
    used = {f"opset_import.{node.domain}" for node in nodes.values()} | {"opset_import."}
    imports = (name for name in fields if name.startswith("opset_import."))
    yield from (("", name) for name in imports if name not in used)
    for node_id, node in nodes.items():
        entries = (f"metadata.{entry.key}" for entry in node.metadata_props)
        yield (node_id, "name", "doc_string", *entries)


def _oldest(failing: Failing) -> Iterator[Target]:
    """Yield the oldest opset that defines the operators as they are."""
    index = failing.index
    bodies = (body.nodes for body in index.inner_bodies)
    schemas = [schema_of(index, node) for node in chain(index.nodes, *bodies)]
    # the newest `since_version` of all operators is the oldest opset in which each means the same
    needed = [schema.since_version for schema in schemas if schema and not schema.domain]
    if needed:
        yield "", str(max(needed))


def _short_names(failing: Failing, *_: object) -> Failing:
    """Return the model with short names."""
    names = {name: f"v{number}" for number, name in enumerate(failing.index.values())}
    feeds = {names[name]: value for name, value in failing.feeds.items()}
    return failing.edited(Rename(tuple(names.items())), feeds)


def _plainer(how: str) -> ShrinkingEdit:
    return ShrinkingEdit(how, lambda f: zip(not_plain(f)), lambda f, t, _: plainer(f, t[0], how))


BYPASSED = "nodes bypassed"

_OPENING = (
    ShrinkingEdit("functions", _once, lambda f, *_: f.edited(Inline())),
    ShrinkingEdit("bodies as models", _bodies, _hoisted),
)

STRUCTURE = (
    (
        ShrinkingEdit(
            "outputs", lambda f: zip(f.index.outputs), lambda f, t, _: f.edited(RemoveOutput(t))
        ),
        _OPENING[0],
    ),
    (_OPENING[1],),
    (ShrinkingEdit(BYPASSED, _made, lambda f, t, _: f.edited(Remove(t))),),
    (ShrinkingEdit("seen values", lambda f: _once(f) if f.blind else [], _all_constant),),
    (ShrinkingEdit("values as constants", _inner, _constant),),
)
"""Edits that leave out nodes; those in a row are tried together."""

NAMES = (
    ShrinkingEdit(
        "notes", _notes, lambda f, t, _: f.edited(Set(tuple(zip(t[1:], repeat(""))), t[0]))
    ),
    ShrinkingEdit("names", _once, _short_names),
)
"""Edits that change no operator and no number."""

DETAILS = (
    (
        ShrinkingEdit("widths", widths, lambda f, t, _: narrowed(f, int(t[1]))),
        ShrinkingEdit("dimensions", axes, lambda f, t, _: shortened(f, t[0], int(t[1]))),
        _plainer("zeros"),
        ShrinkingEdit("inputs", lambda f: zip(f.feeds), lambda f, t, _: f.edited(RemoveInput(t))),
        ShrinkingEdit(
            "constants",
            lambda failing: (t for t, n in _makers(failing) if n.op_type == "Constant"),
            _constant,
        ),
        ShrinkingEdit("attributes", _attributes, _without_attribute),
        ShrinkingEdit("opset", _oldest, lambda f, t, _: f.edited(Set((("opset_import.", t[1]),)))),
        *NAMES,
    ),
    (_plainer("ones"),),
    (_plainer("noise"),),
    (_plainer("digits"),),
)
"""Edits that make the rest plainer; in a row, what matters most often is first."""

EXACT = {"outputs", "inputs", "functions", "values as constants", "constants", "notes", "opset"}
"""The values that these leave keep their names, and what is right for them."""
