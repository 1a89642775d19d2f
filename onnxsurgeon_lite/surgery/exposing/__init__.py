"""Inner values as values of the main graph: lifted out of branches, loops and functions by an edit, and read back.

One construct at a time, from the inside out: what leaves a node is a value of the graph that the node is in. A call
gets a copy of its function with one output more. A body that runs more or less often than once gives a sequence, with
a tensor for each time that it ran: a branch one, the other branch none; a Loop appends to a further state; a Scan is
made a Loop first. Where loops hold loops or branches, a table says at which iterations the tensors were computed.
"""

from onnxsurgeon_lite.surgery.exposing.lifted import known, lift, liftable

__all__ = ["known", "lift", "liftable"]
