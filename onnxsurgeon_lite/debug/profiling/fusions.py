"""What a runtime fused in a model, and what keeps it from fusing more."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxsurgeon_lite.debug.profiling.parts import made_values
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.patterns import Match, Matcher, matchers_of, read_rules
from onnxsurgeon_lite.graph.patterns.conditions import Conditions, number
from onnxsurgeon_lite.names import STANDS_FOR
from onnxsurgeon_lite.runtime.optimized import OPTIMIZERS
from onnxsurgeon_lite.shown import Shown

_RULES = Path(__file__).with_name("fusions.onnxtxt")


@dataclass
class Fusion:
    """Nodes of a model that one kernel computes, or nearly.

    Attributes:
        operator: of the kernel.
        nodes: ids of the model's nodes.
        why: what keeps the runtime from it; '' where it is made.
    """

    operator: str
    nodes: list[str]
    why: str = ""


@dataclass
class Fusions(Shown):
    """The nodes of a model's main graph that a runtime fused or replaced, and those that it almost fused.

    Attributes:
        optimizers: those that changed the model.
        made: the nodes that it made, each with the nodes that it replaces.
        missed: the nodes that it would have fused but for one thing.

    Example:
        >>> found = osl.inspect("transformer_block.onnx", optimized=True, opt="extended")
        >>> [fusion.operator for fusion in found.made]
        ['FusedMatMul', 'BiasGelu']
    """

    optimizers: str
    made: list[Fusion]
    missed: list[Fusion]


def fusions(index: GraphIndex, optimized: GraphIndex) -> Fusions:
    """Compare a model with its optimized form, whose nodes list in their metadata which nodes they replace."""
    notes = [(node.op_type, entry) for node in optimized.nodes for entry in node.metadata_props]
    made = [Fusion(op, entry.value.split()) for op, entry in notes if entry.key == STANDS_FOR]
    told = (e.value for e in optimized.model.proto.metadata_props if e.key == OPTIMIZERS)
    return Fusions(next(told, ""), made, list(_missed(index, optimized)))


def _missed(index: GraphIndex, optimized: GraphIndex) -> Iterator[Fusion]:
    """Yield what matches a fusion of the runtime but for one thing, and is as it was."""
    makers = {value: n.op_type for n in optimized.nodes for value in made_values(index, n)}
    known = set[tuple[str, str]]()
    for rule in read_rules(_RULES):
        assert rule.replacement is not None
        operator = rule.replacement.function.node[-1].op_type
        for matcher in matchers_of(index, [rule]):
            list(matcher.find())
            for match, why in matcher.refused:
                value = match.values[rule.pattern.function.output[0]]
                is_left = makers.get(value) == index.operator_of(value)
                if is_left and (operator, value) not in known and _is_near(matcher, match, why):
                    known.add((operator, value))
                    yield Fusion(
                        operator, list(map(index.node_id, sorted(match.nodes.values()))), why
                    )


def _is_near(matcher: Matcher, match: Match, why: str) -> bool:
    """Return whether every condition holds but the one that refused a match."""
    bound = {name: number(a) for name, a in match.attributes.items() if not a.ref_attr_name}
    facts = Conditions(matcher.index, match.values, bound, frozenset(), matcher.budget)
    return {facts.failing([condition]) for condition in matcher.rule.where} <= {"", why}
