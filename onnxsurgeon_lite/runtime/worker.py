"""The child process: onnxruntime sessions and the values that pass between them.

Started as a script with the number of a connected socket. Requests and replies are one line of JSON, followed by raw
bytes if the line says so. Values stay here as OrtValues. Their bytes are copied from and to their memory, which works
for every dtype, including those that numpy lacks and packed ones below a byte.

It does not import the package, so that it starts as fast as onnxruntime does.
"""

from __future__ import annotations  # an older Python may run it

import contextlib
import ctypes
import functools
import importlib.util
import json
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from io import BufferedRWPair
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

# numpy only copies here: without threads for its linear algebra it starts in three quarters of the time
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402

if TYPE_CHECKING:
    import onnx

    Header = dict[str, object]
    Values = dict[str, ort.OrtValue]
    Reply = tuple[Header, list[memoryview]]

_LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_STRING = 8
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
_BITS = (
    0,
    32,
    8,
    8,
    16,
    16,
    32,
    64,
    0,
    8,
    16,
    64,
    32,
    64,
    64,
    128,
    16,
    8,
    8,
    8,
    8,
    4,
    4,
    4,
    8,
    2,
    2,
)
"""Those of an element of each `TensorProto.DataType`."""
_NUMPY = [
    "",
    "f4",
    "u1",
    "i1",
    "u2",
    "i2",
    "i4",
    "i8",
    "",
    "?",
    "f2",
    "f8",
    "u4",
    "u8",
    "c8",
    "c16",
]
"""numpy's dtype of each, where it has one."""
_RESIDENT = (
    256 << 20
)  # bytes that can stay in memory: of mapped files while a session works, of all after it
_RECORD = "session.record_ep_graph_assignment_info"
_REST = 60  # seconds that it waits for another runtime
_LOOK = 0.01  # seconds between two checks of it
_DONTNEED = 4  # MADV_DONTNEED
_LOOKS_HERE = [int(number) for number in ort.__version__.split(".")[:2]] < [1, 21]
"""It looks for some weights in the working folder, whatever folder it is given."""


class Worker:
    """One session at a time, and a store of named values that survives it."""

    def __init__(self, stream: BufferedRWPair) -> None:
        self.stream = stream
        self.clear()

    def clear(self) -> None:
        """Hold nothing, as after the start."""
        self.session: ort.InferenceSession | None = None
        self.folder = ""
        self.store: Values = {}
        self.held: list[tuple[ort.OrtValue, memoryview]] = []
        # held by the request before, and by the session before: tensors that the parent may still be reading
        self.shelved, self.before = self.held, self.held
        self.running = ort.RunOptions()

    def stop_on_signal(self) -> None:
        """On the signal, end the current run at its next node; a thread waits for it, because a run blocks this one."""
        if not hasattr(signal, "SIGUSR1"):
            return  # Windows
        # a signal interrupts no kernel: Python's handler writes a byte, which the thread waits for
        signals, wakes = socket.socketpair()
        wakes.setblocking(False)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.set_wakeup_fd(wakes.detach())
        threading.Thread(target=self._stop_on_signal, args=[signals], daemon=True).start()

    def _stop_on_signal(self, signals: socket.socket) -> None:
        while signals.recv(1):
            self.running.terminate = True

    def serve(self) -> None:
        """Answer requests until the parent hangs up."""
        for line in iter(self.stream.readline, b""):
            request = json.loads(line)
            action = request.pop("do")
            _wait(0)
            # a request that computes lets go of what the last one held
            if action not in ("send", "forget", "shelve"):
                self.held, self.running = [], ort.RunOptions()
            try:
                reply, payloads = getattr(self, f"do_{action}")(**request)
            except Exception as error:  # noqa: BLE001  the parent distinguishes the kinds
                reply, payloads = {"error": str(error), "kind": type(error).__name__}, []
            self.stream.write(json.dumps(reply).encode() + b"\n")
            self.stream.writelines(payloads)
            self.stream.flush()

    def do_open(
        self,
        *,
        opt: str,
        folder: str,
        providers: list[str],
        threads: int,
        lean: bool,
        ops_libraries: list[str],
        disabled: list[str],
        settings: dict[str, str],
        optimized: str,
        profile: str,
        size: int,
    ) -> Reply:
        """Open a session on the model whose bytes follow.

        Its optimized graph is written to `optimized`, what it times to a file that begins so as `profile`.
        """
        model = self.stream.read(size)
        # the old session first: both would not fit into memory
        self.session = None
        # shelved tensors live through one more session
        self.before, self.shelved = self.shelved, []
        # the runtime takes no other text than UTF-8
        if folder and (_LOOKS_HERE or not _is_utf8(folder)):
            os.chdir(folder)
            folder = "."
        options = ort.SessionOptions()
        options.graph_optimization_level = _LEVELS[opt]
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        # idle threads would otherwise spin, which takes more processor time than a small model does; what is timed is
        # timed as the runtime works where nothing is set
        options.add_session_config_entry("session.intra_op.allow_spinning", "01"[bool(profile)])
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
        if lean:
            # without its packed copy, a product with integers in blocks makes its whole weight float at each run
            if b"MatMulNBits" not in model:
                options.add_session_config_entry("session.disable_prepacking", "1")
            # an arena is given back at the end of a session, and got anew, page by page, for the next one
            options.enable_cpu_mem_arena = False
        # settings with a dot are those of the session
        own = {key: settings.pop(key) for key in list(settings) if "." in key}
        for key, value in own.items():  # what is left is the provider's
            options.add_session_config_entry(key, value)
        records = _RECORD in own or providers[0] != "CPUExecutionProvider"
        if records:
            options.add_session_config_entry(_RECORD, "1")
        for library in ops_libraries:
            options.register_custom_ops_library(library)
        if optimized:
            options.optimized_model_filepath = optimized
            options.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", "weights"
            )
            options.log_severity_level = 1  # the log names the transformers that changed the graph
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        self.folder = os.path.realpath(folder)
        # weights that were mapped during loading are dropped again
        with _few_pages(self.folder):
            self.session = ort.InferenceSession(
                model,
                options,
                # settings of the provider come with its name
                providers=providers[:-1] + [(providers[-1], settings)] if settings else providers,
                disabled_optimizers=disabled or None,
            )
        placed = _placed(self.session) if records else None
        return {"providers": self.session.get_providers(), "placed": placed}, []

    def do_put(
        self, name: str, data_type: int, shape: list[int], strings: list[str] | None
    ) -> Reply:
        """Store a value under a name; its bytes follow, unless it holds strings."""
        if strings is not None:
            import onnx

            # the output of a node: onnxruntime has no other way
            encoded = [text.encode() for text in strings]
            tensor = onnx.TensorProto(data_type=_STRING, dims=shape, string_data=encoded)
            self.store[name] = _run_node("Constant", [], value=tensor)
            return {}, []
        self.store[name] = self._read(data_type, shape)
        return {}, []

    def _read(self, data_type: int, shape: list[int]) -> ort.OrtValue:
        """Return a tensor whose bytes come next."""
        value = _empty(shape, data_type)
        memory = _memory(value)
        if memory:  # a tensor without elements has no memory to read into
            self.stream.readinto(memory)
        return value

    def do_pack(self, name: str, elements: list[str], data_type: int) -> Reply:
        """Store a sequence of stored values."""
        if elements:
            values = [self.store.pop(element) for element in elements]
            self.store[name] = _run_node("SequenceConstruct", values)
        else:
            self.store[name] = _run_node("SequenceEmpty", [], dtype=data_type)
        return {}, []

    def do_run(self, feeds: dict[str, str], fetch: list[str], keep: dict[str, str]) -> Reply:
        """Run on stored values (input name -> stored name); hold the fetched values, store the kept ones."""
        # each value once, even if it is fetched and kept
        names = list(dict.fromkeys(chain(fetch, keep)))
        with _few_pages(self.folder):
            results = self._run({n: self.store[stored] for n, stored in feeds.items()}, names)
        # kept values must not keep the whole memory of a run
        kept = _apart({name: results[name] for name in keep}, len(names))
        self.store.update((stored, kept[name]) for name, stored in keep.items())
        return self._hold(results, fetch)

    def do_runs(self, samples: list[dict[str, tuple[int, list[int]]]], fetch: list[str]) -> Reply:
        """Run on tensors (name -> dtype, shape) whose bytes follow, sample by sample; hold the values of all."""
        # the bytes follow the request in this order
        fed = [{name: self._read(*kind) for name, kind in sample.items()} for sample in samples]
        made = [self._run(given, fetch) for given in fed]
        return {"samples": [self._hold(values, fetch)[0]["values"] for values in made]}, []

    def do_tries(self, tries: list[dict[str, str]], fetch: list[str]) -> Reply:
        """Run on several sets of stored values; hold what each computes, null for one that fails."""
        made: list[object] = []
        for feeds in tries:
            try:
                values = self._run({n: self.store[stored] for n, stored in feeds.items()}, fetch)
            except Exception:  # noqa: BLE001  whatever it is, the others go on
                made.append(None)
            else:
                made.append(self._hold(values, fetch)[0]["values"])
        return {"tries": made}, []

    def _run(self, given: Values, names: list[str]) -> Values:
        if self.session is None:
            raise RuntimeError("no session is open")
        outputs = self.session.run_with_ort_values(names, given, self.running)
        return dict(zip(names, outputs))  # noqa: B905  `strict` came with Python 3.10

    def do_profile(self, feeds: dict[str, str], fetch: list[str], runs: int) -> Reply:
        """Run several times on stored values; return the file that says how long each node took."""
        given = {name: self.store[stored] for name, stored in feeds.items()}
        for _ in range(runs):
            self._run(given, fetch)
        assert self.session
        return {"file": self.session.end_profiling()}, []

    def do_get(self, names: list[str]) -> Reply:
        """Hold stored values, so that the parent can fetch them."""
        return self._hold({name: self.store[name] for name in names}, names)

    def do_signatures(self, file: str, names: list[str]) -> Reply:
        """Compute signatures of stored float tensors with the function in a file; their numbers follow, in order."""
        # this process does not import the package, so the function comes from its file
        signature_of = _loaded(file).signature_of
        headers, payloads = [], []
        for name in names:
            value = self.store[name]
            shape, dtype = value.shape(), np.dtype(_NUMPY[value.element_type()])
            found = signature_of(np.frombuffer(_memory(value), dtype).reshape(shape))
            payloads.append(memoryview(found.packed() if found else b"").cast("B"))
            half = dtype.itemsize == 2
            headers.append({"shape": shape, "half": half, "bytes": payloads[-1].nbytes})
        return {"signatures": headers}, payloads

    def do_shelve(self) -> Reply:
        """Hold the fetched values on, until a session is opened after the next one."""
        self.shelved = self.held
        return {}, []

    def do_send(self, payload: int) -> Reply:
        """Send the bytes of a held value."""
        return {}, [self.held[payload][1]]

    def _hold(self, values: Values, fetch: list[str]) -> Reply:
        """Describe values; the fetched ones stay available until the next request."""
        headers = [
            # values of unfetched results are described, too: the parent learns their types
            {"name": n, "fetched": n in fetch, **self._describe(value, n in fetch)}
            for n, value in values.items()
        ]
        return {"values": headers}, []

    def _describe(self, value: ort.OrtValue, fetched: bool) -> Header:
        kind = value.data_type()
        if not value.has_value():
            return {"kind": "none", "type": kind}
        if value.is_tensor_sequence():
            elements = [self._describe(element, fetched) for element in _elements(value)]
            return {"kind": "sequence", "type": kind, "elements": elements}
        if not value.is_tensor():
            return {"kind": "other", "type": kind}
        header: Header = {
            "kind": "tensor",
            "type": kind,
            "data_type": value.element_type(),
            "shape": value.shape(),
        }
        if not fetched:
            return header
        if value.element_type() == _STRING:
            return {**header, "strings": [str(item) for item in value.numpy().flat]}
        # the parent reads from the address, or asks for the bytes by number
        self.held.append((value, _memory(value)))
        return {**header, "payload": len(self.held) - 1, "address": value.data_ptr()}

    def do_forget(self, names: list[str], session: bool) -> Reply:
        # weights that a session packed take much memory, which the allocator would keep
        if session:
            self.session = None
            if _TRIM:
                _TRIM(0)
        for name in names:
            self.store.pop(name, None)
        return {}, []

    def do_alias(self, names: dict[str, str]) -> Reply:
        """Give stored values additional names (new name -> stored name)."""
        self.store.update([(new, self.store[old]) for new, old in names.items()])
        return {}, []

    def do_rest(self) -> Reply:
        """Wait for another runtime, unless much memory stays; end after a while."""
        self.clear()
        # a new one would begin in the parent's folder; only Linux tells which one that is
        os.chdir(f"/proc/{os.getppid()}/cwd")
        # the parent may never ask again, and live for days
        _wait(_REST)
        return {"rests": _resident() < _RESIDENT}, []

    def do_about(self) -> Reply:
        """Return the runtime's version and providers."""
        return {"version": ort.__version__, "providers": ort.get_available_providers()}, []


def _wait(seconds: int) -> None:
    """End this process when no request comes for some time; 0 for no end."""
    # nothing handles the signal, so it ends the process
    if sys.platform == "linux":
        signal.alarm(seconds)


def _placed(session: ort.InferenceSession) -> list[tuple[str, list[tuple[str, str]]]] | None:
    """Return the parts of the graph: (provider, (operator, name) of its nodes); before 1.24 nothing is known."""
    # before 1.24
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    parts = session.get_provider_graph_assignment_info()
    return [(part.ep_name, [(n.op_type, n.name) for n in part.get_nodes()]) for part in parts]


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


@functools.lru_cache(maxsize=None)  # noqa: UP033  `cache` came with Python 3.9
def _loaded(file: str) -> ModuleType:
    """Load a module from its file: this process does not import the package."""
    spec = importlib.util.spec_from_file_location(f"of_{Path(file).stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _elements(value: ort.OrtValue) -> list[ort.OrtValue]:
    """Return the tensors of a sequence, each read by a node: the Python API has no access to an element's bytes."""
    length = _run_node("SequenceLength", [value])
    # one session for all elements
    session = _session_of_node("SequenceAt", [value, _position(0)])
    places = map(_position, range(int(length.numpy())))
    return [session.run_with_ort_values(["out"], {"in0": value, "in1": p})[0] for p in places]


def _position(number: int) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(np.array(number, np.int64))


def _run_node(
    op_type: str, inputs: list[ort.OrtValue], **attributes: int | onnx.TensorProto
) -> ort.OrtValue:
    """Run one node on these values."""
    given = {f"in{i}": value for i, value in enumerate(inputs)}
    return _session_of_node(op_type, inputs, **attributes).run_with_ort_values(["out"], given)[0]


def _session_of_node(
    op_type: str, inputs: list[ort.OrtValue], **attributes: int | onnx.TensorProto
) -> ort.InferenceSession:
    """Return a session on one node, for values of these types as `in0`, `in1`; its output is `out`."""
    import onnx  # imported late: rarely needed, and half of this process's start time

    names = [f"in{i}" for i in range(len(inputs))]
    # with the types of the values: one node serves tensors and sequences
    declared = [
        onnx.ValueInfoProto(name=f"in{i}", type=_type(value)) for i, value in enumerate(inputs)
    ]
    node = onnx.NodeProto(op_type=op_type, input=names, output=["out"])
    node.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
    graph = onnx.helper.make_graph([node], op_type, declared, [onnx.ValueInfoProto(name="out")])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _type(value: ort.OrtValue) -> onnx.TypeProto:
    """Return the type of a value: `tensor(float)`, or `seq(tensor(float))`."""
    import onnx

    # "seq(tensor(float))" -> "float"
    name = value.data_type().rpartition("(")[2].rstrip(")")
    element = onnx.helper.make_tensor_type_proto(
        onnx.TensorProto.DataType.Value(name.upper()), None
    )
    return element if value.is_tensor() else onnx.helper.make_sequence_type_proto(element)


def _apart(values: Values, of: int) -> Values:
    """Return some values of a run in memory of their own, if they are few: one alone keeps all of the run."""
    # all outputs of a run share an arena: one that is kept keeps it whole
    return {n: _copied(v) for n, v in values.items()} if 2 * len(values) < of else values


def _copied(value: ort.OrtValue) -> ort.OrtValue:
    is_tensor = value.has_value() and value.is_tensor()
    if not is_tensor or value.element_type() == _STRING or 0 in value.shape():
        return value
    copy = _empty(value.shape(), value.element_type())
    _memory(copy)[:] = _memory(value)
    return copy


def _empty(shape: list[int], data_type: int) -> ort.OrtValue:
    """Return a tensor whose memory is to be filled."""
    make = ort.OrtValue.ortvalue_from_shape_and_type
    try:
        return make(shape, data_type, "cpu", 0)
    except RuntimeError:  # before 1.20 it takes no numbers of dtypes
        return make(shape, np.dtype(_NUMPY[data_type]).type, "cpu", 0)


def _memory(value: ort.OrtValue) -> memoryview:
    # rounded up: several elements share a byte below 8 bits
    size = -(-math.prod(value.shape()) * _BITS[value.element_type()] // 8)
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(value.data_ptr())).cast("B")


@contextlib.contextmanager
def _few_pages(folder: str) -> Iterator[None]:
    """Drop weights from memory after use: the page cache holds them, so this process need not."""
    if sys.platform != "linux":
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_let_go, args=(folder, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _let_go(folder: str, done: threading.Event) -> None:
    libc = ctypes.CDLL(None)
    # a thread, because loading blocks this one
    while not done.wait(_LOOK):
        if _resident(of_files=True) > _RESIDENT:
            for start, size in _mapped(folder):
                libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _DONTNEED)


def _resident(of_files: bool = False) -> int:
    """Return the bytes of this process that are in memory: all, or those that are mapped from files."""
    pages = Path("/proc/self/statm").read_text().split()
    return int(pages[1 + of_files]) * os.sysconf("SC_PAGE_SIZE")


def _mapped(folder: str) -> Iterator[tuple[int, int]]:
    """Return (address, size) of clean mappings of files in a folder: once dropped, they can be read again."""
    span = (0, 0)
    with open("/proc/self/smaps") as file:
        for line in file:
            # a line that begins a mapping: "7f..-7f.. r--p offset device inode path"
            first, *rest = line.split(maxsplit=5)
            if not first.endswith(":"):
                start, end = (int(part, 16) for part in first.split("-"))
                inside = len(rest) == 5 and rest[-1].startswith(f"{folder}/")
                span = (start, end - start) if inside else (0, 0)
            elif first == "Anonymous:" and rest[0] == "0" and span[1]:
                yield span


if __name__ == "__main__":
    worker = Worker(socket.socket(fileno=int(sys.argv[1])).makefile("rwb"))
    worker.stop_on_signal()
    worker.serve()
