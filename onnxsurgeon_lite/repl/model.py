"""The model of a session: every pass is a method, and what was done can be undone."""

from collections.abc import Callable
from inspect import signature

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.errors import SurgeonError, UnknownNameError, UsageError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.passes.history import History
from onnxsurgeon_lite.passes.protocol import Pass, PassResult


class UnknownEditError(SurgeonError, AttributeError):
    """The model has no such edit."""


class EditedModel:
    """`model.rename({"31": "out"})`, `model.set_attr("Conv_6", {"pads": [1, 1, 1, 1]})`: fields as in a recipe."""

    def __init__(self, history: History, follow: Callable[[], None]) -> None:
        self.history = history
        self._follow = follow

    @property
    def current(self) -> Model:
        """The `Model` as it is now."""
        return self.history.current

    def apply(self, step: Pass) -> PassResult:
        """Apply an edit."""
        result = step.apply(self.current)
        self.take(step, result)
        return result

    def take(self, step: Pass, result: PassResult) -> None:
        """Go on with the result of an edit."""
        self.history.take(step, result)
        if result.changed:
            self._follow()

    def undo(self) -> Pass:
        """Take the last edit back."""
        step = self.history.undo()
        self._follow()
        return step

    def redo(self) -> Pass:
        """Do again what was undone last."""
        step = self.history.redo()
        self._follow()
        return step

    def __getattr__(self, name: str) -> Callable[..., PassResult]:
        verb = name.replace("_", "-")
        # IPython asks for many names that no edit has
        if name.startswith("_"):
            raise AttributeError(name)
        if verb not in passes.PASSES:
            # an AttributeError, too, as Python expects
            unknown = UnknownNameError(name, "a model", dir(self), kind="edit")
            raise UnknownEditError(unknown.message, unknown.hint)
        return _method(verb, self.apply)

    def __dir__(self) -> list[str]:
        verbs = [verb.replace("-", "_") for verb in passes.PASSES]
        return verbs + ["apply", "current", "history", "redo", "undo"]

    def __repr__(self) -> str:
        edits = f", {len(self.history.steps)} edits" if self.history.steps else ""
        nodes = len(self.current.graph.node)
        return shown(f"model {str(self.current.path)!r}: {nodes:,} nodes{edits}")


def _method(verb: str, apply: Callable[[Pass], PassResult]) -> Callable[..., PassResult]:
    from onnxsurgeon_lite.passes.recipe import make_pass

    kind = passes.PASSES[verb]
    fields = list(signature(kind).parameters)

    def edit(*values: object, **named: object) -> PassResult:
        if len(values) > len(fields):
            raise UsageError(f"{verb} takes {', '.join(fields)}", f"see model.{edit.__name__}?")
        given = {**dict(zip(fields, values, strict=False)), **named}
        return apply(make_pass(verb, given, passes.PASSES))

    edit.__name__ = verb.replace("-", "_")
    edit.__doc__ = kind.__doc__
    vars(edit)["__signature__"] = signature(kind)
    return edit
