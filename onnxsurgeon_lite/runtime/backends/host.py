"""The child process of every runtime but onnxruntime: it hosts a backend, and answers as the worker does.

Started as a script with the number of a connected socket, the name of the runtime, its settings as JSON, and the
caller's `sys.path`. Values stay here as arrays.
"""

import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from io import BufferedRWPair
from itertools import chain
from pathlib import Path
from typing import Any

# the parent's search path, before the package is imported
if __name__ == "__main__":
    sys.path[:] = sys.argv[4].split(os.pathsep)

import numpy as np  # noqa: E402
from onnx import ModelProto, TensorProto, TensorShapeProto, ValueInfoProto  # noqa: E402

from onnxsurgeon_lite.errors import SurgeonError  # noqa: E402
from onnxsurgeon_lite.model import entries, external_tensors  # noqa: E402
from onnxsurgeon_lite.runtime.backends import backend  # noqa: E402
from onnxsurgeon_lite.runtime.protocol import Backend  # noqa: E402
from onnxsurgeon_lite.tensors import dtypes  # noqa: E402
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, RunValues  # noqa: E402
from onnxsurgeon_lite.tensors.signature import signature_of  # noqa: E402

Header = dict[str, object]
Reply = tuple[Header, list[memoryview]]


class Host:
    """One model at a time, and a store of named values that survives it."""

    def __init__(self, stream: BufferedRWPair, name: str, settings: Mapping[str, str]) -> None:
        self.stream = stream
        self.store = dict[str, RunValue]()
        self.held = list[Array]()
        # the model until it can be opened: (model, level, threads)
        self.waiting: tuple[ModelProto, str, int] | None = None
        self._made_of = name, settings

    @cached_property
    def backend(self) -> Backend:
        """The runtime; one that cannot start fails each request that needs it, with the reason."""
        return backend(*self._made_of)

    def serve(self) -> None:
        """Answer requests until the parent hangs up."""
        # a line of JSON, then the bytes that it announces
        for line in iter(self.stream.readline, b""):
            request: dict[str, Any] = json.loads(line)
            action = request.pop("do")
            try:
                reply, payloads = getattr(self, f"do_{action}")(**request)
            except Exception as error:  # noqa: BLE001  the parent reports any failure
                reply = _failure(error)
                payloads = []
            self.stream.write(json.dumps(reply).encode() + b"\n")
            self.stream.writelines(payloads)
            self.stream.flush()

    def do_about(self) -> Reply:
        return asdict(self.backend.abilities), []

    def do_open(self, size: int, folder: str, opt: str, threads: int, **_: object) -> Reply:
        """Open the model whose bytes follow; its external data lies in a folder.

        Many runtimes need the rank of each input: where one is not declared, the first run shows it.
        """
        model = ModelProto.FromString(self.stream.read(size))
        for tensor in external_tensors(model):
            place = entries(tensor.external_data)
            with (Path(folder) / place["location"]).open("rb") as file:
                file.seek(int(place["offset"]))
                tensor.raw_data = file.read(int(place["length"]))
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
        self.waiting = model, opt, threads
        # else the first feeds show the ranks
        if all(map(_is_ranked, model.graph.input)):
            self._open({})
        return {}, []

    def _open(self, feeds: RunValues) -> None:
        if self.waiting is None:
            return
        (model, opt, threads), self.waiting = self.waiting, None
        for declared in model.graph.input:
            value = feeds.get(declared.name)
            if dtypes.is_array(value) and not _is_ranked(declared):
                shape = declared.type.tensor_type.shape
                shape.dim.extend(TensorShapeProto.Dimension(dim_value=n) for n in value.shape)
                shape.SetInParent()  # a scalar has no dimension
        self.backend.open(model, opt, threads)

    def do_put(
        self, name: str, data_type: int, shape: list[int], strings: list[str] | None
    ) -> Reply:
        """Store a value under a name; its bytes follow, unless it holds strings."""
        if strings is not None:
            self.store[name] = np.array(strings, object).reshape(shape)
            return {}, []
        raw = bytearray(dtypes.byte_count(data_type, shape))
        self.stream.readinto(raw)
        self.store[name] = dtypes.decode(data_type, shape, raw)
        return {}, []

    def do_pack(self, name: str, elements: list[str], **_: object) -> Reply:
        """Store a sequence of stored values."""
        self.store[name] = [np.asarray(self.store.pop(element)) for element in elements]
        return {}, []

    def do_run(self, feeds: dict[str, str], fetch: list[str], keep: dict[str, str]) -> Reply:
        """Run on stored values (input name -> stored name); describe what was computed."""
        given = {name: self.store[stored] for name, stored in feeds.items()}
        # what is fetched and what is kept, each once
        names = list(dict.fromkeys(chain(fetch, keep)))
        self._open(given)
        made = self.backend.run(given, names)
        found = {name: made[name] for name in names if name in made}
        self.store.update((s, found[name]) for name, s in keep.items() if name in found)
        return self._described(found, fetch)

    def do_get(self, names: list[str]) -> Reply:
        return self._described({name: self.store[name] for name in names}, names)

    def do_send(self, payload: int) -> Reply:
        """Send the bytes of a held value."""
        return {}, [self.held[payload].data.cast("B")]

    def do_signatures(self, names: list[str], **_: object) -> Reply:
        """Compute signatures of stored float tensors; their numbers follow, in order."""
        headers, payloads = [], []
        for name in names:
            value = np.asarray(self.store[name])
            found = signature_of(value)
            payloads.append(memoryview(found.packed().tobytes() if found else b""))
            half = value.dtype.itemsize == 2
            headers.append({"shape": list(value.shape), "half": half, "bytes": payloads[-1].nbytes})
        return {"signatures": headers}, payloads

    def do_forget(self, names: list[str], **_: object) -> Reply:
        for name in names:
            self.store.pop(name, None)
        return {}, []

    def do_alias(self, names: dict[str, str]) -> Reply:
        """Give stored values additional names (new name -> stored name)."""
        self.store.update([(new, self.store[old]) for new, old in names.items()])
        return {}, []

    def _described(self, values: RunValues, fetch: list[str]) -> Reply:
        """Describe values; the fetched ones stay available until the next request."""
        self.held = []
        # addresses are valid as long as `held` keeps the arrays
        return {
            "values": [
                {"name": n, "fetched": n in fetch, **self._described_one(value)}
                for n, value in values.items()
            ]
        }, []

    def _described_one(self, value: RunValue) -> Header:
        # the type of an optional without a value is not known here
        if value is None:
            return {"kind": "none", "type": "optional(tensor(float))"}
        if isinstance(value, list):
            elements = [self._described_one(element) for element in value]
            kind = elements[0]["type"] if elements else "tensor(float)"
            return {"kind": "sequence", "type": f"seq({kind})", "elements": elements}
        data_type = dtypes.data_type_of_numpy(value.dtype)
        kind = f"tensor({dtypes.dtype_name(data_type)})"
        header: Header = {
            "kind": "tensor",
            "type": kind,
            "data_type": data_type,
            "shape": list(value.shape),
        }
        if data_type == TensorProto.STRING:
            return {**header, "strings": [str(item) for item in value.flat]}
        raw = np.frombuffer(dtypes.payload(value), np.uint8)
        # the parent reads the bytes from this process, or asks for them by their number
        self.held.append(raw)
        return {**header, "payload": len(self.held) - 1, "address": raw.ctypes.data}


def _is_ranked(declared: ValueInfoProto) -> bool:
    kind = declared.type
    return not kind.HasField("tensor_type") or kind.tensor_type.HasField("shape")


def _failure(error: Exception) -> Header:
    if isinstance(error, SurgeonError):
        return {"error": error.message, "hint": error.hint}
    text = str(error).strip() or type(error).__name__
    # the type of the error says more than some messages; a RuntimeError is meant to be read as it is
    return {"error": text if isinstance(error, RuntimeError) else f"{type(error).__name__}: {text}"}


if __name__ == "__main__":
    connection = socket.socket(fileno=int(sys.argv[1])).makefile("rwb")
    Host(connection, sys.argv[2], json.loads(sys.argv[3])).serve()
