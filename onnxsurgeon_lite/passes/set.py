"""Set header fields of a model, a node or a function."""

from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import ClassVar

from onnx import FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto

from onnxsurgeon_lite.errors import EditError, UnknownNameError, require_known
from onnxsurgeon_lite.graph import FUNCTION_PATH, GraphIndex, described, function_path
from onnxsurgeon_lite.graph.check import problem_of
from onnxsurgeon_lite.model import Model, drop, plain_domain
from onnxsurgeon_lite.names import is_count
from onnxsurgeon_lite.passes.fix import least_ir_version
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import chosen_nodes

_Message = ModelProto | NodeProto | FunctionProto
_FIELDS: dict[type, tuple[str, ...]] = {
    ModelProto: (
        "ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string", "graph.name",
        "graph.doc_string",
    ),
    NodeProto: ("name", "doc_string", "overload"),
    FunctionProto: ("doc_string",),
}  # fmt: skip
_METADATA = ("metadata.", "metadata_props.")
_GRAPH = "graph."
_OPSET = "opset_import."


@dataclass(frozen=True)
class Set:
    """Set fields of the header by ONNX's own names, of the model, or of a node or function.

    `metadata.KEY` is an entry of the metadata, `opset_import.DOMAIN` the version of a domain, `graph.name` a field of
    the main graph. An empty value removes a field, an entry or an import. Nodes do not change: `opset` converts them.

    Attributes:
        fields: field -> value.
        target: nodes (name, id, `op:Conv[2]`) or a function (`fn:domain::name`); the model by default.

    Example:
        >>> osl.set("whole_model.onnx", {"producer_name": "me", "metadata.author": "Ada"}).changes
        ("producer_name = 'make_fixtures' -> 'me'", "metadata.author = 'Ada'")
    """

    fields: tuple[tuple[str, str | int], ...]
    target: str = ""
    name: ClassVar[str] = "set"

    def apply(self, model: Model) -> PassResult:
        """Set them.

        Raises:
            UnknownNameError: no such field, node or function.
            EditError: a value is not a number where one is needed.
        """
        result = model.copy()
        changes = []
        for what, message in _messages(result, self.target).items():
            for name, value in self.fields:
                changes += [f"{what}{change}" for change in _set(message, name, str(value))]
        return PassResult.of(model, result, changes, _notes(model, result) if changes else ())


def header(proto: ModelProto) -> dict[str, str | int]:
    """Return the fields of a model that are set, by the names that `Set` takes."""
    # "graph.name" -> the graph, and its field "name"
    holders = {n: proto.graph if n.startswith(_GRAPH) else proto for n in _FIELDS[ModelProto]}
    fields = {name: name.removeprefix(_GRAPH) for name in holders}
    return {
        **{n: getattr(h, fields[n]) for n, h in holders.items() if h.HasField(fields[n])},
        **{f"metadata.{entry.key}": entry.value for entry in proto.metadata_props},
        **{f"graph.metadata.{entry.key}": entry.value for entry in proto.graph.metadata_props},
        **{f"{_OPSET}{one.domain}": one.version for one in proto.opset_import},
    }


def _notes(model: Model, result: Model) -> list[str]:
    """Return what the new header does to the model: nodes may not be what its versions define any more."""
    proto = result.proto
    needed = least_ir_version(result.proto)
    # two versions that a header alone cannot fit
    if proto.ir_version < needed:
        return [f"the model needs IR version {needed}, it says {proto.ir_version}"]
    # the checker runs only where a version changed, and says nothing of a model that was invalid before
    versions = [(held.ir_version, list(held.opset_import)) for held in (model.proto, proto)]
    problem = "" if versions[0] == versions[1] or problem_of(model) else problem_of(result)
    return [f"the model is not valid any more: {' '.join(problem.split())}"] if problem else []


def _messages(result: Model, target: str) -> dict[str, _Message]:
    """Return what the fields belong to, with the text that names it."""
    if not target:
        return {"": result.proto}
    # a function itself, not a node in it
    if target.startswith(FUNCTION_PATH) and "/@" not in target:
        functions = {function_path(function): function for function in result.proto.functions}
        require_known([target], functions, "the model", "function")
        return {f"{target}: ": functions[target]}
    nodes = chosen_nodes(GraphIndex.of(result), [target])
    return {f"{described(node, node_id)}: ": node for node_id, node in nodes.items()}


def _set(message: _Message, name: str, value: str) -> list[str]:
    """Set one field; return what changed."""
    holder = (
        message.graph if name.startswith(_GRAPH) and isinstance(message, ModelProto) else message
    )
    field = name.removeprefix(_GRAPH) if holder is not message else name
    # "metadata.author" -> "author"
    key = next((field.removeprefix(p) for p in _METADATA if field.startswith(p)), None)
    if key:
        return _set_entry(holder.metadata_props, key, name, value)
    if field.startswith(_OPSET) and not isinstance(message, NodeProto):
        return _set_opset(message.opset_import, field.removeprefix(_OPSET), value)
    if name not in _FIELDS[type(message)]:
        # what can be set of such a message, for the hint
        known = [*_FIELDS[type(message)], "metadata.KEY"]
        known += [] if isinstance(message, NodeProto) else ["opset_import.DOMAIN"]
        raise UnknownNameError(name, f"a {type(message).__name__}", known, kind="field")
    before = getattr(holder, field)
    had = holder.HasField(field)
    if value:
        setattr(holder, field, _number(name, value) if isinstance(before, int) else value)
    else:
        # an empty value removes the field
        holder.ClearField(field)
    return _change(name, before if had else None, getattr(holder, field) if value else None)


def _set_entry(
    entries: MutableSequence[StringStringEntryProto], key: str, name: str, value: str
) -> list[str]:
    entry = next((entry for entry in entries if entry.key == key), None)
    before = None if entry is None else entry.value
    if not value:
        drop(entries, lambda entry: entry.key == key)
    elif entry is None:
        entries.append(StringStringEntryProto(key=key, value=value))
    else:
        entry.value = value
    return _change(name, before, value or None)


def _set_opset(imports: MutableSequence[OperatorSetIdProto], domain: str, value: str) -> list[str]:
    # both names of ONNX's own domain
    same = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    found = next((one for one in imports if one.domain in same), None)
    before = None if found is None else found.version
    version = _number(f"{_OPSET}{domain}", value) if value else 0
    if not value:
        drop(imports, lambda one: one.domain in same)
    elif found is None:
        imports.append(OperatorSetIdProto(domain=plain_domain(domain), version=version))
    else:
        found.version = version
    return _change(f"{_OPSET}{domain}", before, version or None)


def _number(name: str, value: str) -> int:
    if not is_count(value):
        raise EditError(f"{name} is a number, {value!r} is not", f"write {name}=3")
    return int(value)


def _change(name: str, before: str | int | None, after: str | int | None) -> list[str]:
    if before == after:
        return []
    if after is None:
        return [f"{name} removed, it was {before!r}"]
    return [f"{name} = {after!r}" if before is None else f"{name} = {before!r} -> {after!r}"]
