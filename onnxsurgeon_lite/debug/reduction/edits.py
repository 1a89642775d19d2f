"""What can be made smaller in a model: a table of edits, made of the passes that exist."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.debug.reduction.failing import Failing, SeenValues
from onnxsurgeon_lite.debug.reduction.plainer import FILLS, axes, not_plain, plainer, shortened
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.names import python
from onnxsurgeon_lite.passes import (
    Extract,
    Inline,
    Remove,
    RemoveInput,
    RemoveOutput,
    Rename,
    Rewire,
)

Target = tuple[str, ...]
"""What an edit is done to; it begins with the value or node that it is about."""

_SMALL = 16  # elements of a value that becomes a constant
_NAMED = 8  # nodes that a message names; with more it says little


def cuttable(failing: Failing) -> list[int]:
    """Return the nodes that can be left out, the last ones first: what follows a failure may show it, too.

    Constant nodes go with their readers.
    """
    nodes, order = failing.index.nodes, reversed(failing.index.order)
    return [place for place in order if nodes[place].op_type != "Constant"]


def keeping(failing: Failing, kept: Collection[int], seen: SeenValues) -> Failing:
    """Return the model with some nodes alone, and the constants that they read.

    What they read from others becomes an input, with the value that a run saw.

    Raises:
        EditError: no node is kept, or a value that they read is not known.
    """
    if not kept:
        raise EditError("a model needs a node")
    index = failing.index
    makers = index.makers(index.read_by(kept))
    nodes = {*kept, *(place for place in makers if index.nodes[place].op_type == "Constant")}
    inputs = sorted(index.read_by(nodes) - index.made_by(nodes) - index.initializers.keys())

    # what they make for others, and what a node makes for none
    ends = list[str]()
    for place in sorted(nodes):
        own = [name for name in index.nodes[place].output if name]
        readers = index.readers(own)
        for_others = [n for n in own if n in index.outputs or not nodes.issuperset(readers[n])]
        ends += for_others if any(readers.values()) else for_others or own[:1]
    new = {name: name for name in inputs if name not in failing.feeds}
    return failing.edited(Extract(tuple(inputs), tuple(ends)), seen.values(failing, new, index))


def named_in(failing: Failing, message: str) -> list[set[int]]:
    """Return the nodes that a message names, alone, then with those before: where to look first."""
    index, words = failing.index, set(re.split(r"[\s'\"(),;:]", message)) - {""}
    nodes = {place: index.nodes[place] for place in cuttable(failing)}
    named = {p for p, node in nodes.items() if not words.isdisjoint((node.name, *node.output))}
    named |= {p for p in nodes if index.node_id(p) in words}
    if not 0 < len(named) <= _NAMED:
        return []
    return [named, named.union(index.makers(index.read_by(named)))]


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
    for body in failing.index.inner_bodies:
        made = [node.output[0] for node in body.nodes if node.output]
        yield from ((f"{body.path}/{name}",) for name in reversed(made))
    yield from (tuple(node.output[:1]) for node in reversed(failing.index.nodes))


def _bodies(failing: Failing) -> Iterator[Target]:
    for place in failing.index.bodied:
        for name, _ in walk.bodies(failing.index.nodes[place]):
            yield (f"@{place}/{name}",)


def _hoisted(failing: Failing, target: Target, seen: SeenValues) -> Failing:
    """Return a body as the model, with what its first iteration was given."""
    step = Extract(part=target)
    body = GraphIndex.of(step.apply(failing.model).model)
    outer = {name: name for name in body.inputs if name in failing.index}
    inner = {name: f"{target[0]}/{name}[0]" for name in body.inputs}
    return failing.edited(step, seen.values(failing, inner | outer, body))


def _constant(failing: Failing, target: Target, seen: SeenValues) -> Failing:
    """Return the model with a value as a constant: what a run saw, in a body in its first iteration."""
    place = target[0] if target[0] in failing.index else f"{target[0]}[0]"
    value = np.asarray(seen.computed(failing, [place])[place])
    if value.size > _SMALL or value.dtype.hasobject:
        raise EditError(f"{place!r} is large")
    numbers = value.astype(np.int64) if value.dtype.kind == "b" else value
    return failing.edited(Rewire(target[0], python(numbers.tolist())))


def _short_names(failing: Failing, *_: object) -> Failing:
    """Return the model with short names."""
    names = {name: f"v{number}" for number, name in enumerate(failing.index.values())}
    feeds = {names[name]: value for name, value in failing.feeds.items()}
    return failing.edited(Rename(tuple(names.items())), feeds)


def _plainer(how: str) -> ShrinkingEdit:
    return ShrinkingEdit(how, lambda f: zip(not_plain(f)), lambda f, t, _: plainer(f, t[0], how))


STRUCTURE = (
    (
        ShrinkingEdit(
            "outputs", lambda f: zip(f.index.outputs), lambda f, t, _: f.edited(RemoveOutput(t))
        ),
        ShrinkingEdit("inputs", lambda f: zip(f.feeds), lambda f, t, _: f.edited(RemoveInput(t))),
        ShrinkingEdit("functions", _once, lambda f, *_: f.edited(Inline())),
    ),
    (ShrinkingEdit("bodies as models", _bodies, _hoisted),),
    (ShrinkingEdit("nodes bypassed", _made, lambda f, t, _: f.edited(Remove(t))),),
    (ShrinkingEdit("values as constants", _made, _constant),),
)
"""Edits that leave out nodes; those in a row are tried together."""

DETAILS = (
    (ShrinkingEdit("dimensions", axes, lambda f, t, _: shortened(f, t[0], int(t[1]))),),
    *((_plainer(how),) for how in FILLS),
)
"""Edits that make the rest plainer."""

LAST = ((ShrinkingEdit("names", _once, _short_names),),)
"""Edits that are done once: nothing else depends on them."""
