"""Read rules: ONNX functions named `pattern`, and the one named `replacement` that follows them.

Other functions are parts that patterns call, or, in a domain of their own, functions that replacements call.

Comments ask for more than the nodes say: `# where epsilon < 1e-3` is a condition, `# optional bias` names inputs that
a node may omit, `# keep cos` names inner values that others may read: what makes them stays. `# each Reduce: ReduceMax,
ReduceSum` makes a rule for each of the operators, that it is written with `Reduce` for.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from os import PathLike
from os.path import exists
from pathlib import Path
from typing import TypeVar

from onnx import FunctionProto, GraphProto, ModelProto

from onnxsurgeon_lite.errors import BuildError, ReferenceSetError, UnknownNameError, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.native import RejectedError, parsed
from onnxsurgeon_lite.graph.patterns.conditions import parse_conditions
from onnxsurgeon_lite.graph.patterns.side import CopyBudget, PatternGraph, written_out
from onnxsurgeon_lite.graph.text import parse_message
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.untrusted import text_of

_SHIPPED = Path(__file__).parent / "rules"
_SUFFIX = ".onnxtxt"
_FRAME = "<ir_version: 10, opset_import: []> frame () => () {} "  # functions stand in models
# also a quote that is open: all are tried once
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|#[^\n]*|[{}]')
_REQUEST = re.compile(r"#\s*(where|optional|keep)\s+(\S.*)")
_EACH = re.compile(r"#\s*each\s+(\w+):\s*(\S.*)")
_NAMES = ("pattern", "replacement")
_MOST = 1000  # rules of a file
_EFFORT = 50  # nodes that are copied in the time that a small function is parsed


_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Rule:
    """A pattern and its replacement; a file with several patterns before a replacement holds as many rules.

    Attributes:
        functions: what a replacement calls.
        absent: inputs of the pattern that the replacement has no place for: a match must not have them.
    """

    name: str
    pattern: PatternGraph
    replacement: PatternGraph | None
    functions: tuple[FunctionProto, ...]
    absent: frozenset[str] = frozenset()

    @cached_property
    def asks_of_values(self) -> bool:
        """Whether a condition speaks of values, not of attributes alone."""
        function = self.pattern.function
        values = set(function.input).union(walk.names(function.node))
        named = chain.from_iterable(map(ast.walk, self.where))
        return any(isinstance(part, ast.Name) and part.id in values for part in named)

    @property
    def where(self) -> tuple[ast.expr, ...]:
        """The conditions of both sides."""
        return self.pattern.where + (self.replacement.where if self.replacement else ())

    @property
    def unmentioned(self) -> frozenset[str]:
        """The variables that the pattern does not mention: conditions define them."""
        named = set(self.pattern.function.attribute)
        if self.replacement is not None:
            named |= self.replacement.variables | set(self.replacement.function.attribute)
        # those of the replacement, and of headers, that no node of the pattern has
        return frozenset(named - self.pattern.variables)

    def reversed(self) -> "Rule":
        """Return the rule that finds the replacement and puts the pattern in its place.

        Raises:
            UsageError: nothing says what a variable of the pattern is.
        """
        if self.replacement is None:
            raise UsageError(
                f"rule {self.name!r} has no replacement", "add a function 'replacement'"
            )
        # A condition `name == ...` says what the name is, in the reverse, too.
        defined = {
            condition.left.id
            for condition in self.where
            if isinstance(condition, ast.Compare) and isinstance(condition.left, ast.Name)
        }
        defined |= {attribute.name for attribute in self.pattern.function.attribute_proto}
        # what the reverse would have to invent
        missing = self.pattern.variables - self.replacement.variables - defined
        missing |= set(self.pattern.function.input) - set(self.replacement.function.input)
        if missing:
            raise UsageError(
                f"rule {self.name!r} has no reverse: its replacement does not determine {min(missing)!r}",
                "give it a default in the header of the pattern: pattern <axis: int = -1> (...)",
            )
        # an input that the pattern needs is not optional in the reverse
        needed = set(self.pattern.function.input) - self.pattern.optional
        found = replace(self.replacement, optional=self.replacement.optional - needed)
        absent = set(self.replacement.function.input) - set(self.pattern.function.input)
        return Rule(self.name, found, self.pattern, self.functions, frozenset(absent))


def shipped() -> dict[str, Path]:
    """Return the rules that come with the package, by name."""
    return {path.name.removesuffix(_SUFFIX): path for path in sorted(_SHIPPED.glob(f"*{_SUFFIX}"))}


def read_rules(source: "str | PathLike[str]") -> list[Rule]:
    """Read the rules of a file, of one that comes with the package (by its name), or of the text itself.

    Raises:
        UnknownNameError: there is no such file or rule.
        BuildError: the text is not ONNX text.
        UsageError: it holds no pattern, or a condition that cannot be evaluated.
    """
    return list(_parsed(*_text(source)))


@lru_cache  # rules are applied again until nothing matches
def _parsed(name: str, text: str) -> tuple[Rule, ...]:
    """Read rules; see `read_rules`."""
    budget = CopyBudget(name)
    sides = [_side(chunk, budget) for chunk in _chunks(text)]
    functions = tuple(side.function for side in sides if side.function.domain)
    parts = dict[str, list[PatternGraph]]()
    rules = list[Rule]()
    waiting = list[PatternGraph]()  # patterns that wait for their replacement
    named = {side.function.name for side in sides if _is_part(side)}
    for side in sides:
        title = side.function.name
        # parts stand above their callers
        _require_above(side, named - (parts.keys() - {title}))
        if _is_part(side):
            parts.setdefault(title, []).append(side)
        elif title == "pattern":
            # one pattern for each choice of parts
            for choice in _few(written_out(side, parts, budget), name):
                waiting.append(choice.without_unread())
                _require_sound(name, waiting[-1])
        elif title == "replacement":
            choices = _few(written_out(side, parts, budget), name)
            for choice in choices:
                _require_made(name, choice.function)
            for pattern in waiting:
                _require_fit(name, pattern, side)
                rules += (Rule(name, pattern, choice, functions) for choice in choices)
            # the next patterns belong to the next replacement
            waiting = []
            rules = _few(rules, name)
    # patterns without a replacement: for `match` and selectors
    rules += (Rule(name, pattern, None, functions) for pattern in waiting)
    for word, operators in _EACH.findall(text):
        each = chain.from_iterable(_for_each(rule, word, operators, budget) for rule in rules)
        rules = _few(each, name)
    if not rules:
        raise UsageError(
            f"{name!r} holds no function 'pattern'", "write: pattern (x) => (y) { ... }"
        )
    return tuple(rules)


def reversed_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that find the replacements and put the patterns in their places.

    Raises:
        UsageError: none of the rules has a reverse.
    """
    found = []
    first: UsageError | None = None
    for rule in rules:
        try:
            found.append(rule.reversed())
        except UsageError as error:
            first = first or error
    if first is not None and not found:
        raise first
    return found


def _few(found: Iterable[_Part], name: str) -> list[_Part]:
    """Return rules, or sides of them, if they are not too many: alternatives multiply."""
    some = list(islice(found, _MOST + 1))
    if len(some) > _MOST:
        raise UsageError(
            f"{name!r} means more than {_MOST} rules: its alternatives multiply",
            "write several files",
        )
    return some


def _is_part(side: PatternGraph) -> bool:
    return side.function.name not in _NAMES and not side.function.domain


def _require_above(side: PatternGraph, below: Set[str]) -> None:
    """Refuse calls of parts that stand below: a part that calls itself has no end."""
    called = below & {node.op_type for node in side.function.node if not node.domain}
    if called:
        raise UsageError(
            f"{side.function.name!r} calls the part {min(called)!r}, which does not stand above it",
            "write parts above what calls them",
        )


def _for_each(rule: Rule, word: str, operators: str, budget: CopyBudget) -> Iterator[Rule]:
    for operator in operators.replace(",", " ").split():
        sides = (rule.pattern, rule.replacement)
        budget.spend(sum(len(side.function.node) for side in sides if side))
        pattern, new = (side and side.with_operator(word, operator) for side in sides)
        assert pattern is not None
        yield replace(rule, pattern=pattern, replacement=new)


def _text(source: "str | PathLike[str]") -> tuple[str, str]:
    if isinstance(source, str) and "{" in source:  # text has a body, a file name none
        return "rule", source
    path = Path(source)
    known = shipped()
    if not exists(path) and str(source) in known:
        path = known[str(source)]
    try:
        return path.name.removesuffix(_SUFFIX), text_of(path)
    except ReferenceSetError as error:
        if exists(path):
            raise
        unknown = UnknownNameError(str(source), "the package", known, kind="rule or file")
        unknown.hint = unknown.hint or f"it has {', '.join(map(repr, known))}"
        raise unknown from error


def _chunks(text: str) -> Iterator[str]:
    """Yield the text of each function, behind as many empty lines as come before it."""
    depth, start = 0, 0
    for token in _TOKEN.finditer(text):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if token[0] == "}" and depth == 0:
            # line numbers in errors are those of the file
            yield "\n" * text.count("\n", 0, start) + text[start : token.end()]
            start = token.end()
    rest = text[start:]  # what is left: a function without its end, or only comments
    if re.sub(r"#[^\n]*", "", rest).strip():
        yield "\n" * text.count("\n", 0, start) + rest


def _side(text: str, budget: CopyBudget) -> PatternGraph:
    budget.spend(_EFFORT)
    name = budget.name
    hint = "write functions: pattern (x) => (y) { ... } and replacement (x) => (y) { ... }"
    try:
        functions = parsed(_FRAME + text).functions
    except RejectedError as error:
        message = parse_message(str(error).replace(_FRAME, ""))
        raise BuildError(f"rule {name!r} is not ONNX text: {message}", hint) from error
    if len(functions) != 1:
        raise BuildError(f"rule {name!r} has no function in {text.strip()[:60]!r}", hint)
    function = functions[0]
    requests: dict[str, list[str]] = {"where": [], "optional": [], "keep": []}
    for token in _TOKEN.finditer(text):  # comments, but not what looks like one in a string
        request = _REQUEST.match(token[0])
        if request is not None:
            requests[request[1]].append(request[2])
    optional, keep = (
        frozenset(re.split(r"[,\s]+", " ".join(requests[kind]))) - {""}
        for kind in ("optional", "keep")
    )
    return PatternGraph(function, parse_conditions(requests["where"]), optional, keep)


def _require_sound(name: str, pattern: PatternGraph) -> None:
    own = pattern.function
    made = set(walk.outputs(own.node))
    missing = [value for value in own.output if value not in made and value not in own.input]
    if missing or all(node.op_type == "Constant" for node in own.node):
        raise UsageError(
            f"the pattern of rule {name!r} makes no {min(missing, default='value')!r}",
            "every output is made by a node of the pattern",
        )
    # cycles, for which the check takes a model
    GraphIndex.of(Model(ModelProto(graph=GraphProto(node=own.node)))).require_sound()


def _require_fit(name: str, pattern: PatternGraph, replacement: PatternGraph) -> None:
    counts = len(pattern.function.output), len(replacement.function.output)
    if counts[0] != counts[1]:
        raise UsageError(
            f"the pattern of rule {name!r} has {counts[0]} outputs, the replacement {counts[1]}",
            "they correspond in order",
        )


def _require_made(name: str, replacement: FunctionProto) -> None:
    """Refuse a replacement that reads what is not made before: its nodes stay in their order."""
    known = {""}.union(replacement.input)
    for reads, makes in [(n.input, n.output) for n in replacement.node] + [
        (replacement.output, ())
    ]:
        for value in reads:
            if value not in known:
                raise UsageError(
                    f"rule {name!r}: the replacement reads {value!r}, which is neither an input of it nor made before",
                    "write the nodes in the order in which they run",
                )
        known.update(makes)
