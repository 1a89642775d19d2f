"""Read an ETDump: what each instruction of an ExecuTorch program returned, beside the buffer that holds the numbers.

The file is a flatbuffer of ExecuTorch 1.5's schema, devtools/etdump/etdump_schema_flatcc.fbs. The numbers of fields
below are those of that schema.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.tensors.references.flatbuffer import Fields, root_of
from onnxsurgeon_lite.tensors.references.sets import Entry, ReferenceSet, chosen
from onnxsurgeon_lite.untrusted import require_regular

_BUFFER = "debug_output.bin"
_IDENTIFIER = b"ED00"
_CALL = "native_call_"  # before the name of an operator
_FROM_23 = "float8e5m2 float8e4m3fn float8e5m2fnuz float8e4m3fnuz uint16 uint32 uint64"
# ExecuTorch's ScalarType -> ONNX dtype
_DTYPES = (
    dict(enumerate(["uint8", "int8", "int16", "int32", "int64", "float16", "float", "double"]))
    | {11: "bool", 15: "bfloat16"}
    | dict(enumerate(_FROM_23.split(), 23))
)

Placed = Callable[[Path, str, tuple[int, ...], int], Entry]
"""Makes the entry of a tensor in a file: its path, dtype, shape, offset of the first byte."""


def open_etdump(path: Path, sample: int, placed: Placed) -> ReferenceSet:
    """Return what one run computed: `4.addmm.out` of instruction 4, and `output_0` of the program.

    Args:
        sample: the number of the run, of those that stored tensors.

    Raises:
        ReferenceSetError: the file is no ETDump, it holds no tensors, or the buffer beside it is missing.
    """
    runs = [run for run in map(_tensors_of, root_of(path, _IDENTIFIER, "ETDump").tables(1)) if run]
    if not runs:
        raise ReferenceSetError(
            f"{str(path)!r} holds no tensors", "run the program again with a debug buffer"
        )
    number, notes = chosen(sample, len(runs), path)
    buffer = _buffer_of(path)  # it may be longer than what was written
    entries = {}
    for name, tensor in runs[number].items():
        kind, shape = tensor.number(0, "b"), tensor.numbers(1)
        if kind not in _DTYPES:
            notes.append(f"{name!r} has ExecuTorch's dtype {kind}, which ONNX lacks: left out")
        elif not _is_row_by_row(shape, tensor.numbers(2)):
            notes.append(f"{name!r} is not stored row by row: left out")
        else:
            entries[name] = placed(buffer, _DTYPES[kind], shape, tensor.number(3, "q"))
    # the program's outputs have no names, but an order
    outputs = tuple(name for name in entries if name.startswith("output_"))
    return ReferenceSet(str(path), entries, tuple(notes), outputs=outputs)


def _buffer_of(path: Path) -> Path:
    for place in (path.with_suffix(".bin"), path.with_name(_BUFFER)):
        if place.exists():
            return require_regular(place, path.parent)
    raise ReferenceSetError(
        f"the debug buffer of {str(path)!r} is missing",
        f"put it beside that file, as {path.stem}.bin or {_BUFFER}",
    )


def _is_row_by_row(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    # a stride counts elements; that of a single element says nothing
    plain = 1
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size > 1 and stride != plain:
            return False
        plain *= size
    return True


def _tensors_of(run: Fields) -> dict[str, Fields]:
    """Return name -> tensor of what one run stored."""
    called = dict[int, str]()  # instruction -> its operator, which comes after its tensors
    stored = defaultdict[int, list[Fields]](list)
    outputs = list[Fields]()
    for event in run.tables(3):
        # how long a call took: this event has the operator's name
        for profiled in event.table(0):
            _, call, operator = profiled.text(0).partition(_CALL)
            if call:
                called[profiled.number(2, "i", -1)] = operator
        # what it returned: one value an event
        for debugged in event.table(2):
            for value in debugged.table(2):
                is_output = value.table(7)
                place = outputs if is_output else stored[debugged.number(1, "i", -1)]
                place.extend(value.table(1))
                for held in value.table(2):  # a list of tensors
                    place.extend(held.tables(0))
    named = {f"output_{index}": tensor for index, tensor in enumerate(outputs)}
    # one that a delegate ran has no operator
    for instruction, tensors in stored.items():
        name = f"{instruction}.{called.get(instruction, 'delegate')}"
        for index, tensor in enumerate(tensors):
            named[f"{name}.{index}" if index else name] = tensor
    return named
