"""Every graph of a model in which nodes can be marked: the main graph, bodies, functions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnx import ModelProto

from onnxsurgeon_lite.debug.stepping.frames import Frame
from onnxsurgeon_lite.errors import UnknownNameError, UsageError
from onnxsurgeon_lite.graph import (
    FUNCTION,
    FUNCTION_PATH,
    BodyName,
    GraphIndex,
    function_of,
    function_path,
    iterations_in,
)
from onnxsurgeon_lite.graph.bodies import bodies, unknown_body
from onnxsurgeon_lite.graph.index import MAIN
from onnxsurgeon_lite.graph.selecting.select import select_nodes, unknown


@dataclass(frozen=True)
class Marks:
    """Nodes, and the way to them.

    Attributes:
        nodes: scope -> positions.
        through: scope -> the nodes whose bodies hold some, at any depth.
        path, numbers: of the body and the iterations that alone are meant; '' and () where all are.
    """

    nodes: Mapping[str, set[int]] = field(default_factory=dict)
    through: Mapping[str, set[int]] = field(default_factory=dict)
    path: str = ""
    numbers: tuple[int, ...] = ()

    def of(self, frame: Frame) -> set[int]:
        """Return the marked nodes of a frame."""
        elsewhere = self.path and self.path != frame.path
        if elsewhere or self.numbers != frame.numbers[: len(self.numbers)]:
            return set()
        return self.nodes.get(frame.scope, set())


def body_scope(index: GraphIndex, scope: str, position: int, body: str) -> str:
    """The scope of a body of a node: `@3/body`; a function has the same one for all its calls, `fn:domain::name`."""
    function = function_of(index, index.nodes[position]) if body == FUNCTION else None
    if function is not None:
        return function_path(function)
    return f"{scope}/@{position}/{body}".lstrip("/")


@dataclass
class Scopes:
    """Every graph of a model that nodes can be marked in, indexed when it is asked for."""

    index: GraphIndex
    _known: dict[str, GraphIndex] = field(default_factory=dict)
    _run: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The main graph, bodies, functions."""
        return [MAIN] + [body.path for body in self.index.inner_bodies]

    def of(self, scope: str) -> GraphIndex:
        """The index of one of them."""
        # `@3/body`, `fn:local::f` or `fn:local::f/@0/body`; a body is indexed as a model of its own when it is asked
        # for
        if scope == MAIN:
            return self.index
        if scope not in self._known:
            body = next(body for body in self.index.inner_bodies if body.path == scope)
            proto = ModelProto(opset_import=self.index.model.proto.opset_import)
            proto.functions.extend(self.index.model.proto.functions)
            proto.graph.name = f"{self.index.graph.name}/{scope}"
            proto.graph.node.extend(body.nodes)
            self._known[scope] = GraphIndex.of(self.index.model.with_proto(proto))
        return self._known[scope]

    def find(self, selector: str) -> Marks:
        """The nodes that a selector means: those of the main graph, or else of bodies.

        Behind a body (`@3/body/`) it means those in it, `@3/body/q[2]` at iteration 2. `op:`, `scope:`, `class:`,
        `src:` and patterns mean nodes everywhere.

        Raises:
            UnknownNameError, UsageError: there is none.
        """
        if selector not in self.index and BodyName.of(selector):
            return self._inside(selector)
        # `fn:local::f/@2`: of several functions the longest name that fits
        functions = [s for s in self.names if s.startswith(FUNCTION_PATH)]
        scope = max((s for s in functions if selector.startswith(f"{s}/")), key=len, default="")
        own = selector.removeprefix(f"{scope}/")
        found = {scope: set(self._in(scope, own))} if scope else self._anywhere(selector)
        return Marks(found, self._leading_to(found.keys() - {MAIN}))

    def _inside(self, selector: str) -> Marks:
        """The nodes that a selector behind a body means."""
        scope = MAIN
        path = ""
        rest = selector
        through = dict[str, set[int]]()
        # Take one body after the other off the selector: `@3/body/@1/then_branch/q` -> `@1/then_branch/q` -> `q`,
        # unless a value happens to have such a name.
        while rest not in self.of(scope) and (inside := BodyName.of(rest)):
            index = self.of(scope)
            position = inside.position
            if position >= len(index.nodes) or inside.body not in bodies(index, position):
                raise unknown_body(index, position, inside.body)
            through[scope] = {position}
            scope = body_scope(index, scope, position, inside.body)
            path = f"{path}/{inside.path}".lstrip("/")
            rest = inside.rest
        own, numbers = iterations_in(self.of(scope), rest)
        return Marks({scope: set(self._in(scope, own))}, through, path, numbers)

    def _anywhere(self, selector: str) -> dict[str, set[int]]:
        try:
            found = {MAIN: set(self._in(MAIN, selector))}
        except UnknownNameError:
            found = {}
            if len(self.names) == 1:
                raise
        # a plain name means the main graph, if it has it; a kind or a pattern means all graphs
        if not found or ":" in selector or any(c in selector for c in "*?["):
            for scope in self.names[1:]:
                try:
                    found[scope] = set(self._in(scope, selector))
                except UnknownNameError:
                    continue
        return found or {MAIN: set(self._in(MAIN, selector))}

    def computing(self, name: str) -> str | None:
        """The first body that computes a value, as `@3/body`."""
        # breadth first, so that the outermost body is found; `pending` grows while it is read
        pending = [(MAIN, "")]
        seen = set[str]()
        for scope, path in pending:
            if path and name in self.of(scope).producer:
                return path
            for position, body, inner in self._runs(scope):
                if inner not in seen:
                    seen.add(inner)
                    pending.append((inner, f"{path}/@{position}/{body}".lstrip("/")))
        return None

    def _in(self, scope: str, selector: str) -> list[int]:
        index = self.of(scope)
        exact = selector.removeprefix("name:")
        if exact in index and exact not in index.producer:
            raise UsageError(
                f"no node computes {exact!r}: it is given with the model or its feeds",
                "break where it is used",
            )
        try:
            return select_nodes(index, selector)
        except UnknownNameError as error:
            raise unknown(index, selector, error) from error

    def _leading_to(self, scopes: set[str]) -> dict[str, set[int]]:
        """Scope -> the nodes whose bodies hold one of the scopes, at any depth."""
        if not scopes:
            return {}
        inside = {scope: self._runs(scope) for scope in self.names}
        # grow from the inside out until no more scopes have a node that leads into one
        reaching = set(scopes)
        while True:
            more = {s for s, runs in inside.items() if any(b in reaching for *_, b in runs)}
            if more <= reaching:
                break
            reaching |= more
        return {
            scope: {p for p, _, body in runs if body in reaching} for scope, runs in inside.items()
        }

    def _runs(self, scope: str) -> list[tuple[int, str, str]]:
        """(node, name of a body that it runs, the body's scope)."""
        if scope not in self._run:
            self._run[scope] = list(self._bodies(scope))
        return self._run[scope]

    def _bodies(self, scope: str) -> Iterator[tuple[int, str, str]]:
        index = self.of(scope)
        for position in range(len(index.nodes)):
            for body in bodies(index, position):
                yield position, body, body_scope(index, scope, position, body)
