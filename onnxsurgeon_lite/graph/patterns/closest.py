"""Say what matches most of a pattern where nothing matches all of it, and where it begins to differ."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from onnx import NodeProto, helper

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph.patterns.conditions import NOT_KNOWN
from onnxsurgeon_lite.graph.patterns.match import Match, Matcher, PatternNode
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.model import by_name

_SEEDS = 200  # nodes that the search begins at
_MANY = 1 << 20  # more nodes than a pattern has


def closest(matchers: Iterable[Matcher]) -> str:
    """Say how far the nearest of several patterns matches, and the first node that differs; '' if no node fits."""
    best, text = 0, ""  # the pattern that matches most
    # where a file has many patterns, the steps may not do for all
    with suppress(UsageError):
        for matcher in matchers:
            score, found = _nearest(matcher)
            if score > best:
                best, text = score, found
    return text


def _nearest(matcher: Matcher) -> tuple[int, str]:
    """Return (matching nodes, more where only a condition refuses, most where it is not known; what to say)."""
    total = len(matcher.nodes)
    if matcher.refused:  # every node matched somewhere: the reason is all that is left to say
        found, reason = matcher.refused[0]
        unknown = NOT_KNOWN in reason
        hint = "; onnxdbg edit infer declares shapes" if unknown else ""
        score = total + 1 + unknown * _MANY
        return score, f"all {total} nodes match, {_place(matcher, found)}, but {reason}{hint}"
    best, text = 0, ""
    for place, position in islice(_seeds(matcher), _SEEDS):
        start = next(matcher.fits(place, position, Match()), None)
        if start is None:
            continue
        found, difference = _grown(matcher, start)
        if len(found.nodes) > best:
            best = len(found.nodes)
            text = f"{best} of {total} nodes match, {_place(matcher, found)}; {difference}"
        if best >= total - 1:  # only one node is missing: better is not possible
            break
    return best, text


def _seeds(matcher: Matcher) -> Iterator[tuple[int, int]]:
    for place in matcher.rarest():
        for position in matcher.index.operators.get(matcher.nodes[place].op_type, ()):
            yield place, position


def _grown(matcher: Matcher, found: Match) -> tuple[Match, str]:
    """Return a match with every node that fits, and the first difference in the pattern's order."""
    # Add neighbors of what matches, one at a time, until none fits any more.
    differences = dict[int, str]()
    grew = True
    while grew:
        grew = False
        for step in _steps(matcher, found):
            value = found.values[step[1]]
            candidates = matcher.candidates(step, value)
            fitting = (m for p in candidates for m in matcher.fits(step[0], p, found))
            longer = next(fitting, None)
            if longer is not None:
                found = longer
                grew = True
                differences.pop(step[0], None)
                break
            differences.setdefault(step[0], _difference(matcher, step[0], candidates, value, found))
    first = min(differences, default=None)
    return found, differences[first] if first is not None else "the rest is not reached"


def _steps(matcher: Matcher, found: Match) -> Iterator[tuple[int, str, bool]]:
    """Yield the nodes next to those that match."""
    for place, node in enumerate(matcher.nodes):
        if place in found.nodes:
            continue
        for name in node.output:  # the graph's producer of a known value must be this node
            if name in found.values:
                yield place, name, True
        for name in node.input:  # one of the readers of a known value may be this node
            if found.values.get(name) and name not in matcher.constants:
                yield place, name, False


def _difference(
    matcher: Matcher, place: int, candidates: Iterable[int], value: str, found: Match
) -> str:
    want = matcher.nodes[place]
    index = matcher.index
    # nodes of the graph that are not part of the match yet
    has = [position for position in candidates if position not in found.nodes.values()]
    if not has:
        return f"then the pattern has {want.op_type} at {value!r}, the graph nothing more"
    same = [position for position in has if index.nodes[position].op_type == want.op_type]
    if not same:
        return f"then the pattern has {want.op_type}, the graph {index.describe(has[0])}"
    return f"then {index.describe(same[0])} differs: {_detail(matcher, want, index.nodes[same[0]])}"


def _detail(matcher: Matcher, want: PatternNode, node: NodeProto) -> str:
    """Say in what a node of the right operator differs."""
    given = by_name(node.attribute)
    for name, attribute in want.attribute.items():
        has = given.get(name)
        # the first difference that has words: attributes, then inputs, then attributes too many
        if has is not None and not attribute.ref_attr_name and attribute != has:
            now, then = (helper.get_attribute_value(a) for a in (has, attribute))
            return f"{name} is {now}, not {then}"
    extra = sorted(given.keys() - want.attribute.keys())
    for name, value in zip(want.input, node.input, strict=False):
        if name in matcher.constants:
            has = f"the pattern has {name!r}"
            if constant(matcher.index, value) is not None:
                return f"{value!r} is another constant, {has}"
            return f"{value!r} is no constant, {has}; onnxdbg edit fold computes constants"
        place = matcher.producer.get(name)
        made = matcher.index.producer.get(value)
        if place is not None and not matcher.made_alike(name, value):
            who = "no node" if made is None else matcher.index.describe(made)
            return f"{value!r} comes from {who}, in the pattern from {matcher.nodes[place].op_type}"
    return f"it has {', '.join(extra)}" if extra else "its inputs are others"


def _place(matcher: Matcher, found: Match) -> str:
    last = max(found.nodes.values())
    return f"up to {matcher.index.describe(last)}"
