"""A converted model as hardware computes it: in float32, with each narrow value rounded once."""

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.graph.index import opset_versions
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.surgery.edits import fresh
from onnxsurgeon_lite.surgery.precision import EXACT, Plan, Rewriting, Scope, Site, Step
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.narrow import narrowed

FLAGS = "\x01rounded"
"""The input of a switched simulation: which of its roundings happen."""


class Simulating(Rewriting):
    """Writes a plan as roundings: every value stays float32, a narrow one holds numbers of the narrow dtype.

    Args:
        clamped: constants with numbers beyond the range, as (path of the graph, name).
    """

    def __init__(self, plan: Plan, model: Model, clamped: frozenset[tuple[str, str]]) -> None:
        super().__init__(plan, model)
        self.clamped = clamped
        self.raw: dict[Site, str] = {}

    def _named(self, site: Site) -> dict[bool, str]:
        if site.is_narrow and site.constant is None:
            if self.is_rounded(site):
                self.raw[site] = fresh(f"{site.name}_wide", self.taken)
            if site.maker is None and site in self.raw:  # an input of the model
                return dict.fromkeys((True, False), self.raw.pop(site))
            return dict.fromkeys((True, False), site.name)
        if site.required:
            return {True: site.name, False: fresh(f"{site.name}_wide", self.taken)}
        return {False: site.name, True: fresh(f"{site.name}_rounded", self.taken)}

    def is_rounded(self, site: Site) -> bool:
        """Return whether what makes a narrow value rounds it; nodes that move numbers, and bodies, get rounded ones."""
        if site.maker is None:
            return site.scope is self.plan.main
        return site.maker.node.op_type not in EXACT and not site.maker.bodies

    def _drop_cast(self, step: Step, scope: Scope) -> None:
        """Leave Casts: they round."""

    def _ready(self, site: Site) -> Iterator[NodeProto]:
        names = self.names[site]
        if site.is_narrow and site.constant is None:
            if site in self.raw:
                yield from self.rounding(site, self.raw[site], site.name)
            elif site.maker is None and names[True] != site.name:
                yield from self.rounding(site, site.name, names[True])
        elif True in site.read or site.required:
            yield from self._rounded(site)

    def _rounded(self, site: Site) -> Iterator[NodeProto]:
        names = self.names[site]
        if (site.scope.path, site.name) not in self.clamped:
            yield from self.rounding(site, names[False], names[True])
            return
        assert site.constant is not None
        array = self.model.array(site.constant)
        half = narrowed(array, dtypes.numpy_dtype(self.plan.narrow)).astype(np.float32)
        yield from self.chosen(site, dtypes.from_array(half), names[False], names[True])

    def rounding(self, site: Site, name: str, result: str) -> Iterator[NodeProto]:
        """Yield nodes that round a value."""
        half = f"{result}\x01half"
        yield helper.make_node("Cast", [name], [half], to=self.plan.narrow)
        yield helper.make_node("Cast", [half], [result], to=TensorProto.FLOAT)

    def chosen(
        self, site: Site, rounded: TensorProto, name: str, result: str
    ) -> Iterator[NodeProto]:
        """Yield the node that gives a constant that was rounded already."""
        yield helper.make_node("Constant", [], [result], value=rounded)

    def _made_as(self, site: Site) -> str:
        return self.raw.get(site, self.names[site][site.is_narrow])

    def _set_dtype(self, node: NodeProto) -> None:
        """Leave it float32."""

    def _constant_node(self, step: Step, site: Site) -> None:
        """Leave it float32."""

    def _declare(self, scope: Scope) -> None:
        """Leave every declaration: no dtype changes."""


class Switched(Simulating):
    """A simulation whose roundings are switched by an input, so that one session answers for any choice of them.

    Attributes:
        units: the values with a rounding, in the order of the switches.
    """

    def __init__(self, plan: Plan, model: Model, clamped: frozenset[tuple[str, str]]) -> None:
        super().__init__(plan, model, clamped)
        self.units: list[Site] = []

    def run(self) -> None:
        super().run()
        graph = self.model.proto.graph
        count = len(self.units)
        graph.input.append(helper.make_tensor_value_info(FLAGS, TensorProto.BOOL, [count]))
        nodes = list(graph.node)
        split = self._split([_flag(number) for number in range(count)])
        del graph.node[:]
        graph.node.extend([*split, *nodes])

    def _split(self, names: list[str]) -> list[NodeProto]:
        sizes = [1] * len(names)
        if not names:
            return []
        if opset_versions(self.model.proto.opset_import).get("", 0) < 13:
            return [helper.make_node("Split", [FLAGS], names, axis=0, split=sizes)]
        constant = dtypes.from_array(np.asarray(sizes, np.int64))
        return [
            helper.make_node("Constant", [], [f"{FLAGS}\x01sizes"], value=constant),
            helper.make_node("Split", [FLAGS, f"{FLAGS}\x01sizes"], names, axis=0),
        ]

    def rounding(self, site: Site, name: str, result: str) -> Iterator[NodeProto]:
        nodes = list(super().rounding(site, name, f"{result}\x01then"))
        yield self._switch(site, nodes, name, result)

    def chosen(
        self, site: Site, rounded: TensorProto, name: str, result: str
    ) -> Iterator[NodeProto]:
        nodes = list(super().chosen(site, rounded, name, f"{result}\x01then"))
        yield self._switch(site, nodes, name, result)

    def _switch(self, site: Site, nodes: list[NodeProto], name: str, result: str) -> NodeProto:
        plain = helper.make_node("Identity", [name], [f"{result}\x01else"])
        branches = {"then_branch": _body(nodes), "else_branch": _body([plain])}
        self.units.append(site)
        return helper.make_node("If", [_flag(len(self.units) - 1)], [result], **branches)


def _flag(number: int) -> str:
    return f"{FLAGS}\x01{number}"


def _body(nodes: list[NodeProto]) -> GraphProto:
    graph = GraphProto(name="branch", node=nodes)
    result = nodes[-1].output[0]
    graph.output.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, None))
    return graph
