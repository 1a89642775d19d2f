"""Run a user's function on an onnx-graphsurgeon graph."""

import runpy
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from onnxsurgeon_lite.errors import GraphError, ScriptError, SurgeonError, said
from onnxsurgeon_lite.graph import GraphIndex, described
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import infer, settle

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


T = TypeVar("T")


class Edit(Protocol):
    """A user's function; it edits the graph in place, or returns a new one."""

    def __call__(self, graph: "gs.Graph", /) -> object:
        """Edit the graph."""
        ...


@dataclass(frozen=True)
class Script:
    """Edit the graph with `edit(graph: gs.Graph)`, a function or a Python file that defines it.

    Weights are read only when the function uses their values. Unchanged parts stay equal to the byte, and so does
    everything that graphsurgeon does not support: documentation, metadata, annotations, functions, input defaults.

    Attributes:
        edit: the function, or the file.

    Example:
        >>> def edit(graph):
        ...     graph.nodes[7].op = "Sub"
        >>> osl.script("whole_model.onnx", edit).changes
        ("changed node Sub 'Add_7' (@7)",)
    """

    edit: Edit | str
    name: ClassVar[str] = "script"

    def apply(self, model: Model) -> PassResult:
        """Call the function.

        Raises:
            ScriptError: the file cannot be run, does not define `edit`, or raises; notes hold the script's traceback.
            EditError: the edited graph has a cycle or a value without a producer.
        """
        from onnxsurgeon_lite.passes.graphsurgeon import Bridge

        # the graph needs an order: a cycle is an error of the model, not of the script
        before = GraphIndex.of(model)
        before.require_sound()
        bridge = _bridged(lambda: Bridge(model))
        if isinstance(self.edit, str):
            edited = _guarded(self.edit, lambda: _load(str(self.edit))(bridge.graph))
        else:
            # a function of the caller raises its own errors
            edited = self.edit(bridge.graph)
        result = _bridged(lambda: bridge.back(edited))
        after = settle(before, result)
        _complete(after)
        return PassResult.of(model, result, _changes(before, after))


def _bridged(convert: Callable[[], T]) -> T:
    """Convert a graph from or to that of graphsurgeon, which has no error of its own for what it does not support."""
    try:
        return convert()
    except SurgeonError:
        raise
    except Exception as error:
        raise GraphError(
            f"onnx-graphsurgeon cannot hold the graph: {type(error).__name__}: {error}",
            "see what is wrong with it: onnxdbg check MODEL",
        ) from error


def _load(path: str) -> Edit:
    found: object = runpy.run_path(path).get("edit")
    if not callable(found):
        raise ScriptError(
            f"{path!r} does not define a function 'edit'", "write: def edit(graph): ..."
        )
    return found


def _guarded(path: str, call: Callable[[], object]) -> object:
    """Call the user's code; turn an exception into a `ScriptError` with the script's part of the traceback."""
    if not Path(path).is_file():
        raise ScriptError(f"script {path!r} does not exist", "give the path of a Python file")
    try:
        return call()
    except ScriptError:
        raise
    except Exception as error:
        raised = ScriptError(f"{path!r} raised {type(error).__name__}: {said(error)}")
        frames = traceback.extract_tb(error.__traceback__)
        # from the script's first frame on: what is before that is ours
        theirs = next((i for i, f in enumerate(frames) if f.filename == path), len(frames))
        for text in traceback.format_list(frames[theirs:]):
            for line in text.splitlines():
                raised.add_note(line)
        raise raised from error


def _complete(after: GraphIndex) -> None:
    """Infer the types of outputs that the script declared without a shape."""
    vague = {v.name for v in after.graph.output if not v.type.tensor_type.HasField("shape")}
    inferred = infer(after.model, vague) if vague else {}
    for value in after.graph.output:
        if value.name in inferred:
            value.type.CopyFrom(inferred[value.name])


def _changes(before: GraphIndex, after: GraphIndex) -> list[str]:
    """List removed, added and changed nodes, identified by their outputs."""
    # nodes are known by their outputs, which a script seldom changes
    old, new = (
        {tuple(n.output): (p, n) for p, n in enumerate(index.nodes)} for index in (before, after)
    )
    changes = [f"removed node {before.describe(old[key][0])}" for key in old.keys() - new.keys()]
    for key, (position, node) in new.items():
        if key not in old:
            changes.append(f"added node {after.describe(position)}")
        elif old[key][1] != node:
            changes.append(f"changed node {described(node, f'@{position}')}")
    return changes or ["changed values, constants or declarations"]
