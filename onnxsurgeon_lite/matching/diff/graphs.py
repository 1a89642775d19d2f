"""Diff two graphs: nodes, inputs and outputs, bodies, initializers, declarations."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Literal

from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto

from onnxsurgeon_lite.errors import ExternalDataError
from onnxsurgeon_lite.graph.index import described
from onnxsurgeon_lite.graph.text import attribute_texts, type_text
from onnxsurgeon_lite.matching.diff.protos import (
    DimNames,
    attribute_key,
    entry_changes,
    left_over,
    tensor_changes,
    text_changes,
    type_change,
)
from onnxsurgeon_lite.matching.diff.result import (
    Change,
    Difference,
    Initializer,
    Kind,
    Status,
    TensorDifference,
    leaf_kind,
    named,
    operator_text,
    place_of,
    producer_text,
    quoted,
    tensor_kind,
    unpaired,
)
from onnxsurgeon_lite.matching.diff.wiring import Wiring
from onnxsurgeon_lite.matching.nodes import NamedGraph, NodeAlignment, align
from onnxsurgeon_lite.model import Model, by_name, is_external, walk
from onnxsurgeon_lite.model.calls import call_key
from onnxsurgeon_lite.model.messages import entries
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.tensors.in_file import rows_at_a_time

if TYPE_CHECKING:
    from onnxsurgeon_lite.tensors.comparison import Tolerance

_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


@dataclass
class DiffContext:
    """State shared by all graphs of two models.

    Attributes:
        renamed: pairs of names that differ, by kind.
        typed: the values whose type one model declares alone, by status.
        missing: tensors that were not compared, because their data is missing.
        pairs: positions of the nodes of the main graphs that are the same.
    """

    models: tuple[Model, Model]
    tolerance: "Tolerance | None"
    dims: DimNames = field(default_factory=DimNames)
    renamed: dict[str, dict[str, str]] = field(default_factory=dict)
    typed: dict[Status, list[str]] = field(default_factory=lambda: defaultdict(list))
    missing: set[str] = field(default_factory=set)
    pairs: dict[int, int] = field(default_factory=dict)

    def rename(self, kind: str, name: str, other: str) -> None:
        """Record two names of one thing if they differ."""
        if name != other:
            self.renamed.setdefault(kind, {})[name] = other

    def compare(self, tensor: TensorProto, other: TensorProto) -> TensorDifference | None:
        """Return the difference in contents of two tensors with one dtype and shape, as far as the data is there."""
        try:
            return compare_contents(self.models, tensor, other, self.tolerance)
        except ExternalDataError:
            self.missing.add(tensor.name)
            return None


class GraphDiff:
    """The diff of two graphs; the constructor pairs the nodes."""

    def __init__(
        self,
        context: DiffContext,
        scopes: tuple[NamedGraph, NamedGraph],
        outer: Wiring | None = None,
        known: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.context = context
        self.scopes = first, second = scopes
        needed = (  # what a body captures corresponds as in the graph around it
            set(chain.from_iterable(map(first.needs, range(len(first.reads))))) if outer else set()
        )
        outside = outer.counterparts(n for n in needed if n not in first.index) if outer else {}
        pairs = list(known)
        # nodes paired by their names may read each other's weights; paired by contents, they read their own
        self.by_name = bool(pairs)
        self.alignment: NodeAlignment = align(first, second, outside, pairs)
        self.wiring = Wiring(self.alignment, outer)

    def differences(self) -> Iterator[Difference]:
        """Yield all differences, in bodies too."""
        first, second = self.scopes
        for position in self.alignment.removed:
            yield unpaired(first, position, "removed")
        for position in self.alignment.added:
            yield unpaired(second, position, "added")
        # nodes without a partner, then what differs in pairs
        pairs = sorted(self.alignment.nodes.items())
        for a, b in pairs:
            changes = tuple(self._node(a, b))
            if changes:
                ids = first.node_id(a), second.node_id(b)
                place = place_of(second, b)
                both = ", ".join(ids) + " in the second"
                subject = described(first.index.nodes[a], ids[0] if ids[0] == ids[1] else both)
                yield Difference("changed", "node", subject, *ids, changes, place=place)
        yield from self._ends("input")
        yield from self._ends("output")
        for a, b in pairs:
            if first.index.nodes[a].attribute:
                yield from self._bodies(a, b)
        yield from self._initializers()
        yield from self._declarations()

    def _node(self, a: int, b: int) -> Iterator[Change]:
        first, second = self.scopes
        node, other = first.index.nodes[a], second.index.nodes[b]
        if call_key(node) != call_key(other):
            yield Change("operator", operator_text(node), operator_text(other))
        if node.attribute or other.attribute:
            yield from self._attributes(node, other)
        for slot, (name, value) in enumerate(
            zip_longest(first.reads[a], second.reads[b], fillvalue="")
        ):
            exchanged = self.by_name and _are_exchanged(self.context, self.scopes, name, value)
            if exchanged or not self.wiring.corresponds(name, value):
                yield Change(f"input {slot}", quoted(name), quoted(value))
        if node == other:  # new names are renames, as long as the same outputs are there
            return
        # outputs may have new names, but each slot must be used or omitted on both sides
        for slot, (name, value) in enumerate(
            zip_longest(first.makes[a], second.makes[b], fillvalue="")
        ):
            if bool(name) == bool(value):
                self.context.rename("values", name, value)
            else:
                yield Change(f"output {slot}", quoted(name), quoted(value))
        self.context.rename("nodes", node.name, other.name)
        yield from text_changes(node, other)

    def _attributes(self, node: NodeProto, other: NodeProto) -> Iterator[Change]:
        mine, theirs = (by_name(n.attribute) for n in (node, other))
        for name in dict.fromkeys(chain(mine, theirs)):
            one = mine.get(name)
            two = theirs.get(name)
            if one is not None and two is not None:
                for change in text_changes(one, two):
                    yield Change(f"attribute {name} {change.what}", change.before, change.after)
                # (how many of `graphs`, whether `g` is set): the bodies themselves are compared by `_bodies`
                bodies = (len(one.graphs), one.HasField("g")), (len(two.graphs), two.HasField("g"))
                if attribute_key(one) == attribute_key(two) and bodies[0] == bodies[1]:
                    if one.HasField("t") or two.HasField("t"):
                        self.context.rename("tensors", one.t.name, two.t.name)
                        yield from self._tensor(one.t, two.t, f"attribute {name}")
                    continue
            # other values, or an attribute that one side lacks
            texts = (attribute_texts(n).get(name, "") for n in (node, other))
            yield Change(f"attribute {name}", *texts)

    def _tensor(self, tensor: TensorProto, other: TensorProto, what: str) -> Iterator[Change]:
        changes = tensor_changes(tensor, other)
        for change in changes:
            yield Change(f"{what} {change.what}", change.before, change.after)
        if any(change.what in ("dtype", "shape") for change in changes):
            return
        found = self.context.compare(tensor, other)
        if found is not None:
            pairs = zip(self.context.models, (tensor, other), strict=True)
            texts = (str(model.array(each).tolist()) for model, each in pairs)
            # a few numbers are shown; of more, how many differ
            yield Change(what, *texts) if found.elements <= 8 else Change(f"{what} {found}")

    def _bodies(self, a: int, b: int) -> Iterator[Difference]:
        first, second = self.scopes
        mine, theirs = (
            dict(walk.bodies(scope.index.nodes[p])) for scope, p in ((first, a), (second, b))
        )
        for name in [name for name in mine if name in theirs]:
            scopes = (
                NamedGraph.of_body(first.model, mine[name], f"{first.node_id(a)}/{name}"),
                NamedGraph.of_body(second.model, theirs[name], f"{second.node_id(b)}/{name}"),
            )
            yield from GraphDiff(self.context, scopes, self.wiring).differences()

    # inputs and outputs

    def _ends(self, kind: Literal["input", "output"]) -> Iterator[Difference]:
        mine, theirs = (
            dict(scope.index.inputs if kind == "input" else scope.index.outputs)
            for scope in self.scopes
        )
        yield from self._order(mine, theirs, kind)
        for name, other in self._paired(list(mine), list(theirs), kind):
            # values that are paired by their order alone: what their dimension names say binds no other values,
            # so a copy learns it
            is_same = kind == "input" or self.wiring.corresponds(name, other)
            dims = self.context.dims if is_same else self.context.dims.copy()
            changes = self._value(mine.pop(name), theirs.pop(other), dims)
            if not is_same:
                changes.append(
                    Change("comes from", *map(producer_text, self.scopes, (name, other)))
                )
            self.context.rename(f"{kind}s", name, other)
            if changes:
                yield Difference("changed", kind, self._subject(name), name, other, tuple(changes))
        # an input that became an initializer is reported with those
        reported = set(chain.from_iterable(self.wiring.replaced))
        for left, status in ((mine, "removed"), (theirs, "added")):
            for name, info in left.items():
                if name not in reported:
                    yield named(status, kind, self._subject(name), name, type_text(info.type))

    def _order(
        self, mine: Iterable[str], theirs: Iterable[str], kind: Kind
    ) -> Iterator[Difference]:
        """Yield a difference if the inputs or outputs that have one name in both graphs come in another order."""
        known, others = dict.fromkeys(mine), dict.fromkeys(theirs)
        orders = [n for n in known if n in others], [n for n in others if n in known]
        if orders[0] != orders[1] and not self.scopes[0].positional:
            texts = map(joined, orders)
            yield Difference("changed", kind, f"{kind}s", changes=(Change("order", *texts),))

    def _paired(self, mine: list[str], theirs: list[str], kind: str) -> list[tuple[str, str]]:
        """Pair by position in bodies, else by alignment, then by name, then in order."""
        if self.scopes[0].positional:
            return list(zip(mine, theirs, strict=False))
        values = self.alignment.values
        free = dict.fromkeys(theirs)
        pairs = dict[str, str]()
        # candidates, the best first: an output is known by its name, an input by what reads it
        names = [(n, n) for n in mine]
        for name, other in (
            *(names if kind == "output" else ()),
            *((n, values.get(n, "")) for n in mine),
            *names,
        ):
            if name not in pairs and other in free:
                pairs[name] = other
                del free[other]
        # outputs that nothing else pairs, in their order
        left = [name for name in mine if name not in pairs and name not in values]
        new = [name for name in free if name not in self.wiring.back]
        if len(left) == len(new) and kind == "output":
            pairs.update(zip(left, new, strict=True))
        return list(pairs.items())

    def _value(self, info: ValueInfoProto, other: ValueInfoProto, dims: DimNames) -> list[Change]:
        changes = text_changes(info, other)
        if info.HasField("type") and other.HasField("type"):
            changes += type_change(info.type, other.type, dims)
        elif info.HasField("type"):
            self.context.typed["removed"].append(info.name)
        elif other.HasField("type"):
            self.context.typed["added"].append(other.name)
        return changes

    # initializers

    def _initializers(self) -> Iterator[Difference]:
        mine, theirs = (dict(scope.index.initializers) for scope in self.scopes)
        pairs = [*self.wiring.constants, *left_over(self.scopes, self.wiring.constants)]
        seen: tuple[set[str], set[str]] = (set(), set())
        # pairs of one name first: where several initializers were merged, the one that kept its name is the
        # partner
        for name, other in sorted(pairs, key=lambda pair: pair[0] != pair[1]):
            if other in seen[1] and name not in seen[0]:  # several were merged
                yield self._lone("removed", name, mine[name])
            if name in seen[0] and other not in seen[1]:  # one was split
                yield self._lone("added", other, theirs[other])
            yield from self._initializer(name, mine[name], other, theirs[other])
            seen[0].add(name)
            seen[1].add(other)
        for name, other in self.wiring.replaced:
            kinds = (leaf_kind(s, n) for s, n in zip(self.scopes, (name, other), strict=True))
            yield Difference(
                "changed", "initializer", repr(name), name, other, (Change("kind", *kinds),)
            )
        paired = [{p[i] for p in chain(pairs, self.wiring.replaced)} for i in (0, 1)]
        for tensors, known, status in ((mine, paired[0], "removed"), (theirs, paired[1], "added")):
            for name, tensor in tensors.items():
                if name not in known:
                    yield self._lone(status, name, tensor)

    def _lone(self, status: str, name: str, tensor: Initializer) -> Difference:
        return named(status, "initializer", self._subject(name), name, tensor_kind(tensor))

    def _initializer(
        self, name: str, tensor: Initializer, other_name: str, other: Initializer
    ) -> Iterator[Difference]:
        first, second = self.scopes
        changes = list[Change]()
        contents = None
        self.context.rename("initializers", name, other_name)
        if isinstance(tensor, TensorProto) and isinstance(other, TensorProto):
            changes = tensor_changes(tensor, other)
            if (tensor.data_type, *tensor.dims) == (other.data_type, *other.dims):
                contents = self.context.compare(tensor, other)
        elif isinstance(tensor, SparseTensorProto) and isinstance(other, SparseTensorProto):
            changes += text_changes(tensor, other)
            self.context.rename("tensors", tensor.indices.name, other.indices.name)
            changes += self._tensor(tensor.values, other.values, "values")
            changes += self._tensor(tensor.indices, other.indices, "indices")
        else:
            changes.append(Change("kind", tensor_kind(tensor), tensor_kind(other)))
        kinds = leaf_kind(first, name), leaf_kind(second, other_name)
        if kinds[0] != kinds[1]:
            changes.append(Change("kind", *kinds))
        if contents is not None:
            changes.append(Change(str(contents)))
        if changes:
            subject = f"{self._subject(name)} ({tensor_kind(tensor)})"
            yield Difference(
                "changed", "initializer", subject, name, other_name, tuple(changes), contents
            )

    # declarations

    def _declarations(self) -> Iterator[Difference]:
        first, second = (scope.index.graph for scope in self.scopes)
        mine, theirs = (by_name(g.value_info) for g in (first, second))
        renamed = {**self.alignment.values, **dict(list(self.wiring.constants))}
        # name in the first graph -> name in the second
        pairs = {name: renamed.get(name, name) for name in mine}
        known = set(pairs.values())  # values under both names, whichever side declares them
        pairs |= {name: other for name, other in renamed.items() if other in theirs}
        known |= set(pairs.values())
        pairs |= {other: other for other in theirs if other not in known}
        for name, other in pairs.items():
            one = mine.get(name)
            two = theirs.get(other)
            if one is None and two is None:
                continue
            if self._is_declared_elsewhere(name, one, 0) or self._is_declared_elsewhere(
                other, two, 1
            ):
                continue
            # a value that only one side declares is compared with an empty declaration
            none = ValueInfoProto()
            changes = tuple(self._value(one or none, two or none, self.context.dims))
            if changes:
                yield Difference("changed", "value", self._subject(name), name, other, changes)
        yield from _annotations(self.scopes, self.wiring.names)
        changes = tuple(text_changes(first, second))
        if self.scopes[0].path:
            self.context.rename("graphs", first.name, second.name)
        elif first.name != second.name:
            changes = (Change("name", repr(first.name), repr(second.name)),) + changes
        if changes:
            yield Difference("changed", "metadata", f"graph {first.name!r}", changes=changes)

    def _is_declared_elsewhere(self, name: str, info: ValueInfoProto | None, side: int) -> bool:
        """Return whether a value without a declaration is gone, or declared as an input or output."""
        index = self.scopes[side].index
        return info is None and (name not in index or name in index.inputs or name in index.outputs)

    def _subject(self, name: str) -> str:
        path = self.scopes[0].path
        return f"{name!r} in {path}" if path else repr(name)


def _are_exchanged(
    context: DiffContext, scopes: Iterable[NamedGraph], name: str, other: str
) -> bool:
    """Return whether both graphs have two initializers, each with the same contents: a node reads the other one."""
    mine, theirs = (scope.index.initializers for scope in scopes)
    if name == other or not mine.keys() >= {name, other} <= theirs.keys():
        return False

    def equal(one: Initializer, two: Initializer) -> bool:
        if not (isinstance(one, TensorProto) and isinstance(two, TensorProto)):
            return one == two
        kinds = [(tensor.data_type, list(tensor.dims)) for tensor in (one, two)]
        return kinds[0] == kinds[1] and context.compare(one, two) is None

    stay = equal(mine[name], theirs[name]) and equal(mine[other], theirs[other])
    return stay and not equal(mine[name], theirs[other])


def _annotations(scopes: Iterable[NamedGraph], renamed: dict[str, str]) -> Iterator[Difference]:
    # tensor -> parameter, such as SCALE_TENSOR -> the tensor that has it
    first, second = (
        {
            a.tensor_name: entries(a.quant_parameter_tensor_names)
            for a in scope.index.graph.quantization_annotation
        }
        for scope in scopes
    )
    mine = {  # names of the first graph as the second writes them, so that renames do not count
        renamed.get(name, name): {key: renamed.get(v, v) for key, v in parameters.items()}
        for name, parameters in first.items()
    }
    for name in dict.fromkeys(chain(mine, second)):
        changes = entry_changes("parameter", mine.get(name, {}), second.get(name, {}))
        if changes or (name in mine) != (name in second):
            yield Difference(
                "changed",
                "metadata",
                f"quantization annotation of {name!r}",
                changes=tuple(changes),
            )


# Block by block, so that large tensors are never in memory as a whole.
def compare_contents(
    models: tuple[Model, Model],
    tensor: TensorProto,
    other: TensorProto,
    tolerance: "Tolerance | None",
) -> TensorDifference | None:
    """Return the difference of two tensors with one dtype and shape, None when equal."""
    if not is_external(tensor) and tensor == other:
        return None
    from onnxsurgeon_lite.tensors.comparison import EXACT, compare

    if tensor.data_type == TensorProto.STRING:
        return _compare_strings(tensor, other)
    first, second = models
    if (  # both read the same range of one file: equal without reading
        is_external(tensor)
        and is_external(other)
        and _place(first, tensor) == _place(second, other)
    ):
        return None
    elements = math.prod(tensor.dims)
    differing = exceeding = 0
    max_abs, equal = 0.0, True
    # a part of each side at a time
    mine = first.rows(tensor).reshape(-1)
    theirs = second.rows(other).reshape(-1)
    for part in rows_at_a_time((elements,)):
        x, y = mine[part], theirs[part]
        if x.tobytes() == y.tobytes():
            continue
        equal = False
        found = compare(x, y, EXACT, ())
        differing += found.exceeding
        max_abs = max(max_abs, found.max_abs)
        if tolerance is not None:
            exceeding += compare(x, y, tolerance.of(tensor.name), ()).exceeding
    if equal or (tolerance is not None and not exceeding):
        return None
    over = None if tolerance is None else exceeding
    return TensorDifference(elements, differing, max_abs, over)


def _place(model: Model, tensor: TensorProto) -> tuple[str, int, int]:
    file, offset, length = model.span(tensor)
    return str(file.path), offset, length


def _compare_strings(tensor: TensorProto, other: TensorProto) -> TensorDifference | None:
    pairs = zip(tensor.string_data, other.string_data, strict=False)
    differing = sum(mine != theirs for mine, theirs in pairs)
    differing += abs(len(tensor.string_data) - len(other.string_data))
    return TensorDifference(len(tensor.string_data), differing, 0.0) if differing else None
