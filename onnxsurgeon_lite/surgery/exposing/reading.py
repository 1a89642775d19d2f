"""What the edit gives, and what a run of it gave under the names that were asked for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxsurgeon_lite.graph.bodies import at, iterations_of
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.surgery.exposing.wires import Wire
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue


@dataclass(frozen=True)
class Lifted:
    """A model whose main graph computes inner values as well; they are no outputs of it yet.

    Attributes:
        asked: what was asked for -> the wire that has it.
        wires: all that is new in the main graph, tables first.
    """

    model: Model
    asked: Mapping[str, Wire] = field(default_factory=dict)
    wires: Sequence[Wire] = ()

    def sources(self, names: Iterable[str]) -> list[str]:
        """The values of the main graph that hold some values: themselves, or what `read` makes them from."""
        found: list[str] = []
        for name in names:
            wire = self.asked.get(name)
            needed = [name] if wire is None else [wire.table, wire.elements, wire.key]
            found += filter(None, needed)
        return list(dict.fromkeys(found))

    def read(self, sources: Iterable[tuple[str, RunValue]]) -> Iterator[tuple[str, RunValue]]:
        """What a run gave for `sources`, under the names that were asked for.

        An inner value comes once for each time that it was computed: `q[0]`, `q[1]`; None where it was not.
        """
        wires = {wire.key: wire for wire in self.wires}
        tables: dict[str, RunValue] = {}
        for key, value in sources:
            if key not in wires:
                yield key, value
            elif wires[key].columns is not None:
                tables[key] = value
            else:
                for name in (name for name, wire in self.asked.items() if wire.key == key):
                    yield from _records(name, wires[key], value, tables) or [(name, None)]


def _records(
    name: str, wire: Wire, value: RunValue, tables: Mapping[str, RunValue]
) -> list[tuple[str, RunValue]]:
    """Each time that a value was computed, or those of the iterations that the name has."""
    if not wire.many or not isinstance(value, list):
        return [(wire.place, value)]
    tensors = list(map(wire.narrowed, value))
    counted = [(number,) if wire.loops else () for number in range(len(tensors))]
    rows = _rows(tables[wire.table]) if wire.table else counted
    found: list[tuple[tuple[int, ...], RunValue]] = list(zip(rows, tensors, strict=False))
    if wire.elements:
        lists: dict[tuple[int, ...], list[Array]] = {row: [] for row in rows}
        for (*row, _), tensor in zip(_rows(tables[wire.elements]), tensors, strict=True):
            lists[tuple(row)].append(tensor)
        found = list(lists.items())
    only = () if name == wire.place else iterations_of(name)[1]
    return [(at(wire.place, row), got) for row, got in found if row[: len(only)] == only]


def _rows(table: RunValue) -> list[tuple[int, ...]]:
    return list(map(tuple, table.tolist())) if isinstance(table, np.ndarray) else []
