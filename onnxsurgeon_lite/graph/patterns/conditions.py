"""Conditions on what a pattern found: `epsilon < 1e-3`, `rank(x) == 4`, `shape(x)[1] == shape(w)[0]`.

They are Python expressions over the pattern's names, evaluated here without Python's own evaluation: a rule is a file
from anywhere. What is not known, such as the shape of a value without one, is no reason to match.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from types import EllipsisType

import numpy as np
from onnx import AttributeProto, TypeProto, ValueInfoProto, helper

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph.index import GraphIndex, known_size
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import is_array

NOT_KNOWN = "is not known: "
"""In the message on a condition that cannot be decided."""

_CLOSE = 1e-6  # relative: of numbers that a model stores as float32
_LARGEST = 1 << 22  # elements
_DEEPEST = 100  # terms in one another
_STEPS, _STEPS_A_NODE = 100_000, 200
_AT_ONCE = 64  # elements that numpy computes in the time of a step
_OPERATORS: dict[type[ast.AST], Callable[..., object]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.Not: operator.not_,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    # by reference: `equal` is defined below
    ast.Eq: lambda one, two: equal(one, two), ast.NotEq: lambda one, two: not equal(one, two),
    ast.In: lambda one, two: one in two, ast.NotIn: lambda one, two: one not in two,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., object]] = {
    "abs": np.abs, "all": np.all, "any": np.any, "len": len, "max": np.max, "min": np.min, "sqrt": math.sqrt,
    "sum": sum, "sorted": sorted, "range": lambda count: list(range(count)), "list": lambda items: list(items),
}  # fmt: skip
_OPSET = "opset"
_OF_VALUES = ("rank", "shape", "dtype", "constant", "given")
_ALLOWED = (
    ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.And, ast.Or,
    ast.Call, ast.Subscript, ast.Slice, ast.Load, ast.ListComp, ast.comprehension, ast.Store, *_OPERATORS,
)  # fmt: skip


class _Open(str):
    """A size that is not known: its name, or that of its place."""


@dataclass
class Budget:
    """The steps that the rules of a file may take in one graph: a pattern can match in endless ways."""

    rule: str
    left: int

    @classmethod
    def of(cls, rule: str, nodes: int) -> "Budget":
        """Return the steps for a graph of some nodes."""
        return cls(rule, _STEPS + _STEPS_A_NODE * nodes)

    def spend(self, steps: int = 1) -> None:
        """Take steps.

        Raises:
            UsageError: there are none left.
        """
        self.left -= steps
        if self.left < 0:
            raise UsageError(
                f"rule {self.rule!r} takes too many steps to match",
                "name attributes and constants in the pattern, or leave out operators that commute",
            )


class Unknown(Exception):
    """A condition cannot be decided."""


class Unbound(Unknown):
    """A variable is not given."""


def parse_conditions(texts: Iterable[str]) -> tuple[ast.expr, ...]:
    """Parse conditions, several on a line separated by commas.

    Raises:
        UsageError: one is no expression, or uses what conditions do not have.
    """
    return tuple(chain.from_iterable(map(_parsed, texts)))


def _parsed(text: str) -> list[ast.expr]:
    cause: BaseException | None = None
    try:
        # As a tuple, so that several conditions are one expression.
        parsed = ast.parse(f"({text},)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        cause = error
    # the comma makes it one, but in `a)(b`
    if cause is not None or not isinstance(parsed, ast.Tuple):
        raise UsageError(
            f"the condition {text[:60]!r} is no expression", "write: epsilon < 1e-3"
        ) from cause
    if _depth(parsed) > _DEEPEST:
        raise UsageError(
            f"the condition {text[:60]!r} nests deeper than {_DEEPEST}",
            "write several conditions: # where a < 1, b < 2",
        )
    for node in ast.walk(parsed):  # what is not on the list is refused, before anything is computed
        called = node.func if isinstance(node, ast.Call) else None
        known = isinstance(called, ast.Name) and called.id in tuple(_FUNCTIONS) + _OF_VALUES + (
            _OPSET,
        )
        if not isinstance(node, _ALLOWED) or (called is not None and not known):
            raise UsageError(
                f"the condition {text!r} uses {ast.unparse(called or node)!r}, which conditions do not have",
                f"they have {', '.join(chain(_OF_VALUES, [_OPSET], _FUNCTIONS))}, comparisons and arithmetic",
            )
    return parsed.elts


def _depth(node: ast.AST) -> int:
    level, depth = [node], 0  # level by level, because recursion may be too deep
    while level:
        level = list(chain.from_iterable(map(ast.iter_child_nodes, level)))
        depth = depth + 1
    return depth


@dataclass
class Conditions:
    """The conditions of a rule on one match.

    Attributes:
        values: pattern value -> value of the graph.
        numbers: attribute variable -> what it is.
        open_names: variables that the matched side does not mention, which `name == ...` defines.
    """

    index: GraphIndex
    values: Mapping[str, str]
    numbers: dict[str, object]
    open_names: frozenset[str]
    budget: Budget

    def failing(self, conditions: Iterable[ast.expr]) -> str:
        """Return why the conditions do not hold; '' if they do. Defines the open names."""
        # A condition may use a name that a later one defines: those wait for the next round.
        pending = list(conditions)
        while pending:
            left = []
            for condition in pending:
                try:
                    if not self._holds(condition):
                        return f"{ast.unparse(condition)!r} does not hold"
                except Unbound:
                    left.append(condition)
                except (Unknown, TypeError, ValueError, IndexError, ArithmeticError) as error:
                    return f"{ast.unparse(condition)!r} {NOT_KNOWN}{error}"
            if len(left) == len(pending):  # nobody defines the name
                return f"{ast.unparse(left[0])!r} {NOT_KNOWN}a variable is not given"
            pending = left
        return ""

    def _holds(self, condition: ast.expr) -> bool:
        match condition:
            # `name == expression` defines a name that is open.
            case ast.Compare(ast.Name(name), [ast.Eq()], [definition]) if (
                name in self.open_names and name not in self.numbers
            ):
                self.numbers[name] = self._value(definition)
                return True
        return bool(self._value(condition))

    def _value(self, node: ast.expr) -> object:
        self.budget.spend()
        # what needs no other values first; the others compute
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self._named(name)
            case ast.List(items) | ast.Tuple(items):
                return [self._value(item) for item in items]
            case ast.BoolOp(ast.And(), parts):
                return all(self._value(part) for part in parts)
            case ast.BoolOp(ast.Or(), parts):
                return self._any(parts)
            case ast.Compare(left, kinds, others):
                return self._compared([left] + others, kinds)
            case ast.Subscript(held, place):
                return self._item(self._value(held), place)
            case ast.ListComp(item, loops):
                return list(self._each(item, loops))
        return self._computed(node)

    def _each(self, item: ast.expr, loops: "list[ast.comprehension]") -> Iterator[object]:
        """Yield the items of a list comprehension."""
        if not loops:
            yield self._value(item)
            return
        # each loop has values of its own
        name = ast.unparse(loops[0].target)
        items = self._value(loops[0].iter)
        for number in np.ravel(np.asarray(items)).tolist():
            inner = replace(self, numbers=self.numbers | {name: number})
            if all(map(inner._value, loops[0].ifs)):  # the conditions of the comprehension
                yield from inner._each(item, loops[1:])

    def _computed(self, node: ast.expr) -> object:
        match node:
            case ast.UnaryOp(kind, operand):
                return _OPERATORS[type(kind)](self._value(operand))
            case ast.BinOp(left, kind, right):
                return self._operated(kind, self._value(left), self._value(right))
            case ast.Call(ast.Name(name), [ast.Name(value)]) if name in _OF_VALUES:
                return self._of_value(name, value)
            case ast.Call(ast.Name(name), []) if name == _OPSET:
                return self.index.opset
            case ast.Call(ast.Name(name), arguments) if name in _FUNCTIONS:
                given = list(map(self._value, arguments))
                # functions of lists and arrays take time for each element
                self.budget.spend(sum(map(_size, given)))
                return _FUNCTIONS[name](*given)
        raise Unknown(f"{ast.unparse(node)!r} is no name of the pattern")

    def _operated(self, kind: ast.AST, one: object, two: object) -> object:
        """Apply an operator; a list times a number, and arrays along each other's axes, can be large."""
        # what broadcasting makes of two arrays
        shapes = (np.shape(each) if is_array(each) else () for each in (one, two))
        self.budget.spend(math.prod(np.broadcast_shapes(*shapes)) // _AT_ONCE)
        # a list or a text times a number is repeated
        if isinstance(kind, ast.Mult) and isinstance(one, list | str) != isinstance(
            two, list | str
        ):
            self.budget.spend(_size(one) * _size(two))
        return _OPERATORS[type(kind)](one, two)

    def _any(self, parts: Iterable[ast.expr]) -> bool:
        # `or` is true if one part is, even if another one is not known.
        unknown: Unknown | None = None
        for part in parts:
            try:
                if self._value(part):
                    return True
            except Unknown as error:
                unknown = error
        if unknown is not None:
            raise unknown
        return False

    def _compared(self, operands: list[ast.expr], kinds: list[ast.cmpop]) -> bool:
        found = [self._value(operand) for operand in operands]
        pairs = zip(found, found[1:], kinds, strict=False)  # a < b < c compares neighbors
        return all(np.asarray(self._operated(kind, a, b)).all() for a, b, kind in pairs)

    def _item(self, held: object, place: ast.expr) -> object:
        if is_array(held):
            # an array can have several places: x[1, :]
            axes = place.elts if isinstance(place, ast.Tuple) else [place]
            found: object = held[tuple([self._at(axis) for axis in axes])]
            return found
        if not isinstance(held, list):
            raise Unknown(f"{held!r} is no list")
        if isinstance(place, ast.Slice):
            return held[self._slice(place)]
        at = self._value(place)
        # a list of places takes a list of items
        return [held[_whole(i)] for i in at] if isinstance(at, list) else held[_whole(at)]

    def _at(self, place: ast.expr) -> "int | slice | EllipsisType":
        """Return a place along an axis of an array."""
        if isinstance(place, ast.Slice):
            return self._slice(place)
        found = self._value(place)
        return ... if found is ... else _whole(found)

    def _slice(self, place: ast.Slice) -> slice:
        ends = (place.lower, place.upper, place.step)
        low, high, step = (None if end is None else _whole(self._value(end)) for end in ends)
        return slice(low, high, step)

    def _named(self, name: str) -> object:
        if name in self.numbers:  # attributes first, then constants by their numbers
            return self.numbers[name]
        if name not in self.values:
            raise Unbound(f"{name!r} is not given")
        tensor = constant(self.index, self.values[name])
        if tensor is None:
            raise Unknown(f"{self.values[name]!r} is not a constant")
        if math.prod(tensor.dims) > _LARGEST:
            raise Unknown(f"{self.values[name]!r} is larger than what conditions read")
        array = self.index.model.array(tensor)
        return array.item() if array.size == 1 else array  # a constant of one element is a number

    def _of_value(self, function: str, name: str) -> object:
        value = self.values.get(name, "")
        if function == "given":
            return value != "" or name in self.numbers  # an attribute is given, too
        if not value:
            raise Unbound(f"{name!r} is not given")
        if function == "constant":
            return constant(self.index, value) is not None
        kind = self.index.type_of(value)
        if kind is None or not kind.tensor_type.elem_type:
            raise Unknown(f"the type of {value!r} is unknown")
        if function == "dtype":
            return dtypes.dtype_name(kind.tensor_type.elem_type)
        dims = _dims(kind, value)
        return len(dims) if function == "rank" else dims


def _size(value: object) -> int:
    """Return the elements of a list or an array, or a number: so many can be what is computed with it."""
    if isinstance(value, int):
        return max(value, 0)
    return value.size if is_array(value) else len(value) if isinstance(value, list | str) else 1


def _whole(number: object) -> int:
    if not isinstance(number, int):
        raise Unknown(f"{number!r} is no place in a list")
    return number


def number(attribute: AttributeProto) -> object:
    """Return an attribute's value as conditions see it."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value


def misfit(index: GraphIndex, declared: Iterable[ValueInfoProto], values: Mapping[str, str]) -> str:
    """Return why values do not have the types that a pattern declares; '' if they do.

    A dimension of one name has one size in all of them.
    """
    sizes = dict[str, object]()
    for info in declared:
        name = values.get(info.name, "")
        want = info.type
        kind = index.type_of(name) if name else want  # an input that is omitted fits any type
        if kind is None or kind.tensor_type.elem_type != want.tensor_type.elem_type:
            return f"{name!r} has another dtype than {info.name!r}"
        if not want.tensor_type.HasField("shape") or not name:
            continue
        if not kind.tensor_type.HasField("shape"):
            return f"the shape of {name!r} is unknown"
        dims = _dims(kind, name)
        wanted = want.tensor_type.shape.dim
        if len(dims) != len(wanted):
            return f"{name!r} has {len(dims)} dimensions, {info.name!r} has {len(wanted)}"
        for size, dim in zip(dims, wanted, strict=True):
            fixed: object = known_size(dim)
            if fixed is None and dim.dim_param:
                # the first size of a name is the size of that name
                fixed = sizes.setdefault(dim.dim_param, size)
            if fixed is not None and fixed != size:
                return f"{name!r} has a dimension {size}, not {fixed}"
    return ""


def _dims(kind: TypeProto, value: str) -> list[int | str]:
    """Return the dimensions; an open one is equal to itself, and not known to be to another."""
    if not kind.tensor_type.HasField("shape"):
        raise Unknown(f"the shape of {value!r} is unknown")
    return [
        dim.dim_value if dim.HasField("dim_value") else _Open(dim.dim_param or f"{value}[{axis}]")
        for axis, dim in enumerate(kind.tensor_type.shape.dim)
    ]


def equal(one: object, two: object) -> bool:
    """Return whether two things are equal, numbers as precisely as float32 holds them.

    Raises:
        Unknown: one is an open size, which may be equal to the other.
    """
    if isinstance(one, str) or isinstance(two, str):
        # a symbol is equal to itself alone; to anything else it may be equal
        if one != two and (isinstance(one, _Open) or isinstance(two, _Open)):
            raise Unknown(f"{one} and {two} may be equal")
        return one == two
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(equal, one, two))
    first, second = np.asarray(one), np.asarray(two)
    if not first.size or not second.size:
        return first.size == second.size
    if "f" in (first.dtype.kind, second.dtype.kind):
        return bool(np.allclose(first, second, rtol=_CLOSE, atol=0))
    return bool(np.all(first == second))
