"""Sessions in the child process: open a model, put values, run, fetch."""

import math
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from onnx import ModelProto, TensorProto, TypeProto

from onnxsurgeon_lite.errors import (
    EditError,
    NoKernel,
    PartialAnswer,
    RuntimeFailure,
    RuntimeLost,
)
from onnxsurgeon_lite.model import Model, drop, walk
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.options import ORT, REFERENCE, RuntimeOptions, provider_name
from onnxsurgeon_lite.runtime.protocol import Abilities
from onnxsurgeon_lite.runtime.starting import finished, started
from onnxsurgeon_lite.surgery.contrib import in_standard
from onnxsurgeon_lite.tensors import dtypes, signature
from onnxsurgeon_lite.tensors.dtypes import Array, DType, RunValue, Shape, Stored
from onnxsurgeon_lite.tensors.signature import Signature, unpacked

SIGNED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
"""The dtypes of tensors whose signatures the child computes."""

Named = Mapping[str, str] | Iterable[str]
"""Name -> stored name, or only names where both are the same."""

Stream = Iterator[tuple[str, RunValue]]
"""Values with their names, one by one."""

Placed = tuple[str, list[tuple[str, str]]]
"""A provider, and the nodes that it runs together: operator and name."""

_Header = dict[str, Any]
"""The child's description of a value, sent before its bytes."""

_UNKNOWN_OP = (  # of onnxruntime, OpenVINO and ONNX's evaluator
    re.compile(r"Fatal error: (?P<domain>\S*):(?P<op>[^:(]+)\(-?\d+\) is not a registered"),
    re.compile(r"No conversion rule found for operations: ((?P<domain>[\w.]+)\.)?(?P<op>\w+)"),
    re.compile(r"Node type '(?P<op>.*?)' from domain '(?P<domain>.*?)' is unknown"),
)
_NO_KERNEL = re.compile(
    r"Could not find an implementation for (?P<op>[^(]+)\(\d+\) node with name '(?P<name>.*)'"
)
_TRIED = re.compile(r"GraphTransformer (\S+) modified: ")
_CHANGED = re.compile(r"GraphTransformer (\S+) modified: 1 ")
_EP_ERROR = re.compile(r"^EP Error (?:/.*\) )?(.*?)(?: when using \[.*)?$", re.MULTILINE)
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
WHOLE = ("CPU", "CUDA", "ROCM", "Azure")
"""Providers that compile no parts of a graph, so that it can be written."""


@dataclass
class Ran:
    """The result of a run: the fetched values, and the types of all fetched or kept values."""

    values: dict[str, RunValue]
    types: dict[str, TypeProto]


@dataclass(frozen=True)
class Held:
    """A tensor in the child that the next request lets go, unless it is shelved; see `comparison.Readable`."""

    child: Child
    address: int
    shape: Shape
    dtype: DType

    def fill(self, start: int, target: memoryview) -> None:
        """Read the bytes from `start` on; raise `RuntimeCrash` if the child died."""
        if not self.child.fill(self.address + start, target):
            # raises if it died
            self.child.ask("about")
            raise OSError("the runtime's memory cannot be read")

    def array(self) -> Array:
        """Read the tensor."""
        array = np.empty(self.shape, self.dtype)
        self.fill(0, array.ravel().view(np.uint8).data)
        return array


class Runtime:
    """A runtime in a child process; a context manager.

    Stored values stay in the child, in their own dtype, and feed later sessions under their names.

    Attributes:
        held: the bytes of each value that a run stored in the child.
        placed: (provider, (operator, name) of its nodes) of each part of the open model; None where the runtime
            was not asked, or does not say.
        cuts: each value needs a model that ends at it: the runtime returns no inner values.

    Example:
        >>> with osl.Runtime(osl.RuntimeOptions(opt="none")) as runtime:
        ...     sorted(runtime.about())
        ['providers', 'version']
    """

    def __init__(self, options: RuntimeOptions | None = None, child: Child | None = None) -> None:
        """Use a child that is already starting, which its owner ends, or start one when it is needed."""
        self.options = options or RuntimeOptions()
        self._started = self._lent = child
        # two threads may ask for the child first at the same time
        self._starting = threading.Lock()
        self.held = dict[str, int]()
        self.placed: list[Placed] | None = None
        self._partial = False

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *exception: object) -> None:
        with self._starting:
            child, self._started = self._started, self._lent
        # who started a child ends it, once: another runtime may have the process then
        if child is not None and child is not self._lent:
            finished(child, self.options)

    @property
    def _child(self) -> Child:
        with self._starting:
            if self._started is None:
                self._started = started(self.options)
            return self._started

    @contextmanager
    def under(self, options: RuntimeOptions) -> Iterator[None]:
        """Open models with other options for a while."""
        usual, self.options = self.options, options
        try:
            yield
        finally:
            self.options = usual

    def begin(self) -> None:
        """Start the process now: it gets ready while the caller goes on."""
        _ = self._child

    def restart(self) -> None:
        """Continue with a new process, which has no stored values."""
        if self._started is not None:
            self._started.close()
        self._started, self.held = None, {}
        self.begin()

    def stop(self, patience: float = 0.25) -> bool:
        """Cancel the interrupted request; return whether the child stopped in time and still has its values."""
        return self._child.stop(patience)

    def about(self) -> Mapping[str, object]:
        """Return the runtime's version and its providers."""
        return self._child.ask("about")

    @cached_property
    def abilities(self) -> Abilities:
        """What the runtime can do; only another one than onnxruntime is asked."""
        # known without a request: these are the same in all versions
        if self.options.runtime == ORT:
            writes = provider_name(self.options.provider).startswith(WHOLE)
            return Abilities(float64=True, optimized_graph=writes)
        # as the backend describes itself
        told = self.about()
        known = {each.name: told[each.name] for each in fields(Abilities)}
        listed = {k: tuple(v) if isinstance(v, list) else v for k, v in known.items()}
        return Abilities(**cast(dict[str, Any], listed))

    @property
    def elsewhere(self) -> dict[str, list[str]]:
        """Other providers -> the nodes of the open model that they run instead of the one asked for."""
        found = dict[str, list[str]]()
        # parts of the graph that another provider runs
        for provider, nodes in self.placed or ():
            if provider != provider_name(self.options.provider):
                found.setdefault(provider, []).extend(name or op for op, name in nodes)
        return found

    @property
    def title(self) -> str:
        """What messages call the runtime."""
        name = self.options.runtime
        return {ORT: "onnxruntime", "reference": "the ONNX reference evaluator"}.get(name, name)

    @property
    def cuts(self) -> bool:
        return self._partial or not self.abilities.inner

    def open(
        self, model: Model, optimized: Path | None = None, profile: Path | None = None
    ) -> None:
        """Open a session on a model; its weights are mapped from their files.

        Args:
            optimized: file for the graph that the session runs; its weights go beside it.
            profile: how the path of the file begins that `profile` returns; without it nothing is timed.

        Raises:
            RuntimeFailure: the runtime refuses the model; the message names the node if the runtime does.
            RuntimeCrash, RuntimeTimeout: the runtime crashed on the model, or took too long.
        """
        if optimized is not None and not self.abilities.optimized_graph:
            raise RuntimeFailure(f"{self.title} does not tell the graph that it runs")
        # the evaluator knows ONNX's own operators
        if self.options.runtime == REFERENCE:
            try:
                model, *_ = in_standard(model)
            except EditError as error:
                raise RuntimeFailure(error.message, error.hint) from error
        # the structure with the places of weights; the runtime maps their files
        proto, folder = model.for_runtime()
        _name_nodes(proto)
        model_bytes = proto.SerializeToString()
        options = self.options
        # a product with packed integers rounds what it reads, too, where that is allowed
        if options.lean and b"accuracy_level" in model_bytes:
            for node in walk.nodes(walk.graphs(proto)):
                drop(node.attribute, lambda attribute: attribute.name == "accuracy_level")
            model_bytes = proto.SerializeToString()
        provider = provider_name(options.provider)
        try:
            reply = self._child.ask(
                "open",
                [model_bytes],
                options.timeout,
                opt=options.opt,
                folder=str(folder),
                providers=[provider],
                threads=options.threads,
                lean=options.lean,
                ops_libraries=list(map(os.path.abspath, options.ops_libraries)),
                disabled=list(options.disabled),
                settings=dict(options.settings),
                optimized=str(optimized or ""),
                profile=str(profile or ""),
                size=len(model_bytes),
            )
        except RuntimeLost:
            raise
        except RuntimeFailure as error:
            raise _explained(error, proto, options.runtime) from error
        self.placed = cast("list[Placed] | None", reply.get("placed"))
        used = reply.get("providers")
        # onnxruntime falls back to the CPU without an error
        if isinstance(used, list) and provider not in used:
            raise self._without(provider)

    def _without(self, provider: str) -> RuntimeFailure:
        """Say why a provider does not run: onnxruntime has none, or it did not start, and another took its place."""
        there = cast(list[str], self.about()["providers"])
        if provider not in there:
            return RuntimeFailure(
                f"this onnxruntime has no {provider!r}", f"it has: {', '.join(map(repr, there))}"
            )
        # onnxruntime prints the reason
        told = _EP_ERROR.findall(self._child.log())
        return RuntimeFailure(
            f"{provider} does not start: {told[-1] if told else 'onnxruntime does not say why'}",
            "look at its options, and at the device and libraries that it needs",
        )

    def optimizers(self, only_changing: bool = True) -> list[str]:
        """Return the graph optimizers that changed the model, or all that ran, as the runtime's log names them."""
        pattern = _CHANGED if only_changing else _TRIED
        return list(dict.fromkeys(pattern.findall(self._child.log())))

    def put(self, name: str, value: Stored, data_type: int | None = None) -> None:
        """Store a value in the child."""
        if isinstance(value, list):
            # elements under names that no value has, which `pack` takes together
            elements = [f"{name}\0{i}" for i in range(len(value))]
            for element, array in zip(elements, value, strict=True):
                self.put(element, array)
            self._child.ask("pack", name=name, elements=elements, data_type=data_type or 1)
            return
        kind = dtypes.data_type_of_numpy(value.dtype)
        strings = None
        if value.dtype.kind in "OUS":
            strings = [i.decode() if isinstance(i, bytes) else str(i) for i in value.flat]
        # the bytes as they are in memory, of every dtype
        payload = [dtypes.payload(value)] if strings is None else []
        self._child.ask(
            "put", payload, name=name, data_type=kind, shape=list(value.shape), strings=strings
        )

    def forget(self, names: Iterable[str], session: bool = False) -> None:
        """Drop stored values; an interrupted process does not listen, and keeps them.

        Args:
            session: drop the session, too: a model is opened before the next run.
        """
        # half a message may still be on its way
        if self._child.interrupted:
            return
        gone = list(names)
        self._child.ask("forget", names=gone, session=session)
        for name in gone:
            self.held.pop(name, None)

    def alias(self, names: Mapping[str, str]) -> None:
        """Give stored values additional names (new name -> stored name)."""
        self._child.ask("alias", names=dict(names))

    def run(
        self,
        feeds: Named,
        fetch: Sequence[str],
        keep: Named = (),
    ) -> Ran:
        """Run the open session on stored values.

        Args:
            feeds: input name -> name of the stored value, or only names if both are the same.
            fetch: values to return.
            keep: values to store in the child: name -> stored name, or only names if both are the same.

        Raises:
            RuntimeFailure, RuntimeCrash, RuntimeTimeout: the run failed, crashed, or took too long.
        """
        # a stream is complete before another thread makes a request
        with self._child.lock:
            types, values = self.stream(feeds, fetch, keep)
            return Ran(dict(values), types)

    def runs(
        self, samples: Sequence[Mapping[str, Array]], fetch: Sequence[str]
    ) -> list[dict[str, RunValue]]:
        """Run the open session of onnxruntime on several samples, in one request; nothing is stored.

        Raises:
            RuntimeFailure, RuntimeCrash: on any of them.
        """
        described = [
            {n: (dtypes.data_type_of_numpy(v.dtype), v.shape) for n, v in given.items()}
            for given in samples
        ]
        # bytes of all samples, in the order of their descriptions
        bodies = (dtypes.payload(value) for given in samples for value in given.values())
        with self._child.lock:
            reply = self._child.ask("runs", bodies, samples=described, fetch=list(fetch))
            every = cast(list[list[_Header]], reply["samples"])
            return [dict(self._receive_all(headers)) for headers in every]

    def tries(
        self, feeds: Sequence[Mapping[str, str]], fetch: Sequence[str]
    ) -> Iterator[dict[str, RunValue] | None]:
        """Yield what the open session makes of each set of stored values, as `run` does; None where that fails.

        Raises:
            RuntimeCrash, RuntimeTimeout: on any of them.
        """
        if self.options.runtime != ORT:
            for given in feeds:
                try:
                    yield self.run(given, fetch).values
                except RuntimeLost:
                    raise
                except RuntimeFailure:
                    yield None
            return
        # a request takes longer than a run of a small model, so one is for all
        timeout = self.options.timeout and self.options.timeout * len(feeds)
        with self._child.lock:
            reply = self._child.ask("tries", (), timeout, tries=list(feeds), fetch=list(fetch))
            for headers in cast("list[list[_Header] | None]", reply["tries"]):
                yield None if headers is None else dict(self._receive_all(headers))

    def stream(
        self,
        feeds: Named,
        fetch: Sequence[str],
        keep: Named = (),
    ) -> tuple[dict[str, TypeProto], Stream]:
        """Like `run`, but yield values one by one, so that only one is in memory at a time.

        Read them before the next request; no other thread may make one.
        """
        types, headers = self._ran(feeds, fetch, keep)
        return types, self._receive_all(headers)

    def hold(
        self, feeds: Mapping[str, str], fetch: Sequence[str], keep: Mapping[str, str]
    ) -> tuple[dict[str, TypeProto], Iterator[tuple[str, "RunValue | Held"]]]:
        """Like `stream`, but leave tensors in the child that can be read from there."""
        types, headers = self._ran(feeds, fetch, keep)
        fetched = (header for header in headers if header["fetched"])
        return types, ((h["name"], self._held(h) or self._receive(h)) for h in fetched)

    def _ran(
        self,
        feeds: Named,
        fetch: Sequence[str],
        keep: Named,
    ) -> tuple[dict[str, TypeProto], list[_Header]]:
        """Run the open session; return the types and the descriptions of values."""
        kept = named_pairs(keep)
        try:
            reply = self._child.ask(
                "run",
                timeout=self.options.timeout,
                feeds=named_pairs(feeds),
                fetch=list(fetch),
                keep=kept,
            )
        except RuntimeLost:
            raise
        except RuntimeFailure as error:
            raise RuntimeFailure(
                _CODE.sub("", error.message),
                "look at that node with onnxdbg inspect MODEL --node NODE, or cut before it with onnxdbg extract",
            ) from error
        headers = cast(list[_Header], reply["values"])
        self.held.update((kept[h["name"]], _byte_count(h)) for h in headers if h["name"] in kept)
        # a runtime that left values out gets a model for each value from now on
        absent = set(fetch).union(kept).difference(h["name"] for h in headers)
        if absent:
            self._partial = True
            raise PartialAnswer(f"{self.title} gave no {few(sorted(absent))}")
        return {h["name"]: _type(h["type"]) for h in headers}, headers

    @property
    def shelves(self) -> bool:
        """Whether the child can run on while what it holds is read."""
        return self.options.runtime == ORT and not self._partial

    def shelve(self) -> None:
        """Let held tensors be read while the next model opens and runs."""
        self._child.ask("shelve")

    def profile(self, feeds: Iterable[str], fetch: Sequence[str], runs: int) -> Path:
        """Run the open session several times on stored values, and close its profile.

        Returns:
            The runtime's trace, a JSON file in Chrome's format.

        Raises:
            RuntimeFailure, RuntimeCrash, RuntimeTimeout: a run failed, crashed, or they took too long.
        """
        reply = self._child.ask(
            "profile",
            timeout=self.options.timeout,
            feeds=named_pairs(feeds),
            fetch=list(fetch),
            runs=runs,
        )
        return Path(str(reply["file"]))

    def get(self, names: Sequence[str]) -> Stream:
        """Yield stored values, one by one."""
        if names:
            with self._child.lock:
                reply = self._child.ask("get", names=list(names))
                yield from self._receive_all(cast(list[_Header], reply["values"]))

    def signatures(self, names: Sequence[str]) -> Iterator[tuple[str, Shape, Signature | None]]:
        """Yield (name, shape, signature) of stored tensors, which stay in the child; `SIGNED` lists the dtypes."""
        if not names:
            return
        with self._child.lock:
            reply = self._child.ask("signatures", file=signature.__file__, names=list(names))
            for name, header in zip(names, cast(list[_Header], reply["signatures"]), strict=True):
                # the numbers follow the reply, in the order of the names
                shape = tuple(header["shape"])
                numbers = self._child.receive(header["bytes"])
                found = unpacked(shape, header["half"], np.frombuffer(numbers)) if numbers else None
                yield name, shape, found

    def _receive_all(self, headers: Iterable[_Header]) -> Stream:
        for header in headers:
            if header["fetched"]:
                yield header["name"], self._receive(header)

    def _held(self, header: _Header) -> Held | None:
        """Return a tensor that can be read from the child; None for every other value."""
        match header:
            case {"data_type": int(data_type), "shape": list(shape), "payload": int()}:
                # a first byte shows whether the memory can be read at all
                dtype = dtypes.numpy_dtype(data_type)
                first = np.empty(1, np.uint8).data
                size = math.prod(shape) * dtype.itemsize
                # packed dtypes have another size here than in the child
                plain = size == dtypes.byte_count(data_type, shape) > 0
                if plain and self._child.fill(header["address"], first):
                    return Held(self._child, header["address"], tuple(shape), dtype)
        return None

    def _receive(self, header: _Header) -> RunValue:
        match header:
            case {"kind": "none"}:
                return None
            case {"kind": "sequence", "elements": list(elements)}:
                return [self._tensor(element) for element in elements]
            case {"kind": "tensor"}:
                return self._tensor(header)
        raise RuntimeFailure(
            f"value {header['name']!r} is a {header['type']}, which cannot be fetched"
        )

    def _tensor(self, header: _Header) -> Array:
        match header:
            case {"strings": list(strings), "shape": list(shape)}:
                return np.array(strings, dtype=object).reshape(shape)
            case {"data_type": int(data_type), "shape": list(shape), "payload": int(payload)}:
                size = dtypes.byte_count(data_type, shape)
                raw = self._child.read(header["address"], size)
                # the system does not allow it: the child sends the bytes
                if raw is None:
                    self._child.ask("send", payload=payload)
                    raw = self._child.receive(size)
                return dtypes.decode(data_type, shape, raw)
        raise RuntimeFailure(f"the runtime sent an unknown value: {header}")


def run_model(
    model: Model,
    feeds: Mapping[str, Stored],
    options: RuntimeOptions | None = None,
    runtime: Runtime | None = None,
) -> dict[str, RunValue]:
    """Run a model once, in a process of its own if no runtime is given; return its outputs."""
    with Runtime(options) if runtime is None else nullcontext(runtime) as runtime:
        runtime.open(model)
        for name, value in feeds.items():
            runtime.put(name, value)
        outputs = [output.name for output in model.graph.output]
        return runtime.run(list(feeds), outputs).values


def named_pairs(names: Named) -> dict[str, str]:
    """Return name -> stored name, also of names that are stored as they are."""
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


def _byte_count(header: _Header) -> int:
    """Return a value's size; 0 for strings and for an empty optional."""
    match header:
        case {"elements": list(elements)}:
            return sum(map(_byte_count, elements))
        case {"data_type": int(data_type), "shape": list(shape)} if "strings" not in header:
            return dtypes.byte_count(data_type, shape)
    return 0


def _name_nodes(proto: ModelProto) -> None:
    """Give unnamed nodes their ids as names, so that the runtime's messages name them."""
    taken = {node.name for node in proto.graph.node}
    for position, node in enumerate(proto.graph.node):
        # "@3" may be the name of another node
        if not node.name:
            name = f"@{position}"
            node.name = name if name not in taken else f"{name} added"


def _type(text: str) -> TypeProto:
    """Parse onnxruntime's text for a type: `tensor(float)`, `seq(tensor(float))`, `optional(...)`."""
    # "seq(tensor(float))" -> "seq", "tensor(float)"
    outer, _, rest = text.partition("(")
    inner = rest.removesuffix(")")
    result = TypeProto()
    match outer:
        case "tensor":
            result.tensor_type.elem_type = dtypes.data_type_of(inner)
        case "seq":
            result.sequence_type.elem_type.CopyFrom(_type(inner))
        case "optional":
            result.optional_type.elem_type.CopyFrom(_type(inner))
    return result


def _explained(error: RuntimeFailure, proto: ModelProto, runtime: str) -> RuntimeFailure:
    """Explain why the runtime refuses a model, with the nodes that it refuses."""
    if error.hint is not None:
        return error
    is_ort = runtime == ORT
    unknown = next(filter(None, (form.search(error.message) for form in _UNKNOWN_OP)), None)
    if unknown is not None:
        op = unknown["op"]
        domain = unknown["domain"] or "ai.onnx"
        # nodes of this operator, for the message
        ids = [f"@{i}" for i, node in enumerate(proto.graph.node) if node.op_type == op]
        place = f" (node {', '.join(ids[:5])})" if ids else ""
        return NoKernel(
            f"the runtime has no operator {domain}:{op}{place}",
            f"{'give its library with --ops-library, or' if is_ort else 'give'} a function with --ops, or cut "
            "the model before and after the node",
            "" if domain == "ai.onnx" else domain,
            op,
        )
    missing = _NO_KERNEL.search(error.message)
    if missing is not None:
        nodes = walk.with_inner(proto.graph.node)
        domain = next((n.domain for n in nodes if n.name == missing["name"]), "")
        return NoKernel(
            f"the runtime cannot run {missing['op']} for the dtypes of node {missing['name']!r}",
            "let --runtime ort:else=reference compute it, or choose another --provider",
            domain,
            missing["op"],
        )
    return RuntimeFailure(
        f"the runtime refuses the model: {_CODE.sub('', error.message)}",
        "check the model against the specification: onnxdbg check MODEL --full"
        if is_ort
        else "see which nodes it refuses: onnxdbg check MODEL --run, with this --runtime",
    )
