"""Every graph of a model in which nodes can be marked: the main graph, bodies, functions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from onnx import ModelProto

from onnxsurgeon_lite import walk
from onnxsurgeon_lite.debugger.bodies import function_of
from onnxsurgeon_lite.debugger.control import function_scope
from onnxsurgeon_lite.errors import UnknownNameError, UsageError
from onnxsurgeon_lite.graph import MAIN, GraphIndex
from onnxsurgeon_lite.select import select_nodes


@dataclass
class Scopes:
    """Every graph of a model that nodes can be marked in, indexed when it is asked for."""

    index: GraphIndex
    _known: dict[str, GraphIndex] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The main graph, bodies, functions."""
        return [MAIN, *(body.path for body in self.index.inner_bodies)]

    def of(self, scope: str) -> GraphIndex:
        """The index of one of them."""
        if scope == MAIN:
            return self.index
        if scope not in self._known:
            body = next(body for body in self.index.inner_bodies if body.path == scope)
            proto = ModelProto(opset_import=self.index.model.proto.opset_import)
            proto.functions.extend(self.index.model.proto.functions)
            proto.graph.node.extend(body.nodes)
            self._known[scope] = GraphIndex.of(self.index.model.with_proto(proto))
        return self._known[scope]

    def find(self, selector: str) -> dict[str, set[int]]:
        """Scope -> the nodes that a selector means: those of the main graph, or else of bodies.

        `op:`, `scope:`, `class:`, `src:` and patterns mean nodes everywhere.

        Raises:
            UnknownNameError, UsageError: there is none.
        """
        inner = max(
            (s for s in self.names if s and selector.startswith(f"{s}/")), key=len, default=""
        )
        if inner:
            return {inner: set(self._in(inner, selector.removeprefix(f"{inner}/")))}
        try:
            found = {MAIN: set(self._in(MAIN, selector))}
        except UnknownNameError:
            found = {}
            if len(self.names) == 1:
                raise
        if not found or ":" in selector or any(c in selector for c in "*?["):
            for scope in self.names[1:]:
                try:
                    found[scope] = set(self._in(scope, selector))
                except UnknownNameError:
                    continue
        return found or {MAIN: set(self._in(MAIN, selector))}

    def computing(self, name: str) -> str | None:
        """The body or function that computes a value."""
        return next((s for s in self.names[1:] if name in self.of(s).producer), None)

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
            if ":" in selector:
                raise  # it says what there is of that kind
            known = [*(node.name for node in index.nodes if node.name), *index.producer]
            place = f"graph {index.graph.name!r}"
            raise UnknownNameError(selector, place, known, kind="node or value") from error

    def leading_to(self, scopes: set[str]) -> dict[str, set[int]]:
        """Scope -> the nodes whose bodies hold one of the scopes, at any depth."""
        if not scopes - {MAIN}:
            return {}
        inside = {scope: list(self._runs(scope)) for scope in self.names}
        reaching = set(scopes - {MAIN})
        while True:
            more = {s for s, runs in inside.items() if any(b in reaching for _, b in runs)}
            if more <= reaching:
                break
            reaching |= more
        return {
            scope: {p for p, body in runs if body in reaching} for scope, runs in inside.items()
        }

    def _runs(self, scope: str) -> Iterator[tuple[int, str]]:
        """(node, scope of a body that it runs)."""
        index = self.of(scope)
        for position, node in enumerate(index.nodes):
            function = function_of(index, node) if index.model.proto.functions else None
            if function is not None:
                yield position, function_scope(function)
            for name, _ in walk.bodies(node) if node.attribute else ():
                yield position, f"{scope}/@{position}/{name}" if scope else f"@{position}/{name}"
