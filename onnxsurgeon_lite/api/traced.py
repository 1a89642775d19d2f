"""The module that computed references as a model of its own: it says what computes each of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.api.call import Call
from onnxsurgeon_lite.debug.computed_references import computed_references
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, fixed_shape
from onnxsurgeon_lite.matching.values import aligned_models
from onnxsurgeon_lite.matching.values.mapping import ALONE
from onnxsurgeon_lite.passes import Rename
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.options import RuntimeOptions
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.system import TemporaryFolder
from onnxsurgeon_lite.tensors.comparison import OWN, compare
from onnxsurgeon_lite.tensors.dtypes import Stored, is_array
from onnxsurgeon_lite.tensors.references import ReferenceSet, open_references

_MANY, _FEW = 4096, 2  # numbers that are looked at; as many different ones tell which value it is


@contextmanager
def program_of(factory: str, index: GraphIndex, feeds: Feeds) -> Iterator[Path | None]:
    """Yield a PyTorch module as an ONNX file, which exists in the context; None if it cannot be exported."""
    from onnxsurgeon_lite.recording.from_torch import record_factory

    with TemporaryFolder() as folder:
        place = Path(folder) / "traced"
        given = {name: feeds[name] for name in index.required_inputs if name in feeds}
        # of the values only what the whole module returns
        record_factory(factory, place, given, index.model, scopes=("",), program=True)
        yield open_references(place).program


def beside_program(
    place: Path | None,
    references: ReferenceSet,
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    call: Call,
) -> tuple[ReferenceSet, GraphIndex | None]:
    """Return (references with what the module's own model computes, that model), if both have the same outputs.

    Values are computed on demand, until the call ends.

    Args:
        place: of that model; without it the references are alone, and None.
        references: under the names of the model that is searched.
    """
    if place is None:
        return references, None
    try:
        # its inputs under the model's names, in the order of the feeds
        program = call.index(place)
        renamed = Rename(tuple(zip(program.required_inputs, feeds, strict=False)))
        program = GraphIndex.of(renamed.apply(program.model).model)
        plain = call.stack.enter_context(runtime_of(RuntimeOptions(opt="none", lean=True)))
        computed = call.stack.enter_context(computed_references(program, feeds, plain))
        if not _returns_the_same(program, computed, references, index):
            return references, None
        # an export counts its names: those of another one count alike only by chance
        how = runtime, "auto", call.progress, True
        more = aligned_models(computed, program, index, feeds, *how)
        return _together(references, more, program, index), program
    except SurgeonError as error:
        call.notes.append(f"{str(place)!r} is not used: {error.message}")
        return references, None


def _returns_the_same(
    program: GraphIndex, computed: ReferenceSet, references: ReferenceSet, index: GraphIndex
) -> bool:
    """Return whether each output that was recorded is one of the program's."""
    # all of them are compared, as the model that is searched may return them in another order
    returned = [computed.read(name) for name in program.outputs]
    outputs = [references.read(name) for name in index.outputs if name in references]
    return bool(outputs) and all(any(_equal(r, known) for r in returned) for known in outputs)


def _together(
    named: ReferenceSet, more: ReferenceSet, program: GraphIndex, index: GraphIndex
) -> ReferenceSet:
    """Return recorded references, read from the value of their model that they are, and all others of that model."""
    shapes = {name: fixed_shape(kind) for name, kind in program.types.items()}
    # each by its name in the program
    stored = more.entries.items()
    names = {name: entry.stored_as or name.removesuffix(ALONE) for name, entry in stored}
    there = {name: here for here, name in names.items()}
    # what has no pair and reads parameters is the value of a module, which is recorded itself
    parameters = program.initializers.keys()
    of_modules = {n for n in there if parameters & program.read_by(program.makers([n]))}
    entries = {n: e for n, e in stored if n in index or names[n] not in of_modules}
    # all that may be a recorded value is computed in one run
    wanted = {None} | {entry.shape for entry in named.entries.values()}
    more.prefetch([here for name, here in there.items() if shapes.get(name) in wanted])
    for name, entry in named.entries.items():
        value, entries[name] = entry.read(), entry
        if not is_array(value):
            continue
        # its pair, an output, else another value with its numbers, if they are no few
        tells = len(np.unique(value.flat[:_MANY])) > _FEW
        same = (
            n
            for n in there
            if tells and shapes.get(n) in (None, value.shape) and there[n] not in named
        )
        # the first of them with its numbers; where there is none, the recorded values stand alone
        for other in chain([names.get(name, "")], program.outputs, same):
            if other in there and _equal(more.read(there[other]), value):
                computed = more.entries[there[other]]
                entries[name] = replace(entry, read=computed.read, stored_as=other)
                break
    # recorded values are read from a file, those of the program are computed together
    return replace(
        named,
        entries=entries,
        prefetch=lambda names: more.prefetch([name for name in names if name in more]),
        bodies=more.bodies,
    )


def _equal(actual: Stored, wanted: Stored) -> bool:
    return is_array(actual) and is_array(wanted) and compare(actual, wanted, OWN, ()).match
