"""Every error that this library raises on purpose.

    SurgeonError
    ├── ModelFileError          the file is not a model that can be read
    │   └── ExternalDataError   a tensor's bytes are missing, short or in a place that is refused
    │       └── SourceChangedError  the file that holds the bytes changed after the load
    ├── GraphError              the graph itself is broken: a cycle, two producers of one value
    ├── UnknownNameError        no value or node has this name; carries the closest names
    ├── AmbiguousNameError      the name fits several nodes or values
    ├── EditError               an edit that would break the model: a cycle, a dangling value, types that do not fit
    ├── ScriptError             a user's script fails; its notes are the traceback from the script down
    ├── CutError                a cut gives no submodel
    │   └── OpenCutError        the inputs do not determine the outputs; carries the missing values
    ├── BuildError              a text, array or builder does not give a model
    ├── ShapeError              a dimension cannot be changed; the message says why
    ├── OutputExistsError       a file would be overwritten
    ├── SharedDataError         data that another model refers to would be changed
    ├── WriteError              the result cannot be written
    ├── ReferenceSetError       reference tensors cannot be read, or do not fit the model
    ├── FeedsError              feeds have a wrong name, dtype or shape
    ├── UsageError              a request has no meaning
    └── RuntimeFailure          the runtime refuses the model or fails while it runs
        ├── NoKernel            the runtime has no kernel for an operator, or for its dtypes
        ├── PartialAnswer       the runtime left out values that were wanted
        └── RuntimeLost         the runtime's process is gone
            ├── RuntimeCrash    it died
            └── RuntimeTimeout  it ran out of time

A mismatch is a result, not an error.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches


class SurgeonError(Exception):
    """The base of all errors that a user can fix: the message says what is wrong, `hint` what to do next.

    Attributes:
        told: notes of the call that it ended, such as how feeds were made.

    Example:
        >>> try:
        ...     osl.rename("whole_model.onnx", {"h23": "features"})
        ... except osl.SurgeonError as error:
        ...     print(error)
        graph 'whole_model' has no value 'h23' (it has 32)
          closest names: '23'
    """

    told: tuple[str, ...] = ()

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return "\n  ".join(filter(None, (self.message, self.hint)))

    def __reduce__(self) -> tuple[Callable[..., "SurgeonError"], tuple[object, ...]]:
        """Let errors travel between processes: their arguments are not those of `__init__`."""
        return _again, (type(self), self.args, vars(self))


def _again(
    kind: type[SurgeonError], arguments: tuple[object, ...], facts: dict[str, object]
) -> SurgeonError:
    error = kind.__new__(kind, *arguments)  # without __init__, whose parameters are others
    vars(error).update(facts)
    return error


def said(error: BaseException) -> str:
    """Return what an error says is wrong, for a message that quotes it."""
    return error.message if isinstance(error, SurgeonError) else str(error) or type(error).__name__


class ModelFileError(SurgeonError):
    """The file is not a model that can be read."""


class ExternalDataError(ModelFileError):
    """A tensor's bytes are missing, too few, or in a place that is refused."""


class SourceChangedError(ExternalDataError):
    """A file that holds a model's tensors changed after the model was loaded."""


class GraphError(SurgeonError):
    """The graph is broken: a cycle, two producers of one value, a function that calls itself."""


class UnknownNameError(SurgeonError):
    """No value or node has this name."""

    def __init__(self, name: str, place: str, known: Iterable[str], kind: str = "value") -> None:
        candidates = [other for other in known if other]
        self.name = name
        # of a huge model, the first names are enough
        close = get_close_matches(name, candidates[:20_000], n=3, cutoff=0.5)
        self.closest = close or _containing(name, candidates)
        hint = (
            "see its names with: onnxdbg print MODEL"
            if kind in ("value", "node", "node or value")
            else None
        )
        if self.closest:
            hint = f"closest names: {', '.join(map(repr, self.closest))}"
        elif len(candidates) <= 6 or kind == "field":  # few names: show them all
            hint = f"it has {', '.join(map(repr, candidates))}" if candidates else hint
        super().__init__(f"{place} has no {kind} {name!r} (it has {len(candidates)})", hint)


def require_known(names: Iterable[str], known: Collection[str], place: str, kind: str) -> None:
    """Raise `UnknownNameError` for the first name that is not among those of a place."""
    for name in names:
        if name not in known:
            raise UnknownNameError(name, place, known, kind)


def _containing(name: str, candidates: Sequence[str]) -> list[str]:
    """Return the shortest candidates that contain the name: people type the end of a path."""
    holding = (other for other in candidates if name.lower() in other.lower())
    return sorted(set(holding), key=len)[:3] if len(name) >= 3 else []


class AmbiguousNameError(SurgeonError):
    """The name fits several nodes or values."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        self.name = name
        self.candidates = tuple(candidates)
        shown = ", ".join(map(repr, candidates[:6])) + (" ..." if len(candidates) > 6 else "")
        super().__init__(f"{name!r} fits {len(candidates)} places", f"give one of: {shown}")


class EditError(SurgeonError):
    """An edit would break the model: a cycle, a dangling value, types that do not fit."""


class ScriptError(SurgeonError):
    """A user's script fails; the notes are the traceback from the script down."""


class CutError(SurgeonError):
    """A cut (inputs, outputs) gives no submodel."""


class OpenCutError(CutError):
    """The inputs do not determine the outputs.

    Attributes:
        missing: the smallest set of further values that closes the cut.
        path: the value names from the first missing value to the output that needs it.
    """

    def __init__(
        self, message: str, hint: str, missing: Sequence[str], path: Sequence[str]
    ) -> None:
        super().__init__(message, hint)
        self.missing = tuple(missing)
        self.path = tuple(path)


class BuildError(SurgeonError):
    """A text, an array or a builder does not give a model."""


class ShapeError(SurgeonError):
    """A dimension cannot be changed, or the change cannot be proved correct; the message says why."""


class OutputExistsError(SurgeonError):
    """A file would be overwritten."""


class SharedDataError(SurgeonError):
    """Data that another model refers to would be changed."""


class WriteError(SurgeonError):
    """The result cannot be written."""


class ReferenceSetError(SurgeonError):
    """Reference tensors cannot be read, or do not fit the model."""


class FeedsError(SurgeonError):
    """Feeds have a wrong name, dtype or shape."""


class UsageError(SurgeonError):
    """A request that has no meaning."""


class RuntimeFailure(SurgeonError):
    """The runtime refuses the model or fails while it runs."""


class NoKernel(RuntimeFailure):
    """The runtime has no kernel for an operator, or none for its dtypes."""

    def __init__(self, message: str, hint: str, domain: str, op_type: str) -> None:
        super().__init__(message, hint)
        self.domain = domain
        self.op_type = op_type


class PartialAnswer(RuntimeFailure):
    """The runtime left out values that were wanted."""


class RuntimeLost(RuntimeFailure):
    """The runtime's process is gone: it crashed, or was ended because it took too long."""


class RuntimeCrash(RuntimeLost):
    """The runtime's process died."""


class RuntimeTimeout(RuntimeLost):
    """The runtime's process ran out of time."""


def first_of(error: BaseException) -> BaseException:
    """Return the error that others followed from."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def reported(error: BaseException) -> str:
    """Write the traceback of a bug of ours to a file, and say where it is.

    Raises:
        KeyboardInterrupt, SystemExit: it followed from that: a signal between two lines breaks what holds a lock.
    """
    if isinstance(first := first_of(error), KeyboardInterrupt | SystemExit):
        raise first
    import sys
    import tempfile
    import traceback
    from importlib.metadata import version

    kind = type(error).__name__
    lines = [f"onnxdbg {version('onnxsurgeon-lite')}: {sys.argv!r}\n"]
    lines += traceback.format_exception(error)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="onnxdbg-", suffix=".txt", delete=False, errors="backslashreplace"
        ) as file:
            file.writelines(lines)
    except OSError:  # no place to write: at least it is on the terminal
        sys.stderr.writelines(lines)
        return f"internal error ({kind}): please report it with the lines above"
    return f"internal error ({kind}): please report it with {file.name}"


class OutOfTime(Exception):
    """The time that a search may take is over; what it found so far is its result."""
