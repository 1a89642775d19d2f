"""Put a graph before a model."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import TypeProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, copied, take_fields
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.passes.append import guest_of, rename_results
from onnxsurgeon_lite.passes.merge import merge
from onnxsurgeon_lite.passes.protocol import PassResult

_HEADER = ("producer_name", "producer_version", "domain", "model_version", "doc_string")


@dataclass(frozen=True)
class Prepend:
    """Compute inputs of a model from others: `image: uint8[N, 8, 8, 3]; x = Transpose(image / 255, perm=[0, 3, 1, 2])`.

    What the text assigns and does not read again feeds the input of that name, or the only input. A name that is not
    declared has the type of the input. The model keeps its opset, header and metadata.

    Attributes:
        what: assignments, a graph in ONNX text, or a model (or the path of a file with one of them).
        links: output of the other model -> input of this one; equal names by default.
        share: inputs of both that become one.

    Example:
        >>> osl.prepend("whole_model.onnx", "x = (image - 0.5) / 0.25", {"x": "input.1"}).changes[0]
        "linked 'x' to input 'input.1'"
    """

    what: str | Model
    links: tuple[tuple[str, str], ...] = ()
    share: tuple[str, ...] = ()
    name: ClassVar[str] = "prepend"

    def apply(self, model: Model) -> PassResult:
        """Prepend.

        Raises:
            BuildError: the text is neither assignments nor a graph.
            EditError: no input has the name of a result, or types do not fit.
        """
        index = GraphIndex.of(model)
        asked = index.required_inputs
        links = dict(self.links)

        def known(name: str) -> TypeProto | None:
            # the input of that name, the only one, or the only linked one
            like = name if name in asked else asked[0] if len(asked) == 1 else ""
            like = like or next((i for i in links.values() if len(links) == 1), "")
            return index.type_of(like) if like else None

        # read the other graph, whose undeclared names have the types of inputs
        guest, results = guest_of(self.what, model, known)
        made = results or {value.name: value.name for value in guest.graph.output}
        # each result feeds the input of its name, the linked one, or the only one
        pairs = []
        for name, value in made.items():
            # one result and one input belong together under any names
            alone = asked[0] if len(asked) == len(made) == 1 else name
            pairs.append((value, links.get(name, name if name in asked else alone)))
        unknown = [name for _, name in pairs if name not in index.inputs]
        if unknown:
            raise EditError(
                f"the model has no input {unknown[0]!r} for the result of that name",
                f"its inputs are {listed(asked)}: name the result so, or link it with --map",
            )
        # the merged model keeps the header and the documentation of this one
        # the other graph comes first, so it is the first of the merged models
        done = merge(guest, model, pairs, self.share)
        take_fields(done.model.proto, model.proto, _HEADER)
        take_fields(done.model.graph, model.graph, ("name", "doc_string"))
        _restore_documentation(done.model, index)
        given = {value.name for value in guest.graph.input}
        # a result that is the other graph's input has its name already
        rename_results(done.model, {n: value for n, value in results.items() if n not in given})
        return PassResult.of(
            model,
            done.model,
            done.changes[: len(pairs)]
            + (f"added {len(guest.graph.node)} nodes before graph {model.graph.name!r}",),
            done.notes,
        )


def _restore_documentation(result: Model, index: GraphIndex) -> None:
    """Give an input that has an old one's name all of its declaration but the type."""
    for value in result.graph.input:
        if value.name in index.inputs:
            kind = copied(value.type)
            value.CopyFrom(index.inputs[value.name])
            value.type.CopyFrom(kind)
