"""A converted model as hardware computes it: in float32, with each narrow value rounded once."""

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.surgery import fresh
from onnxsurgeon_lite.surgery.precision import (
    EXACT,
    Plan,
    PrecisionScope,
    PrecisionStep,
    Rewriting,
    Site,
)
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import narrowed


class Simulating(Rewriting):
    """Writes a plan as roundings: every value stays float32, a narrow one holds numbers of the narrow dtype.

    Attributes:
        clamped: constants with numbers beyond the range, as (path of the graph, name).
        units: the values with a rounding.
    """

    def __init__(self, plan: Plan, model: Model, clamped: frozenset[tuple[str, str]]) -> None:
        super().__init__(plan, model)
        self.clamped = clamped
        self.raw = dict[Site, str]()
        self.units = list[Site]()

    # `names[narrow or not]` of a value in the rewritten graph. Example: narrow `h` is made as `h_wide`, and `h` is its
    # rounding; a constant `w` that is read narrow gets a second value `w_rounded`.
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

    def _drop_cast(self, step: PrecisionStep, scope: PrecisionScope) -> None:
        """Leave Casts: they round."""

    def _ready(self, site: Site) -> Iterator[NodeProto]:
        names = self.names[site]
        if site.is_narrow and site.constant is None:
            if site in self.raw:
                yield from self._rounding(site, self.raw[site], site.name)
            elif site.maker is None and names[True] != site.name:
                yield from self._rounding(site, site.name, names[True])
        elif True in site.read or site.required:
            yield from self._rounded(site)

    def _rounded(self, site: Site) -> Iterator[NodeProto]:
        names = self.names[site]
        if (site.scope.path, site.name) not in self.clamped:
            yield from self._rounding(site, names[False], names[True])
            return
        assert site.constant is not None
        self.units.append(site)
        array = self.model.array(site.constant)
        # a Cast would make Inf of numbers beyond the range, which a converter clamps
        half = narrowed(array, dtypes.numpy_dtype(self.plan.narrow)).astype(np.float32)
        yield helper.make_node("Constant", [], [names[True]], value=dtypes.from_array(half))

    def _rounding(self, site: Site, name: str, result: str) -> Iterator[NodeProto]:
        self.units.append(site)
        half = f"{result}\x01half"
        # to the narrow dtype and back: the same numbers, in float32
        yield helper.make_node("Cast", [name], [half], to=self.plan.narrow)
        yield helper.make_node("Cast", [half], [result], to=TensorProto.FLOAT)

    def _made_as(self, site: Site) -> str:
        return self.raw.get(site, self.names[site][site.is_narrow])

    def _set_dtype(self, node: NodeProto) -> None:
        """Leave it float32."""

    def _constant_node(self, step: PrecisionStep, site: Site) -> None:
        """Leave it float32."""

    def _declare(self, scope: PrecisionScope) -> None:
        """Leave every declaration: no dtype changes."""
