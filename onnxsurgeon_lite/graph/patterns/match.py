"""Find where a pattern matches in a graph: node by node, from its rarest operator on, with every order of operands."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import groupby

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph.index import GraphIndex, opset_versions
from onnxsurgeon_lite.graph.operators import find_schema
from onnxsurgeon_lite.graph.patterns.conditions import (
    NOT_KNOWN,
    Budget,
    Conditions,
    equal,
    misfit,
    number,
)
from onnxsurgeon_lite.graph.patterns.rule import Rule
from onnxsurgeon_lite.graph.schemas import (
    COMMUTATIVE,
    TRAINING_IS_ATTRIBUTE,
    constant,
    normalizes_by_batch,
)
from onnxsurgeon_lite.model import by_name, copied, is_standard, plain_domain, walk
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, wide

Attributes = dict[str, AttributeProto]
_ANY = "_"
_FEW = 64  # elements of a constant that is compared
_PRECISION = {"float16": 1e-3, "bfloat16": 1e-2}  # of constants that an export rounded


@dataclass(frozen=True)
class Match:
    """A match: what each part of the pattern is in the graph.

    Attributes:
        nodes: node of the pattern -> node of the graph.
        values: by name; an omitted one is ''.
        attributes: variable -> the attribute that holds it.
        removed: the nodes that a replacement replaces, in order.
    """

    nodes: Mapping[int, int] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    removed: tuple[int, ...] = ()


@dataclass(frozen=True)
class PatternNode:
    """A node of a pattern as plain data: it is looked at for every node of the graph.

    Attributes:
        others: attributes that it does not name are allowed.
    """

    op_type: str
    domain: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    attribute: Mapping[str, AttributeProto]
    others: bool

    @classmethod
    def of(cls, node: NodeProto) -> "PatternNode":
        """Return the node of a function."""
        asked = by_name(node.attribute)
        # `_` among the attributes: any others are allowed
        others = asked.pop(_ANY, None) is not None
        domain = plain_domain(node.domain)
        return cls(node.op_type, domain, tuple(node.input), tuple(node.output), asked, others)


@dataclass
class _HeldConstants:
    """The constants of a graph, as the attributes that a pattern asks for."""

    index: GraphIndex
    # (attribute of the pattern, value) -> the constant as such an attribute
    _known: dict[tuple[int, str], AttributeProto | None] = field(default_factory=dict)

    def hold(self, want: AttributeProto, value: str, attributes: Attributes) -> bool:
        """Return whether a value of the graph is the constant that the pattern asks for; bind its variable."""
        key = id(want), value
        if key not in self._known:
            self._known[key] = self._as_attribute(want, value) if value else None
        has = self._known[key]
        return has is not None and _binds(want, has, attributes)

    def _as_attribute(self, want: AttributeProto, value: str) -> AttributeProto | None:
        """Return a constant of the graph as an attribute of the kind of the pattern's; None if it is none."""
        node = self.index.node_of(value)
        # in a function, a Constant may get its number from the call
        if node is not None and walk.has_references(node):
            own = node.attribute[0]
            return own if own.name == want.name and node.op_type == "Constant" else None
        tensor = constant(self.index, value)
        if tensor is None:
            return None
        if want.type == AttributeProto.TENSOR:
            return self._whole(want, tensor)
        array = self._small(tensor)
        scalar = want.type in (AttributeProto.FLOAT, AttributeProto.INT)
        # one number, or a list of numbers
        if array is None or (array.size != 1 or array.ndim > 1 if scalar else array.ndim != 1):
            return None
        if dtypes.is_float(array.dtype) != (
            want.type in (AttributeProto.FLOAT, AttributeProto.FLOATS)
        ):
            return None
        return helper.make_attribute(want.name, array.item() if scalar else array.tolist())

    def _whole(self, want: AttributeProto, tensor: TensorProto) -> AttributeProto | None:
        """Return a tensor; if the pattern has one itself, that one where the numbers are the same."""
        if want.ref_attr_name:
            return AttributeProto(name=want.name, type=AttributeProto.TENSOR, t=tensor)
        numbers = dtypes.to_array(want.t)
        array = self._small(tensor)
        if array is None or dtypes.is_float(array.dtype) != dtypes.is_float(numbers.dtype):
            return None
        alike = (  # a number of the pattern fits any tensor of one element
            array.size == 1 and array.ndim <= 1
            if not numbers.ndim
            else array.shape == numbers.shape
        )
        return want if alike and _close(array, numbers) else None

    def _small(self, tensor: TensorProto) -> Array | None:
        size = math.prod(tensor.dims)
        numeric = tensor.data_type != TensorProto.STRING
        return self.index.model.array(tensor) if numeric and 0 < size <= _FEW else None


@dataclass
class Matcher:
    """Matches the pattern of a rule in one graph.

    Attributes:
        rules: they have one pattern; a match belongs to the first whose conditions hold.
        refused: matches of all nodes that a condition or a reader elsewhere refused, with the reason.
    """

    index: GraphIndex
    rules: Sequence[Rule]
    budget: Budget
    refused: list[tuple[Match, str]] = field(default_factory=list)
    # for rules that ask of attributes alone: what conditions say of equal variables
    _decided: dict[tuple[object, ...], tuple[Attributes, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rule = self.rules[0]
        self._held = _HeldConstants(self.index)
        function = self.rule.pattern.function
        # constants of the pattern are compared by their numbers, not matched as nodes
        self.nodes = [PatternNode.of(node) for node in function.node if not _is_constant(node)]
        self.constants = {n.output[0]: n.attribute[0] for n in function.node if _is_constant(n)}
        self.producer = {
            name: place for place, node in enumerate(self.nodes) for name in node.output if name
        }

    @cached_property
    def kept(self) -> set[int]:
        """The nodes of the pattern that stay: those that make values to keep, and what they depend on."""
        found = set[int]()
        pending = list(self.rule.pattern.keep)
        while pending:
            place = self.producer.get(pending.pop())
            if place is not None and place not in found:
                found.add(place)
                pending += self.nodes[place].input
        return found

    def rarest(self) -> list[int]:
        """Return the nodes of the pattern, the one whose operator the graph has least of first."""
        operators = self.index.operators
        return sorted(
            range(len(self.nodes)), key=lambda n: len(operators.get(self.nodes[n].op_type, ()))
        )

    def find(self, taken: Iterable[int] = ()) -> Iterator[tuple[Rule, Match]]:
        """Yield the matches, each with its rule, in the order of the graph; no node is removed by two of them."""
        # the graph lacks an operator of the pattern
        if any(node.op_type not in self.index.operators for node in self.nodes):
            return
        used = set(taken)
        # the search begins at the rarest operator, and goes from there from value to value; what stays may be of
        # several matches
        anchor = min(self.rarest(), key=self.kept.__contains__)
        plan = self._plan(anchor)
        for position in self._places(anchor):
            if position in used:
                continue
            # the first match at this node that nothing refuses
            for found in self._complete(plan, self.fits(anchor, position, Match())):
                accepted = self._accepted(found, used)
                if accepted is not None:
                    used.update(accepted[1].removed)
                    yield accepted
                    break

    def _places(self, anchor: int) -> Sequence[int]:
        """Return the nodes of the graph that can be a node of the pattern: what reads them is what reads it there."""
        operators = self.index.operators
        own = self.nodes[anchor]
        places = operators[own.op_type]
        # only nodes that feed the operators which read this node in the pattern
        made = set(own.output) - {"", _ANY}
        for operator in {node.op_type for node in self.nodes if not made.isdisjoint(node.input)}:
            makers = self.index.makers(self.index.read_by(operators[operator]))
            places = sorted(set(places).intersection(makers))
        return places

    def _plan(self, anchor: int) -> list[tuple[int, str, bool]]:
        """Return the other nodes in an order in which each is reached: (node, by which value, from its reader)."""
        plan = list[tuple[int, str, bool]]()
        reached = {anchor}
        known = self._around(anchor)
        while len(reached) < len(self.nodes):
            step = self._next(reached, known)
            plan.append(step)
            reached.add(step[0])
            known |= self._around(step[0])
        return plan

    def _next(self, reached: set[int], known: set[str]) -> tuple[int, str, bool]:
        # from a known value to the node that makes it: there is at most one
        for name in sorted(known):
            place = self.producer.get(name)
            if place is not None and place not in reached:
                return place, name, True
        for place, node in enumerate(self.nodes):  # else to a node that reads one
            shared = known.intersection(node.input) if place not in reached else ()
            if shared:
                return place, min(shared), False
        raise UsageError(
            f"the pattern of rule {self.rule.name!r} falls into parts without a value in common",
            "write a rule for each part",
        )

    def _around(self, place: int) -> set[str]:
        node = self.nodes[place]
        return {*node.input, *node.output} - {"", _ANY} - self.constants.keys()

    def _complete(
        self, plan: Sequence[tuple[int, str, bool]], partial: Iterable[Match]
    ) -> Iterator[Match]:
        for found in partial:
            if not plan:
                yield found
                continue
            place, value, _ = plan[0]
            # depth first: this node, then all others
            for position in self.candidates(plan[0], found.values[value]):
                yield from self._complete(plan[1:], self.fits(place, position, found))

    def candidates(self, step: tuple[int, str, bool], value: str) -> Sequence[int]:
        """Return the nodes of the graph that a step can lead to, from the value that was found."""
        if not step[2]:
            return self.index.users(value)
        position = self.index.producer.get(value)
        return () if position is None else (position,)

    # --- one node ---

    def fits(self, place: int, position: int, found: Match) -> Iterator[Match]:
        """Yield a match extended by one node, in each order of its operands in which it fits."""
        self.budget.spend(1 + len(found.nodes))
        want, node = self.nodes[place], self.index.nodes[position]
        if node.op_type != want.op_type or plain_domain(node.domain) != want.domain:
            return
        if self._learns(want, node):
            return
        attributes = found.attributes
        if node.attribute or want.attribute:
            bound = self._attributes(want, node, attributes)
            if bound is None:
                return
            attributes = bound
        values = {**found.values}
        given = node.output[:]
        # a node of the graph can be one node of the pattern only
        if position in found.nodes.values() or not _made(want.output, given, values):
            return
        nodes = {**found.nodes, place: position}
        operands = node.input[:]
        orders = [operands]
        # operands of a commutative operator fit in either order
        if len(operands) == 2 and want.op_type in COMMUTATIVE and operands[0] != operands[1]:
            orders.append(operands[::-1])
        for order in orders:
            complete = self._bound(want.input, order, Match(nodes, values, attributes))
            if complete is not None:
                yield complete

    def _learns(self, want: PatternNode, node: NodeProto) -> bool:
        """Return whether outputs that the pattern does not name put a node in training."""
        if want.op_type != "BatchNormalization" or any(want.output[1:]):
            return False
        opset = self._versions.get("", 1)
        return opset < TRAINING_IS_ATTRIBUTE and normalizes_by_batch(node, opset)

    def _bound(self, wanted: Sequence[str], given: Sequence[str], found: Match) -> Match | None:
        """Return the match with the operands bound, None if one does not fit."""
        if any(given[len(wanted) :]):  # the node has an operand that the pattern does not know
            return None
        values, attributes = {**found.values}, {**found.attributes}
        for place, name in enumerate(wanted):
            value = given[place] if place < len(given) else ""
            if name == _ANY:
                continue
            if not self._operand(name, value, attributes):
                return None
            # one name in the pattern is one value in the graph
            if name and values.setdefault(name, value) != value:
                return None
        return Match(found.nodes, values, attributes)

    def _operand(self, name: str, value: str, attributes: Attributes) -> bool:
        """Return whether a value can be an operand of the pattern; bind the variable of a constant."""
        if name in self.rule.absent or not name:  # the replacement would lose such an operand
            return not value
        if name in self.constants and (value or name not in self.rule.pattern.optional):
            return self._held.hold(self.constants[name], value, attributes)
        if not value:
            return name in self.rule.pattern.optional
        # fails early: the search would find it out at the next node
        return self.made_alike(name, value)

    def made_alike(self, name: str, value: str) -> bool:
        """Return whether a value is made by the operator that makes it in the pattern."""
        place = self.producer.get(name)
        return place is None or self.index.operator_of(value) == self.nodes[place].op_type

    def _attributes(
        self, want: PatternNode, node: NodeProto, known: Mapping[str, AttributeProto]
    ) -> Attributes | None:
        """Return the variables with those that this node's attributes bind; None if an attribute differs."""
        domain = plain_domain(node.domain)
        defaults = _defaults_of(node.op_type, domain, self._versions.get(domain, 1))
        given = by_name(node.attribute)
        if not want.others:  # attributes that the pattern does not name must have their defaults
            for name in given.keys() - want.attribute.keys():
                if name not in defaults or not _same(given[name], defaults[name]):
                    return None
        bound = {**known}
        for name, attribute in want.attribute.items():
            has = given.get(name, defaults.get(name))
            if not _binds(attribute, has, bound):
                return None
        return bound

    @cached_property
    def _versions(self) -> dict[str, int]:
        return opset_versions(self.index.model.proto.opset_import)

    # --- all nodes ---

    def _accepted(self, found: Match, used: set[int]) -> tuple[Rule, Match] | None:
        """Return the rule and the match with its variables complete, None if something refuses it."""
        self.budget.spend(len(found.nodes))
        # `# keep`: these nodes stay
        removed = {position for place, position in found.nodes.items() if place not in self.kept}
        if not used.isdisjoint(found.nodes.values()):  # a node that an earlier match replaces
            return None
        reason = self._read_elsewhere(found, removed) or self._re_entered(found, removed)
        if not reason:
            reason = misfit(self.index, self.rule.pattern.function.value_info, found.values)
        reasons = [reason] if reason else []
        for rule in self.rules if not reason else ():
            attributes, reason = self._completed(rule, found)
            if not reason:
                return rule, Match(found.nodes, found.values, attributes, tuple(sorted(removed)))
            reasons.append(reason)
        # what is not known is said first: the user can declare it
        unknown = (reason for reason in reasons if NOT_KNOWN in reason)
        self.refused.append((found, next(unknown, reasons[0])))
        return None

    def _completed(self, rule: Rule, found: Match) -> tuple[Attributes, str]:
        """Return the variables of a match, and why a condition refuses it; '' if none does."""
        if rule.asks_of_values:
            defined, reason = self._defined(rule, found)
        else:  # then equal variables have one answer
            bound = found.attributes.items()
            key = id(rule), *((name, each.SerializeToString()) for name, each in bound)
            if key not in self._decided:
                self._decided[key] = self._defined(rule, found)
            defined, reason = self._decided[key]
        return {**found.attributes, **defined}, reason

    def _defined(self, rule: Rule, found: Match) -> tuple[Attributes, str]:
        """Return the variables that conditions define, and why one refuses a match; '' if none does."""
        # Defaults in the header of the replacement, then what the match has.
        new = rule.replacement
        numbers = {a.name: number(a) for a in new.function.attribute_proto} if new else {}
        bound = found.attributes.items()
        numbers |= {name: number(a) for name, a in bound if not a.ref_attr_name}
        facts = Conditions(self.index, found.values, numbers, rule.unmentioned, self.budget)
        reason = facts.failing(rule.where)
        names = () if reason else facts.numbers.keys() - found.attributes.keys()
        return {name: attribute_of(name, facts.numbers[name]) for name in names}, reason

    def _read_elsewhere(self, found: Match, removed: set[int]) -> str:
        """Say which value inside the match others read; '' if there is none."""
        # results may be read by anybody
        results = {found.values[name] for name in self.rule.pattern.function.output}
        for position in sorted(removed):
            for name in self.index.outputs_of([position]):
                others = [user for user in self.index.users(name) if user not in removed]
                if name not in results and (others or name in self.index.outputs):
                    who = self.index.describe(others[0]) if others else "an output of the graph"
                    return f"value {name!r} inside is used elsewhere: {who}"
        return ""

    def _re_entered(self, found: Match, removed: set[int]) -> str:
        """Say whether a path leaves the match and enters it again: one node cannot be before and after others."""
        if len(self.rule.pattern.function.output) < 2:
            return ""
        reads = self.index.read_by(removed)
        # From what the match reads, back through the graph: none of its own nodes may be there.
        outside = {name for name in reads if self.index.producer.get(name) not in removed}
        first = min(self.index.places[position] for position in removed)
        pending = list(outside)
        seen = set[int]()
        while pending:
            position = self.index.producer.get(pending.pop())
            # before all of the match, nothing of it can come
            if position is None or position in seen or self.index.places[position] < first:
                continue
            if position in removed:
                return "a path leaves the match and enters it again"
            seen.add(position)
            pending += self.index.reads[position]
        return ""


def matchers_of(index: GraphIndex, rules: Iterable[Rule]) -> list[Matcher]:
    """Return a matcher for each pattern."""
    # rules of one pattern come one after the other: they share a search
    groups = [list(group) for _, group in groupby(rules, key=lambda rule: id(rule.pattern))]
    budget = Budget.of(groups[0][0].name if groups else "", len(index.nodes))
    return [Matcher(index, group, budget) for group in groups]


def find_all(matchers: Iterable[Matcher]) -> list[tuple[Rule, Match]]:
    """Return the matches of several rules in the order of the graph; an earlier rule comes first to a node."""
    found = list[tuple[Rule, Match]]()
    used = set[int]()
    for matcher in matchers:
        for rule, match in matcher.find(used):
            found.append((rule, match))
            used.update(match.removed)
    return sorted(found, key=lambda pair: pair[1].removed)


def attribute_of(name: str, value: object) -> AttributeProto:
    """Return an attribute that holds a number, a text or a list of them.

    Raises:
        UsageError: it is none of these.
    """
    given = value if isinstance(value, str) else np.asarray(value).tolist()
    try:
        # an empty list does not say what it lists
        return helper.make_attribute(
            name, given, attr_type=None if given != [] else AttributeProto.INTS
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name!r} cannot be {value!r}", "write 3, 0.5, text or [1, 2]") from error


def _is_constant(node: NodeProto) -> bool:
    return bool(node.op_type == "Constant" and is_standard(node) and node.output and node.attribute)


def _made(wanted: Sequence[str], given: Sequence[str], values: dict[str, str]) -> bool:
    """Bind the outputs of a node; return whether none is omitted or another value already."""
    for place, name in enumerate(wanted):
        value = given[place] if place < len(given) else ""
        if name and (not value or values.setdefault(name, value) != value):
            return False
    return True


@cache
def _defaults_of(operator: str, domain: str, version: int) -> Mapping[str, AttributeProto]:
    schema = find_schema(operator, version, domain)
    if schema is None:
        return {}
    # an attribute without a default is an empty message
    defaults = {name: copied(a.default_value) for name, a in schema.attributes.items()}
    return {name: default for name, default in defaults.items() if default.name}


def _binds(want: AttributeProto, has: AttributeProto | None, bound: Attributes) -> bool:
    """Return whether an attribute is what the pattern asks for; bind its variable."""
    variable = want.ref_attr_name
    if has is None:
        return bool(variable)  # an attribute that the operator can do without
    if has.type != want.type:
        return False
    if not variable:
        return _same(want, has)
    return _same(bound.setdefault(variable, has), has)  # the variable's first attribute decides


def _same(one: AttributeProto, two: AttributeProto) -> bool:
    """Return whether two attributes have one value; floats as conditions compare them."""
    if one is two:
        return True
    if one.type != two.type or one.ref_attr_name != two.ref_attr_name:
        return False
    return equal(number(one), number(two))


def _close(array: Array, wanted: Array) -> bool:
    """Return whether a constant is a number of the pattern, as precisely as its dtype can hold it."""
    if not dtypes.is_float(array.dtype):
        return bool(np.array_equal(array.reshape(wanted.shape), wanted))
    with np.errstate(over="ignore"):  # a number of the pattern may be too large for half precision
        same = wide(wanted.astype(array.dtype))
    precision = _PRECISION.get(array.dtype.name, 1e-6)
    return bool(np.allclose(wide(array).reshape(same.shape), same, rtol=precision, atol=0))
