"""Match values of two models, or of references and a model, independent of their names."""

from onnxsurgeon_lite.matching.values.mapping import (
    feeds_in_order,
    feeds_of_other,
    load_map,
    outputs_of_other,
    save_map,
)
from onnxsurgeon_lite.matching.values.pair_table import Pair
from onnxsurgeon_lite.matching.values.pairing import lost_note
from onnxsurgeon_lite.matching.values.references import (
    Alignment,
    aligned_models,
    alignment,
    needs_alignment,
)
from onnxsurgeon_lite.matching.values.run_both import set_alignment

__all__ = [
    "Alignment",
    "Pair",
    "aligned_models",
    "alignment",
    "feeds_in_order",
    "feeds_of_other",
    "load_map",
    "lost_note",
    "needs_alignment",
    "outputs_of_other",
    "save_map",
    "set_alignment",
]  # fmt: skip
