"""Functions that are written as ONNX text, for one node at a time.

`Name (inputs) => (outputs) {`, lines, `}`; several operators may share a text. A line is a part of the ONNX text, such
a part after conditions, or one of two commands:

    ? bias !narrow : y = Add (x, bias)
    refuse mean            (or with its own words: `refuse block_size : it has a scale for each block`)
    need bits_4 bits_8

`$epsilon` is the number of an attribute. `own.Name` calls another function of the file, with its attributes alone.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, helper, parser

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import assign, walk
from onnxsurgeon_lite.surgery.edits import rename_uses
from onnxsurgeon_lite.tensors.dtypes import dtype_name

Fact = int | float | str | bool
"""What is known of a node: conditions ask for it, and `$name` becomes its value."""
_OWN = "own"
# `Name (inputs) => (outputs) {`, lines, `}`: names, inputs, outputs and lines are the groups.
_SIGNATURE = re.compile(
    r"^(\w[\w ]*) \(([^)]*)\) => \(([^)]*)\) {\n(.*?)^}", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class TextFunction:
    """An operator's function as it is written.

    Attributes:
        inputs, outputs: the names that its text has for them, in order.
        lines: its nodes, with the conditions under which they are there.
        others: the functions of its file, by name.
    """

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    lines: Sequence[str]
    others: "Mapping[str, TextFunction]"

    def facts(self, node: NodeProto, types: Sequence[TypeProto | None]) -> dict[str, Fact]:
        """Return what the lines may ask about what a node reads and makes.

        Raises:
            EditError: it has more inputs than the text.
        """
        if any(node.input[len(self.inputs) :]):
            raise EditError(f"it has more inputs than {len(self.inputs)}")
        found: dict[str, Fact] = {self.name: True}
        # What is given has its own name as a fact: `? bias :` asks whether the node has that input.
        for names, values in ((self.outputs, node.output), (self.inputs, node.input)):
            found |= {name: True for name, given in zip(names, values, strict=False) if given}
        for name, kind in zip(self.inputs, types, strict=False):
            tensor = None if kind is None else kind.tensor_type
            if tensor is not None and tensor.HasField("shape"):
                found[f"{name}_{len(tensor.shape.dim)}d"] = True  # `x_3d`: the rank of `x`
                for dim in tensor.shape.dim[-1:]:
                    found[f"{name}_of_{dim.dim_value}"] = True  # `x_of_1`: its last size
            if tensor is not None:
                found[f"{name}_{dtype_name(tensor.elem_type)}"] = True  # `zero_points_uint8`
        return found

    def function(self, facts: Mapping[str, Fact], header: str) -> FunctionProto:
        """Return the function for a node that has these facts.

        Args:
            header: the domain and the opsets, as the text of a function begins.

        Raises:
            EditError: the node has something that the text does not do.
        """
        # 1. the lines that are there for this node
        kept = []
        for line in self.lines:
            asked, _, rest = line.partition(" : ")
            match asked.split():
                case ["refuse", *names]:
                    if found := [name for name in names if _holds(facts, name)]:
                        what = found[0].replace("_", " ")
                        raise EditError(rest or f"its {what} has no standard form here")
                case ["need", *names]:
                    if not any(_holds(facts, name) for name in names):
                        wanted = " or ".join(names).replace("_", " ").replace("!", "no ")
                        raise EditError(rest or f"it is not known to be {wanted}")
                case ["?", *names]:
                    if all(_holds(facts, name) for name in names):
                        kept.append(rest)
                case _:
                    kept.append(line)
        # 2. its numbers in their places: `$epsilon` -> 1e-05
        body = Template("\n".join(kept)).substitute(facts)
        signature = f"{self.name} ({', '.join(self.inputs)}) => ({', '.join(self.outputs)})"
        function = parser.parse_function(f"{header} {signature} {{\n{body}\n}}")
        # 3. without what only makes the text shorter
        assign(function.node, list(self._plain(function.node, function.output, header)))
        return function

    def _plain(
        self, nodes: Iterable[NodeProto], outputs: Sequence[str], header: str
    ) -> Iterator[NodeProto]:
        """Yield nodes without calls of other functions, and with one name for each inner value."""
        names = dict[str, str]()  # of an Identity: its output -> its input
        for node in nodes:
            rename_uses([node], names)
            # a body may call functions, too
            for _, body in walk.bodies(node):
                results = [value.name for value in body.output]
                assign(body.node, list(self._plain(body.node, results, header)))
            if node.op_type == "Identity" and node.output[0] not in outputs:
                names[node.output[0]] = node.input[0]  # its readers read its input instead
            elif node.domain == _OWN:
                yield from self.others[node.op_type].called(node, header)
            else:
                yield node

    def called(self, node: NodeProto, header: str) -> Iterator[NodeProto]:
        """Yield the nodes in the place of a call; their values are named after the call's first result."""
        facts = self.facts(node, ()) | attribute_facts(node.attribute)
        # what the call reads and makes keeps its names
        names = dict(zip(self.outputs, node.output, strict=True))
        names |= dict(zip(self.inputs, node.input, strict=False))
        for inner in self.function(facts, header).node:
            rename_uses([inner], names)
            for slot, name in enumerate(inner.output):
                inner.output[slot] = names.setdefault(name, f"{node.output[0]}/{name}")
            yield inner


@cache
def text_functions(path: Path) -> Mapping[str, TextFunction]:
    """Return operator -> its function, as a file has them."""
    text = re.sub(r"^ *#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = dict[str, TextFunction]()  # each function knows all of them
    for names, *signature, body in _SIGNATURE.findall(text):
        inputs, outputs = (given.replace(",", " ").split() for given in signature)
        for name in names.split():
            found[name] = TextFunction(name, inputs, outputs, body.splitlines(), found)
    return found


def attribute_facts(attributes: Iterable[AttributeProto]) -> dict[str, Fact]:
    """Return what lines may ask about attributes, which have values: `bits`, and `bits_4`; of a list each element."""
    found = dict[str, Fact]()
    for attribute in attributes:
        value = helper.get_attribute_value(attribute)
        # texts are bytes in a model
        value = value.decode(errors="replace") if isinstance(value, bytes) else value
        found[attribute.name] = value
        # of a list each element, of anything else whether it has this value
        if isinstance(value, list):
            found |= {f"{attribute.name}_{place}": each for place, each in enumerate(value)}
        else:
            found[f"{attribute.name}_{value}"] = True
    return found


def _holds(facts: Mapping[str, Fact], name: str) -> bool:
    """Return whether a condition holds: what is switched off is 0, negative or NONE; a scale may be negative."""
    if name.startswith("!"):
        return not _holds(facts, name[1:])
    value = facts.get(name, 0)
    if isinstance(value, str | list):
        return value not in ("", "NONE", [])
    return value != 0 if name == "scale" else value > 0
