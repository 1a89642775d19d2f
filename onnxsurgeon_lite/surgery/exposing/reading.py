"""Read the exposed values of a run under the names that were requested."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnxsurgeon_lite.graph import at, iterations_of
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.surgery.exposing.wires import Wire
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, RunValues, is_array


@dataclass(frozen=True)
class Exposed:
    """A model whose main graph also computes the values of its bodies; they are not outputs of it yet.

    A body that runs many times adds a sequence, and a table with the numbers of the iterations that made its tensors.

    Attributes:
        asked: requested name -> the wire that carries the value.
        wires: the wires of all new values of the main graph, tables first.
    """

    model: Model
    asked: Mapping[str, Wire] = field(default_factory=dict)
    wires: Sequence[Wire] = ()

    def sources(self, names: Iterable[str]) -> list[str]:
        """Return the values of the main graph that `read` needs for these names."""
        found = list[str]()
        for name in names:
            wire = self.asked.get(name)
            # `many` values need their tables; '' where there is none
            needed = [name] if wire is None else [wire.table, wire.elements, wire.key]
            found += filter(None, needed)
        return list(dict.fromkeys(found))

    def read(self, sources: Iterable[tuple[str, RunValue]]) -> Iterator[tuple[str, RunValue]]:
        """Yield the results of a run for `sources` under the requested names.

        An inner value comes once for each time that it was computed: `q[0]`, `q[1]`; None if it was never computed.
        """
        wires = {wire.key: wire for wire in self.wires}
        tables = dict[str, RunValue]()
        for key, value in sources:
            if key not in wires:  # a value of the main graph, which needs no reading
                yield key, value
            elif wires[key].columns is not None:
                tables[key] = value
            else:
                # several names may ask for iterations of the same value
                for name in (name for name, wire in self.asked.items() if wire.key == key):
                    yield from _records(name, wires[key], value, tables) or [(name, None)]


def _records(
    name: str, wire: Wire, value: RunValue, tables: RunValues
) -> list[tuple[str, RunValue]]:
    """Return each computed instance of a value, or those at the iterations in the name."""
    # the value of a function or of the main graph: there is one
    if not wire.many or not isinstance(value, list):
        return [(wire.place, value)]
    tensors = list(map(wire.narrowed, value))
    # the iterations at which each tensor was computed, the outermost loop first
    if wire.table:
        iterations = _rows(tables[wire.table])
    else:
        # one loop: iteration n is tensor n; no loop: at most one tensor
        iterations = [(number,) if wire.loops else () for number in range(len(tensors))]
    computed = list[tuple[tuple[int, ...], RunValue]](zip(iterations, tensors, strict=False))
    if wire.elements:
        # the value is a sequence itself: a row has the iterations of a tensor's sequence, and its place in that
        sequences: dict[tuple[int, ...], list[Array]] = {each: [] for each in iterations}
        for (*each, _), tensor in zip(_rows(tables[wire.elements]), tensors, strict=True):
            sequences[tuple(each)].append(tensor)
        computed = list(sequences.items())
    # the iterations in the name: `q[3]` -> (3,)
    wanted = () if name == wire.place else iterations_of(name)[1]
    return [(at(wire.place, each), got) for each, got in computed if each[: len(wanted)] == wanted]


def _rows(table: RunValue) -> list[tuple[int, ...]]:
    return list(map(tuple, table.tolist())) if is_array(table) else []
