"""Put a graph after a model; reading such a graph is shared with `prepend`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from onnx import TypeProto, ValueInfoProto

from onnxsurgeon_lite.errors import EditError, require_known
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, loaded
from onnxsurgeon_lite.names import split
from onnxsurgeon_lite.passes.build import parse_text
from onnxsurgeon_lite.passes.expression import Known, parse_expression
from onnxsurgeon_lite.passes.merge import merge, no_outputs
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import fresh, names_in, rename_values
from onnxsurgeon_lite.untrusted import text_of


@dataclass(frozen=True)
class Append:
    """Compute further values from a model's values: `scores = Softmax(logits, axis=-1); top, at = TopK(scores, [5])`.

    What the text assigns and does not read again are the new outputs. An output that it reads is no longer one: what is
    computed from it takes its place. A name that is read first and assigned then goes over to the result.

    Attributes:
        what: assignments, a graph in ONNX text, or a model (or the path of a file with one of them).
        links: value of this model -> input of the other; equal names by default.
        share: inputs of both that become one.
        prefix: prefix for every name that is added.
        keep: outputs that are read and stay outputs.

    Example:
        >>> osl.append("whole_model.onnx", "best = ArgMax(scores, axis=1)", {"31": "scores"}).changes[-1]
        "added the 1 node of graph 'expression'"
    """

    what: str | Model
    links: tuple[tuple[str, str], ...] = ()
    share: tuple[str, ...] = ()
    prefix: str = ""
    keep: tuple[str, ...] = ()
    name: ClassVar[str] = "append"

    # A shared input becomes one with this model's, so it needs no value to read.
    # New outputs take the places of those that they are computed from.
    def apply(self, model: Model) -> PassResult:
        """Append.

        Raises:
            BuildError: the text is neither assignments nor a graph.
            EditError: no value has the name of an input, or types do not fit.
        """
        index = GraphIndex.of(model)
        # input of the other graph -> value of this model
        links = {theirs: ours for ours, theirs in self.links}

        def known(name: str) -> TypeProto | None:
            value = links.get(name, name)
            return index.type_of(value) if value in index else None

        # read the other graph, whose undeclared names have the types of this model
        guest, results = guest_of(self.what, model, known)
        asked = [name for name in GraphIndex.of(guest).required_inputs if name not in self.share]
        unknown = [name for name in asked if links.get(name, name) not in index]
        if unknown:
            raise EditError(
                f"the model has no value {unknown[0]!r} for the input of that name",
                f"link it: --map VALUE={unknown[0]}, or share an input: --share {unknown[0]}",
            )
        # an output that it reads is none any more, unless it is kept
        pairs = [(links.get(name, name), name) for name in asked]
        read = dict.fromkeys(value for value, _ in pairs if value in index.outputs)
        keep = split(self.keep, read)
        require_known(keep, read, "what the other graph reads", "output")
        done = merge(model, guest, pairs, self.share, self.prefix, keep)
        gone = [name for name in read if name not in keep]
        _take_places(done.model, index, set(gone))
        freed = rename_results(done.model, results)
        notes = (
            done.notes
            + tuple(no_outputs(gone))
            + tuple(f"value {old!r} is {new!r} now" for old, new in freed)
        )
        return PassResult.of(model, done.model, done.changes, notes)


def _take_places(result: Model, before: GraphIndex, read: set[str]) -> None:
    """Put each new output, in place, where the output was that it is computed from."""
    places = {name: place for place, name in enumerate(before.outputs)}
    replaced = places.keys() & read
    if not replaced:
        return
    after = GraphIndex.of(result)

    def place(output: ValueInfoProto) -> int:
        # an output that stays keeps its place
        if output.name in places:
            return places[output.name]
        # a new one takes the first place among the outputs that it is computed from, or the end
        nodes = after.ancestors([output.name], replaced)
        sources = (places[name] for node in nodes for name in after.reads[node] if name in replaced)
        return min(sources, default=len(places))

    result.graph.output.sort(key=place)


def guest_of(what: str | Model, model: Model, known: Known) -> tuple[Model, dict[str, str]]:
    """Return the graph to put beside a model, and result name -> value of assignments."""
    # a model, a .onnx file, a text file, ONNX text (it has braces), or assignments
    if isinstance(what, Model):
        return what, {}
    path = Path(what)
    if path.suffix == ".onnx":
        return loaded(path), {}
    text = text_of(path) if "=" not in what and path.is_file() else what
    if "{" in text:
        return parse_text(text, model.proto), {}
    expression = parse_expression(text, model, known, names_in([model.graph]))
    return expression.model, expression.results


def rename_results(model: Model, results: Mapping[str, str]) -> list[tuple[str, str]]:
    """Give results their names, in place; what has such a name gets another: (old, new) pairs."""
    proto = model.proto
    # a value whose name a result takes gives it up
    wanted = {value: name for name, value in results.items() if value != name}
    taken = names_in([proto.graph])
    freed = {name: fresh(name, taken) for name in wanted.values() if name in taken}
    rename_values(proto, proto.graph, wanted | freed)
    return list(freed.items())
