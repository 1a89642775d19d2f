"""Families of hypotheses, in the order in which a search tries them."""

from collections.abc import Callable, Iterable, Sequence

from onnxsurgeon_lite.debug.causes import (
    along,
    arrangement,
    attributes,
    constants,
    masks,
    newton,
    norms,
    operations,
    operators,
    other_model,
    recurrent,
    rotary,
    settings,
    solving,
    wiring,
)
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.debug.causes.trying import Bench

Family = Callable[[Place], Iterable[Hypothesis]]
Solving = Callable[[Place, Bench], Iterable[Hypothesis]]

# What the other model says comes first, then settings, nodes too many, other operators; what solves for many numbers,
# or runs a region often, comes late.
FAMILIES: Sequence[Family] = (
    other_model.settings_of_other_model,
    other_model.wiring_of_other_model,
    other_model.operator_of_other_model,
    settings.in_training,
    attributes.attributes,
    attributes.axes_that_are_read,
    constants.epsilons,
    constants.pads,
    wiring.caches_of_layers,
    operators.extra_operations,
    operators.extra_steps,
    masks.extra_masks,
    masks.inverted_flags,
    operators.other_operators,
    operations.other_activations,
    operations.usual_steps,
    settings.feeding,
    operators.other_arithmetic,
    operators.other_parts,
    constants.scalars,
    operations.missing_terms,
    masks.missing_masks,
    masks.missing_masks_of_pooling,
    masks.missing_slopes,
    masks.padded_positions,
    masks.other_masks,
    wiring.exchanged_parts,
    wiring.fused,
    rotary.rotary,
    recurrent.recurrent,
    recurrent.ends_of_directions,
    newton.solved_recurrent,
    norms.missing_together,
    wiring.exchanged_operands,
    wiring.exchanged_values,
    wiring.other_layers,
    constants.weights,
    solving.sparse_weights,
    arrangement.arrangement,
    operations.missing_transposes,
    rotary.missing_rotary,
    operations.operations,
    operations.moved,
    operations.missing_factors,
    along.missing_along,
    other_model.nodes_of_other_model,
    constants.constants,
    other_model.of_other_model,
    constants.folded,
    solving.scaled_weights,
    other_model.taken_rows,
    other_model.looked_up,
    solving.elementwise,
    norms.other_norms,
    along.other_along,
    wiring.wiring,
    arrangement.order_of_inputs,
    arrangement.rolled,
    norms.missing_norms,
    operations.other_operations,
    other_model.same_nodes_of_other_model,
)
"""Families of hypotheses, the cheapest first."""
SOLVED: Sequence[Solving] = (solving.solved_weights, solving.solved_numbers, newton.solved_small)
"""Families whose numbers are computed from the reference; tried where no known mistake fits."""

OF_A_CONSTANT: Sequence[Family] = (
    constants.scalars,
    rotary.rotary,
    constants.constants,
    solving.made_constant,
)
"""Families for a value that is a constant itself."""

WIDER: Sequence[Family] = (
    other_model.settings_of_other_model,
    other_model.wiring_of_other_model,
    attributes.attributes,
    norms.other_groups,
    operators.other_parts,
    constants.constants,
    wiring.exchanged_operands,
    arrangement.arrangement,
    operations.missing_transposes,
    arrangement.rolled,
    arrangement.order_of_inputs,
    wiring.wiring,
    wiring.exchanged_values,
)
"""Families for a region with the nodes before it that only arrange what it reads."""

TOGETHER: Sequence[Family] = (
    other_model.settings_of_other_model,
    other_model.wiring_of_other_model,
    attributes.attributes,
    wiring.exchanged_operands,
    operators.extra_operations,
    operations.other_activations,
    operations.operations,
    operations.moved,
    operations.missing_transposes,
    operations.other_operations,
    operators.extra_steps,
    wiring.wiring,
    wiring.exchanged_values,
    constants.constants,
)
"""Families for a region with several values that are wrong, and for two regions, where one reads the other."""
