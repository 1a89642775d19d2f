"""Mistakes in precision: a reference that was computed in half precision."""

from collections.abc import Iterator

from onnx import TensorProto

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.passes import Insert, Pass

_HALF = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def precision(place: Place) -> Hypotheses:
    """Yield roundings of the result, and of the operands of each node."""
    if place.wanted.dtype.name != "float32":
        return
    for dtype, number in _HALF.items():
        edits = (_cast(place.value, number), _cast(place.value, TensorProto.FLOAT))
        sentence = f"{place.maker} is not rounded to {dtype}, the reference is; rounded"
        yield Hypothesis("precision", sentence, edits, ("precision", dtype))
        rounded = tuple(
            step for name in place.inputs for step in _operand(place, name, dtype, number)
        )
        sentence = f"what {place.maker} reads is not rounded to {dtype}; rounded"
        yield Hypothesis("precision", sentence, rounded, ("precision of inputs", dtype))
        sentence = f"{place.maker} is computed in float32, the reference in {dtype}; rounded"
        yield Hypothesis("precision", sentence, (*rounded, *edits), ("precision of both", dtype))


def _cast(value: str, to: int) -> Pass:
    return Insert(value, "Cast", attributes=(("to", to),), before=True)


def _operand(place: Place, name: str, dtype: str, number: int) -> Iterator[Pass]:
    """Yield two casts before the region's readers of a value."""
    array = place.operand(name)
    readers = place.readers(name)
    if array is None or array.dtype.name != "float32" or not readers:
        return
    to, half = place.those(readers), f"{name}_{dtype}"
    yield Insert(name, "Cast", attributes=(("to", number),), to=to, output=half)
    yield Insert(half, "Cast", attributes=(("to", int(TensorProto.FLOAT)),), to=to)
