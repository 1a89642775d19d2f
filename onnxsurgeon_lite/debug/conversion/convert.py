"""Convert, and tell what stays in float32."""

from onnxsurgeon_lite.debug.conversion.result import Conversion, Kept
from onnxsurgeon_lite.graph.scopes import Provenances
from onnxsurgeon_lite.model import Model, embedded_size
from onnxsurgeon_lite.surgery.precision import Plan, Rewriting
from onnxsurgeon_lite.surgery.precision.losses import casts, constant_notes, left_notes
from onnxsurgeon_lite.surgery.precision.plan import plan_of


def converted(model: Model, to: str, keep: tuple[str, ...], io: bool) -> Conversion:
    """Return the model in half precision."""
    result = model.copy()
    # a plan decides for each node; the notes are about the model before it is rewritten
    plan = plan_of(result, to, keep, io)
    notes = [*constant_notes(plan, result), *left_notes(plan)]
    kept = kept_nodes(plan)
    count = sum(step.kind != "none" for step in plan.steps())
    Rewriting(plan, result).run()
    share = embedded_size(result) / embedded_size(model)
    added = casts(result) - casts(model)
    return Conversion(result, to, count, kept, added, share).with_told(notes)


def kept_nodes(plan: Plan) -> list[Kept]:
    """Return the nodes that stay in float32."""
    found = []
    for scope in plan.scopes():
        places = Provenances([step.node for step in scope.steps], {})
        for number, step in enumerate(scope.steps):
            if step.kind == "wide":
                node, why = step.node, step.why or "between others"
                found.append(Kept(step.id, node.name, node.op_type, why, str(places[number])))
    return found
