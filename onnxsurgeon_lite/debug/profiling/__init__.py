"""What every node, operator and module of a model costs: time, arithmetic, bytes, memory."""

from onnxsurgeon_lite.debug.profiling.profile import profile
from onnxsurgeon_lite.debug.profiling.result import (
    Change,
    Cost,
    Held,
    Profile,
    ProfileComparison,
    ProfiledNode,
)

__all__ = ["Change", "Cost", "Held", "Profile", "ProfileComparison", "ProfiledNode", "profile"]
