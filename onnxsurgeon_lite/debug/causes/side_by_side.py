"""Edited copies of one model, side by side in one model: what they share is computed once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import ModelProto, NodeProto, TensorProto

from onnxsurgeon_lite.graph.table import captured
from onnxsurgeon_lite.model import copied
from onnxsurgeon_lite.surgery.edits import rename_uses

_APART = "\x02"


@dataclass
class SideBySide:
    """A model that grows by copies of another; equal nodes with equal inputs are there once.

    Attributes:
        proto: the model so far.
        tensors: the constants of the other model.
    """

    proto: ModelProto
    tensors: Mapping[str, TensorProto]
    _nodes: dict[bytes, list[str]] = field(default_factory=dict)
    _read: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    _known: dict[tuple[bytes, tuple[str, ...]], dict[str, str]] = field(default_factory=dict)
    _constants: dict[str, list[tuple[TensorProto, str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, base: ModelProto) -> "SideBySide":
        """Begin with a model's inputs and functions."""
        proto = copied(base)
        for several in (proto.graph.node, proto.graph.output, proto.graph.value_info):
            del several[:]
        del proto.graph.initializer[:]
        return cls(proto, {tensor.name: tensor for tensor in base.graph.initializer})

    def add(self, edited: ModelProto) -> dict[str, str]:
        """Add a copy, which need not hold the constants that stay; return its outputs with their names here."""
        tensors = {**self.tensors, **{tensor.name: tensor for tensor in edited.graph.initializer}}
        names: dict[str, str] = {}
        # a node that is there with the same inputs is not added again
        for node in edited.graph.node:
            encoded = node.SerializeToString(deterministic=True)
            if encoded not in self._read:
                self._read[encoded] = tuple(dict.fromkeys((*node.input, *captured(node))))
            read = self._read[encoded]
            for name in read:
                if name in tensors and name not in names:
                    names[name] = self._constant(tensors[name])
            key = encoded, tuple(names.get(name, name) for name in read)
            if key not in self._known:
                self._known[key] = self._node(node, names)
            names |= self._known[key]
        found = {output.name: names.get(output.name, output.name) for output in edited.graph.output}
        there = {output.name for output in self.proto.graph.output}
        for name in dict.fromkeys(found.values()):
            if name not in there:
                self.proto.graph.output.add(name=name)
        return found

    def _constant(self, tensor: TensorProto) -> str:
        # copies that give a constant other numbers read another name
        known = self._constants.setdefault(tensor.name, [])
        for other, name in known:
            if other is tensor or other == tensor:
                return name
        name = f"{tensor.name}{_APART}{len(known)}" if known else tensor.name
        self.proto.graph.initializer.append(tensor)
        self.proto.graph.initializer[-1].name = name
        known.append((tensor, name))
        return name

    def _node(self, node: NodeProto, names: Mapping[str, str]) -> dict[str, str]:
        """Return the names of what a node makes here."""
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.ClearField("name")
        rename_uses([copy], {old: new for old, new in names.items() if old != new})
        # a node with equal inputs and attributes is there once, whatever its results are called
        made = list(copy.output)
        copy.output[:] = ["o" if name else "" for name in made]
        key = copy.SerializeToString(deterministic=True)
        if key not in self._nodes:
            number = len(self._nodes)
            copy.output[:] = [f"{name}{_APART}{number}" if name else "" for name in made]
            self.proto.graph.node.append(copy)
            self._nodes[key] = list(copy.output)
        return {old: new for old, new in zip(made, self._nodes[key], strict=True) if old}
