"""Expose values inside subgraphs and functions: an edit makes them values of the main graph, and a run reads them back.

One construct at a time, from the inside out: what leaves a node is a value of the graph around it. A call gets a copy
of its function with one more output. A body that does not run exactly once gives a sequence, with one tensor per run:
the branch taken gives one, the other none; a Loop appends to an additional state; a Scan becomes a Loop first. Where
loops contain loops or branches, a table records the iterations of the tensors.
"""

from onnxsurgeon_lite.surgery.exposing.edit import exposable, expose_inner, known
from onnxsurgeon_lite.surgery.exposing.reading import Exposed

__all__ = ["Exposed", "exposable", "expose_inner", "known"]
