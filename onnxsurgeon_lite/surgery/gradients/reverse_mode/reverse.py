"""Reverse mode: walk the nodes from the last to the first, and pass each output's gradient on to the inputs."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import NodeProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import every_read, operator_text
from onnxsurgeon_lite.model import is_standard
from onnxsurgeon_lite.surgery.gradients.expansion import expanded
from onnxsurgeon_lite.surgery.gradients.reverse_mode.bodies import through_if, through_loop
from onnxsurgeon_lite.surgery.gradients.reverse_mode.sequences import without_sequences
from onnxsurgeon_lite.surgery.gradients.rules import BROADCAST, RULES, SEVERAL, ZERO
from onnxsurgeon_lite.surgery.gradients.step import GradientStep, is_float
from onnxsurgeon_lite.surgery.gradients.tape import Tape, Term


@dataclass
class Reverse:
    """Writes gradients through nodes of one scope.

    Attributes:
        nodes: in topological order.
        strict: raise the error of a node without a rule; otherwise the path ends there, and `gaps` has it.
        stops: the nodes at which a path ends, because what they make does not change smoothly.
        gaps: the nodes at which a path ends, because they have no rule, each with the error that says why.
    """

    tape: Tape
    nodes: Sequence[NodeProto]
    strict: bool = True
    stops: list[NodeProto] = field(default_factory=list)
    gaps: list[tuple[NodeProto, EditError]] = field(default_factory=list)

    def gradients(self, seeds: Mapping[str, Term], to: Collection[str]) -> dict[str, Term]:
        """Return the gradient of each value of `to`, given those of some others; a value without one is left out.

        Raises:
            EditError: a node on the path has no rule.
        """
        self.nodes = without_sequences(self.tape, self.nodes)
        # only values that change with those of `to` carry a gradient
        active = self._active(to)
        # value -> the gradients that its readers give it; their sum is the gradient
        found: dict[str, list[Term]] = defaultdict(list)
        for name, term in seeds.items():
            found[name].append(term)
        for node in reversed(self.nodes):
            given = [self._total(found, name) for name in node.output]
            if not any(given):  # nothing that depends on the seeds reads it
                continue
            wanted = [name for name in reads(node) if name in active]
            if not wanted or is_zero(node) or active.isdisjoint(node.output):
                continue
            try:
                for name, term in self._through(node, given, wanted, active):
                    found[name].append(term)
            except EditError as error:
                if self.strict:
                    raise
                self.gaps.append((node, error))
        totals = {name: self._total(found, name) for name in to}
        return {name: term for name, term in totals.items() if term is not None}

    def _active(self, to: Collection[str]) -> set[str]:
        """Return the values that change smoothly with those of `to`."""
        active = set(to)
        for node in self.nodes:
            if active.isdisjoint(reads(node)):
                continue
            # integers and bools do not change smoothly
            smooth = [] if is_zero(node) else [n for n in node.output if n and self._is_smooth(n)]
            active.update(smooth)
            if not smooth:
                self.stops.append(node)  # such as a Shape, or a Cast to integers
        return active

    def _is_smooth(self, name: str) -> bool:
        kind = self.tape.type_of(name)
        element = 0 if kind is None else kind.tensor_type.elem_type
        # of an unknown dtype: its rule asks for what it needs
        return not element or is_float(element)

    def _total(self, found: dict[str, list[Term]], name: str) -> Term | None:
        terms = found.get(name) if name else None
        if not terms:
            return None
        if len(terms) > 1:  # summed once: a second question gets the same term
            terms[:] = [self.tape.total(terms)]
        return terms[0]

    def _through(
        self,
        node: NodeProto,
        given: Sequence[Term | None],
        wanted: Sequence[str],
        active: Collection[str],
    ) -> Iterator[tuple[str, Term]]:
        """Yield a gradient for each input that wants one."""
        self.tape.stage = f"gradient/{node.name or node.op_type}"
        # a rule of the operator, else the nodes that define it
        step = GradientStep(self.tape, node, given)
        rule = RULES.get(node.op_type) if is_standard(node) else None
        # Most rules use the gradient of the first output only; where others have one, the operator's definition
        # serves.
        if rule is None or (any(given[1:]) and node.op_type not in SEVERAL):
            yield from self._inside(node, given, wanted)
            return
        # a rule gives the gradient of one input after another
        for slot, name in enumerate(node.input):
            # a rule without a formula for this input: it has no gradient
            if name not in active or (isinstance(rule, tuple) and slot >= len(rule)):
                continue
            step.slot = slot
            term = (rule[slot] if isinstance(rule, tuple) else rule)(step)
            # A rule of a broadcast operator gives a gradient in the output's shape; sum it to the input's.
            if term is not None and node.op_type in BROADCAST:
                term = self.tape.summed_to(term, step.x, self.tape.shape(node.output[0]))
            if term is not None:
                yield name, term

    def _inside(
        self, node: NodeProto, given: Sequence[Term | None], wanted: Sequence[str]
    ) -> Iterator[tuple[str, Term]]:
        """Yield gradients through the nodes that define an operator."""
        # bodies first, then what the library or ONNX defines by nodes
        through = BODIES.get(node.op_type) if is_standard(node) else None
        if through is not None:
            yield from through(
                self.tape,
                node,
                given,
                wanted,
                lambda tape, nodes, seeds, to: Reverse(tape, nodes).gradients(seeds, to),
            )
            return
        body = expanded(self.tape, node)
        if body is None:
            raise missing_rule(node)
        # the gradients of the node's outputs are those of the definition's
        seeds = {
            name: term for name, term in zip(body.outputs, given, strict=False) if term is not None
        }
        # the nodes of the definition, from their outputs to the inputs of this node
        inner = Reverse(self.tape, body.nodes)
        yield from inner.gradients(seeds, wanted).items()


BODIES = {"If": through_if, "Loop": through_loop, "Scan": through_loop}


class MissingRule(EditError):
    """An operator on the path has no rule: that of `node`."""

    node: NodeProto


def missing_rule(node: NodeProto) -> MissingRule:
    """Return the error for a node."""
    operator = operator_text(node.domain, node.op_type)
    error = MissingRule(
        f"{operator} has no gradient rule", "leave it out of the path: choose another --to or --of"
    )
    error.node = node
    return error


def is_zero(node: NodeProto) -> bool:
    """Return whether a node's outputs do not change with small changes of its inputs."""
    return node.op_type in ZERO and is_standard(node)


def reads(node: NodeProto) -> list[str]:
    """Return the values that a node reads, captured ones included."""
    return [name for name in dict.fromkeys(every_read(node)) if name]
