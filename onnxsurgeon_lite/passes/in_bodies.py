"""Let a pass edit bodies and functions: it gets the graph in which the values and nodes that it names are.

`rewire @3/then_branch/a @3/then_branch/b` is `rewire a b` on the body as a model, which is then put back.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.bodies import place_of
from onnxsurgeon_lite.graph.selecting.select import split_names
from onnxsurgeon_lite.graph.settling import UNSETTLED, settling_later
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import few, listed
from onnxsurgeon_lite.passes.protocol import Pass, PassResult, Pipeline
from onnxsurgeon_lite.passes.targets import chosen_nodes, literal, one_value
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.surgery.open_body import OpenBody

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")
Apply = Callable[[S, Model], PassResult]

_BODY = re.compile(r"(^|,)(@\d+/|fn:)")
_Field = str | tuple[str | tuple[str, str], ...] | None
"""A name, lists of names, or pairs of an old name and a new one."""


def in_bodies(
    values: tuple[str, ...] = (), nodes: tuple[str, ...] = (), each: str = ""
) -> Callable[[Apply[S]], Apply[S]]:
    """Let the `apply` of a pass edit bodies.

    Args:
        values, nodes: its fields that name values or nodes.
        each: the one of them whose names it edits one by one: they may be in several bodies.
    """

    def decorate(apply: Apply[S]) -> Apply[S]:
        @wraps(apply)
        def wherever(self: S, model: Model, /) -> PassResult:
            fields: dict[str, _Field] = {name: getattr(self, name) for name in values + nodes}
            if not any(map(_BODY.search, _texts(fields.values()))):
                return apply(self, model)
            index = GraphIndex.of(model)
            groups = _by_body(_names(index, fields[each], each in values)) if each else []
            # each name where it is: one pass for every body, in a pipeline
            if len(groups) > 1:
                parts = tuple(replace(self, **{each: _field((), group)}) for group in groups)
                return Pipeline(cast("tuple[Pass, ...]", parts)).apply(model)
            inside = Narrowed.of(index, self, values, nodes)
            if not inside.path:
                return apply(self, model)
            body = OpenBody.of(index, inside.path, inside.outer)
            # what is only right after the whole pipeline is not checked in the body, either
            outer = UNSETTLED.get()
            unsettled = None if outer is None else set(outer)
            with settling_later(unsettled):
                result = wherever(inside.step(self), body.model)
            return _put_back(body, result, inside.notes, unsettled or ())

        # `outside` reads which fields are names
        vars(wherever)["names"] = values, nodes
        return wherever

    return decorate


def named(step: Pass) -> tuple[list[str], list[str]]:
    """Return the (values, nodes) that a pass names, as it names them."""
    fields = vars(type(step).apply)["names"]
    values, nodes = ([getattr(step, field) for field in of] for of in fields)
    return list(_texts(values)), list(_texts(nodes))


def outside(step: Pass, path: str, index: GraphIndex, captured: Container[str]) -> Pass:
    """Return a pass on a body as one on the graph that has the body.

    Args:
        path: of the body. index: the body as a model.
        captured: values of it that are outside.
    """
    values, nodes = vars(type(step).apply)["names"]

    def value(name: str) -> str:
        return name if not name or name in captured else f"{path}/{name}"

    found = dict[str, _Field]()
    for field in values:
        held = getattr(step, field)
        # None and '' stay
        found[field] = tuple(map(value, held)) if isinstance(held, tuple) else held and value(held)
    for field in nodes:
        given = split_names(index, getattr(step, field))
        # "@3/body/@1" names a node below the body
        deeper = [name for name in given if _BODY.search(name)]  # these are ids
        ids = chosen_nodes(index, [name for name in given if name not in deeper])
        found[field] = tuple(f"{path}/{each}" for each in chain(ids, deeper))
    return cast(
        "Pass", replace(cast("DataclassInstance", step), **cast("dict[str, object]", found))
    )


@dataclass(frozen=True)
class Narrowed:
    """The fields of a pass as they are in a body.

    Attributes:
        path: of the body; '' for the graph itself.
        outer: the values outside that they name.
    """

    path: str
    fields: Mapping[str, _Field]
    outer: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        index: GraphIndex,
        step: "DataclassInstance",
        values: tuple[str, ...],
        nodes: tuple[str, ...],
        called: bool = False,
    ) -> "Narrowed":
        """Find the body that the names are in.

        Args:
            called: see `place_of`.

        Raises:
            UsageError: they are in several bodies.
        """
        fields: dict[str, _Field] = {name: getattr(step, name) for name in values + nodes}
        found = {f: _names(index, held, f in values, called) for f, held in fields.items()}
        path = _only_body(chain.from_iterable(found.values()))
        notes = list[str]()
        if path:
            # names as they are inside the body; values outside keep their names
            found = {f: [n.inside(index, path, notes) for n in names] for f, names in found.items()}
        # captured values, which the body must see
        outer = [n.text for f in values for n in found[f] if not n.path and not n.is_number]
        made = {f: _field(held, found[f]) for f, held in fields.items()}
        return cls(path, made, tuple(outer), tuple(notes))

    def step(self, outside: S) -> S:
        """Return the pass as it is in the body."""
        fields: Mapping[str, object] = self.fields
        return replace(outside, **fields)


@dataclass(frozen=True)
class _Name:
    """A name in a field of a pass.

    Attributes:
        text: what it is in its body.
        path: of the body in the graph that the pass is applied to; '' if it is of the graph itself.
        new: the name that it gets.
        of_node: of a node, not a value.
        is_number: a number, or nothing, in the place of a value.
    """

    text: str
    path: str = ""
    new: str | None = None
    of_node: bool = False
    is_number: bool = False

    @classmethod
    def of(
        cls, index: GraphIndex, text: str, of_node: bool, called: bool, new: str | None = None
    ) -> "_Name":
        """Find the body that a name is in."""
        path, rest = place_of(index, text, called)
        # "@3/then_branch/@1/body/x" -> the first body, and the rest as seen from there
        head, deeper, place = path.partition("/@")
        return cls(f"@{place}/{rest}" if deeper else rest, head, new, of_node)

    def inside(self, index: GraphIndex, path: str, notes: list[str]) -> "_Name":
        """Return the name as it is in a body.

        Raises:
            UsageError: it is a node outside.
        """
        if self.is_number:
            return self
        if self.path:
            # a new name may be written with the path, too
            new = self.new and self.new.removeprefix(f"{path}/")
            return replace(self, new=new)
        if self.of_node:
            raise UsageError(
                f"node {self.text!r} is not in {path!r}, the other names are",
                f"name a node there: {path}/@0",
            )
        return replace(self, text=one_value(index, self.text, notes))

    def outside(self) -> "_Name":
        """Return the name as it is for the graph that has the body."""
        return replace(self, text=f"{self.path}/{self.text}" if self.path else self.text)


def _texts(fields: Iterable[_Field]) -> Iterator[str]:
    for held in fields:
        for entry in (held,) if isinstance(held, str) else held or ():
            yield entry if isinstance(entry, str) else entry[0]


def _names(index: GraphIndex, held: _Field, of_values: bool, called: bool = False) -> list[_Name]:
    """Return the names in a field, one by one."""
    found = []
    # a field is a name, or a tuple of names and of (old, new) pairs
    for entry in (held,) if isinstance(held, str) else held or ():
        if not isinstance(entry, str):
            found.append(_Name.of(index, entry[0], not of_values, called, entry[1]))
        elif not entry or (of_values and literal(index, entry) is not None):
            found.append(_Name(entry, is_number=True))
        else:
            # a list may hold globs, or names separated by commas
            parts = [entry] if isinstance(held, str) else split_names(index, [entry])
            found += (_Name.of(index, part, not of_values, called) for part in parts)
    return found


def _field(before: _Field, names: list[_Name]) -> _Field:
    """Return names in the form that a field had."""
    if not isinstance(before, tuple):
        return names[0].text if names else before
    return tuple(
        (name.text, name.new)
        # commas and globs were resolved: quoted, so that they are not read again
        if name.new is not None
        else (name.text if name.is_number else listed([name.text]))
        for name in names
    )


def _by_body(names: Iterable[_Name]) -> list[list[_Name]]:
    """Return the names of each body, those of the graph itself last: an edit there changes ids."""
    in_order = sorted(names, key=lambda name: not name.path)
    return list(groups((name.path, name.outside()) for name in in_order).values())


def _only_body(names: Iterable[_Name]) -> str:
    """Return the body that names are in, '' if they are all of the graph itself."""
    paths = list(dict.fromkeys(name.path for name in names if name.path))
    if len(paths) > 1:
        raise UsageError(f"names are in several bodies: {few(paths)}", "edit one after the other")
    return paths[0] if paths else ""


def _put_back(
    body: OpenBody, result: PassResult, notes: Iterable[str], unsettled: Iterable[str]
) -> PassResult:
    """Return the result of the pass on the body as one on the graph that has it."""
    source, model = body.index.model, body.index.model
    where = body.model.enclosing.path.removesuffix("/")
    # lines that do not name the body get its path
    changes, more = (
        [line if where in line else f"in {where!r}: {line}" for line in lines]
        for lines in (result.changes, result.notes)
    )
    outside = list[str]()
    if result.changed:
        model, outside = body.put_back(result.model, unsettled)
    return PassResult.of(source, model, changes, chain(notes, more, outside))
