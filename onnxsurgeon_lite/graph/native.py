"""Run ONNX's own code on a model in a forked process: on an untrusted one it may crash, grow or never end.

A fork has ONNX imported already, so it costs some milliseconds, once. It answers one request after another. Where the
system has no fork, a process is spawned for it.
"""

import contextlib
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedRWPair
from itertools import chain
from pathlib import Path
from typing import NoReturn, TypeVar

from google.protobuf.message import Message
from onnx import (
    GraphProto,
    ModelProto,
    TensorProto,
    TypeProto,
    checker,
    defs,
    parser,
    printer,
    shape_inference,
    version_converter,
)

from onnxsurgeon_lite.errors import RuntimeCrash, RuntimeFailure, RuntimeTimeout, SurgeonError
from onnxsurgeon_lite.graph.operators import register_for
from onnxsurgeon_lite.guard import end_with_parent, guarded
from onnxsurgeon_lite.limits import allowed
from onnxsurgeon_lite.model import by_name, walk
from onnxsurgeon_lite.system import HAS_FORK, Meeting, ending

_DONE, _REJECTED, _NO_MEMORY = b"done", b"nope", b"full"
_NEGATIVE = b"\xff" * 8 + b"\x01"
"""How a small negative number ends in the encoding."""
_SEQUENCE = b"Sequence"
_LEAST = 0.001  # seconds: a socket takes 0 for "do not wait"
_SIZE = 8  # bytes before each message: its length
_MOST = 2  # forks that are kept
_ALARM = -14  # the exit code by SIGALRM
_WORKER = Path(__file__).with_name("native_worker.py")

Work = Callable[..., bytes]
T = TypeVar("T")


class RejectedError(Exception):
    """ONNX's own code rejects the model; the message says why."""


def infer(model: ModelProto, *, strict: bool = False, data_prop: bool = False) -> GraphProto:
    """Infer types; return a graph with the declarations of values, inputs and outputs, no more.

    Raises:
        RejectedError: inference fails.
        RuntimeCrash, RuntimeTimeout, RuntimeFailure: it crashes, or reaches a limit.
    """
    return _graph(infer_encoded(model.SerializeToString(), strict=strict, data_prop=data_prop))


def infer_encoded(model: bytes, *, strict: bool = False, data_prop: bool) -> bytes:
    """Infer types of a serialized model, and return the graph serialized; see `infer`."""
    return apart("type inference", _infer, model, strict, data_prop)


def begin_infer(model: bytes, *, data_prop: bool = False) -> None:
    """Start to infer types of a serialized model, beside what else was started: `infer_encoded` gets the answer."""
    _begin(_infer, model, False, data_prop)


def open_sizes(kind: TypeProto, names: bool = False) -> None:
    """Make negative sizes of a type unknown, in place; with `names`, and in a sequence, symbolic ones too."""
    while (of := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        # the elements of a sequence may have different sizes, even where one symbol names them
        names = names or of == "sequence_type"
        kind = getattr(kind, of).elem_type
    for dim in kind.tensor_type.shape.dim:
        if dim.dim_value < 0 or (names and dim.HasField("dim_param")):
            dim.Clear()


def begin() -> None:
    """Fork now: a fork that is made later holds what is loaded until then."""
    # a fork is a snapshot: forked early, it holds little memory
    if HAS_FORK and not _forks.serves:
        _forks.idle.extend(Fork() for _ in range(_MOST - len(_forks.idle)))


def infer_node(model: ModelProto, operator: str, version: int, domain: str) -> GraphProto:
    """Infer the types of one node's outputs by a schema; value_info types what it reads, initializers are constant."""
    schema = operator, version, domain
    return _graph(apart("type inference", _infer_node, model.SerializeToString(), schema))


def convert(model: ModelProto, version: int) -> ModelProto:
    """Convert to another opset version; raises like `infer`."""
    return _model(apart("the version converter", _convert, model.SerializeToString(), version))


def check(model: bytes, folder: str, full: bool) -> None:
    """Run the checker on a serialized model, with external data in a folder; raises like `infer`."""
    apart("the checker", _check, model, folder, full)


def begin_check(model: bytes, folder: str, full: bool) -> None:
    """Start what `check` does, beside what else was started: it gets the answer."""
    _begin(_check, model, folder, full)


def printed(model: ModelProto) -> str:
    """Return a model in ONNX text syntax; raises like `infer`."""
    return apart("the printer", _print, model.SerializeToString()).decode(errors="replace")


def parsed(text: str) -> ModelProto:
    """Parse a model in ONNX text syntax; raises like `infer`."""
    return _model(apart("the parser", _parse, text))


def evaluated(model: ModelProto, most: int) -> GraphProto | None:
    """Run the reference evaluator; return the outputs as initializers, or None above `most` elements."""
    found = apart("the reference evaluator", _evaluate, model.SerializeToString(), most)
    return _graph(found) if found else None


def begin_together(
    what: str,
    work: Callable[..., T],
    *arguments: object,
    size: int = 0,
    kept: "list[Fork] | None" = None,
) -> Callable[[], T]:
    """Start work in a fork of its own; return what waits for its result.

    What the work asks of ONNX is done there, not asked for one by one.

    Args:
        size: bytes of the models that it works on; more of them may take more.
        kept: the forks that do this work again and again: they know what was known when they were made.

    What waits raises:
        RejectedError: the work raised.
        RuntimeCrash, RuntimeTimeout, RuntimeFailure: it crashed, or reached a limit.
    """
    # a fork does its own work itself, without a second fork
    if _forks.serves or not HAS_FORK:
        return partial(_here, work, *arguments)
    limits = allowed(size)
    # by this thread: one that goes on meanwhile might hold a lock that the fork needs
    fork = (kept.pop() if kept else Fork(work)).ask(_own_work, arguments, limits)
    return lambda: pickle.loads(_answer(what, fork, limits, kept))


def begin_beside(
    what: str, work: Callable[[], T], size: int, otherwise: Callable[[], T]
) -> Callable[[], T]:
    """Start work in a fork; return what waits for its result.

    Args:
        what: what limits call it.
        size: bytes of the models that it works on.
        otherwise: gives a result where the fork has none: it crashed, or reached a limit.
    """
    answer = begin_together(what, work, size=size)

    def wait() -> T:
        try:
            return answer()
        except (SurgeonError, RejectedError):
            return otherwise()

    return wait


def _model(encoded: bytes) -> ModelProto:
    model: ModelProto = ModelProto.FromString(encoded)
    return model


def _graph(encoded: bytes) -> GraphProto:
    graph: GraphProto = GraphProto.FromString(encoded)
    return graph


# what the fork does


def _infer(model: bytes, strict: bool, data_prop: bool) -> bytes:
    how = {"check_type": strict, "strict_mode": strict, "data_prop": data_prop}
    typed = shape_inference.infer_shapes(_reliable(model), **how).graph
    for known in ("node", "initializer", "sparse_initializer"):  # what the caller has already
        typed.ClearField(known)
    return _encoded(typed)


def _reliable(model: bytes) -> bytes:
    """Return a model without declared sizes that prove nothing.

    A negative size is an unknown one. A symbol that a body declares may stand for another size than outside, and one in
    a sequence for several.
    """
    # most models have none of these, and stay bytes
    if not any(sign in model for sign in (_NEGATIVE, *walk.GRAPH_TYPES, _SEQUENCE)):
        return model
    part = _model(model)
    for number, graph in enumerate(walk.graphs(part)):
        for info in chain(graph.input, graph.output, graph.value_info):
            # number 0 is the main graph, the others are bodies
            open_sizes(info.type, names=number > 0)
    return _encoded(part)


def _infer_node(model: bytes, schema: tuple[str, int, str]) -> bytes:
    part = _model(model)
    outputs = shape_inference.infer_node_outputs(
        defs.get_schema(*schema),
        part.graph.node[0],
        {info.name: info.type for info in part.graph.value_info},
        by_name(part.graph.initializer),
        opset_imports=list(part.opset_import),
        ir_version=part.ir_version,
    )
    found = GraphProto()
    for name, kind in outputs.items():
        found.value_info.add(name=name, type=kind)
    return _encoded(found)


def _convert(model: bytes, version: int) -> bytes:
    return _encoded(version_converter.convert_version(_model(model), version))


def _check(model: bytes, folder: str, full: bool) -> bytes:
    os.chdir(folder)  # the checker looks for external data there
    checker.check_model(model, full_check=full)
    return b""


def _print(model: bytes) -> bytes:
    return str(printer.to_text(_model(model))).encode(errors="replace")


def _parse(text: str) -> bytes:
    try:
        return _encoded(parser.parse_model(text))
    except parser.ParseError as error:
        if hasattr(TensorProto, "FLOAT4E2M1"):  # a recent parser: the error is about the text
            raise
        limit = "onnx before 1.18 reads no names in quotes, and no names of nodes"
        raise ValueError(f"{_message(error)} ({limit})") from error


def _evaluate(model: bytes, most: int) -> bytes:
    import numpy as np
    from onnx.reference import ReferenceEvaluator  # slow to import, and few edits need it

    from onnxsurgeon_lite.tensors import dtypes

    try:
        results = ReferenceEvaluator(_model(model)).run(None, {})
    except MemoryError:
        return b""
    arrays = [np.asarray(result) for result in results]
    # large results are of no use for shapes
    if any(array.size > most or array.dtype.kind not in "iufb" for array in arrays):
        return b""
    tensors = [dtypes.from_array(array, "") for array in arrays]
    return _encoded(GraphProto(name="results", initializer=tensors))


def _own_work(*arguments: object) -> bytes:
    return pickle.dumps(_forks.work(*arguments))


def _encoded(message: Message) -> bytes:
    return bytes(message.SerializeToString())


def serve(stream: BufferedRWPair, base: int = 0) -> None:
    """Answer requests until the caller hangs up."""
    _forks.serves = True  # from here on, work is done in this process, see `apart`
    while request := _received(stream):
        work, arguments, seconds, memory = pickle.loads(request)
        try:
            with _allowed(seconds, base + memory):
                # The operators of onnxruntime that the model may have must be known to ONNX here, too.
                for part in arguments:
                    if isinstance(part, bytes | str):
                        register_for(part)
                reply = _DONE + work(*arguments)
        except MemoryError:
            reply = _NO_MEMORY
        except Exception as error:  # noqa: BLE001  the caller tells what to do about it
            reply = _REJECTED + _message(error).encode(errors="replace")
        _send(stream, reply)


def _message(error: Exception) -> str:
    """Return what an error says; the parser says it in bytes."""
    parts = [part for part in error.args if isinstance(part, bytes)]
    return b" ".join(parts).decode(errors="replace") or str(error)


@contextlib.contextmanager
def _allowed(seconds: float, memory: int) -> Iterator[None]:
    """Limit the memory, and the time: the caller that began it may never ask."""
    if not HAS_FORK:
        yield
        return
    import resource

    unlimited = resource.getrlimit(resource.RLIMIT_DATA)
    # what counts is the memory beyond that of the fork at its begin
    resource.setrlimit(resource.RLIMIT_DATA, (min(memory, sys.maxsize), unlimited[1]))
    signal.setitimer(signal.ITIMER_REAL, max(seconds, _LEAST))  # SIGALRM ends the process
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, unlimited)


# the caller and its fork


class Fork:
    """A forked process that works for one thread: the system ends it with that thread.

    Args:
        work: what it can be asked for besides, although it cannot be pickled.
    """

    def __init__(self, work: Callable[..., object] = bytes) -> None:
        here, there = socket.socketpair()
        with there:
            # a fork of this process inherits the object, but must not use the connection
            self.caller = os.getpid()
            self.process = _forked()
            if not self.process:
                _forks.work = work
                _work_for(self.caller, there)
        self._connect(here)

    def _connect(self, connection: socket.socket) -> None:
        self._socket, self.stream = connection, connection.makefile("rwb")

    def ask(self, work: Work, arguments: tuple[object, ...], limits: tuple[float, int]) -> "Fork":
        """Ask for work; one that died does not answer."""
        request = pickle.dumps((work, arguments) + limits)
        with contextlib.suppress(OSError):  # the missing answer is noticed in `_answer`
            self._socket.settimeout(max(limits[0], _LEAST))
            _send(self.stream, request)
        return self

    def lives(self) -> bool:
        """Return whether it can be asked, by this process."""
        # it ended, and is collected
        if self.caller == os.getpid() and os.waitpid(self.process, os.WNOHANG)[0]:
            self.process = 0
        return self.caller == os.getpid() and bool(self.process)

    def end(self) -> int:
        """End the process; return its exit code, negative for a signal."""
        with contextlib.suppress(OSError):
            self.stream.close()
        self._socket.close()
        return self._end_process() if self.caller == os.getpid() else 0

    def _end_process(self) -> int:
        process, self.process = self.process, 0
        if not process:
            return 0
        with contextlib.suppress(OSError):  # a signal came before it was known that it ended
            os.kill(process, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return 0

    def __del__(self) -> None:
        if hasattr(self, "stream"):  # a signal can come before
            self.end()


class _Forks(threading.local):
    """The forks of a thread: those that wait for work, and those that work, with what they do.

    Attributes:
        serves: this process is a fork itself, with this work of its own.
    """

    serves = False

    def __init__(self) -> None:
        self.idle = list[Fork]()
        self.begun = list[tuple[Fork, Work, tuple[object, ...]]]()


_forks = _Forks()


def _begin(work: Work, *arguments: object) -> None:
    """Ask a fork for what `apart` will ask for, if nothing goes wrong; what was begun long ago is given up."""
    if not _forks.serves:
        begun = _forks.begun
        # of those that were begun, only the newest is kept: it may still be asked for
        del begun[: 1 - _MOST]
        begun.append((_free_fork().ask(work, arguments, _limits(arguments)), work, arguments))


def _asked_already(work: Work, arguments: tuple[object, ...]) -> Fork | None:
    """Return the fork that was asked for this already."""
    begun = _forks.begun
    for place, (fork, *asked) in enumerate(begun):
        # compared by work and arguments: a caller that asks for the same gets the answer that was begun
        if asked == [work, arguments]:
            del begun[place]
            return fork if fork.lives() else None
    return None


class _Spawned(Fork):
    """A process that is spawned for the same, where the system has no fork."""

    def __init__(self) -> None:
        self.caller = os.getpid()
        with Meeting() as meeting:
            self._started = subprocess.Popen(
                guarded(str(_WORKER), os.pathsep.join(sys.path), place=meeting.place),
                pass_fds=meeting.inherited,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._connect(meeting.connected(self._started))

    def lives(self) -> bool:
        return self.caller == os.getpid() and self._started.poll() is None

    def _end_process(self) -> int:
        assert self._started.stdin
        self._started.stdin.close()
        self._started.kill()
        return self._started.wait()


def _free_fork() -> Fork:
    idle = _forks.idle
    while idle:
        fork = idle.pop()
        if fork.lives():
            return fork
    return Fork() if HAS_FORK else _Spawned()


def _limits(arguments: tuple[object, ...]) -> tuple[float, int]:
    """Return the seconds and the memory that work may take."""
    return allowed(sum(len(a) for a in arguments if isinstance(a, bytes)))


def apart(what: str, work: Work, *arguments: object) -> bytes:
    """Return what work returns in the fork.

    Raises:
        RejectedError: it raised.
        RuntimeCrash, RuntimeTimeout, RuntimeFailure: it crashed, or reached a limit.
    """
    if _forks.serves:
        return _here(work, *arguments)
    limits = _limits(arguments)
    # else a new question
    fork = _asked_already(work, arguments) or _free_fork().ask(work, arguments, limits)
    return _answer(what, fork, limits)


def _answer(
    what: str, fork: Fork, limits: tuple[float, int], kept: list[Fork] | None = None
) -> bytes:
    """Return what a fork answers; raises like `apart`."""
    idle = _forks.idle if kept is None else kept
    (seconds, memory), reply, code, late = limits, b"", 0, False
    try:
        reply = _received(fork.stream)
    except TimeoutError:
        late = True
    except OSError:
        pass  # it died
    finally:
        if not reply:  # without an answer the fork is of no use any more
            code = fork.end()
        elif len(idle) < _MOST:  # it waits for the next question
            idle.append(fork)
    kind, found = reply[: len(_DONE)], reply[len(_DONE) :]
    if late or code == _ALARM:  # the caller's clock or the fork's own alarm
        raise RuntimeTimeout(
            f"{what} did not finish within {seconds:g} seconds", "allow more time with --timeout"
        )
    if not kind:
        raise _crash(what, code)
    if kind == _NO_MEMORY:
        raise RuntimeFailure(
            f"{what} needs more than {memory / 1e9:.3g} GB of memory",
            "allow more with --memory-limit",
        )
    if kind == _REJECTED:
        raise RejectedError(found.decode())
    return found


def _here(work: Callable[..., T], *arguments: object) -> T:
    """Return what work returns, in the fork that asks for it."""
    try:
        return work(*arguments)
    except (MemoryError, RejectedError):
        raise
    except Exception as error:
        raise RejectedError(_message(error)) from error


def _crash(what: str, code: int) -> RuntimeCrash:
    how = ending(code)
    return RuntimeCrash(
        f"{what} crashed on the model: {how}", "cut the model in two with onnxdbg extract"
    )


def _forked() -> int:
    with warnings.catch_warnings():  # other threads hold no lock that the work needs
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _work_for(caller: int, connection: socket.socket) -> NoReturn:
    """Be the fork."""
    gc.freeze()  # what is garbage of the caller stays: a session would wait for threads that are not here
    gc.enable()  # it may work for long
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides what Ctrl-C means
        # handlers of the caller make no sense here
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        # others may wait for the ends of all other files, or hold locks
        kept = connection.fileno()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):  # standard input and output, too
            os.dup2(nothing, standard)
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        end_with_parent()
        # the caller may have ended between the fork and `end_with_parent`
        if os.getppid() == caller:
            serve(connection.makefile("rwb"), _data_size())
    finally:
        os._exit(0)


def _data_size() -> int:
    """Return the bytes of memory that count at the limit."""
    # the sixth number: pages of data and stack
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _send(stream: BufferedRWPair, message: bytes) -> None:
    stream.writelines((len(message).to_bytes(_SIZE, "little"), message))
    stream.flush()


def _received(stream: BufferedRWPair) -> bytes:
    """Return the next message; b'' if it is not complete."""
    size = int.from_bytes(stream.read(_SIZE), "little")
    message = stream.read(size)
    return message if len(message) == size else b""
