"""Convert a model to another ONNX opset version."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from onnx import ModelProto, defs, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, first_version, opset_versions, require_schemas
from onnxsurgeon_lite.graph.check import problem_of
from onnxsurgeon_lite.model import Model, is_standard, walk
from onnxsurgeon_lite.passes.protocol import PassResult, Pipeline
from onnxsurgeon_lite.surgery import name_apart, node_names
from onnxsurgeon_lite.surgery.conversion import (
    ALONG_AXIS,
    NoAdapterError,
    convert_graph,
    means_the_same,
    move_functions,
    own_nodes,
    redefined,
    without_allowzero,
)
from onnxsurgeon_lite.surgery.expansion import expand

_INSTEAD = {"Shape": "a Slice", "Split": "one of given sizes"}
_ALLOWZERO = 14  # the first opset whose Reshape has it


@dataclass(frozen=True)
class Opset:
    """Convert the main graph and its bodies to another opset version of the ONNX domain, with the official converter.

    Nodes that the converter does not change keep their bytes; changed nodes keep documentation and metadata.
    Functions with nodes that the new version redefines import it; they must mean the same. On the way down, an operator
    that the version does not have is replaced by the function that its schema defines. Where the converter knows no way
    and both versions take a node as it is, it stays. Where the version defines a node anew, both models are run.

    Attributes:
        version: the opset version to convert to.

    Example:
        >>> osl.opset("whole_model.onnx", 21).changes
        ('opset 17 -> 21: 0 nodes changed',)
    """

    version: int
    name: ClassVar[str] = "opset"

    def apply(self, model: Model) -> PassResult:
        """Convert.

        Raises:
            EditError: the conversion fails, or the version does not exist.
        """
        require_schemas(GraphIndex.of(model))
        old = opset_versions(model.proto.opset_import).get("", 0)
        # no import of ONNX's own operators, or nothing to do
        if old in (0, self.version):
            return PassResult(model, changed=False)
        if not 1 <= self.version <= defs.onnx_opset_version():
            raise EditError(
                f"opset {self.version} does not exist",
                f"versions are 1 to {defs.onnx_opset_version()}",
            )
        source, expanded, computed = self._prepared(model, old)
        notes = [
            f"{computed} Reshape lose allowzero: no size in their computed shapes may be 0"
        ] * bool(computed)
        touched = self._touched(source.proto, old)
        # runtimes take operators before they are ONNX's: no version says anything of these
        kept = {n.op_type for n in own_nodes(source.proto) if first_version(n.op_type) > old}
        try:
            result, changed = self._converted(source, old, kept, expanded)
        except NoAdapterError as error:
            # an adapter for one step is missing: convert to the version before it, then go on from there
            if not self.version < error.version < old:
                raise
            return Pipeline((Opset(error.version), self)).apply(model)
        notes += self._set_versions(result.proto)
        moved = move_functions(result.proto, old, self.version)
        name_apart(walk.graphs(result.proto), node_names(model.proto))
        if touched:
            self._require_valid(model, result)
        changes = [
            f"replaced {count} {operator} by {_INSTEAD.get(operator, 'the function of its schema')}"
            for operator, count in expanded.items()
        ]
        changes.append(f"opset {old} -> {self.version}: {changed} nodes changed")
        changes += [f"{path} imports opset {self.version}" for path in moved]
        # where what the versions define differently agrees, all that reads it does, too
        others = expanded or computed or moved
        return replace(
            PassResult.of(model, result, changes, notes),
            unproved=bool(touched or others),
            decisive=() if others else touched,
        )

    def _prepared(self, model: Model, old: int) -> tuple[Model, Counter[str], int]:
        """Take apart what the version lacks or means otherwise, as the converter does not.

        Returns:
            The model, the operators that were replaced, and how many Reshape with a computed shape lost `allowzero`.
        """
        # operators that came after the new version, and Softmax, which before 13 flattens its input around the axis
        source, expanded = self._expanded(
            model,
            old,
            lambda operator: (
                self.version < ALONG_AXIS.get(operator, first_version(operator)) <= old
            ),
        )
        loses = self.version < _ALLOWZERO <= old
        source, computed = without_allowzero(source) if loses else (source, 0)
        return source, expanded, computed

    def _set_versions(self, proto: ModelProto) -> Iterator[str]:
        """Import the version, and set the IR version that it needs; yield a note on that."""
        for imported in proto.opset_import:
            if is_standard(imported):
                imported.version = self.version
        needed = helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
        if proto.ir_version < needed:
            yield f"IR version {proto.ir_version} -> {needed}, which the opset needs"
            proto.ir_version = needed

    def _require_valid(self, model: Model, result: Model) -> None:
        """Raise `EditError` if the version does not take the types or shapes that a valid model has."""
        reason = problem_of(result, full=True)
        # what was invalid before says nothing about the conversion
        if reason and not problem_of(model, full=True):
            raise EditError(
                f"opset {self.version} does not take what the model has: {reason.splitlines()[0]}",
                "stay at the opset, or convert in smaller steps: the error of the first that fails says more",
            )

    def _converted(
        self, source: Model, old: int, kept: set[str], expanded: Counter[str]
    ) -> tuple[Model, int]:
        """Convert, and note which operators had to stay as they are or be replaced by functions."""
        result = source.copy()
        if not self._touched(source.proto, old):
            return result, 0
        try:
            return result, convert_graph(source, result, old, self.version, kept)
        except NoAdapterError as error:
            operator = error.operator
            # no adapter: the node stays if both versions define it alike, else its function replaces it
            if operator not in kept and means_the_same(source, operator, old, self.version):
                kept.add(operator)
            else:
                source, more = self._expanded(source, old, operator.__eq__)
                if not more:
                    raise
                expanded += more
        return self._converted(source, old, kept, expanded)

    def _expanded(
        self, model: Model, old: int, wanted: Callable[[str], bool]
    ) -> tuple[Model, Counter[str]]:
        """Replace operators by their functions, and also those that these call."""
        total: Counter[str] = Counter()
        # only on the way down; a function may call another operator to be replaced
        while self.version < old:
            model, count = expand(model, wanted)
            if not count:
                break
            total += count
        return model, total

    def _touched(self, proto: ModelProto, old: int) -> tuple[str, ...]:
        """Return what operators make that the versions define differently."""
        found = (
            node
            for node in own_nodes(proto)
            if redefined(node.domain, node.op_type, old, self.version)
        )
        return tuple(walk.outputs(found))


def not_run(converted: PassResult) -> tuple[str, ...]:
    """Return a note on a conversion that another edit needs, if only a run can tell that it holds."""
    note = "the conversion was not run; onnxdbg edit opset, used before this, proves it"
    return (note,) * converted.unproved
