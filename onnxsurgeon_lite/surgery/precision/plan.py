"""Decide which values of a model become narrow: in its graph, in bodies and in functions.

A *site* is a float32 value. What makes it decides its dtype; each reader says which dtype it reads.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from onnx import FunctionProto, GraphProto, NodeProto, TensorProto

from onnxsurgeon_lite.errors import EditError, GraphError, UsageError
from onnxsurgeon_lite.graph import (
    FUNCTION,
    GraphIndex,
    InnerGraph,
    checked,
    constant_of,
    function_of,
    function_path,
    node_id,
    opset_versions,
    variable_at,
)
from onnxsurgeon_lite.graph.selecting.select import select_nodes, split_names
from onnxsurgeon_lite.model import FunctionKey, Model, function_key, is_standard, walk
from onnxsurgeon_lite.surgery.precision.operators import (
    Schema,
    can,
    has_sequences,
    not_at,
    schema_at,
)
from onnxsurgeon_lite.surgery.precision.sites import EXACT, PrecisionScope, PrecisionStep, Site

_QUANTIZING = frozenset((
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
    "MatMulInteger",
))  # fmt: skip
_WIDE = {
    "BitCast": "BitCast reads bits",
    "MeanVarianceNormalization": "ONNX defines it by constants in float32",
}
_NESTED = frozenset(("If", "Loop", "Scan"))
_CHOOSING = frozenset(("Cast", "ConstantOfShape"))
"""Operators that choose the dtype of their output by an attribute."""
_LIKE = frozenset((
    "Bernoulli", "EyeLike", "LinearAttention", "OptionalGetElement", "RandomNormalLike", "RandomUniformLike",
))  # fmt: skip
"""Operators whose output has the dtype of their input, unless an attribute chooses one."""


_CHOICES = ("to", "dtype")


class Plan:
    """Which values of a model become narrow.

    Attributes:
        main: the scope of the main graph. functions: those of functions, by key.
        notes: what stays wide although nobody asked for it.
    """

    def __init__(self, model: Model, data_type: int, kept: Collection[str], io: bool) -> None:
        self.model = model
        self.narrow = data_type
        self.kept = frozenset(kept)
        self.io = io
        self.functions = dict[FunctionKey, PrecisionScope]()
        # function -> its calls: each node with the dtypes of its inputs and what its attributes choose
        self._calls = dict[FunctionKey, list[tuple[PrecisionStep, tuple[int, ...]]]]()
        self.main = self._scope("", GraphIndex.of(model), model.proto.graph, None)
        self._decide()

    def scopes(self) -> Iterator[PrecisionScope]:
        """Yield all scopes, outer ones first."""
        pending = [self.main] + list(self.functions.values())
        while pending:
            scope = pending.pop(0)
            yield scope
            pending += chain.from_iterable(step.bodies for step in scope.steps)

    def steps(self) -> list[PrecisionStep]:
        """Return all nodes."""
        return list(chain.from_iterable(scope.steps for scope in self.scopes()))

    # First collect scopes, nodes and values; the second half of the class decides.
    # what there is

    def _scope(
        self,
        path: str,
        index: GraphIndex,
        target: GraphProto | FunctionProto,
        outer: PrecisionScope | None,
    ) -> PrecisionScope:
        scope = PrecisionScope(path, index, target, outer)
        # inference for values that the model does not declare
        index.learn_types([name for name in index.values() if name])
        self._declare(scope)
        versions = opset_versions(index.model.proto.opset_import)
        for position in index.order:
            scope.steps.append(self._step(scope, position, versions))

        # Outputs of the main graph have the dtype that the user asked for; those of bodies and functions follow their
        # node.
        for name in walk.output_names(target):
            if (site := scope.find(name)) is not None and site.scope is scope:
                site.required = self.io if outer is None and not path else None
        return scope

    def _declare(self, scope: PrecisionScope) -> None:
        target = scope.target
        if isinstance(target, FunctionProto):
            names = list(target.input)
        else:
            names = [info.name for info in target.input]
            for tensor in target.initializer:
                # an initializer that is an input, too, is a default: its dtype is the input's
                is_default = not scope.path and scope.index.is_default(tensor.name)
                if tensor.data_type == TensorProto.FLOAT and not is_default:
                    scope.sites[tensor.name] = Site(tensor.name, scope, constant=tensor)
            names += [sparse.values.name for sparse in target.sparse_initializer]
        # inputs become narrow only with --io; the inputs of bodies are decided later
        for name in names:
            if name not in scope.sites and scope.index.element_of(name) == TensorProto.FLOAT:
                scope.sites[name] = Site(name, scope, is_narrow=self.io)

    def _step(
        self, scope: PrecisionScope, position: int, versions: dict[str, int]
    ) -> PrecisionStep:
        node = scope.target.node[position]
        index = scope.index
        step = PrecisionStep(node_id(scope.path, position), node, schema_at(node, versions))
        step.inputs = [scope.find(name) if name else None for name in node.input]
        for name in node.output:
            made = (
                Site(name, scope, step)
                if name and index.element_of(name) == TensorProto.FLOAT
                else None
            )
            if made is not None and scope.sites.setdefault(name, made) is not made:
                # the same site, where two nodes make one name, would be decided twice
                raise GraphError(
                    f"{step.id} makes {name!r}, which is made already",
                    "repair it: onnxdbg edit fix MODEL",
                )
            step.outputs.append(made)
        for slot, site in enumerate(step.inputs):
            if site is not None:
                site.readers.append((step, slot))
        step.takes = [can(step.schema, slot, True, self.narrow) for slot in range(len(node.input))]
        step.makes = [
            can(step.schema, slot, False, self.narrow) for slot in range(len(node.output))
        ]
        # a body can capture the values around it, so it is read within its node
        for name, body in walk.bodies(node):
            _type_inputs(index, node, body)
            inner = InnerGraph.of(index, position, name).index
            step.bodies.append(self._scope(f"{step.id}/{name}", inner, body, scope))
        function = function_of(index, node)
        if function is not None:  # a call: its function decides
            self._call(step, index, position, function)
        else:
            step.kind, step.why = self._kind(step, scope)
        return step

    def _call(
        self, step: PrecisionStep, index: GraphIndex, position: int, function: FunctionProto
    ) -> None:
        key = function_key(function)
        # Attributes of the function's nodes that the call fills in, where they choose a dtype.
        choices = {
            a.ref_attr_name for n in function.node for a in n.attribute if a.name in _CHOICES
        }
        types = tuple(index.element_of(name) if name else 0 for name in step.node.input)
        types += tuple(a.i for a in step.node.attribute if a.name in choices)
        if key not in self.functions:  # all calls share one function, read at the first
            inner = InnerGraph.of(index, position, FUNCTION).index
            target = next(f for f in self.model.proto.functions if function_key(f) == key)
            self.functions[key] = self._scope(function_path(function), inner, target, None)
        self._calls.setdefault(key, []).append((step, types))
        step.kind = "call"
        step.takes = [True] * len(step.node.input)  # decided together with the function
        step.makes = [True] * len(step.node.output)

    def _kind(self, step: PrecisionStep, scope: PrecisionScope) -> tuple[str, str]:
        floats = [site for site in step.inputs + step.outputs if site is not None]
        if not floats and not step.bodies:
            return "none", ""  # it touches no float32
        if step.node.op_type == "Constant" and is_standard(step.node):
            return self._constant(step)
        if step.id in self.kept:
            return "wide", "kept"
        if step.schema is None:
            return "wide", f"ONNX does not know {step.node.domain}:{step.node.op_type}"
        why = self._obstacle(step, step.schema, scope)
        if why:
            return "wide", why
        if step.node.op_type in _CHOOSING:  # it makes the dtype that its attribute says
            return ("narrow" if step.outputs[0] is not None else "none"), ""
        if not step.bodies:
            _bind(step, step.schema)
        # control flow and operators that only move numbers fit either dtype
        return ("free" if step.bodies or step.node.op_type in EXACT else "narrow"), ""

    def _obstacle(self, step: PrecisionStep, schema: Schema, scope: PrecisionScope) -> str:
        """Return why a node cannot be narrow; '' if it can."""
        node = step.node
        if node.op_type in _NESTED:
            return "" if _slots_fit(step) else f"{node.op_type} at this opset"
        if step.bodies or any(
            a.t.data_type == TensorProto.FLOAT
            for a in node.attribute
            if node.op_type not in _CHOOSING
        ):
            return "it has float32 in attributes"
        if node.op_type in _QUANTIZING:
            return "a quantizer"
        if node.op_type in _WIDE:
            return _WIDE[node.op_type]
        if has_sequences(schema):
            return "a sequence"
        if node.op_type in _CHOOSING:  # the call of a function gives the attribute
            return "its dtype is the call's" if walk.has_references(node) else ""
        if self._has_unknown(step, scope):
            return "the dtype of an input is not known"
        # one narrow input is enough
        if any(takes and site for takes, site in zip(step.takes, step.inputs, strict=True)):
            return ""
        return not_at(schema, self.narrow)

    def _constant(self, step: PrecisionStep) -> tuple[str, str]:
        """Take a Constant node as an initializer."""
        # a constant is no node to decide: its readers say in which dtypes it is needed
        tensor = constant_of(step.node)
        site = step.outputs[0]
        if tensor is None or site is None or walk.has_references(step.node):
            return "wide", "its numbers are the call's"
        site.constant = tensor
        return "none", ""

    def _has_unknown(self, step: PrecisionStep, scope: PrecisionScope) -> bool:
        """Return whether an input that must have the dtype of others has one that nobody knows."""
        return any(
            # no float32 site, and no other known dtype either
            name and takes and site is None and not scope.index.element_of(name)
            for name, takes, site in zip(step.node.input, step.takes, step.inputs, strict=True)
        )

    # what becomes of it

    def _decide(self) -> None:
        for key, scope in reversed(self.functions.items()):  # those that call before those called
            self._decide_function(key, scope)
        steps = self._ordered()
        _mark_integer_paths(steps)
        self._decide_free(steps)
        for step in steps:
            # What makes a value decides in which dtype it is made,
            for slot, made in enumerate(step.outputs):
                if made is not None:
                    made.is_narrow = step.is_narrow and step.makes[slot]
            for state in step.entering:  # and the inputs of its bodies follow their node
                state.is_narrow = step.is_narrow
        # each reader says which dtype it reads: where both are needed, `rewrite` adds a Cast
        for step in steps:
            for slot, site in enumerate(step.inputs):
                if site is not None:
                    site.read.add(step.wants(slot))

    def _decide_free(self, steps: Sequence[PrecisionStep]) -> None:
        """Let what only moves numbers go with its neighbors: float32 between those in float32."""
        # Forwards: is everything that it moves in float32? Backwards: does anybody need float32 of it?
        is_wide = dict[PrecisionStep, bool]()
        for step in steps:
            made_wide = (
                is_wide.get(site.maker, False) if site.maker else not site.is_narrow
                for site in self._sources(step)
                if site.constant is None
            )
            is_wide[step] = step.kind == "wide" or (step.kind == "free" and all(made_wide))
        for step in reversed(steps):
            if step.kind == "free":
                sites = filter(None, chain(step.outputs, step.entering))
                # A node becomes wide only between wide neighbors: one wide side alone costs one Cast either way.
                users = list(chain.from_iterable(map(self._users, sites)))
                # nothing reads it in either dtype, and it does move a value
                unread = not users and any(s.constant is None for s in self._sources(step))
                step.kind = "wide" if is_wide[step] and (True in users or unread) else "narrow"
            for body in step.bodies:
                for result in _outputs(body):
                    result.required = step.is_narrow

    def _decide_function(self, key: FunctionKey, scope: PrecisionScope) -> None:
        # All calls share one function: it can be narrow only if all of them want that, with the same dtypes.
        calls = self._calls[key]
        same = len({types for _, types in calls}) == 1
        is_narrow = same and not any(s.id in self.kept or s.kind == "wide" for s, _ in calls)
        for step, _ in calls:
            touches = any(step.inputs + step.outputs)
            step.kind = "none" if not touches else "narrow" if is_narrow else "wide"
            step.why = "" if is_narrow else "its calls differ"
        for step in scope.steps if not is_narrow else ():
            step.kind = "wide" if step.kind != "none" else "none"
        for site in scope.sites.values():
            if site.maker is None and site.constant is None:  # an input of the function
                site.is_narrow = is_narrow
        target = scope.target
        for name in target.output:
            if (result := scope.sites.get(str(name))) is not None:
                result.required = is_narrow

    def _ordered(self) -> list[PrecisionStep]:
        """Return the steps, those of bodies before their node."""

        def visit(scope: PrecisionScope) -> Iterator[PrecisionStep]:
            for step in scope.steps:
                yield from chain.from_iterable(map(visit, step.bodies))
                yield step

        return list(chain.from_iterable(map(visit, chain([self.main], self.functions.values()))))

    def _sources(self, step: PrecisionStep) -> list[Site]:
        """Return what a node that only moves numbers moves: its inputs, and the results of its bodies."""
        inner = list(chain.from_iterable(map(_outputs, step.bodies)))
        return [site for site in step.inputs + inner if site is not None]

    def _users(self, site: Site) -> list[bool]:
        """Return of each reader whether it reads the value in float32."""
        found = [
            not (reader.is_narrow and reader.takes[slot])
            for reader, slot in site.readers
            # a Cast reads either dtype at no cost
            if reader.kind != "none" and reader.node.op_type != "Cast"
        ]
        return found if site.required is None else found + [not site.required]


def _bind(step: PrecisionStep, schema: Schema) -> None:
    """Let an output be narrow only if a narrow input gives it its dtype."""
    # A type parameter is bound by a narrow input: T of `Add (T, T) -> T`. An output whose parameter no such input
    # binds keeps its dtype.
    bound = {
        variable_at(schema.inputs, slot)
        for slot, site in enumerate(step.inputs)
        if site is not None and step.takes[slot]
    }
    follows = step.node.op_type in _LIKE and all(a.name != "dtype" for a in step.node.attribute)
    step.makes = [
        makes and (follows or variable_at(schema.outputs, slot) in bound)
        for slot, makes in enumerate(step.makes)
    ]


def _outputs(body: PrecisionScope) -> list[Site]:
    return list(filter(None, map(body.find, walk.output_names(body.target))))


def _mark_integer_paths(steps: list[PrecisionStep]) -> None:
    """Leave float32 between integers alone: what is computed from sizes or positions, to become integers again."""
    # Forwards: nodes whose floats all come from integers by a Cast. Backwards: those that only become integers again.
    from_integers = set[PrecisionStep]()
    for step in steps:
        makers = [site.maker for site in step.inputs if site is not None and site.constant is None]
        starts = step.node.op_type == "Cast" and not makers and step.outputs[0] is not None
        if starts or (makers and all(maker in from_integers for maker in makers)):
            from_integers.add(step)
    for step in reversed(steps):
        made = [site for site in step.outputs if site is not None]
        if step in from_integers and made and all(map(_becomes_integer, made)):
            step.kind, step.why = "wide", "between integers"


def _becomes_integer(site: Site) -> bool:
    if site.required is not None or not site.readers:
        return False
    return all(
        # a Cast to integers, a node of such a path, or an input that takes float32 only
        (reader.node.op_type == "Cast" and reader.outputs[0] is None)
        or reader.why == "between integers"
        or (reader.schema is not None and not reader.takes[slot])
        for reader, slot in site.readers
    )


def _type_inputs(index: GraphIndex, node: NodeProto, body: GraphProto) -> None:
    """Declare the dtypes of the inputs of a Loop's or a Scan's body that leaves them out."""
    first = 2 if node.op_type == "Loop" else 0  # a Loop's count and condition are no states
    for value, name in zip(body.input[first:], node.input[first:], strict=False):
        kind = 0 if value.type.WhichOneof("value") else index.element_of(name)
        if kind > 0:
            value.type.tensor_type.elem_type = kind


def _slots_fit(step: PrecisionStep) -> bool:
    """Return whether inputs and outputs of the node are those of its bodies, one by one."""
    # those of float32
    can = [t for t, s in zip(step.takes + step.makes, step.inputs + step.outputs, strict=True) if s]
    # a Scan of opset 8 has one input more than its body
    is_scan = step.node.op_type == "Scan"
    return all(can) and not (is_scan and len(step.node.input) != len(step.bodies[0].target.input))


NARROW = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def plan_of(model: Model, to: str, keep: Sequence[str], io: bool) -> Plan:
    """Return which values of a model become narrow.

    Args:
        keep: nodes that stay in float32, with all of their bodies; an id may name a node inside (`@3/body/@5`).
        io: inputs and outputs become narrow, too.

    Raises:
        UsageError: there is no such dtype to convert to.
        UnknownNameError: there is no such node to keep.
        EditError: a node lacks what its operator takes, or the model has no float32.
    """
    if to not in NARROW:
        raise UsageError(f"there is no conversion to {to!r}", f"it can be {', '.join(NARROW)}")
    checked(model)
    plan = Plan(model, NARROW[to], kept_ids(model, keep), io)
    if not any(scope.sites for scope in plan.scopes()):
        raise EditError(
            "the model has no float32 to convert", "onnxdbg inspect MODEL shows what it has"
        )
    return plan


def kept_ids(model: Model, keep: Sequence[str]) -> set[str]:
    """Return the ids of nodes to keep, of those in their bodies, too."""
    index = GraphIndex.of(model)
    # Ids of nodes in bodies: `@3/body/@5`.
    inner = (
        {b.node_id(p) for b in index.inner_bodies for p, _ in enumerate(b.nodes)} if keep else set()
    )
    found = set[str]()
    for argument in split_names(index, keep):
        chosen = (
            [argument] if argument in inner else [f"@{p}" for p in select_nodes(index, argument)]
        )
        found.update(chosen)
        # everything inside of a chosen node, too
        found.update(node for node in inner for top in chosen if node.startswith(f"{top}/"))
    return found
