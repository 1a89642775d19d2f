"""Values of a model as it is written: node by node, optimisation off, running only what a question needs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto, TypeProto

from onnxsurgeon_lite.feeds import Feeds
from onnxsurgeon_lite.graph import GraphIndex, reached_functions
from onnxsurgeon_lite.runtime.session import Runtime, Value


@dataclass
class Observer:
    """Runs parts of one model on one set of feeds; values that were kept are not computed again.

    Kept values stay in the runtime's process, in the dtype they have. Observing part by part computes each node from
    the run's own values, so what is observed does not depend on what else is.
    """

    index: GraphIndex
    runtime: Runtime
    kept: dict[str, TypeProto] = field(default_factory=dict)
    sessions: int = 0

    def feed(self, feeds: Feeds) -> None:
        """Put the graph's inputs.

        Raises:
            GraphError: a cycle, a function that calls itself.
        """
        self.index.require_sound()
        for name, value in feeds.items():
            kind = self.index.inputs[name].type
            element = kind.sequence_type.elem_type.tensor_type.elem_type or None
            self.runtime.put(name, value, element)
            self.kept[name] = kind

    def fetch(self, values: Sequence[str], keep: Collection[str] = ()) -> dict[str, Value]:
        """Compute values and bring them here; those in `keep` also stay in the runtime for later parts."""
        there = [name for name in values if name in self.kept]
        missing = [name for name in values if name not in self.kept]
        results = self.runtime.get(there)
        new = [name for name in keep if name not in self.kept]
        if missing or new:
            part, inputs = self._part([*missing, *new])
            self.runtime.open(self.index.model.with_proto(part))
            self.sessions += 1
            ran = self.runtime.run(inputs, missing, new)
            self.kept.update((name, ran.types[name]) for name in new)
            results |= ran.values
        return results

    def forget(self, names: Iterable[str]) -> None:
        """Let go of kept values."""
        gone = [name for name in names if name in self.kept]
        for name in gone:
            del self.kept[name]
        self.runtime.forget(gone)

    def _part(self, outputs: Iterable[str]) -> tuple[ModelProto, list[str]]:
        """The smallest model that computes the outputs from what is kept, and the names of its inputs."""
        index, source = self.index, self.index.model.proto
        outputs = list(dict.fromkeys(outputs))
        positions = sorted(index.ancestors(outputs, stop=self.kept))
        used = {name for position in positions for name in index.reads[position]} | {*outputs}
        produced = {name for position in positions for name in index.nodes[position].output}
        inputs = [name for name in self.kept if name in used and name not in produced]

        part = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)
        part.graph.name = source.graph.name
        nodes = [index.nodes[position] for position in positions]
        part.graph.node.extend(nodes)
        for position, node in zip(positions, part.graph.node, strict=True):
            node.name = node.name or f"@{position}"
            for slot, name in enumerate(node.output):
                if name in inputs:
                    node.output[slot] = f"{name}\x01recomputed"
        part.functions.extend(reached_functions(source, nodes))
        for name in inputs:
            part.graph.input.add(name=name, type=self.kept[name])
        stays = used - {*inputs} - produced
        part.graph.initializer.extend(t for t in source.graph.initializer if t.name in stays)
        part.graph.sparse_initializer.extend(
            t for t in source.graph.sparse_initializer if t.values.name in stays
        )
        for name in outputs:
            part.graph.output.add(name=name)
        return part, inputs
