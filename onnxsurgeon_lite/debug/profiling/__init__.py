"""What every node, operator and module of a model costs: time, arithmetic, bytes, memory."""

from onnxsurgeon_lite.debug.profiling.profile import profile
from onnxsurgeon_lite.debug.profiling.result import (
    Cost,
    HeldTensor,
    Profile,
    ProfileComparison,
    ProfiledNode,
    TimeChange,
)

__all__ = [
    "TimeChange",
    "Cost",
    "HeldTensor",
    "Profile",
    "ProfileComparison",
    "ProfiledNode",
    "profile",
]
