"""Split a model at values into parts, and compare their chained runs with the whole."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from onnxsurgeon_lite.atomic import NewFolder
from onnxsurgeon_lite.errors import CutError
from onnxsurgeon_lite.graph.cut import boundary, close
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.matching.judge import ValueRule
from onnxsurgeon_lite.model import Model, load, movable, save
from onnxsurgeon_lite.passes.extract import submodel
from onnxsurgeon_lite.passes.merge import WHOLE, in_order
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.dtypes import RunValue, present

_HOW = "name values with --at; --by-device needs nodes that are configured for several devices"


@dataclass(frozen=True)
class Part:
    """One part: its inputs and outputs, its node ids in the whole model, and its file."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    path: Path | None = None


@dataclass
class Split(Shown):
    """The parts of a model, in an order in which they can run.

    Attributes:
        crossing: values between parts that were not named.
        outputs: comparisons of the parts' outputs with the whole model's, after `compare_chain`.
    """

    parts: list[Part]
    crossing: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    outputs: dict[str, Comparison] = field(default_factory=dict)

    @property
    def match(self) -> bool:
        """True when every compared output matches."""
        return all(comparison.match for comparison in self.outputs.values())


def split(index: GraphIndex, values: Iterable[str], by_device: bool = False) -> Split:
    """Split a graph at values, or by the devices that its nodes are configured for.

    Nodes belong to one part when they depend on the same of these values and are connected without them. Nodes that
    depend on no input, such as constants, go to every part that reads them, inputs that no part reads to the first.
    By device, a part has what runs on one device after as many changes of the device.

    Raises:
        UnknownNameError: the main graph has no such value.
        CutError: no node produces a value.
        GraphError: the graph has a cycle, or a function calls itself.
    """
    index.require_sound()
    selection = select_values(index, values)
    for name in selection.names:
        if name not in index.producer:
            raise CutError(f"no node produces {name!r}: nothing lies before it to split off")
    # nodes by the part that they belong to
    owner = _by_device(index) if by_device else _owners(index, frozenset(selection.names))
    parts = _parts(index, owner)
    if len(parts) < 2 and not selection.names:
        raise CutError("nothing says where the parts end", _HOW)
    made = set(chain.from_iterable(part.outputs for part in parts))
    read = set(chain.from_iterable(part.inputs for part in parts))
    # no input is lost, and values that cross parts unnamed are said
    unread = [n for n in index.required_inputs if n not in read]
    # an input that nobody reads stays an input, so that the chain has the whole model's
    parts[:1] = [replace(part, inputs=part.inputs + tuple(unread)) for part in parts[:1]]
    named = made if by_device else selection.names
    crossing = tuple(n for n in index.rank if n in made & read and n not in named)
    notes = selection.notes + [f"{name!r} crosses parts too" for name in crossing]
    notes += (
        f"no part makes {n!r}: it depends on no input" for n in index.outputs if n not in made
    )
    dead = owner.keys() - index.ancestors(index.outputs)
    notes += [f"nodes in no part, because no output needs them: {len(dead)}"] * bool(dead)
    return Split(parts, crossing, notes)


def write_parts(index: GraphIndex, found: Split, folder: Path) -> Split:
    """Write each part with its data as `<number>.onnx`; its metadata say how `merge` makes the model whole again."""
    for file in index.model.files.values():
        file.verify()  # the parts take their data with them
    written = []
    models = [model_of(index, part) for part in found.parts]
    # the inputs and outputs of all parts, whose order and declarations `merge` restores
    declared = chain.from_iterable([*m.graph.input, *m.graph.output] for m in models)
    ends = {value.name for value in declared}
    # what `merge` needs to make the model whole again
    whole = json.dumps(
        dict(
            inputs=[name for name in index.inputs if name in ends],
            outputs=[name for name in index.outputs if name in ends],
            undeclared=sorted(ends - index.declarations.keys()),
        )
    )
    with NewFolder(folder, r"\d+\.(onnx|data)") as new:
        for number, (part, model) in enumerate(zip(found.parts, models, strict=True), 1):
            model.proto.metadata_props.add(key=WHOLE, value=whole)
            save(model, new.path / f"{number}.onnx", movable(model))
            written.append(replace(part, path=folder / f"{number}.onnx"))
        new.commit()
    return replace(found, parts=written)


def compare_chain(index: GraphIndex, found: Split, feeds: Feeds, runtime: Runtime) -> Split:
    """Run the parts one after another and compare their outputs with the whole model's."""
    reference = run(index, feeds, runtime)
    # a value is kept as long as a part is to read it
    waiting = Counter(chain.from_iterable(part.inputs for part in found.parts))
    values = {name: value for name, value in feeds.items() if name not in index.producer}
    actual = dict[str, RunValue]()
    for part in found.parts:
        own = GraphIndex.of(load(part.path) if part.path else model_of(index, part))
        # a part reads feeds and what the parts before it made
        results = run(own, {name: values[name] for name in own.inputs if name in values}, runtime)
        actual.update((name, value) for name, value in results.items() if name in index.outputs)
        waiting.subtract(part.inputs)
        values |= present(results)
        values = {
            name: value for name, value in values.items() if waiting[name] > 0 or name in feeds
        }
    compared = dict[str, Comparison]()
    for name in index.outputs:
        if name in actual:
            compared |= ValueRule().each(name, actual[name], reference[name])
    return replace(found, outputs=compared)


def model_of(index: GraphIndex, part: Part) -> Model:
    """Return the part as a model."""
    return submodel(index, close(index, part.inputs, part.outputs))


def _owners(index: GraphIndex, at: frozenset[str]) -> dict[int, int]:
    """Map each node to a representative of its part; constants belong to no part."""
    # value -> the named values that it depends on; None for a value that depends on no input
    behind: dict[str, frozenset[str] | None] = {
        name: None if name in index.initializers else frozenset() for name in index.inputs
    }
    owner = dict[int, int]()
    of_node = dict[int, frozenset[str]]()
    for position in index.order:
        # which of the named values a node depends on; None for what depends on no input
        sources = [behind.get(name) for name in index.reads[position]]
        known = [source for source in sources if source is not None]
        depends = frozenset[str]().union(*known) if known else None
        for name in index.outputs_of([position]):
            behind[name] = depends if depends is None or name not in at else depends | {name}
        if depends is None:
            continue
        of_node[position] = depends
        owner[position] = position
        # nodes that depend on the same values and read each other are one part: union-find
        for name in index.reads[position]:
            producer = index.producer.get(name)
            if producer in of_node and of_node[producer] == depends:
                owner[_root(owner, producer)] = _root(owner, position)
    return {position: _root(owner, position) for position in owner}


def _by_device(index: GraphIndex) -> dict[int, int]:
    """Map each node to a representative of its part; a node without a configuration is with what it reads."""
    owner, first = dict[int, int](), dict[tuple[int, str], int]()
    # how often the device changes before a node, and its own device
    places = dict[int, tuple[int, str]]()
    for position in index.order:
        reads = index.reads[position]
        before = [
            places[p] for p in map(index.producer.get, reads) if p is not None and p in places
        ]
        # constants belong to no part
        if not before and index.initializers.keys() >= index.inputs.keys() & reads:
            continue
        device = max(before, default=(0, ""))[1]
        for own in getattr(index.nodes[position], "device_configurations", ())[:1]:
            held = sorted(set(chain.from_iterable(spec.device for spec in own.sharding_spec)))
            device = str(own.pipeline_stage if own.HasField("pipeline_stage") else held)
        # it only grows along an edge, except within a part: parts can run one after another
        changes = max((n + (other != device) for n, other in before), default=0)
        places[position] = changes, device
        owner[position] = first.setdefault(places[position], position)
    return owner


def _root(owner: dict[int, int], position: int) -> int:
    while owner[position] != position:
        owner[position] = owner[owner[position]]  # path halving
        position = owner[position]
    return position


def _parts(index: GraphIndex, owner: dict[int, int]) -> list[Part]:
    """Return the parts, each after those that it reads from; otherwise as in the graph."""
    places = (place for place in index.order if place in owner)
    found = list[Part]()
    for nodes in groups((owner[place], place) for place in places).values():
        # nobody may read what a part computes
        with suppress(CutError):
            found.append(_part(index, nodes, owner))
    maker = {name: number for number, part in enumerate(found) for name in part.outputs}
    needs = {
        number: {maker[name] for name in part.inputs if name in maker}
        for number, part in enumerate(found)
    }
    # there always is one that reads from no part that is left: a part depends on more named values than what it reads
    return [found[number] for number in in_order(needs)]


def _part(index: GraphIndex, nodes: Sequence[int], owner: dict[int, int]) -> Part:
    """Collect the inputs of a part from outside, and its values that others or the graph's outputs need."""
    read, outputs = boundary(index, nodes)
    # what no part makes, such as a constant, is in every part that reads it
    inputs = [name for name in read if name in index.inputs or index.producer[name] in owner]
    # inputs of the model keep their order
    declared = iter([name for name in index.inputs if name in inputs])
    ordered = [next(declared) if name in index.inputs else name for name in inputs]
    return Part(tuple(ordered), tuple(outputs), tuple(f"@{position}" for position in sorted(nodes)))
