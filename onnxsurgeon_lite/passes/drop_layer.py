"""Remove one layer of a stack of equal ones, as of a language model, with its cache."""

import re
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from onnxsurgeon_lite.errors import EditError, UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.scopes import Provenance
from onnxsurgeon_lite.graph.selecting.select import select_nodes
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import counted, few, listed
from onnxsurgeon_lite.passes.clean import Clean
from onnxsurgeon_lite.passes.protocol import Pass, PassResult, Pipeline
from onnxsurgeon_lite.passes.remove import Remove
from onnxsurgeon_lite.passes.remove_input import RemoveInput
from onnxsurgeon_lite.passes.remove_output import RemoveOutput
from onnxsurgeon_lite.passes.rewire import Rewire
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.surgery import fresh, name_apart, rename_values, value_names


@dataclass(frozen=True)
class DropLayer:
    """Remove a layer: the next one reads what it read, its cache goes, and later layers get lower numbers.

    1. Its outputs (`present.1.key`) and inputs (`past_key_values.1.key`) go. What else reads such an input, as the
       size of a mask may, reads that of a neighbor.
    2. Nodes that later layers need, too, stay. What no output needs goes.
    3. Values, nodes and modules of later layers are named by the lower number.

    Attributes:
        layer: its number, from 0.
        stack: the module that has the layers (`model.layers`), where several modules have some.

    Example:
        >>> layers = '["/h.0/Exp"] p = Exp(x) ["/h.0/Neg"] q = Neg(p) ["/h.1/Exp"] r = Exp(q) ["/h.1/Neg"] y = Neg(r)'
        >>> model = osl.build("g (float[4] x) => (float[4] y) { " + layers + " }")
        >>> osl.drop_layer(model, 0).changes
        ("dropped layer 0 of 2 in 'h': 2 nodes",)
    """

    layer: int
    stack: str | None = None
    name: ClassVar[str] = "drop-layer"

    def apply(self, model: Model) -> PassResult:
        """Remove it.

        Raises:
            UsageError: no module has numbered layers, or several have.
            EditError: there is no such layer, or no other; or nothing that it reads can replace what it makes.
        """
        index = GraphIndex.of(model)
        stack, layers = self._stack(index)
        if self.layer not in layers or len(layers) == 1:
            shown = f"{len(layers)} layers, {min(layers)} to {max(layers)}"
            raise EditError(f"{stack!r} has {shown}: {self.layer} cannot be dropped")
        scope = f"scope:{stack}.{self.layer}"
        nodes = select_nodes(index, scope)
        # its cache: the inputs and outputs that a neighbor has, too
        read = index.read_by(nodes)
        made = index.made_by(nodes)
        # `present.1.key` has the twin `present.2.key`; what is not of the cache has none
        outputs = [n for n in index.outputs if n in made and self._twin(n, index.outputs)]
        inputs = {
            n: twin for n in index.inputs if n in read and (twin := self._twin(n, index.inputs))
        }
        # outputs first, so that only later layers read the layer; inputs last, when nothing reads them
        steps: list[Pass] = [RemoveOutput((listed(outputs),))] if outputs else []
        steps += (Remove((listed([scope]),)), Clean())
        steps += (Rewire(name, twin) for name, twin in inputs.items())
        steps += [RemoveInput((listed(inputs),))] if inputs else []
        result = Pipeline(tuple(steps)).apply(model).model
        self._renumber(result, stack, list(inputs) + outputs)
        gone = f"dropped layer {self.layer} of {len(layers)} in {stack!r}"
        changes = [f"{gone}: {counted(len(index.nodes) - len(result.graph.node), 'node')}"]
        changes += (f"removed input {name!r}" for name in inputs)
        changes += (f"removed output {name!r}" for name in outputs)
        return PassResult.of(model, result, changes)

    def _stack(self, index: GraphIndex) -> tuple[str, list[int]]:
        """Return the module that has the layers, and their numbers."""
        # (module, number of a layer) -> how many nodes it has
        sizes = defaultdict[tuple[str, int], int](int)
        for scope, nodes in index.origins.scopes.items():
            for path in Provenance(scope).around():
                parent, _, last = path.rpartition(".")
                if last.isdecimal():
                    sizes[parent, int(last)] += len(nodes)
                    break  # what is numbered inside a layer is part of it
        # a norm after the last layer may have the next number
        stacks = groups(place for place, size in sorted(sizes.items()) if size > 1)
        chosen = [s for s in stacks if self.stack in (None, s)]
        if len(chosen) == 1:
            return chosen[0], stacks[chosen[0]]
        found = f"{few(list(stacks))} have numbered layers" if stacks else "no module has layers"
        raise UsageError(found, "name one: --stack model.layers; inspect --tree shows the modules")

    def _split(self, name: str) -> list[str]:
        """Return what is before and after the layer's number in a name, or the name."""
        return re.split(rf"(?<!\d){self.layer}(?!\d)", name, maxsplit=1)

    def _twin(self, name: str, known: Container[str]) -> str | None:
        """Return the input or output of a neighbor that is like one of the layer."""
        # the next layer has every cache that this one has; of the last layer it is the one before
        near = (str(self.layer + step).join(self._split(name)) for step in (1, -1))
        return next((n for n in near if n != name and n in known), None)

    def _renumber(self, result: Model, stack: str, cached: list[str]) -> None:
        """Lower the numbers of later layers, in place."""

        def lowered(match: re.Match[str]) -> str:
            number = int(match[2])
            return f"{match[1]}{number - (number > self.layer)}{match[3]}"

        # "model.layers.3", or "/model/layers/3" as in names of nodes: the stack, the number, its end
        path = re.compile(
            rf"(?<!\w)({r'[./]'.join(map(re.escape, stack.split('.')))}[./])(\d+)(\b)"
        )
        index = GraphIndex.of(result)
        new = {name: path.sub(lowered, name) for name in index.values()}
        for cache, name in product(cached, index.inputs.keys() | index.outputs.keys()):
            # "past_key_values.1.key" -> (past_key_values.)(any number)(.key)
            series = r"(\d+)".join(f"({re.escape(part)})" for part in self._split(cache))
            if match := re.fullmatch(series, name):
                new[name] = lowered(match)
        new = {name: other for name, other in new.items() if name != other}
        # all at once: names that others give up are free
        taken = value_names(index) - new.keys()
        rename_values(
            result.proto, index.graph, {n: fresh(other, taken) for n, other in new.items()}
        )
        for node in index.graph.node:
            node.name = path.sub(lowered, node.name)
            for entry in node.metadata_props:
                entry.value = path.sub(lowered, entry.value)
        name_apart([index.graph])
