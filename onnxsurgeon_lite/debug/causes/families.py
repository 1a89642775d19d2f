"""Families of hypotheses, in the order in which a search tries them."""

from collections.abc import Callable, Iterable, Sequence

from onnxsurgeon_lite.debug.causes.arrangement import (
    arrangement,
    order_of_inputs,
    rolled,
    rolled_values,
)
from onnxsurgeon_lite.debug.causes.attributes import attributes
from onnxsurgeon_lite.debug.causes.constants import (
    constants,
    epsilons,
    folded,
    scalars,
    sizes,
    weights,
)
from onnxsurgeon_lite.debug.causes.feeding import feeding
from onnxsurgeon_lite.debug.causes.fused import fused
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.masks import (
    extra_masks,
    inverted_flags,
    missing_masks,
    missing_slopes,
    other_masks,
)
from onnxsurgeon_lite.debug.causes.newton import solved_recurrent, solved_small
from onnxsurgeon_lite.debug.causes.norms import (
    missing_norms,
    missing_together,
    other_groups,
    other_norms,
)
from onnxsurgeon_lite.debug.causes.operations import (
    missing_factors,
    operations,
    other_operations,
    rare_operations,
)
from onnxsurgeon_lite.debug.causes.operators import (
    extra_operations,
    extra_steps,
    other_arithmetic,
    other_operators,
    other_parts,
)
from onnxsurgeon_lite.debug.causes.other_model import of_other_model
from onnxsurgeon_lite.debug.causes.parts import exchanged_parts
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.debug.causes.precision import precision
from onnxsurgeon_lite.debug.causes.recurrent import recurrent, shared_gates
from onnxsurgeon_lite.debug.causes.rotary import missing_rotary, rotary
from onnxsurgeon_lite.debug.causes.solving import (
    elementwise,
    made_constant,
    scaled_weights,
    solved_numbers,
    solved_weights,
    sparse_weights,
)
from onnxsurgeon_lite.debug.causes.tables import looked_up, taken_rows
from onnxsurgeon_lite.debug.causes.training import in_training
from onnxsurgeon_lite.debug.causes.trying import Bench
from onnxsurgeon_lite.debug.causes.twice import attributes_of_all, operators_of_all, twice
from onnxsurgeon_lite.debug.causes.wiring import exchanged_operands, exchanged_values, wiring

Family = Callable[[Place], Iterable[Hypothesis]]
Solving = Callable[[Place, Bench], Iterable[Hypothesis]]

FAMILIES: Sequence[Family] = (
    in_training,
    shared_gates,
    attributes,
    epsilons,
    attributes_of_all,
    extra_operations,
    extra_steps,
    extra_masks,
    inverted_flags,
    other_operators,
    other_arithmetic,
    other_parts,
    scalars,
    operators_of_all,
    missing_masks,
    missing_slopes,
    exchanged_parts,
    fused,
    rotary,
    recurrent,
    solved_recurrent,
    missing_together,
    rolled_values,
    exchanged_operands,
    exchanged_values,
    weights,
    sparse_weights,
    arrangement,
    missing_rotary,
    operations,
    missing_factors,
    constants,
    folded,
    scaled_weights,
    taken_rows,
    looked_up,
    elementwise,
    of_other_model,
    other_norms,
    wiring,
    order_of_inputs,
    rolled,
    missing_norms,
    other_masks,
    other_operations,
    precision,
    feeding,
    twice,
    rare_operations,
    sizes,
)
"""Families of hypotheses, the cheapest first."""
SOLVED: Sequence[Solving] = (solved_weights, solved_numbers, solved_small)
"""Families whose numbers are computed from the reference; tried where no known mistake fits."""

OF_A_CONSTANT: Sequence[Family] = (scalars, rotary, constants, made_constant)
"""Families for a value that is a constant itself."""

WIDER: Sequence[Family] = (
    attributes,
    other_groups,
    other_parts,
    constants,
    exchanged_operands,
    arrangement,
    rolled,
    order_of_inputs,
    wiring,
    exchanged_values,
)
"""Families for a region with the nodes before it that only arrange what it reads."""

TOGETHER: Sequence[Family] = (
    attributes,
    extra_operations,
    operations,
    extra_steps,
    wiring,
    exchanged_values,
)
"""Families for two regions, where one reads the other."""

FORKED: Sequence[Family] = (
    attributes,
    exchanged_operands,
    extra_operations,
    other_operations,
    wiring,
    exchanged_values,
    twice,
)
"""Families for a region with several values that are wrong."""
