"""Damaged files of every other kind, led by what they reach: bytes that run new lines are damaged further.

A reader returns or raises `SurgeonError`, within its time.
"""

import argparse
import base64
import contextlib
import io
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np
from onnx import SequenceProto, numpy_helper

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import load, passes
from onnxsurgeon_lite.debug.journal import Journal
from onnxsurgeon_lite.debug.profiling.tensorrt import read_profile
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.patterns import conditions
from onnxsurgeon_lite.graph.patterns.rule import read_rules, shipped
from onnxsurgeon_lite.matching.suite import read_suite
from onnxsurgeon_lite.matching.values.mapping import load_map
from onnxsurgeon_lite.model.formats import written
from onnxsurgeon_lite.passes.build import parse_text
from onnxsurgeon_lite.passes.recipe import read_recipe
from onnxsurgeon_lite.recording.checkpoint import open_checkpoint
from onnxsurgeon_lite.tensors.references import open_references, save_tensors
from onnxsurgeon_lite.tensors.references.writing import FolderWriter
from seeds import seeds

if TYPE_CHECKING:
    from __main__ import Attack

_SECONDS = 10
_PACKAGE = str(Path(osl.__file__).parent)
_PIECES = (
    b"\0", b"\xff" * 8, b"{", b"}", b"[", b"]", b'"', b"-1", b"1e400", b"NaN", b"9" * 5000, b"[" * 5000, b"null",
    b"shape", b"dtype", b"data_offsets", b"F32", b"pairs", b"verb", b"descr", b"fortran_order", b"|O8", b"PK\x03\x04",
    b"\x80\x04", b"../x", b"/etc/passwd", b"\n# where ", b"\n# each Op: A, B, C", b"pattern ", b"_",
)  # fmt: skip
_ARRAY = np.arange(300, dtype=np.float32)
_REWRITTEN = osl.build("""g (float[2, 3] x) => (float[2, 3] y) {
    c = Constant<value_float = 2.0>() a = Add(x, c) b = Add(a, x) d = Neg(b) e = Neg(d) f = Softmax<axis = 1>(e)
    g = Add(f, d) h = Add(g, b) i = Mul(h, g) y = Add(i, a)
}""")
_INDEX = GraphIndex.of(_REWRITTEN)
_STEPS = 2000
_RULE = b"""# each Op: Add, Mul
# where a < 3, shape(x)[0] == shape(z)[0], [i for i in range(2) if i < a] == [0, 1], z in [1] or not given(y)
# optional z
# keep d
part <a> (x) => (z) { n = Constant<value_float: float = @a>() z = Op(x, n) }
part <a> (x) => (z) { z = Softmax<axis: int = @a>(x) }
pattern <a> (x, y) => (z) { d = part(x) z = Add(d, y) }
replacement <b> (x, y) => (z) { z = Sub<_ = 1>(x, y) }
"""


def _read_all(path: Path) -> None:
    stored = open_references(path)
    for name in stored:
        stored.read(name)


def _read_checkpoint(path: Path) -> None:
    stored = open_checkpoint(path)
    for name in stored:
        stored.read(name)


def _resume(path: Path) -> None:
    Journal.at(path, "0", resume=True).close()


def _match(path: Path) -> None:
    """Read rules and apply them, in few steps: most of the time would go into matches that are much the same."""
    with _few_steps():
        passes.Rewrite((str(path),)).edit(_INDEX)


@contextlib.contextmanager
def _few_steps() -> Iterator[None]:
    usual, conditions._STEPS = conditions._STEPS, _STEPS  # type: ignore[misc]
    try:
        yield
    finally:
        conditions._STEPS = usual  # type: ignore[misc]


def _text(path: Path) -> None:
    with contextlib.suppress(UnicodeDecodeError):
        parse_text(path.read_bytes().decode())


def _sequence() -> bytes:
    values = [numpy_helper.from_array(_ARRAY[:2])] * 2
    return bytes(SequenceProto(name="s", elem_type=1, tensor_values=values).SerializeToString())


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _torch() -> bytes:
    import torch

    file = io.BytesIO()
    torch.save({"w": torch.ones(3)}, file)
    return file.getvalue()


def _saved(name: str, folder: Path) -> bytes:
    save_tensors(folder / name, {"a": _ARRAY, "b": _ARRAY[:3]})
    return (folder / name).read_bytes()


Reader = Callable[[Path], object]
KINDS: dict[str, tuple[str, Reader, Callable[[Path], bytes]]] = {
    "npz": ("damaged.npz", _read_all, lambda folder: _saved("seed.npz", folder)),
    "npy": ("damaged.npy", _read_all, lambda _: _npy(_ARRAY)),
    "safetensors": (
        "damaged.safetensors",
        _read_all,
        lambda folder: _saved("seed.safetensors", folder),
    ),
    "pb": (
        "test_data_set_0/input_0.pb",
        lambda path: _read_all(path.parent),
        lambda _: numpy_helper.from_array(_ARRAY, "x").SerializeToString(),
    ),
    "sequence": (
        "test_data_set_0/input_0.pb",
        lambda path: _read_all(path.parent),
        lambda _: _sequence(),
    ),
    "recorded": (
        "recorded/index.json",
        lambda path: _read_all(path.parent),
        lambda folder: _index(folder),
    ),
    "checkpoint": ("damaged.pt", _read_checkpoint, lambda _: _torch()),
    "weights": (
        "weights.safetensors",
        _read_checkpoint,
        lambda folder: _saved("seed.safetensors", folder),
    ),
    "text": (
        "text.txt",
        _text,
        lambda _: b"g (float[2] x) => (float[2] y) <float w = {1}> { y = Add<a = 1>(x, w) }",
    ),
    "rule": ("rule.onnxtxt", read_rules, lambda _: _RULE),
    "match": ("rule.onnxtxt", _match, lambda _: _RULE),
    "configuration": (
        "onnxdbg.toml",
        read_suite,
        lambda _: b'[[check]]\nname = "a"\nmodel = "m"\nreference = "r"\ntolerance = { "3*" = { rtol = 1e-4 } }\n',
    ),
    "recipe": (
        "recipe.toml",
        lambda path: read_recipe(path, passes.PASSES),
        lambda _: b'[[step]]\nverb = "remove"\nnodes = ["@0"]\n[[step]]\nverb = "clean"\n',
    ),
    "map": (
        "map.json",
        load_map,
        lambda _: json.dumps({
            "format": "onnxsurgeon-map", "version": 1, "pairs": [{"a": "x", "b": "y", "axes": [0]}]
        }).encode(),
    ),
    "journal": (
        "journal",
        _resume,
        lambda _: (
            b'{"question": "0"}\n{"state": ["none", "a"], "value": "v", "good": true}\n'
        ),
    ),
    "package": (
        "genai_config.json",
        lambda path: load(path.parent),
        lambda _: b'{"model": {"decoder": {"filename": "m.onnx", "head_size": 8}, "vocab_size": 9}}',
    ),
    "config": (
        "config.json",
        lambda path: osl.check(_REWRITTEN, config=path),
        lambda _: (
            b'{"num_hidden_layers": 2, "hidden_size": 4, "num_attention_heads": 2, "vocab_size": 8, "rope_theta": 1e4,'
            b' "rope_scaling": {"factor": 2.0}, "layer_types": ["full_attention"], "sliding_window": 4}'
        ),
    ),
    "polygraphy": ("damaged.json", _read_all, lambda _: _polygraphy()),
    "etdump": ("damaged.etdp", _read_all, lambda folder: _etdump(folder)),
    "adapter": ("damaged.onnx_adapter", _read_all, lambda _: _adapter()),
    "raw": ("raw/shapes.json", lambda path: _read_all(path.parent), lambda folder: _raw(folder)),
    "profile": (
        "trt.json",
        lambda path: read_profile(path, _INDEX),
        lambda _: (
            b'[{"count": 10}, {"name": "PWN(a, {ForeignNode[b...node_of_d]})", "averageMs": 1.5, "medianMs": 1.4},'
            b' {"name": "node_of_a + node_of_b || node_of_d", "averageMs": 1}]'
        ),
    ),
    "layers": (
        "layers.json",
        lambda path: read_profile(_profile(path), _INDEX, path),
        lambda _: (
            b'{"Layers": [{"Name": "node_of_a", "LayerType": "Reformat", "Metadata":'
            b' "[ONNX Layer: node_of_a]\\u001e[ONNX Layer: node_of_b]"}]}'
        ),
    ),
    "model": ("damaged.onnx", load, lambda _: _model()),
    "textproto": ("damaged.textproto", load, lambda _: written(_model(), "textproto")),
    "json": ("damaged.json", load, lambda _: written(_model(), "json")),
}  # fmt: skip


def _model() -> bytes:
    return seeds()["weights"]


def _polygraphy() -> bytes:
    text = base64.b64encode(_npy(_ARRAY[:3])).decode()
    plain = {"array": text, "polygraphy_class": "ndarray"}
    late = {"values": plain, "polygraphy_class": "LazyArray"}
    sample = {"outputs": {"a": late, "b": plain}, "polygraphy_class": "IterationResult"}
    results = {"lst": [["onnxrt", [sample, sample]]], "polygraphy_class": "RunResults"}
    return json.dumps(results).encode()


def _etdump(folder: Path) -> bytes:
    """Copy the buffer of a real dump; the dump is what gets damaged."""
    kept = Path(__file__).resolve().parents[2] / "fixtures/executorch"
    (folder / "etdump/damaged.bin").write_bytes((kept / "layers.bin").read_bytes())
    return (kept / "layers.etdp").read_bytes()


def _adapter() -> bytes:
    from onnxruntime import AdapterFormat, OrtValue

    file = AdapterFormat()
    file.set_parameters({"a": OrtValue.ortvalue_from_numpy(_ARRAY[:3].astype(np.float32))})
    with tempfile.TemporaryDirectory() as folder:
        file.export_adapter(f"{folder}/a.onnx_adapter")
        return Path(folder, "a.onnx_adapter").read_bytes()


def _raw(folder: Path) -> bytes:
    """Write two tensors; what says their shapes is what gets damaged."""
    place = folder / "raw" / "raw"
    place.mkdir(parents=True, exist_ok=True)
    for name in ("a", "b"):
        (place / f"{name}.raw").write_bytes(_ARRAY[:6].tobytes())
    return b'{"a": [2, 3], "b": {"shape": [12], "dtype": "float16"}}'


def _profile(path: Path) -> Path:
    profile = path.with_name("profile.json")
    profile.write_text('[{"name": "node_of_a", "averageMs": 1}, {"name": "y", "averageMs": 1}]')
    return profile


def _index(folder: Path) -> bytes:
    """Record a set; its index is what gets damaged."""
    with FolderWriter(folder / "recorded" / "recorded") as writer:
        writer.add("a", _ARRAY)
        writer.add("b", [_ARRAY, _ARRAY])
    return (folder / "recorded" / "recorded" / "index.json").read_bytes()


def mutants_of(attack: "Attack", _: dict[str, bytes], given: argparse.Namespace) -> Iterator[None]:
    """Attack every reader in turn, a thousand damaged files at a time."""
    kinds = given.kinds.split(",") if given.kinds else list(KINDS)
    known = {kind: _Known(attack, kind) for kind in kinds}
    for number in range(given.first, given.first + given.mutants):
        kind = kinds[number % len(kinds)]
        known[kind].attack(Random(f"{given.seed}/{number}"), f"{kind}-{given.seed}-{number}")
        attack.counts["lines reached"] = sum(len(each.reached) for each in known.values())
        yield


class _Known:
    """The inputs of one reader that reach different lines."""

    def __init__(self, attack: "Attack", kind: str) -> None:
        name, self.read, seed = KINDS[kind]
        self.attacked, self.path = attack, attack.folder / kind / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.inputs = [seed(self.attacked.folder)]
        self.inputs += [path.read_bytes() for path in examples(kind)]
        self.reached: set[tuple[str, int]] = set()

    def attack(self, random: Random, label: str) -> None:
        """Read a damaged file; keep it if it reaches something new, or breaks the reader."""
        data = damaged(random.choice(self.inputs), random.choice(self.inputs), random)
        self.path.write_bytes(data)
        self.attacked.counts["files read"] += 1
        reached: set[tuple[str, int]] = set()
        wrong = ""
        began = time.monotonic()
        with _traced(reached), timed():
            try:
                self.read(self.path)
            except SurgeonError:
                pass
            except BaseException as error:  # noqa: BLE001  whatever it is, it is not in words
                wrong = f"{type(error).__name__}: {error}"
        if time.monotonic() - began > _SECONDS / 2:
            wrong = wrong or "takes too long"
        if reached - self.reached:
            self.reached |= reached
            self.inputs.append(data)
        if wrong:
            self.attacked.keep(label, data, wrong)


def examples(kind: str) -> list[Path]:
    """Return files to begin with, besides the seed."""
    return [*shipped().values()] if kind in ("rule", "match") else []


def damaged(source: bytes, other: bytes, random: Random) -> bytes:
    """Damage a file in a few places; some of it can come from another."""
    data = bytearray(source)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        at = random.randrange(len(data) + 1)
        match random.randrange(7):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.choice((1, 2, 8, 100))]
            case 2:
                data[at:at] = random.choice(_PIECES)
            case 3:
                data[at : at + random.choice((1, 4))] = random.choice(_PIECES)
            case 4:
                data[at:at] = data[at : at + random.randrange(40)]
            case 5:
                cut = random.randrange(len(other) + 1)
                data[at:] = other[cut:]
            case _:
                data[at : at + 8] = random.choice((0, 1, 255, 1 << 31, (1 << 63) - 1)).to_bytes(
                    8, "little"
                )
    return bytes(data)


@contextlib.contextmanager
def _traced(reached: set[tuple[str, int]]) -> Iterator[None]:
    """Collect the lines of the package that run."""

    def line(frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            reached.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    def call(frame: FrameType, _: str, __: object) -> object:
        return line if frame.f_code.co_filename.startswith(_PACKAGE) else None

    sys.settrace(call)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.settrace(None)


@contextlib.contextmanager
def timed() -> Iterator[None]:
    """Raise `TimeoutError` in what takes too long."""

    def late(*_: object) -> None:
        raise TimeoutError("it hangs")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
