"""Cutting, saving and running large models."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from measuring import (
    ONNXDBG,
    POLYGRAPHY,
    BenchError,
    Command,
    Contest,
    Peer,
    Row,
    Target,
    python,
)
from models import BLOCK_BYTES, SIDE, model_folder, noise

_GRAPHSURGEON = """
import sys
import numpy as np, onnx, onnx_graphsurgeon as gs
source, start, end, target = sys.argv[1:]
graph = gs.import_onnx(onnx.load(source))
values = graph.tensors()
graph.inputs = [values[start].to_variable(dtype=np.float32)]
graph.outputs = [values[end].to_variable(dtype=np.float32)]
graph.cleanup()
onnx.save(gs.export_onnx(graph), target)
"""
_ONNX_UTILS = """
import sys
import onnx.utils
source, start, end, target = sys.argv[1:]
onnx.utils.extract_model(source, target, [start], [end])
"""
_SAVE = """
import sys
import onnxsurgeon_lite as osl
osl.save(osl.load(sys.argv[1]), sys.argv[2])
"""
_SESSION = """
import sys
import onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""
SESSION_AND_RUN = f"""{_SESSION}
import numpy as np
with np.load(sys.argv[2]) as feeds:
    session.run(None, dict(feeds))
"""
_RUN_ONCE = """
import sys
import numpy as np, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
feeds = {value.name: np.ones(value.shape, np.float32) for value in session.get_inputs()}
assert all(np.isfinite(array).all() for array in session.run(None, feeds))
"""


@dataclass(frozen=True)
class Cut:
    """What is cut out of which model, and the folder for results."""

    model: Path
    out: Path
    start: str
    end: str

    def ours(self, label: str) -> Command:
        """Our command."""
        target = self.out / "ours" / "model.onnx"
        ends = ["--inputs", self.start, "--outputs", self.end]
        argv = [ONNXDBG, "extract", self.model, *ends, "-o", target, "--force"]
        return Command(label, argv, target.parent)

    def script(self, label: str, code: str) -> Command:
        """Someone else's way, in a few lines."""
        target = self.out / "theirs" / "model.onnx"
        argv = python(code, self.model, self.start, self.end, target)
        return Command(label, argv, target.parent)

    def polygraphy(self) -> Command:
        """Polygraphy's command."""
        target = self.out / "theirs" / "model.onnx"
        ends = ["--inputs", f"{self.start}:[1,{SIDE}]:float32", "--outputs", f"{self.end}:float32"]
        argv = [POLYGRAPHY, "surgeon", "extract", self.model, *ends, "-o", target]
        return Command("polygraphy", argv, target.parent)

    def contest(self, label: str, *peers: Peer) -> Contest:
        """Our command against others; its result is checked."""
        return Contest(self.ours(label), peers, lambda _: require_complete(self.out))


def copying(source: Path, out: Path) -> Peer:
    """The floor of what writes files: the same bytes copied, and on disk."""
    target = out / "copy"
    argv = ["/bin/sh", "-c", 'cp -r "$1"/. "$2" && sync "$2"/*', "sh", source, target]
    return Peer(Command("cp + sync", argv, target))


def extract_single(root: Path, out: Path) -> list[Contest]:
    """One block of thirty."""
    cut = Cut(model_folder(root, "single") / "model.onnx", out, "h14", "h15")
    targets = (Target("time", 1 / 12), Target("peak", 200))
    peers = (
        Peer(cut.script("graphsurgeon", _GRAPHSURGEON), targets),
        copying(out / "ours", out),
        Peer(cut.script("onnx.utils", _ONNX_UTILS), once=True),
        Peer(cut.polygraphy(), once=True),
    )
    return [cut.contest("extract-single", *peers)]


def extract_external(root: Path, out: Path) -> list[Contest]:
    """One block of sixty-four."""
    cut = Cut(model_folder(root, "external") / "model.onnx", out, "h30", "h31")
    targets = (Target("time", 1 / 20), Target("peak", 200))
    graphsurgeon = Peer(cut.script("graphsurgeon", _GRAPHSURGEON), targets)
    return [cut.contest("extract-external", graphsurgeon, copying(out / "ours", out))]


def extract_chain(root: Path, out: Path) -> list[Contest]:
    """A hundred nodes of fifty thousand."""
    cut = Cut(model_folder(root, "chain") / "model.onnx", out, "v25000", "v25100")
    peers = (
        Peer(cut.script("onnx.utils", _ONNX_UTILS), (Target("time", 1),)),
        Peer(cut.script("graphsurgeon", _GRAPHSURGEON), once=True),
    )
    return [cut.contest("extract-chain", *peers)]


def huge_single(root: Path, out: Path) -> list[Contest]:
    """Larger than protobuf reads."""
    model = model_folder(root, "huge") / "model.onnx"
    inspect = Command("huge-inspect", [ONNXDBG, "inspect", model])
    import_onnx = Peer(Command("import onnx", python("import onnx")), (Target("time", 3),))
    cut = Cut(model, out, "h30", "h31")
    saved = out / "ours" / "model.onnx"
    save = Command("huge-save", python(_SAVE, model, saved), saved.parent)
    return [
        Contest(inspect, (import_onnx,)),
        cut.contest("huge-extract", copying(out / "ours", out)),
        Contest(save, (copying(model.parent, out),), lambda _: require_same(model, saved)),
    ]


def session(root: Path, out: Path) -> list[Contest]:
    """Open and run, against opening alone and against opening and running."""
    model = model_folder(root, "single") / "model.onnx"
    feeds = out / "feeds.npz"
    np.savez(feeds, h0=np.ones((1, SIDE), np.float32))
    ours = Command("session", [ONNXDBG, "run", model, "--feeds", feeds])
    targets = (Target("time", 0.6), Target("memory", 0.6))
    alone = Command("InferenceSession(path)", python(_SESSION, model))
    both = Command("InferenceSession(path), run", python(SESSION_AND_RUN, model, feeds))
    return [Contest(ours, (Peer(alone, targets), Peer(both)))]


def require_complete(out: Path) -> None:
    """The extracted model works in another place, and its weights are what the source has."""
    moved = out / "moved"
    shutil.rmtree(moved, ignore_errors=True)
    (out / "ours").rename(moved)
    require_runs(moved / "model.onnx")
    for tensor in onnx.load(moved / "model.onnx").graph.initializer:
        if tensor.name[0] not in "wb":
            continue
        expected = np.concatenate([*noise(tensor)])
        if not np.array_equal(numpy_helper.to_array(tensor).ravel(), expected):
            raise BenchError(f"initializer {tensor.name!r} is not what the source has")
    shutil.rmtree(moved)


def require_runs(model: Path) -> None:
    """The runtime accepts and runs the model."""
    done = subprocess.run(python(_RUN_ONCE, model), capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{model.name} does not run: {done.stderr[-500:].strip()}")


def require_same(source: Path, saved: Path) -> None:
    """A model that was loaded and saved without an edit is the same file."""
    if subprocess.run(["cmp", "--silent", source, saved]).returncode:
        raise BenchError(f"{saved.name} is another file than the one that was loaded")


ROWS = {
    "extract-single": Row(
        "one 64 MB block out of a 1.9 GB single file", ("single",), 3 * BLOCK_BYTES, extract_single
    ),
    "extract-external": Row(
        "one 64 MB block out of 4 GB of external data",
        ("external",),
        3 * BLOCK_BYTES,
        extract_external,
    ),
    "extract-chain": Row(
        "100 nodes out of a chain of 50 000", ("chain",), 10_000_000, extract_chain
    ),
    "huge-single": Row(
        "inspect, extract, load and save 2.5 GB in one file",
        ("huge",),
        80 * BLOCK_BYTES,
        huge_single,
    ),
    "session": Row("open and run the 1.9 GB file", ("single",), 1_000_000, session),
}
