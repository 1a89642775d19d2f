"""A wrong region as a model of its own, with what goes in and what should come out."""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, defs, helper

from onnxsurgeon_lite.errors import RuntimeFailure, SurgeonError
from onnxsurgeon_lite.graph import constant, node_title, schema_of
from onnxsurgeon_lite.graph.index import GraphIndex, Indexed, dims_of, onnx_opset
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.model.messages import declare, integer
from onnxsurgeon_lite.names import is_glob
from onnxsurgeon_lite.passes import Pass, Pipeline, SetConstant
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.comparison import OWN, agrees
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    Arrays,
    RunValue,
    RunValues,
    Wide,
    data_type_of_numpy,
    has_floats,
    is_array,
    is_float,
    peak,
    type_of,
    types_of,
    wide,
)
from onnxsurgeon_lite.tensors.statistics import magnitude

if TYPE_CHECKING:  # the search for culprits tries mistakes, too
    from onnxsurgeon_lite.debug.judge import AgainstReferences

Ints = tuple[int, ...]
Indices = NDArray[np.intp]
Attribute = int | float | str | list[int] | list[float] | list[str]

CHANNELS_SECOND = (
    "Conv",
    "ConvTranspose",
    "BatchNormalization",
    "InstanceNormalization",
    "GroupNormalization",
)
"""Operators that read axis 1 as channels."""
_TOKEN = "node\x02"  # begins the name of each node of a place
_LARGEST = 1 << 30  # bytes of a constant that is looked into
_BESIDE = 32  # constants that a node could read instead
_SPREAD = 4096  # positions at which numbers are compared before a run
_LEAST_WIDTH = 1e-6  # of a tolerance: what floats say behind it is not counted
_DIGITS = 6  # after which floats are equal
_SAME_ELEMENTS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Cast", "Dropout")
_BACK: Mapping[tuple[str, int], Callable[[Wide, Wide], Wide]] = {
    ("Add", 0): np.subtract,
    ("Add", 1): np.subtract,
    ("Sub", 0): np.add,
    ("Sub", 1): lambda result, other: other - result,
    ("Mul", 0): np.divide,
    ("Mul", 1): np.divide,
    ("Div", 0): np.multiply,
}
"""(operator, slot) -> what it reads there, of its result and its other operand."""
_INVERSE: Mapping[str, Callable[[Wide], Wide]] = {
    "Sigmoid": lambda result: np.log(result / (1 - result)),
    "Tanh": np.arctanh,
    "Exp": np.log,
    "Log": np.exp,
    "Sqrt": np.square,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
}
"""Operator -> what it reads, of its result."""


@dataclass(frozen=True)
class RegionSample:
    """What goes into a region and what should come out, for one sample of the model's inputs.

    Attributes:
        inputs: value that enters -> what it is.
        wanted: value that comes out -> its reference.
        recorded: reads any other value.
    """

    inputs: RunValues
    wanted: Arrays
    recorded: Callable[[str], RunValue]


def settings_of(index: GraphIndex, node: NodeProto) -> dict[str, Attribute]:
    """Return a node's attributes, with the defaults of those that it leaves out."""
    # defaults first, then what the node has
    found = dict[str, Attribute]()
    try:
        schema = schema_of(index, node)
    except SurgeonError:
        schema = None
    for name, attribute in schema.attributes.items() if schema is not None else ():
        is_list = attribute.type == defs.OpSchema.AttrType.INTS
        if attribute.default_value.name:
            found[name] = _plain(helper.get_attribute_value(attribute.default_value))
        elif is_list or attribute.type == defs.OpSchema.AttrType.INT:
            found[name] = [] if is_list else 0
    for own in node.attribute:
        if not own.HasField("g") and not own.HasField("t"):
            found[own.name] = _plain(helper.get_attribute_value(own))
    return found


@dataclass(frozen=True, eq=False)
class RegionNode:
    """A node of a place: what it reads, what it makes, and what it should make."""

    place: "Place"
    number: int

    @property
    def node(self) -> NodeProto:
        return self.place.nodes[self.number]

    @property
    def op_type(self) -> str:
        return str(self.node.op_type)

    @cached_property
    def input(self) -> Sequence[str]:
        """The names that the node reads; '' for one that it leaves out."""
        return list(self.node.input)

    @property
    def output(self) -> str:
        """The first value that the node makes."""
        return str(self.node.output[0])

    @property
    def title(self) -> str:
        """How the model calls the node: `Conv 'Conv_6'`."""
        return titled(self.place.whole, self.place.positions[self.number])

    @property
    def only(self) -> tuple[str, ...]:
        """What selects the node alone, for an edit."""
        return (self.place.node(self.number),)

    @property
    def made(self) -> Array | None:
        """What the node makes of right inputs, in the first sample."""
        return self.place.values.get(self.output)

    @property
    def readers(self) -> "list[RegionNode]":
        """The nodes of the region that read what the node makes."""
        return self.place.readers(self.output)

    def name(self, slot: int) -> str:
        """Return the name that the node reads at a slot; '' for none."""
        return self.input[slot] if slot < len(self.input) else ""

    def constant(self, slot: int) -> "Constant | None":
        """Return the constant that the node reads at a slot; None for what is none."""
        array = self.place.constant(self.name(slot))
        return None if array is None else Constant(self, slot, self.name(slot), array)

    def operand(self, slot: int) -> Array | None:
        """Return the numbers that the node reads at a slot; None for none."""
        name = self.name(slot)
        return self.place.operand(name) if name else None

    def maker(self, slot: int) -> "RegionNode | None":
        """Return the node of the region that makes what the node reads at a slot; None for none."""
        return self.place.site_of(self.name(slot))

    @property
    def operands(self) -> Arrays:
        """What the node reads and whose numbers are known."""
        read = ((name, self.place.operand(name)) for name in self.input if name)
        return {name: array for name, array in read if array is not None}

    @property
    def computed(self) -> list[str]:
        """The names that the node reads and that are no constants."""
        return [name for name in self.input if name and not self.place.is_constant(name)]

    @property
    def renames(self) -> bool:
        """Whether the node only gives a constant another name: TorchScript writes one for each reader."""
        return self.op_type == "Identity" and not self.computed

    @cached_property
    def attributes(self) -> dict[str, Attribute]:
        """The node's attributes, with the defaults of those that it leaves out."""
        return settings_of(self.place.index, self.node)

    def ints(self, name: str) -> list[int]:
        """Return an attribute that has several integers; none if it has not."""
        value = self.attributes.get(name)
        return [int(each) for each in value] if isinstance(value, list) else []

    @cached_property
    def wanted(self) -> Wide | None:
        """What the node should make: the wanted value, taken back through the nodes that follow."""
        place = self.place
        # the end of the region is known; before it, through one reader at a time
        if self.output == place.value:
            return wide(place.wanted) if place.wanted.dtype.kind in "fV" else None
        users = [site for site in self.readers if site.number in place.leading]
        if len(users) != 1 or users[0].input.count(self.output) != 1:
            return None
        result = users[0].wanted
        if result is None:
            return None
        # what its only reader must read
        found = users[0].taken_back(users[0].input.index(self.output), result)
        fits = found is not None and (self.made is None or self.made.shape == found.shape)
        return found if fits else None

    def taken_back(self, slot: int, result: Wide) -> Wide | None:
        """Return the input at a slot that gives a result; None where that is not unique."""
        read = self.place.values.get(self.input[slot])
        if read is None:
            return None
        # operators that only arrange elements
        if self.op_type == "Concat":
            return self._part(slot, result)
        if self.op_type == "Transpose":
            axes = self.ints("perm") or list(range(result.ndim))[::-1]
            return result.transpose(np.argsort(axes))
        if read.size != result.size:
            return None
        if self.op_type in _SAME_ELEMENTS and slot == 0:
            return result.reshape(read.shape)
        # functions of single elements; NaN where a wrong node makes what they never make
        if self.op_type in _INVERSE:
            with np.errstate(all="ignore"):
                found = _INVERSE[self.op_type](result)
            return found if np.isfinite(found).all() else None
        # arithmetic with another operand that is known
        other = self.operand(1 - slot) if len(self.input) == 2 else None
        back = _BACK.get((self.op_type, slot))
        if other is None or back is None or other.dtype.kind not in "fV":
            return None
        # a product with 0 says nothing of the other factor
        if self.op_type == "Mul" and not other.all():
            return None
        found = back(result, wide(other))
        return found if found.shape == read.shape else None

    def _part(self, slot: int, result: Wide) -> Wide | None:
        """Return the operand of a Concat at a slot."""
        axis, sizes = integer(self.node, "axis"), list[int]()
        for number in range(len(self.input)):
            read = self.operand(number)
            if read is None:
                return None
            sizes.append(read.shape[axis])
        if sum(sizes) != result.shape[axis]:
            return None
        return np.asarray(np.split(result, np.cumsum(sizes)[:-1], axis)[slot])


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant that a node reads at a slot; slot -1 for one that is the wrong value itself."""

    site: RegionNode
    slot: int
    name: str
    array: Array

    def __str__(self) -> str:
        return f"constant {self.name!r} of {self.site.title}"

    @property
    def numbers(self) -> Wide:
        return wide(self.array)

    @property
    def is_float(self) -> bool:
        return has_floats(self.array)

    @property
    def is_single(self) -> bool:
        """True for one number."""
        return self.array.size == 1

    def edit(self, right: Array) -> SetConstant:
        """Return the edit that gives the constant other numbers, for this node alone."""
        readers = self.site.only if self.slot >= 0 else ()
        return SetConstant(self.name, np.asarray(right).astype(self.array.dtype), readers)


@dataclass
class Place:
    """A region that computes something wrong from right inputs.

    Attributes:
        whole: the model.
        positions: the nodes of the region in the model.
        index: the region as a model; its node `k` is `positions[k]`, under the name `node(k)`.
        value: the value that is wrong.
        samples: what enters and what should come out, for each sample; hypotheses are made from the first.
        nearby: recorded values from elsewhere that the region could read, in the first sample; inputs of `index` too.
        beside: constants from elsewhere that the region could read; initializers of `index` too.
        lacking: references nearby that no value of the model has.
        other: the model that computed the references, if it is given (`--against`).
        changed: initializers that have other numbers in `other`: name -> those.
        stored_as: the names that values have in `other`.
        module: the class of the module that computed the reference of the value; '' if that is not known.
        left_out: what was not searched, a sentence each.
    """

    whole: GraphIndex
    positions: Sequence[int]
    index: GraphIndex
    value: str
    samples: Sequence[RegionSample]
    judge: "AgainstReferences"
    runtime: Runtime
    nearby: Arrays = field(default_factory=dict)
    beside: Sequence[str] = ()
    lacking: Arrays = field(default_factory=dict)
    changed: Arrays = field(default_factory=dict)
    other: GraphIndex | None = None
    stored_as: Mapping[str, str] = field(default_factory=dict)
    module: str = ""
    left_out: list[str] = field(default_factory=list)

    @classmethod
    def at(
        cls,
        observer: Observer,
        positions: Sequence[int],
        value: str,
        samples: Sequence[RegionSample],
        judge: "AgainstReferences",
        nearby: Arrays,
    ) -> "Place":
        """Make the model of some nodes, which reads constants where the whole model does."""
        whole, first = observer.index, samples[0]
        part = observer.part(positions, types_of(first.inputs), list(first.wanted))
        for number, node in enumerate(part.graph.node):
            node.name = f"{_TOKEN}{number}"
        # values and constants from elsewhere that the region could read, too
        there = set(GraphIndex.of(whole.model.with_proto(part)).values())
        beside = {name: v for name, v in nearby.items() if name not in there}
        for name, array in beside.items():
            part.graph.input.add(name=name, type=type_of(array))
        shapes = {tuple(tensor.dims) for tensor in part.graph.initializer}
        for end in (first.wanted[value], *first.inputs.values()):
            if is_array(end):
                shapes |= {end.shape[-1:], end.shape[1:], (1,) + end.shape[1:]}
        others = _constants_beside(whole, part, shapes - {()})
        part.graph.initializer.extend(others)
        # declare what is known of types, so that edits are checked
        typed = GraphIndex.of(whole.model.with_proto(part))
        typed.learn_types(typed.producer)
        types = typed.types
        known = {n: types[n] for n in typed.producer if n in types and n not in typed.declarations}
        declare(part.graph, known)
        index = Indexed(GraphIndex.of(whole.model.with_proto(part))).index
        # else each edit would look for them again
        index.types.update(types)
        index.settled = typed.settled
        named = [tensor.name for tensor in others]
        return cls(whole, positions, index, value, samples, judge, observer.runtime, beside, named)

    @property
    def nodes(self) -> Sequence[NodeProto]:
        """The region's nodes."""
        return self.index.nodes

    @cached_property
    def sites(self) -> list[RegionNode]:
        """The region's nodes, each with what is known about it."""
        return [RegionNode(self, number) for number in range(len(self.nodes))]

    def site_of(self, name: str) -> RegionNode | None:
        """Return the node of the region that makes a value; None for none."""
        number = self.producer.get(name)
        return None if number is None else self.sites[number]

    def readers(self, name: str) -> list[RegionNode]:
        """Return the nodes of the region that read a value."""
        return [self.sites[number] for number in self.index.users(name)]

    @property
    def producer(self) -> Mapping[str, int]:
        """Which node of the region makes each value."""
        return self.index.producer

    @property
    def wanted(self) -> Array:
        """What the value should be, in the first sample."""
        return self.samples[0].wanted[self.value]

    @property
    def inputs(self) -> RunValues:
        """The values that enter, in the first sample."""
        return self.samples[0].inputs

    @property
    def entering(self) -> dict[str, Array]:
        """Those of them that are tensors."""
        return {name: value for name, value in self.inputs.items() if is_array(value)}

    @cached_property
    def scale(self) -> float:
        """The largest finite magnitude of what the value should be."""
        return magnitude(self.wanted)

    @cached_property
    def evidence(self) -> "ReferenceEvidence":
        """How much the references say."""
        return ReferenceEvidence(self)

    @cached_property
    def live(self) -> set[str]:
        """Values of the region that are computed from what enters, not from its shape or from constants alone."""
        # nodes are in topological order: one pass follows what enters
        live = {name for name in self.inputs if constant(self.whole, name) is None}
        for node in self.nodes:
            if node.op_type not in ("Shape", "Size") and not live.isdisjoint(node.input):
                live.update(node.output)
        return live

    def sizes(self, array: Array, name: str) -> bool:
        """Return whether a value is integers that a shape is computed from: no one takes one for another."""
        return array.dtype.kind == "i" and name not in self.live

    @cached_property
    def spread(self) -> tuple[Indices, ...]:
        """Some positions of the value, spread over it."""
        return spread_over(self.wanted)

    def some(self, array: Array) -> Wide:
        """Return an array's elements at these positions, broadcast to the value's shape."""
        return wide(np.broadcast_to(array, self.wanted.shape)[self.spread])

    def some_of(self, name: str) -> Wide:
        """Return some elements of a value; those of the wrong one's shape at the same positions."""
        array = self.values[name]
        return wide(array[spread_over(array)])

    @property
    def parts(self) -> Arrays:
        """What each part of the value should be, where it is parts side by side: by name."""
        joins = [s for s in self.sites if s.op_type == "Concat" and s.wanted is not None]
        made = {name for site in joins[-1:] for name in site.input}
        found = ((s, s.wanted) for s in self.sites if s.output in made)
        return {s.output: w.astype(np.float32) for s, w in found if w is not None}

    def alone(self, name: str, right: Array) -> "Place":
        """Return the nodes that compute one value, and what it should be."""
        whole, sample = self.whole, replace(self.samples[0], wanted={name: right})
        nodes = whole.in_order(whole.ancestors([name], stop=self.inputs))
        observer = Observer(whole, self.runtime)
        return Place.at(observer, nodes, name, [sample], self.judge, self.nearby)

    @property
    def region(self) -> str:
        """`the node` or `the region`."""
        computing = sum(node.op_type not in ("Constant", "Identity") for node in self.nodes)
        return "the node" if computing == 1 else "the region"

    @cached_property
    def values(self) -> dict[str, Array]:
        """Every value that the region computes from right inputs, in the first sample."""
        # one run computes them all; where that fails, what enters is known nonetheless
        made = list(walk.outputs(self.nodes))
        known, observer = {**self.inputs, **self.nearby}, Observer(self.index, self.runtime)
        try:
            found = observer.alone(range(len(self.nodes)), known, made)
        except RuntimeFailure:
            return self.entering
        return self.entering | {name: v for name, v in found.items() if is_array(v)}

    @cached_property
    def types(self) -> dict[str, TypeProto]:
        """The types of these values, and of those nearby, with their shapes."""
        return {
            name: helper.make_tensor_type_proto(data_type_of_numpy(value.dtype), value.shape)
            for name, value in {**self.values, **self.nearby}.items()
        }

    @property
    def actual(self) -> Array | None:
        """What the region computes, in the first sample; None if it cannot run."""
        return self.values.get(self.value)

    @cached_property
    def leading(self) -> set[int]:
        """The nodes that the value depends on."""
        return self.index.ancestors([self.value])

    @property
    def maker(self) -> str:
        """The title of the node that makes the value."""
        return self.sites[self.producer[self.value]].title

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return onnx_opset(self.index.model.proto)

    def node(self, number: int) -> str:
        """Return the name of a node, for an edit."""
        return f"{_TOKEN}{number}"

    def those(self, sites: Iterable[RegionNode]) -> tuple[str, ...]:
        """Return what selects nodes, for an edit."""
        return tuple(self.node(site.number) for site in sites)

    def number(self, token: str) -> int:
        """Return the node that has a name."""
        return int(token.removeprefix(_TOKEN))

    def constant(self, name: str) -> Array | None:
        """Return the numbers of a constant; None for other values, and for one that is too large to look into."""
        tensor = constant(self.index, name) if name else None
        if tensor is None:
            return None
        if math.prod(tensor.dims) * 4 > _LARGEST:
            note = f"constant {name!r} of more than 1 GB was left out"
            self.left_out += [] if note in self.left_out else [note]
            return None
        return self.index.model.array(tensor)

    def is_constant(self, name: str) -> bool:
        """Return whether a name is that of a constant that can be looked into."""
        return bool(name) and constant(self.index, name) is not None

    def holds_constant(self, name: str) -> bool:
        """Return whether a value is a constant, be it under another name."""
        maker = self.site_of(name)
        return self.is_constant(name) or (maker is not None and maker.renames)

    def constants(self) -> Iterator[Constant]:
        """Yield each constant that a node reads, and what is wrong itself if it is one."""
        found = [site.constant(slot) for site in self.sites for slot in range(len(site.input))]
        # the wrong value may be a constant itself
        made = self.constant(self.value)
        if made is not None:
            found.append(Constant(self.sites[self.producer[self.value]], -1, self.value, made))
        yield from (each for each in found if each is not None and each.array.size)

    def operand(self, name: str) -> Array | None:
        """Return the numbers of any value: constant, input or computed."""
        found = self.constant(name)
        return self.values.get(name) if found is None else found

    def is_open(self, name: str, axis: int) -> bool:
        """Return whether an axis of a value may have other sizes than it has here."""
        # what is declared of the value, else whether any input of the model is open
        dims = dims_of(self.whole.type_of(name))
        if -len(dims) <= axis < len(dims):
            return bool(dims[axis].dim_value < 1)
        given = (dims_of(declared.type) for declared in self.whole.inputs.values())
        return any(dim.dim_value < 1 for dims in given for dim in dims)

    def agree(self, name: str, actual: RunValue, wanted: Array) -> bool:
        """Return whether a value lies within its tolerance."""
        return is_array(actual) and agrees(actual, wanted, self.judge.allowed(name, actual))

    def close(self, computed: Wide) -> bool:
        """Return whether numbers computed here are `some` of those wanted, roughly enough to be worth a run."""
        error = np.abs(computed - self.some(self.wanted))
        return bool((error <= 1e-3 * (self.scale or 1.0)).all())

    def outside(self, steps: Iterable[Pass]) -> tuple[Pass, ...]:
        """Return edits of the place as edits of the whole model, whose ids an edit may change for the next one."""
        every = tuple(steps)
        return tuple(self._outside(step, len(every) > 1) for step in every)

    def _outside(self, step: Pass, several: bool) -> Pass:
        # nodes are called otherwise in the whole model
        fields = {
            field: tuple(
                selected(self.whole, self.positions[self.number(token)], several)
                for token in getattr(step, field)
            )
            for field in ("nodes", "to")
            if getattr(step, field, ())
        }
        return replace(step, **fields) if fields else step  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class ReferenceEvidence:
    """How much the references of a place say: an edit that they do not distinguish from others proves nothing."""

    place: Place

    @cached_property
    def _numbers(self) -> list[Array]:
        """What the value should be in each sample, with the digits that distinguish floats."""
        return [_rounded(sample.wanted[self.place.value]) for sample in self.place.samples]

    @cached_property
    def different(self) -> int:
        """The number of different numbers that the value should have, without zero, in all samples."""
        return sum(np.unique(array[array != 0]).size for array in self._numbers)

    @cached_property
    def bits(self) -> float:
        """How much the wanted numbers say: a wrong edit gives them by chance once in `2 ** bits` times."""
        # which number stands where: the entropy of the different numbers
        found = [np.unique(array, return_counts=True)[1] for array in self._numbers]
        which = sum(float((counts * np.log2(counts.sum() / counts)).sum()) for counts in found)
        # and which number each of them is, among those that the tolerance distinguishes
        place, dtype = self.place, self.place.wanted.dtype
        allowed = (place.judge.allowed(place.value, place.wanted) or OWN).resolved(dtype)
        width = allowed.rtol + allowed.absolute(place.scale) / (place.scale or 1.0)
        each = -math.log2(min(1.0, max(width, _LEAST_WIDTH)))
        return which + each * self.different * is_float(dtype)

    @cached_property
    def _narrow(self) -> dict[str, float]:
        """Values of the region that are integers or flags computed from what enters, with how much they can say."""
        place, found = self.place, dict[str, float]()
        # of a value that follows from sizes alone, as tables of positions do, sizes are what is known
        names = place.live if place.value in place.live else place.producer.keys()
        for name in names - place.inputs.keys() - {place.value}:
            array = place.values.get(name)
            if array is not None and array.dtype.kind in "biu":
                # as many bits as it takes to write the largest index that is there
                most = 2 if array.dtype.kind == "b" else int(peak(wide(array))) + 2
                found[name] = array.size * math.log2(most) * len(place.samples)
        return found

    def passed(self, edits: Sequence[Pass]) -> float:
        """Return how many bits of what edits change reach the value: the fewest of what stands between."""
        index, value = self.place.index, self.place.value
        edited, least = edited_by(edits, index), math.inf
        for name, bits in self._narrow.items():
            # it stands between if the value depends on the edit through it alone
            before = makers(value, [name], index)
            if name in edited.producer and makers(value, [name], edited) == before:
                least = min(least, bits)
        return least


def titled(index: GraphIndex, position: int) -> str:
    """Return how a node is called: `Conv 'Conv_6'`."""
    node = index.nodes[position]
    return node_title(node) if node.name else f"{node.op_type} (@{position})"


def edited_by(steps: Iterable[Pass], index: GraphIndex) -> GraphIndex:
    """Return a model with edits.

    Raises:
        SurgeonError: one does not fit.
    """
    return GraphIndex.of(Pipeline(tuple(steps)).apply(index.model).model)


def makers(value: str, of: Iterable[str], index: GraphIndex) -> list[object]:
    """Return what computes a value from others, with the constants that it reads."""
    nodes = [index.nodes[p] for p in sorted(index.ancestors([value], stop=of))]
    read = (index.initializers.get(n) for node in nodes for n in node.input)
    return nodes + list(read)


def selected(index: GraphIndex, position: int, several: bool = False) -> str:
    """Return what selects a node: its name, its value for one of several edits, else its id."""
    # several nodes may have a name, and it may look like a pattern; an id changes when nodes are inserted
    node = index.nodes[position]
    if _is_plain(node.name) and len(index.named[node.name]) == 1 and node.name not in index:
        return node.name
    value = node.output[0]
    by_value = several and _is_plain(value) and value not in index.named
    return value if by_value else f"@{position}"


def _is_plain(name: str) -> bool:
    """Return whether a selector means a name alone."""
    return bool(name) and not is_glob(name) and "," not in name and not name.startswith("@")


def small(left: Wide, wanted: Wide) -> bool:
    """Return whether an error is small enough for a run to decide."""
    return peak(left) <= 1e-3 * (peak(wanted) or 1.0)


def but(array: Array, axis: int) -> Ints:
    """Return the axes of an array without one."""
    return tuple(other for other in range(array.ndim) if other != axis)


def who(sites: Iterable[RegionNode]) -> str:
    """Return the titles of nodes."""
    return " and ".join(site.title for site in sites)


def fits(shape: Ints, result: Ints) -> bool:
    """Return whether a shape is broadcast to another."""
    try:
        return np.broadcast_shapes(shape, result) == result
    except ValueError:
        return False


def _rounded(array: Array) -> Array:
    """Return floats with the digits that distinguish them."""
    if not has_floats(array):
        return array
    numbers = np.nan_to_num(wide(array))
    return np.round(numbers / (peak(numbers) or 1.0), _DIGITS)


def spread_over(array: Array) -> tuple[Indices, ...]:
    """Return some positions of an array, at most twice `_SPREAD`, spread over it."""
    places = np.arange(0, array.size, max(1, array.size // _SPREAD))
    return np.unravel_index(places, array.shape) if array.ndim else ()


def _plain(value: object) -> Attribute:
    """Return an attribute's value as `SetAttr` takes it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [item.decode(errors="replace") for item in value]
    return value  # type: ignore[return-value]


def _constants_beside(
    whole: GraphIndex, part: ModelProto, shapes: Container[Ints]
) -> list[TensorProto]:
    """Return the constants of the whole model with one of these shapes, nearest to the region first."""
    # near in the list of initializers is near in the model, as exporters write them
    there = {tensor.name for tensor in part.graph.initializer}
    order = {name: place for place, name in enumerate(whole.initializers)}
    here = min((order[name] for name in there if name in order), default=0)
    alike = [
        tensor
        for name, tensor in whole.initializers.items()
        if isinstance(tensor, TensorProto) and tuple(tensor.dims) in shapes and name not in there
    ]
    return sorted(alike, key=lambda tensor: abs(order[tensor.name] - here))[:_BESIDE]
