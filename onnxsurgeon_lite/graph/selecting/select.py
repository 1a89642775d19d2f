"""Resolve a selector string to values or nodes.

The order is: exact value name, exact node name, id (`@12`), `op:Conv` or `op:Conv[2]`, `scope:encoder.layer.4.*`
(everything in a module), `class:LayerNorm`, `src:model.py:42`, `pattern:rules.onnxtxt` (what a rule matches, as values
its outputs; `[2]` behind it is the third match), glob. The prefix `name:` forces an exact name. If a
value and a node share a name, the kind that the caller needs wins. After a body (`@12/body/`) each of these means
values in the body.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from onnxsurgeon_lite import names
from onnxsurgeon_lite.errors import AmbiguousNameError, UnknownNameError, UsageError
from onnxsurgeon_lite.graph.bodies import BodyName, InnerGraph, as_called, at, iterations_in
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.scopes import Provenances, fits_class
from onnxsurgeon_lite.names import is_count, joined

if TYPE_CHECKING:
    from onnxsurgeon_lite.graph.patterns import Match, Rule

_OP = re.compile(r"op:(?P<op>[^\[\]]+)(?:\[(?P<number>\d{1,9})\])?")
_PLACES = {
    "scope:": ("scope", Provenances.in_scope, Provenances.paths),
    "class:": ("class", Provenances.of_class, Provenances.class_names),
    "src:": ("source line", Provenances.from_source, Provenances.sources),
}
"""Prefix -> what it names, the nodes of such a name, and all such names."""
_PATTERN = re.compile(r"pattern:(?P<rule>.+?)(?:\[(?P<number>\d{1,9})\])?", re.DOTALL)


@dataclass
class Selection:
    """Names in the order of the request, and remarks on how they were found."""

    names: list[str]
    notes: list[str] = field(default_factory=list)


def select_values(index: GraphIndex, arguments: Iterable[str], inner: bool = False) -> Selection:
    """Return the values that list arguments mean; names, ids or operators of nodes stand for their outputs.

    Args:
        inner: accept values inside bodies (`@12/body/q`, `@12/body/q[3]`) too.

    Raises:
        UnknownNameError: nothing has this name.
        AmbiguousNameError: a node with several outputs is given for one value.
        UsageError: a value is listed twice, or is inside a body without `inner`.
    """
    selection = Selection([])
    for argument in split_names(index, arguments):
        argument = as_called(index, argument) if inner else argument
        inside = None if argument in index else BodyName.of(argument)
        # the main graph, or a body where that is allowed
        if inside is None:
            selection.names += _values(index, argument, selection.notes)
        elif inner:
            selection.names += _inner_values(index, argument, inside, selection.notes)
        else:
            raise UsageError(
                f"{argument!r} is inside a body: only values of the main graph can be used here",
                "run, record and expose reach into bodies; edit inline moves a function's values out",
            )
    repeated = [name for name, times in Counter(selection.names).items() if times > 1]
    if repeated:
        shown = joined(repeated)
        raise UsageError(f"named more than once: {shown}", "name each value once")
    return selection


def select_nodes(index: GraphIndex, argument: str) -> list[int]:
    """Return the nodes that one selector means; a value's name means its producer."""
    exact = argument.removeprefix("name:")
    named = index.named.get(exact, [])  # a name several nodes share means all of them
    if named:
        return named
    # a value means the node that makes it
    maker = index.producer.get(exact)
    if maker is not None:
        return [maker]
    found = _by_kind(index, argument)
    if found is None and exact == argument:  # `name:` asks for the name alone, not for a glob
        fits = names.fitting(index.node_names, argument) if names.is_glob(argument) else ()
        found = sorted(chain.from_iterable(map(index.named.__getitem__, fits)))
    if not found:
        known = [node.name or index.node_id(place) for place, node in enumerate(index.nodes)]
        raise index.unknown(argument, known, "node")
    return found


def selected_nodes(index: GraphIndex, arguments: Iterable[str]) -> set[int]:
    """Return the nodes that list arguments of selectors mean."""
    found = (select_nodes(index, argument) for argument in split_names(index, arguments))
    return set(chain.from_iterable(found))


def select_node(index: GraphIndex, argument: str) -> int:
    """Return the one node that a selector means."""
    found = select_nodes(index, argument)
    if len(found) > 1:
        raise AmbiguousNameError(argument, list(map(index.node_id, found)))
    return found[0]


def required(name: object) -> str:
    """Return the name itself if it is text.

    Raises:
        UsageError: it is a number, for example.
    """
    if isinstance(name, str):
        return name
    raise UsageError(
        f"{name!r} is not a name: names are text",
        f"write '{name}', or '@{name}' for a node's number",
    )


def unknown(index: GraphIndex, argument: str, error: UnknownNameError) -> UnknownNameError:
    """Return the error of `select_nodes`, rewritten for a place where a value is also accepted."""
    if ":" in argument:
        return error  # it lists the names of that kind
    known = [*(node.name for node in index.nodes if node.name), *index.values()]
    return index.unknown(argument, known, "node or value")


def split_names(index: GraphIndex, arguments: Iterable[str]) -> list[str]:
    """Return list arguments as single ones: split at commas, except in a name that the graph has."""
    arguments = list(arguments)
    if not any("," in argument or "\\" in argument for argument in arguments):
        return arguments  # nothing to split, so the known names are not needed
    return names.split(arguments, {*index.values(), *(node.name for node in index.nodes)})


def _values(index: GraphIndex, argument: str, notes: list[str]) -> list[str]:
    exact = argument.removeprefix("name:")
    for name in (argument, exact):  # the whole argument first: a name may begin with `name:`
        if name in index:
            return [name]
    named = index.named.get(exact, [])
    if len(named) > 1:
        raise AmbiguousNameError(argument, list(map(index.node_id, named)))
    if named:
        value = _only_output(index, argument, named[0])
        notes.append(f"{argument!r} is a node: using its output {value!r}")
        return [value]
    if _PATTERN.fullmatch(argument):
        return [
            match.values[name]
            for rule, match in pattern_matches(index, argument)
            for name in rule.pattern.function.output
        ]
    nodes = _by_kind(index, argument)
    if nodes and argument.startswith(tuple(_PLACES)):  # a place means all values made there
        return list(index.outputs_of(nodes))
    if nodes:
        return [_only_output(index, argument, position) for position in nodes]
    # an empty list: the selector was understood, and nothing has it
    found = [] if nodes == [] else _globbed(index, argument)
    if not found:
        index.require(argument)
    return found


def _inner_values(
    index: GraphIndex, argument: str, inside: BodyName, notes: list[str]
) -> list[str]:
    """Return the values in a body that the part of a selector after the body means."""
    inner = InnerGraph.of(index, inside.position, inside.body)
    deeper = None if inside.rest in inner.index else BodyName.of(inside.rest)  # a body in the body
    if deeper is not None:
        found = _inner_values(inner.index, inside.rest, deeper, notes)
        return [f"{inside.path}/{name}" for name in found]
    selector, iterations = iterations_in(inner.index, inside.rest)
    try:
        names = _values(inner.index, selector, notes)
    except UnknownNameError as error:
        known = [f"{inside.path}/{name}" for name in inner.values]
        raise UnknownNameError(argument, f"graph {index.graph.name!r}", known) from error
    # captured values have names outside
    own = [name for name in names if name not in inner.captured]
    if not own:
        raise UsageError(f"{argument!r} is captured from outside", f"name it there: {names[0]!r}")
    return [at(f"{inside.path}/{name}", iterations) for name in own]


def _only_output(index: GraphIndex, argument: str, position: int) -> str:
    outputs = [str(name) for name in index.nodes[position].output if name]
    if len(outputs) != 1:
        raise AmbiguousNameError(argument, outputs)
    return outputs[0]


def _by_kind(index: GraphIndex, argument: str) -> list[int] | None:
    """Return the nodes of an id, an `op:` selector or a source place; None for any other selector.

    Raises:
        UnknownNameError: the graph has no such operator or place.
    """
    if re.fullmatch(r"@\d{1,9}", argument):
        position = int(argument[1:])
        # no such node: an empty list leads to the error of the caller
        return [position] if position < len(index.nodes) else []
    if argument.startswith(tuple(_PLACES)):
        return _by_place(index, argument)
    if _PATTERN.fullmatch(argument):
        matches = (match for _, match in pattern_matches(index, argument))
        return sorted(set(chain.from_iterable(match.nodes.values() for match in matches)))
    operator = _OP.fullmatch(argument)
    if operator is None:
        return None
    found = index.operators.get(operator["op"], [])
    if not found:
        place = f"graph {index.graph.name!r}"
        raise UnknownNameError(operator["op"], place, sorted(index.operators), kind="operator")
    if operator["number"] is None:
        return found
    return found[int(operator["number"]) :][:1]  # one, or none if there are not so many


def pattern_matches(index: GraphIndex, argument: str) -> "list[tuple[Rule, Match]]":
    """Return the matches that `pattern:RULES` means, `pattern:RULES[2]` the third alone.

    Raises:
        UnknownNameError: nothing matches; the hint says what nearly does.
    """
    from onnxsurgeon_lite.graph.patterns import closest, find_all, matchers_of, read_rules

    asked = _PATTERN.fullmatch(argument)
    assert asked is not None  # callers look for the prefix
    matchers = matchers_of(index, read_rules(asked["rule"]))
    found = find_all(matchers)
    chosen = found if asked["number"] is None else found[int(asked["number"]) :][:1]
    if not chosen:
        place = f"graph {index.graph.name!r}"
        error = UnknownNameError(asked["rule"], place, (), kind="match of")
        near = f"it has {len(found)}" if found else closest(matchers)
        error.hint = near or None
        raise error
    return chosen


def select_parts(index: GraphIndex, argument: str) -> list[list[int]]:
    """Return the parts of the graph that a place means: each module of a class, each match of a pattern, or one."""
    if _PATTERN.fullmatch(argument):
        return [sorted(match.nodes.values()) for _, match in pattern_matches(index, argument)]
    found = select_nodes(index, argument)
    if not argument.startswith("class:"):
        return [found]
    return list(modules_of_class(index, argument.removeprefix("class:"), found).values())


def modules_of_class(index: GraphIndex, pattern: str, nodes: Iterable[int]) -> dict[str, list[int]]:
    """Return module path -> its nodes, for the outermost modules of a class."""
    modules = dict[str, list[int]]()
    for position in nodes:
        within = index.origins[position].modules
        # the outermost module of the class around the node
        path = next((path for path, name in within if fits_class(pattern, name)), "")
        modules.setdefault(path, []).append(position)
    return modules


def _by_place(index: GraphIndex, argument: str) -> list[int]:
    """Return the nodes of a module, of modules of a class, or of a source line.

    Raises:
        UnknownNameError: the model has no such place.
    """
    kind, _, pattern = argument.partition(":")
    what, find, names_of = _PLACES[f"{kind}:"]
    found = find(index.origins, pattern)
    if not found:
        # what could be meant
        known = set(names_of(index.origins)) - {""}
        error = UnknownNameError(pattern, f"graph {index.graph.name!r}", sorted(known), kind=what)
        error.hint = _instead(index, what, pattern, known) or error.hint
        raise error
    return found


def _instead(index: GraphIndex, what: str, pattern: str, known: set[str]) -> str | None:
    """Return a hint for a place that the model does not have, or None to show the closest names."""
    if not known:
        also = ": name modules by their paths, such as 'encoder.layer.*'" if what == "class" else ""
        return f"PyTorch's exporters record scopes, the dynamo exporter classes and lines too{also}"
    if what == "class" and pattern in index.operators:
        return f"an operator has this name: 'op:{pattern}'"
    file, _, line = pattern.rpartition(":")
    # lines of the same file
    lines = [int(other.rpartition(":")[2]) for other in known if other.startswith(f"{file}:")]
    if what != "source line" or not is_count(line) or not lines:
        return None
    near = sorted(sorted(lines, key=lambda other: abs(other - int(line)))[:4])
    return f"closest lines: {', '.join(f'{file}:{number}' for number in near)}"


def _globbed(index: GraphIndex, pattern: str) -> list[str]:
    """Return the values that match a glob, in the graph's order."""
    if not names.is_glob(pattern):
        return []
    return list(filter(names.glob(pattern), index.values()))
