"""The child process: onnxruntime sessions and the values that pass between them.

Started as a script with the number of a connected socket. A request is one JSON message, followed by messages of
raw bytes where it says so; so is a reply. Values stay here as OrtValues: their bytes are copied from and to their
memory, which works for every dtype, those that numpy lacks and those packed below a byte included.

It imports nothing of the package, so that it starts as fast as onnxruntime does.
"""

import ctypes
import json
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort

if TYPE_CHECKING:
    import onnx

Header = dict[str, object]

_LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_STRING = 8


class Worker:
    """One session at a time, and a store of named values that outlives it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.session: ort.InferenceSession | None = None
        self.store: dict[str, ort.OrtValue] = {}
        self.sending: dict[str, ort.OrtValue] = {}

    def serve(self) -> None:
        """Answer requests until the parent hangs up."""
        while True:
            try:
                request = json.loads(self.connection.recv_bytes())
            except EOFError:
                return
            action = request.pop("do")
            try:
                reply, payloads = getattr(self, f"do_{action}")(**request)
            except Exception as error:  # noqa: BLE001  the parent tells what kind it is
                reply, payloads = {"error": str(error), "kind": type(error).__name__}, []
            self.connection.send_bytes(json.dumps(reply).encode())
            for payload in payloads:
                self.connection.send_bytes(payload)
            self.sending = {}

    def do_open(
        self,
        opt: str,
        folder: str,
        providers: list[str],
        threads: int,
        lean: bool,
        ops_libraries: list[str],
        disabled: list[str],
        optimised: str,
    ) -> tuple[Header, list[memoryview]]:
        """Open a session on the model whose bytes follow; `optimised` is where the graph it runs is written."""
        model = self.connection.recv_bytes()
        self.session = None
        options = ort.SessionOptions()
        options.graph_optimization_level = _LEVELS[opt]
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
        if lean:
            options.add_session_config_entry("session.disable_prepacking", "1")
        for library in ops_libraries:
            options.register_custom_ops_library(library)
        if optimised:
            options.optimized_model_filepath = optimised
            options.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", "weights"
            )
            options.log_severity_level = 1  # it logs which transformers changed the graph
        self.session = ort.InferenceSession(
            model, options, providers=providers, disabled_optimizers=disabled or None
        )
        return {"providers": self.session.get_providers()}, []

    def do_put(
        self, name: str, data_type: int, shape: list[int], strings: list[str] | None
    ) -> tuple[Header, list[memoryview]]:
        """Keep a value under a name; its bytes follow, unless it holds strings."""
        if strings is not None:
            self.store[name] = _string_tensor(strings, shape)
            return {}, []
        value = ort.OrtValue.ortvalue_from_shape_and_type(shape, data_type, "cpu", 0)
        if value.tensor_size_in_bytes():
            self.connection.recv_bytes_into(_memory(value))
        else:
            self.connection.recv_bytes()
        self.store[name] = value
        return {}, []

    def do_pack(
        self, name: str, elements: list[str], data_type: int
    ) -> tuple[Header, list[memoryview]]:
        """Keep a sequence made of stored values."""
        if elements:
            values = [self.store.pop(element) for element in elements]
            self.store[name] = _run_node("SequenceConstruct", values)
        else:
            self.store[name] = _run_node("SequenceEmpty", [], dtype=data_type)
        return {}, []

    def do_run(
        self, feeds: dict[str, str], fetch: list[str], keep: list[str]
    ) -> tuple[Header, list[memoryview]]:
        """Run on stored values (input name -> stored name); send what is fetched, store what is kept."""
        if self.session is None:
            raise RuntimeError("no session is open")
        names = list(dict.fromkeys((*fetch, *keep)))
        given = {name: self.store[stored] for name, stored in feeds.items()}
        results = dict(zip(names, self.session.run_with_ort_values(names, given), strict=True))
        self.store.update((name, results[name]) for name in keep)
        return self._send({name: results[name] for name in names}, fetch)

    def do_get(self, names: list[str]) -> tuple[Header, list[memoryview]]:
        """Send stored values."""
        return self._send({name: self.store[name] for name in names}, names)

    def _send(
        self, values: dict[str, ort.OrtValue], fetch: list[str]
    ) -> tuple[Header, list[memoryview]]:
        self.sending = values  # alive until their bytes are gone
        headers, payloads = [], []
        for name, value in values.items():
            header, payload = _describe(value)
            headers.append({"name": name, "fetched": name in fetch, **header})
            if name in fetch:
                payloads += payload
        return {"values": headers}, payloads

    def do_forget(self, names: list[str]) -> tuple[Header, list[memoryview]]:
        """Drop stored values."""
        for name in names:
            self.store.pop(name, None)
        return {}, []

    def do_about(self) -> tuple[Header, list[memoryview]]:
        """The runtime's version and providers."""
        return {"version": ort.__version__, "providers": ort.get_available_providers()}, []


def _describe(value: ort.OrtValue) -> tuple[Header, list[memoryview]]:
    """What a value is, and its bytes."""
    kind = value.data_type()
    if not value.has_value():
        return {"kind": "none", "type": kind}, []
    if value.is_tensor_sequence():
        return _describe_sequence(value)
    if not value.is_tensor():
        return {"kind": "other", "type": kind}, []
    header: Header = {
        "kind": "tensor",
        "type": kind,
        "data_type": value.element_type(),
        "shape": value.shape(),
    }
    if value.element_type() == _STRING:
        return {**header, "strings": [str(item) for item in value.numpy().flat]}, []
    return header, [_memory(value)]


def _describe_sequence(value: ort.OrtValue) -> tuple[Header, list[memoryview]]:
    """A sequence of tensors, element by element: the Python API gives no other way to an element's bytes."""
    length = _run_node("SequenceLength", [value])
    session = _session_of_node("SequenceAt", [value, _position(0)])
    headers, payloads = [], []
    for position in range(int(length.numpy())):
        element = session.run_with_ort_values(["out"], {"in0": value, "in1": _position(position)})[
            0
        ]
        header, payload = _describe(element)
        headers.append(header)
        payloads += [memoryview(bytes(memory)) for memory in payload]  # it ends with the element
    return {"kind": "sequence", "type": value.data_type(), "elements": headers}, payloads


def _position(number: int) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(np.array(number, np.int64))


def _string_tensor(strings: list[str], shape: list[int]) -> ort.OrtValue:
    """onnxruntime makes no OrtValue of strings, except as what a node computes."""
    import onnx

    encoded = [text.encode() for text in strings]
    tensor = onnx.TensorProto(data_type=_STRING, dims=shape, string_data=encoded)
    return _run_node("Constant", [], value=tensor)


def _run_node(
    op_type: str, inputs: list[ort.OrtValue], **attributes: "int | onnx.TensorProto"
) -> ort.OrtValue:
    """The output of one node on values as they are."""
    given = {f"in{i}": value for i, value in enumerate(inputs)}
    return _session_of_node(op_type, inputs, **attributes).run_with_ort_values(["out"], given)[0]


def _session_of_node(
    op_type: str, inputs: list[ort.OrtValue], **attributes: "int | onnx.TensorProto"
) -> ort.InferenceSession:
    """A session on one node, for values like these as `in0`, `in1`; its output is `out`."""
    import onnx  # rarely needed, and half of this process's start-up

    names = [f"in{i}" for i in range(len(inputs))]
    declared = [
        onnx.ValueInfoProto(name=n, type=_type(v)) for n, v in zip(names, inputs, strict=True)
    ]
    node = onnx.NodeProto(op_type=op_type, input=names, output=["out"])
    node.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
    graph = onnx.helper.make_graph([node], op_type, declared, [onnx.ValueInfoProto(name="out")])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _type(value: ort.OrtValue) -> "onnx.TypeProto":
    """The type of a value: `tensor(float)`, or `seq(tensor(float))`."""
    import onnx

    name = value.data_type().removeprefix("seq(").removeprefix("tensor(").rstrip(")")
    element = onnx.helper.make_tensor_type_proto(
        onnx.TensorProto.DataType.Value(name.upper()), None
    )
    return element if value.is_tensor() else onnx.helper.make_sequence_type_proto(element)


def _memory(value: ort.OrtValue) -> memoryview:
    size = value.tensor_size_in_bytes()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(value.data_ptr())).cast("B")


def _guard(memory_limit: int) -> None:
    """Die with the parent, before it when memory runs short, and alone at its limit."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("800")
    if memory_limit:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory_limit, memory_limit))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    _guard(int(sys.argv[2]))
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    Worker(Connection(int(sys.argv[1]))).serve()
