"""Constants of which the model that computed the references has other numbers."""

from collections.abc import Iterator
from dataclasses import replace

from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, wide
from onnxsurgeon_lite.debug.causes.solving import borrowed, described
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.tensors.dtypes import is_float


def of_other_model(place: Place) -> Iterator[Hypothesis]:
    """Yield a constant with the other model's numbers, then all those of a node together."""
    several: dict[int, list[Hypothesis]] = {}
    for number, slot, name, array in place.constants():
        right = place.changed.get(name) if slot >= 0 else None
        if right is None or right.shape != array.shape or right.dtype != array.dtype:
            continue
        how = "differs" if not is_float(array.dtype) else described(wide(array), wide(right))
        how = borrowed(place, name, array) or how
        sentence = (
            f"constant {name!r} of {place.title(number)} {how}; with the other model's numbers"
        )
        edit = SetConstant(name, right, (place.node(number),))
        several.setdefault(number, []).append(
            Hypothesis("other model's constant", sentence, (edit,))
        )
    for number, found in several.items():
        yield from found
        if len(found) > 1:
            edits = tuple(edit for hypothesis in found for edit in hypothesis.edits)
            sentence = f"{len(found)} constants of {place.title(number)} differ; with the other model's numbers"
            yield replace(found[0], sentence=sentence, edits=edits)
