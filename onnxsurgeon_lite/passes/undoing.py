"""Write the steps that take an edit back: they are read off the two models, and tried."""

from collections.abc import Iterable, Iterator, Sequence
from string import ascii_uppercase

from onnx import AttributeProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.errors import EditError, SurgeonError
from onnxsurgeon_lite.graph.index import MAIN, Body, GraphIndex, function_path
from onnxsurgeon_lite.graph.schemas import constant_of
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.model import is_external
from onnxsurgeon_lite.passes.clean import Clean
from onnxsurgeon_lite.passes.freeze import Freeze
from onnxsurgeon_lite.passes.pipeline import Pipeline
from onnxsurgeon_lite.passes.promote import Promote
from onnxsurgeon_lite.passes.protocol import Pass
from onnxsurgeon_lite.passes.remove import Remove
from onnxsurgeon_lite.passes.rename import Rename
from onnxsurgeon_lite.passes.reorder import Reorder
from onnxsurgeon_lite.passes.rewire import Rewire
from onnxsurgeon_lite.passes.set import Set, header
from onnxsurgeon_lite.passes.set_attr import SetAttr
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.passes.set_layout import SetLayout
from onnxsurgeon_lite.passes.set_op import SetOp
from onnxsurgeon_lite.passes.set_type import SetType
from onnxsurgeon_lite.surgery.border import converter
from onnxsurgeon_lite.tensors import dtypes

_TEXT = (AttributeProto.STRING, AttributeProto.STRINGS)
_NUMBERS = (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS)
_PLAIN = (*_TEXT, *_NUMBERS)


def undoing(before: Model, after: Model) -> list[Pass]:
    """Return the steps that make the model before an edit out of the one after it.

    Raises:
        EditError: these verbs do not make it, to the last byte; numbers may lie in another place.
    """
    steps: list[Pass] = []
    current = after
    try:
        for read in (
            _converted,
            _added,
            _turned,
            _operators,
            _renamed,
            _rewired,
            _numbers,
            _ordered,
            _headed,
        ):
            found = tuple(read(GraphIndex.of(before), GraphIndex.of(current)))
            if found:
                steps += found
                current = Pipeline(found).apply(current).model
    except SurgeonError:
        current = after
    if not _is_same(before, current):
        raise EditError(
            "no recipe gives back the model that was edited, as it was: no verb makes what this edit removed",
            "leave out --undo, and keep that model",
        )
    return steps


def _is_same(before: Model, current: Model) -> bool:
    """Return whether models are equal, but for numbers that were in a data file and are in the model now."""
    moved = current.copy()
    both = zip(before.proto.graph.initializer, moved.proto.graph.initializer, strict=False)
    for old, new in both:
        if is_external(old) and not is_external(new) and before.raw(old) == current.raw(new):
            new.ClearField("raw_data")
            new.external_data.extend(old.external_data)
            new.data_location = old.data_location
    return bool(moved.proto == before.proto)


def _bodies(before: GraphIndex, after: GraphIndex) -> Iterator[tuple[Body, Body]]:
    """Yield (graph before, graph after), bodies and functions included."""
    sides = ((Body(MAIN, index.nodes), *index.inner_bodies) for index in (before, after))
    yield from zip(*sides, strict=False)


def _pairs(
    before: GraphIndex, after: GraphIndex
) -> Iterator[tuple[Body, int, NodeProto, NodeProto]]:
    """Yield (graph after, place, node before, node after)."""
    for one, two in _bodies(before, after):
        for place, (old, new) in enumerate(zip(one.nodes, two.nodes, strict=False)):
            yield two, place, old, new


def _name_in(body: Body, name: str) -> str:
    return f"{body.path}/{name}" if body.path else name


def _converted(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    """Inputs and outputs that have another dtype or layout."""
    types, layouts = {}, {}
    for old, new in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
        for name in old.keys() & new.keys():
            was, now = (info[name].type.tensor_type.elem_type for info in (old, new))
            if was and now and was != now:
                types[name] = dtypes.dtype_name(was)
            turned = converter(after, name, "Transpose")
            if turned is not None and turned[1] not in before:
                layouts[name] = _layouts(after.nodes[turned[0]], name in after.inputs)
    if layouts:
        yield SetLayout(layouts)
    if types:
        yield SetType(types)


def _layouts(node: NodeProto, is_input: bool) -> str:
    """Return the layout outside of a Transpose and that inside, as `ABC->ACB`."""
    perm = next(list(a.ints) for a in node.attribute if a.name == "perm")
    start = ascii_uppercase[: len(perm)]
    end = "".join(start[axis] for axis in perm)
    return f"{start}->{end}" if is_input else f"{end}->{start}"


def _added(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    found = tuple(
        two.node_id(place) for one, two in _bodies(before, after) for place in _new(one, two)
    )
    if found:
        yield Remove(found)
    if found and after.initializers.keys() - before.initializers.keys():
        yield Clean()


def _new(before: Body, after: Body) -> Sequence[int]:
    """Return the nodes that were added: in one place, or those that make other values."""
    old, new = ([(node.op_type, node.name) for node in body.nodes] for body in (before, after))
    count = len(new) - len(old)
    pairs = enumerate(zip(old, new, strict=False))
    start = next((place for place, (one, two) in pairs if one != two), len(old))
    if count <= 0 or old[start:] == new[start + count :]:
        return range(start, start + max(count, 0))
    made = [list(node.output) for node in before.nodes]
    return [place for place, node in enumerate(after.nodes) if list(node.output) not in made]


def _turned(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    """Inputs that were constants, and constants that were inputs."""
    was, now = before.inputs.keys(), after.inputs.keys()
    frozen = tuple(name for name in now if name not in was and name in before)
    if frozen:
        yield Freeze(tuple((name, None) for name in reversed(frozen)))
    promoted = tuple(name for name in was if name not in now and name in after)
    if promoted:
        yield Promote(promoted)


def _operators(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    for body, place, old, new in _pairs(before, after):
        where = body.node_id(place)
        if (old.op_type, old.domain) != (new.op_type, new.domain):
            domain = None if old.domain == new.domain else old.domain
            yield SetOp((where,), old.op_type, domain)
        if constant_of(old) is None:
            yield from _attributes(where, old.attribute, new.attribute)
    functions = (index.model.proto.functions for index in (before, after))
    for one, two in zip(*functions, strict=False):
        yield from _attributes(function_path(two), one.attribute_proto, two.attribute_proto)


def _attributes(
    where: str, before: Iterable[AttributeProto], after: Iterable[AttributeProto]
) -> Iterator[Pass]:
    had, has = ({attribute.name: attribute for attribute in some} for some in (before, after))
    changed = [a for name, a in had.items() if a != has.get(name) and a.type in _PLAIN]
    gone = tuple(name for name in has if name not in had)
    if changed or gone:
        yield SetAttr((where,), tuple((a.name, _value(a)) for a in changed), gone)


def _value(attribute: AttributeProto) -> "int | float | str | list[int] | list[float] | list[str]":
    value = helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.STRING:
        return str(value.decode())
    return (
        [v.decode() if isinstance(v, bytes) else v for v in value]
        if isinstance(value, list)
        else value
    )


def _renamed(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    names: dict[str, str] = {}
    for body, place, old, new in _pairs(before, after):
        changed = zip(new.output, old.output, strict=False)
        names.update((_name_in(body, name), was) for name, was in changed if name != was)
        if old.name != new.name:
            yield Set((("name", old.name),), body.node_id(place))
    for kind in ("inputs", "initializers"):
        both = zip(getattr(after, kind), getattr(before, kind), strict=False)
        names.update((name, was) for name, was in both if name != was)
    if names:
        yield Rename(tuple(names.items()))


def _rewired(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    for body, place, old, new in _pairs(before, after):
        for slot, (was, now) in enumerate(zip(old.input, new.input, strict=False)):
            if was != now:
                yield Rewire(_name_in(body, now), _name_in(body, was), (body.node_id(place),), slot)


def _numbers(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    for name, held in before.initializers.items():
        if isinstance(held, TensorProto) and after.initializers.get(name, held) != held:
            yield SetConstant(name, before.model.array(held))
    for body, _, old, new in _pairs(before, after):
        tensor = constant_of(old)
        if tensor is not None and old.attribute != new.attribute:
            yield SetConstant(_name_in(body, old.output[0]), before.model.array(tensor))


def _ordered(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    was, now = ([list(index.inputs), list(index.outputs)] for index in (before, after))
    if was != now and list(map(sorted, was)) == list(map(sorted, now)):
        yield Reorder(
            *(tuple(old) if old != new else () for old, new in zip(was, now, strict=True))
        )


def _headed(before: GraphIndex, after: GraphIndex) -> Iterator[Pass]:
    was, now = (header(index.model.proto) for index in (before, after))
    changed = {name: was.get(name, "") for name in {**was, **now} if was.get(name) != now.get(name)}
    if changed:
        yield Set(tuple(changed.items()))
