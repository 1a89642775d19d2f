"""Write a plan into a model: dtypes, constants and as few Casts as it takes."""

from collections.abc import Iterable, Iterator

from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.graph import GraphIndex, opset_versions
from onnxsurgeon_lite.model import Model, assign, copied, drop, is_standard
from onnxsurgeon_lite.model.narrowed import narrow_tensor
from onnxsurgeon_lite.surgery.edits import fresh, value_names
from onnxsurgeon_lite.surgery.precision.plan import Plan
from onnxsurgeon_lite.surgery.precision.sites import PrecisionScope, PrecisionStep, Site
from onnxsurgeon_lite.tensors import dtypes

_SINCE = 13  # the first version whose Cast has every dtype
_NUMBERS = 6  # the first version whose Cast has dtypes as numbers


class Rewriting:
    """Carries out a plan, in place, on the model that the plan was made of."""

    def __init__(self, plan: Plan, model: Model) -> None:
        self.plan = plan
        self.model = model
        self.suffix = dtypes.dtype_name(plan.narrow)
        self.taken = value_names(GraphIndex.of(model))
        for function in model.proto.functions:
            self.taken.update(function.input, *(node.output for node in function.node))
        # value -> narrow or not -> its name in that dtype
        self.names = dict[Site, dict[bool, str]]()
        self.dropped = set[PrecisionStep]()

    def run(self) -> None:
        """Rewrite every scope, inner ones first."""
        scopes = list(self.plan.scopes())
        # All names first, then the Casts that can go, then the nodes: a body reads names of the graphs around it.
        for scope in scopes:
            for site in scope.sites.values():
                self.names[site] = self._named(site)
        for scope in scopes:
            for step in scope.steps:
                self._drop_cast(step, scope)
        for scope in reversed(scopes):
            self._rewrite(scope)

    # names

    def _needs(self, site: Site) -> set[bool]:
        # the dtypes that readers want, the one that the node makes, and the one that the output declares
        needs = set(site.read)
        if site.constant is None:
            needs.add(site.is_narrow)
        if site.required is not None:
            needs.add(site.required)
        return needs or {False}

    def _named(self, site: Site) -> dict[bool, str]:
        needs = self._needs(site)
        # the dtype under which it keeps its name: that of an output, else that in which it is made; an unread or wide
        # constant keeps its name as float32, one that is only read narrow keeps it narrow
        base = site.is_narrow if site.constant is None else False not in needs
        base = base if site.required is None else site.required
        found = {base: site.name}
        for other in needs - {base}:
            found[other] = fresh(f"{site.name}_{self.suffix if other else 'float'}", self.taken)
        return found

    def _drop_cast(self, step: PrecisionStep, scope: PrecisionScope) -> None:
        """Let readers of a Cast that would change nothing read its input."""
        site = step.outputs[0] if step.node.op_type == "Cast" and step.outputs else None
        # a Cast to float32 that now is one to the narrow dtype
        if site is None or not site.is_narrow or site.required is not None:
            return
        source, name = step.inputs[0], step.node.input[0]
        if source is not None and step.wants(0):  # its input exists in the narrow dtype
            self.names[site][True] = self.names[source][True]
        # its input has the narrow dtype in the model already
        elif source is None and scope.index.element_of(name) == self.plan.narrow:
            self.names[site][True] = name
        else:
            return
        self.dropped.add(step)

    # nodes

    def _rewrite(self, scope: PrecisionScope) -> None:
        target = scope.target
        nodes = list[NodeProto]()
        for site in scope.sites.values():  # what no node makes: inputs and constants
            if site.maker is None:
                nodes += self._ready(site)
        for step in scope.steps:
            self._retype(step)
            if step not in self.dropped:
                nodes.append(step.node)
            for made in filter(None, step.outputs):
                nodes += self._ready(made)
        ordered = [copied(node) for node in nodes]  # copies: the nodes are about to be deleted
        assign(target.node, ordered)
        self._import(target, ordered)
        self._declare(scope)

    def _import(self, target: GraphProto | FunctionProto, nodes: Iterable[NodeProto]) -> None:
        """Import ONNX's own domain for the first Cast of a model without it."""
        holder = target if isinstance(target, FunctionProto) else self.model.proto
        needed = any(is_standard(node) for node in nodes)
        if needed and "" not in opset_versions(holder.opset_import):
            holder.opset_import.add(domain="", version=_SINCE)

    def _ready(self, site: Site) -> Iterator[NodeProto]:
        """Yield what makes a value's other dtype, once the value is there."""
        names = self.names[site]
        if site.constant is not None and site.maker is None:  # an initializer needs no node
            self._initializer(site)
        elif len(names) == 1:
            return
        elif site.constant is not None:  # a Constant node: another one for the narrow dtype
            yield helper.make_node("Constant", [], [names[True]], value=self._narrowed(site, ""))
        else:  # a Cast to the dtype in which the value was not made
            other = not site.is_narrow
            to = self._attribute(self.plan.narrow if other else TensorProto.FLOAT)
            result = names[other]
            yield helper.make_node("Cast", [names[not other]], [result], f"{result}/Cast", to=to)

    def _attribute(self, data_type: int) -> int | str:
        """Return a dtype as a Cast has it: by name before opset 6."""
        version = opset_versions(self.model.proto.opset_import).get("", _SINCE)
        return data_type if version >= _NUMBERS else TensorProto.DataType.Name(data_type)

    def _retype(self, step: PrecisionStep) -> None:
        node = step.node
        for slot, site in enumerate(step.inputs):
            if site is not None:
                node.input[slot] = self.names[site][step.wants(slot)]
        for slot, site in enumerate(step.outputs):
            if site is not None and site.constant is None:
                node.output[slot] = self._made_as(site)
        made = step.outputs[0] if step.outputs else None
        if made is not None and made.constant is not None:
            self._constant_node(step, made)
        elif made is not None and made.is_narrow and node.op_type in ("Cast", "ConstantOfShape"):
            self._set_dtype(node)

    def _made_as(self, site: Site) -> str:
        """Return the name under which a node makes a value; a simulation makes it under another."""
        return self.names[site][site.is_narrow]

    def _set_dtype(self, node: NodeProto) -> None:
        """Make a node that chooses its dtype by an attribute choose the narrow one."""
        for attribute in node.attribute:
            if attribute.name == "to":
                to = self._attribute(self.plan.narrow)
                attribute.CopyFrom(helper.make_attribute("to", to))
            elif attribute.name == "value":
                narrow_tensor(self.model, attribute.t, self.plan.narrow)
        # its value is 0 by default, in float32
        if node.op_type == "ConstantOfShape" and not node.attribute:
            zero = helper.make_tensor("value", self.plan.narrow, [1], [0.0])
            node.attribute.append(helper.make_attribute("value", zero))

    # constants

    def _initializer(self, site: Site) -> None:
        target = site.scope.target
        names = self.names[site]
        assert isinstance(target, GraphProto)
        assert site.constant is not None
        if False not in names:  # nobody reads it in float32: the tensor itself becomes narrow
            narrow_tensor(self.model, site.constant, self.plan.narrow)
        elif True in names:
            target.initializer.append(self._narrowed(site, names[True]))

    def _constant_node(self, step: PrecisionStep, site: Site) -> None:
        names = self.names[site]
        if False not in names:
            value = helper.make_attribute("value", self._narrowed(site, ""))
            assign(step.node.attribute, [value])

    def _narrowed(self, site: Site, name: str) -> TensorProto:
        assert site.constant is not None
        tensor = copied(site.constant)
        tensor.name = name
        narrow_tensor(self.model, tensor, self.plan.narrow)
        return tensor

    # declarations

    def _declare(self, scope: PrecisionScope) -> None:
        target = scope.target
        if isinstance(target, FunctionProto):
            infos = list(target.value_info)
        else:
            infos = target.value_info[:] + target.input[:] + target.output[:]
        for info in infos:
            site = scope.find(info.name)
            # what has this name is narrow now
            if site is not None and self.names[site].get(True) == info.name:
                info.type.tensor_type.elem_type = self.plan.narrow
        gone = {
            step.outputs[0].name for step in scope.steps if step in self.dropped and step.outputs[0]
        }
        drop(target.value_info, lambda info: info.name in gone)
