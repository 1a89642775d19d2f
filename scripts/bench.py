"""Measure `onnxdbg` against other tools: whole processes, side by side in one run.

``scripts/bench [ROW...]`` runs the rows that are named, all of them by default; ``--list`` shows them. Two commands
alternate (A B A B ...), ``--rounds`` times; the ratios of each pair give median and spread. Peak memory is the largest
resident set of any one process that a command starts. The models are made once, in ``--folder``, and used again.
"""

import argparse
import contextlib
import fcntl
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.markup import escape
from rich.table import Table

SCRIPTS = Path(__file__).resolve().parent
PYTHON = sys.executable
ONNXDBG = str(Path(PYTHON).with_name("onnxdbg"))
POLYGRAPHY = str(Path(PYTHON).with_name("polygraphy"))

MODELS_VERSION = 1  # part of the folders' names: raise it when what is made here changes
SIDE = 4096
WEIGHT_BYTES = 4 * SIDE * SIDE
BIAS_BYTES = 4 * SIDE
BLOCK_BYTES = WEIGHT_BYTES + BIAS_BYTES
WEIGHT_RANGE = (24 / SIDE) ** 0.5  # keeps the size of the activations from block to block
NOISE_BLOCK = 1 << 22  # elements in memory at a time
CHAIN_NODES = 50_000
DPT_IMAGE = 384
MB = 1e6

err = Console(stderr=True, highlight=False, soft_wrap=True)


class BenchError(Exception):
    """A command failed, its result is wrong, or there is no room."""


# What is measured


@dataclass(frozen=True)
class Target:
    """What a measured figure should stay below: a ratio to the peer, or our own peak in MB."""

    metric: Literal["time", "memory", "peak"]
    limit: float

    def __str__(self) -> str:
        if self.metric == "peak":
            return f"peak <= {self.limit:g} MB"
        shown = f"{self.limit:g}x" if self.limit >= 0.2 else f"1/{1 / self.limit:g}"
        return f"{self.metric} <= {shown}"


@dataclass(frozen=True)
class Command:
    """A command, and the folder it writes to: it is emptied before each run."""

    label: str
    argv: Sequence[str | Path]
    output: Path | None = None
    exit_code: int = 0


@dataclass(frozen=True)
class Peer:
    """What our command is measured against; slow ones run only once."""

    command: Command
    targets: tuple[Target, ...] = ()
    once: bool = False


@dataclass(frozen=True)
class Contest:
    """One command of ours and its peers; `check` looks at what it did before anything is measured."""

    ours: Command
    peers: tuple[Peer, ...]
    check: Callable[[str], None] = lambda log: None
    rounds_factor: int = 1


@dataclass(frozen=True)
class Row:
    """A row that can be asked for; `scratch` is what its commands write, in bytes."""

    about: str
    models: tuple[str, ...]
    scratch: int
    contests: Callable[[Path, Path], list[Contest]]


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    seconds: float
    megabytes: float


@dataclass
class Outcome:
    """A contest with one peer, as measured."""

    label: str
    peer: Peer
    ours: list[Run] = field(default_factory=list)
    theirs: list[Run] = field(default_factory=list)
    failure: str = ""

    def ratios(self, what: Literal["seconds", "megabytes"]) -> list[float]:
        """Ours by theirs, pair by pair."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [getattr(ours, what) / getattr(theirs, what) for ours, theirs in pairs]

    def measured(self, target: Target) -> float:
        """The figure that a target is about."""
        if target.metric == "peak":
            return max(run.megabytes for run in self.ours)
        return statistics.median(self.ratios("seconds" if target.metric == "time" else "megabytes"))

    def verdicts(self) -> list[str]:
        """One word a target."""
        if self.failure:
            return ["failed"]
        reached = (self.measured(target) <= target.limit for target in self.peer.targets)
        return ["reached" if each else "missed" for each in reached]


# One run in a process that is small and new, so that nothing of ours counts: Linux hands a process's resident set down
# to what it starts. As a "subreaper" it adopts and waits for processes that lost their parent: they count as well.
_LAUNCH = """
import ctypes, json, os, resource, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
start = time.perf_counter()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
status = os.waitpid(child, 0)[1]
seconds = time.perf_counter() - start
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), seconds, peak], file)
"""


def launch(command: Command) -> tuple[Run, str]:
    """Run a command once; what it took, and what it printed."""
    if command.output is not None:
        shutil.rmtree(command.output, ignore_errors=True)
        command.output.mkdir(parents=True)
    os.sync()  # what earlier runs wrote is not to be waited for by this one
    # compiled modules are kept, as they are for a user: pip compiles the peers', the first run ours
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder, "figures.json")
        launcher = [PYTHON, "-ISc", _LAUNCH, figures, *command.argv]
        done = subprocess.run(
            launcher,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
        )
        log = done.stdout + done.stderr
        if done.returncode:
            raise BenchError(f"{command.label} did not start: {log[-500:]}")
        code, seconds, peak = json.loads(figures.read_text())
    if code != command.exit_code:
        raise BenchError(f"{command.label} ended with {code}: {log[-1500:].strip()}")
    return Run(seconds, peak / MB), log


def hold(contest: Contest, rounds: int) -> Iterator[Outcome]:
    """Run our command once unmeasured and check what it did; then against each peer in turn."""
    label = contest.ours.label
    try:
        contest.check(launch(contest.ours)[1])
    except BenchError as error:
        yield from (Outcome(label, peer, failure=str(error)) for peer in contest.peers)
        return
    for peer in contest.peers:
        outcome = Outcome(label, peer)
        try:
            _alternate(contest, outcome, 1 if peer.once else rounds * contest.rounds_factor)
        except BenchError as error:
            outcome.failure = str(error)
        yield outcome


def _alternate(contest: Contest, outcome: Outcome, rounds: int) -> None:
    peer = outcome.peer.command
    if rounds > 1:
        launch(contest.ours)
        launch(peer)
    for number in range(rounds):
        err.print(f"{outcome.label} / {peer.label}: round {number + 1} of {rounds}", style="dim")
        ours, theirs = launch(contest.ours)[0], launch(peer)[0]
        outcome.ours.append(ours)
        outcome.theirs.append(theirs)


# Models. Weights are noise that depends on the tensor's name alone; they are written block by block, never held.


def noise(tensor: TensorProto) -> Iterator[np.ndarray]:
    """The elements of a tensor, in blocks."""
    rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
    count = elements(tensor)
    for start in range(0, count, NOISE_BLOCK):
        block = rng.random(min(NOISE_BLOCK, count - start), dtype=np.float32)
        yield (block - np.float32(0.5)) * np.float32(WEIGHT_RANGE)


def elements(tensor: TensorProto) -> int:
    """How many there are; they are float32 here."""
    return int(np.prod(tensor.dims))


def block_model(blocks: int) -> tuple[onnx.ModelProto, list[TensorProto]]:
    """A chain of MatMul, Add, Relu on [1, 4096], and its initializers without their payloads."""
    nodes, weights = [], []
    for i in range(blocks):
        nodes += [
            helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"m{i}"], f"matmul{i}"),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], f"add{i}"),
            helper.make_node("Relu", [f"a{i}"], [f"h{i + 1}"], f"relu{i}"),
        ]
        weights += [
            TensorProto(name=f"w{i}", dims=[SIDE, SIDE], data_type=TensorProto.FLOAT),
            TensorProto(name=f"b{i}", dims=[SIDE], data_type=TensorProto.FLOAT),
        ]
    # every value's type is declared, as an exporter does: cutting tools ask for them
    inner = (name for i in range(blocks) for name in (f"m{i}", f"a{i}", f"h{i + 1}"))
    value_info = [_row(name) for name in inner][:-1]
    graph = helper.make_graph(
        nodes, "blocks", [_row("h0")], [_row(f"h{blocks}")], value_info=value_info
    )
    return _model(graph), weights


def _row(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIDE])


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def make_single(folder: Path, blocks: int) -> None:
    """One file of any size: protobuf writes none of 2 GiB, so the messages around the weights are written here."""
    model, weights = block_model(blocks)
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    heads = []
    for tensor in weights:
        size = 4 * elements(tensor)
        head = tensor.SerializeToString() + _field(9, size)  # TensorProto.raw_data
        heads.append(_field(5, len(head) + size) + head)  # GraphProto.initializer
    payloads = sum(4 * elements(tensor) for tensor in weights)
    length = len(graph) + sum(map(len, heads)) + payloads
    with (folder / "model.onnx").open("wb") as file:
        file.write(model.SerializeToString() + _field(7, length) + graph)  # ModelProto.graph
        for tensor, head in zip(weights, heads, strict=True):
            file.write(head)
            _write_noise(file, tensor)


def make_external(folder: Path, blocks: int) -> None:
    """A model and one file of external data."""
    model, weights = block_model(blocks)
    with (folder / "weights.data").open("wb") as file:
        for tensor in weights:
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", "weights.data"),
                ("offset", file.tell()),
                ("length", 4 * elements(tensor)),
            ):
                tensor.external_data.add(key=key, value=str(value))
            _write_noise(file, tensor)
    model.graph.initializer.extend(weights)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def make_chain(folder: Path) -> None:
    """Fifty thousand nodes, one after another, hardly any weights."""
    nodes = [
        helper.make_node("Add", [f"v{i}", "one"], [f"v{i + 1}"], f"add{i}")
        for i in range(CHAIN_NODES)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
        for name in ("v0", f"v{CHAIN_NODES}")
    ]
    one = numpy_helper.from_array(np.ones(4, np.float32), "one")
    model = _model(helper.make_graph(nodes, "chain", ends[:1], ends[1:], [one]))
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def _field(number: int, length: int) -> bytes:
    """Tag and length of a length-delimited protobuf field."""
    head = bytearray()
    for value in (number << 3 | 2, length):
        while value > 127:
            head.append(value & 127 | 128)
            value >>= 7
        head.append(value)
    return bytes(head)


def _write_noise(file: BinaryIO, tensor: TensorProto) -> None:
    for block in noise(tensor):
        file.write(block.data)


def make_dpt(folder: Path) -> None:
    """A small DPT (depth from an image) with random weights, a faulty copy, and references for every value."""
    import torch
    from transformers import DPTConfig, DPTForDepthEstimation

    torch.manual_seed(0)
    config = DPTConfig(
        hidden_size=384,
        intermediate_size=1536,
        num_attention_heads=6,
        image_size=DPT_IMAGE,
        attn_implementation="eager",
    )
    module = DPTForDepthEstimation(config).eval()
    image = torch.randn(1, 3, DPT_IMAGE, DPT_IMAGE)
    _export(module, "predicted_depth", image, "pixel_values", folder / "good.onnx")
    _plant_and_record(folder, {"pixel_values": image.numpy()})


def make_gpt2(folder: Path) -> None:
    """GPT-2 in its default size with random weights, a faulty copy, and references for every value."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(use_cache=False, attn_implementation="eager")
    module = GPT2LMHeadModel(config).eval()
    tokens = torch.randint(0, config.vocab_size, (1, 64))
    _export(module, "logits", tokens, "input_ids", folder / "good.onnx")
    _plant_and_record(folder, {"input_ids": tokens.numpy()})


def make_resnet(folder: Path) -> None:
    """ResNet-50 in its default size with random weights, a faulty copy, and references for every value."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    module = ResNetForImageClassification(ResNetConfig()).eval()
    for norm in (m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)  # untrained, the signal dies on its way
    image = torch.randn(1, 3, 224, 224)
    _export(module, "logits", image, "pixel_values", folder / "good.onnx")
    _plant_and_record(folder, {"pixel_values": image.numpy()})


def make_vit(folder: Path) -> None:
    """ViT-B/16 with random weights, a faulty copy, and references for every value."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(attn_implementation="eager", initializer_range=0.05)
    module = ViTForImageClassification(config).eval()
    image = torch.randn(1, 3, 224, 224)
    _export(module, "logits", image, "pixel_values", folder / "good.onnx")
    _plant_and_record(folder, {"pixel_values": image.numpy()})


def _export(module, result: str, sample, name: str, path: Path) -> None:
    """With the TorchScript exporter, or with the other one where that one cannot."""
    import torch

    class OneOutput(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, value):
            return getattr(self.module(value), result)

    settings = {"input_names": [name], "output_names": ["out"], "opset_version": 18}
    try:
        torch.onnx.export(OneOutput().eval(), (sample,), path, dynamo=False, **settings)
    except Exception as error:  # noqa: BLE001  exporters raise what they like
        print(f"the TorchScript exporter failed, taking the other one: {type(error).__name__}")
        settings["external_data"] = False
        torch.onnx.export(OneOutput().eval(), (sample,), path, dynamo=True, **settings)


def _plant_and_record(folder: Path, feeds: dict[str, np.ndarray]) -> None:
    """References from the good model with optimisation off, then one wrong epsilon in the middle of a copy."""
    import onnxruntime as ort

    model = onnx.load(folder / "good.onnx")
    names = [name for node in model.graph.node for name in node.output if name]
    declared = [output.name for output in model.graph.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in declared)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    values = dict(zip(names, session.run(names, feeds), strict=True))
    np.savez(folder / "references.npz", **values, **feeds)

    np.savez(folder / "feeds.npz", **feeds)

    del model.graph.output[len(declared) :]
    (folder / "planted.txt").write_text(_plant(model))
    onnx.save(model, folder / "faulty.onnx")
    _save_for_polygraphy(folder)
    (folder / "good.onnx").unlink()


def _plant(model: onnx.ModelProto) -> str:
    """Make the normalization in the middle wrong, or the convolution where there is none; the value it gives."""
    norms = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    if norms:
        node = norms[len(norms) // 2]
        next(a for a in node.attribute if a.name == "epsilon").f = 0.05
        return node.output[0]
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    node = convolutions[len(convolutions) // 2]
    weight = next(t for t in model.graph.initializer if t.name == node.input[1])
    planted = numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.05), "planted")
    model.graph.initializer.append(planted)
    node.input[1] = "planted"
    return node.output[0]


def _save_for_polygraphy(folder: Path) -> None:
    """What its users compare with: every value of the good model, saved by polygraphy itself."""
    loader = folder / "loader.py"
    loader.write_text(_LOADER)
    argv = [POLYGRAPHY, "run", folder / "good.onnx", "--onnxrt", "--onnx-outputs", "mark", "all"]
    argv += ["--data-loader-script", loader, "--save-outputs", folder / "outputs.json"]
    subprocess.run(list(map(str, argv)), check=True)


MAKERS: dict[str, tuple[int, Callable[..., None], tuple[int, ...]]] = {
    # name: (bytes on disk while it is made, function, arguments)
    "single": (30 * BLOCK_BYTES, make_single, (30,)),
    "external": (64 * BLOCK_BYTES, make_external, (64,)),
    "huge": (40 * BLOCK_BYTES, make_single, (40,)),
    "chain": (6_000_000, make_chain, ()),
    "dpt": (3_500_000_000, make_dpt, ()),
    "gpt2": (2_500_000_000, make_gpt2, ()),
    "resnet": (900_000_000, make_resnet, ()),
    "vit": (2_000_000_000, make_vit, ()),
}


def model_folder(root: Path, name: str) -> Path:
    """Where a model is, or will be."""
    return root / "models" / f"{name}-{MODELS_VERSION}"


def make_model(root: Path, name: str) -> None:
    """Make a model that is not there yet, in a process of its own: exporters are large, and print."""
    folder = model_folder(root, name)
    err.print(f"making model '{name}' ...")
    unfinished = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    process = multiprocessing.get_context("spawn").Process(target=_make, args=(name, unfinished))
    process.start()
    process.join()
    if process.exitcode:
        log = (unfinished / "log.txt").read_text(errors="replace")
        raise BenchError(f"model {name!r} could not be made: {log[-1500:].strip()}")
    unfinished.rename(folder)


def _make(name: str, folder: Path) -> None:
    """In the process of its own; what exporters print goes to a file, shown if they fail."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # configurations are made here, nothing is to be looked up
    log = folder / "log.txt"
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    _, function, arguments = MAKERS[name]
    function(folder, *arguments)
    log.unlink()


# Rows. A command's files go to folders below `out`.

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
_SESSION_AND_RUN = f"""{_SESSION}
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
_LOADER = """
from pathlib import Path
import numpy as np

def load_data():
    with np.load(Path(__file__).with_name("feeds.npz")) as feeds:
        yield dict(feeds)
"""
_TWO_COMMANDS = '''
import typer

app = typer.Typer()


@app.command()
def one() -> None:
    """The first."""


@app.command()
def two() -> None:
    """The second."""


app()
'''


def python(code: str, *arguments: str | Path) -> list[str | Path]:
    """A command line that runs Python code."""
    return [PYTHON, "-c", code, *arguments]


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
    both = Command("InferenceSession(path), run", python(_SESSION_AND_RUN, model, feeds))
    return [Contest(ours, (Peer(alone, targets), Peer(both)))]


def bisection(name: str, *targets: Target) -> Callable[[Path, Path], list[Contest]]:
    """The contests of a row that looks for a planted node."""

    def contests(root: Path, out: Path) -> list[Contest]:
        folder, target = model_folder(root, name), out / "ours"
        model, references = folder / "faulty.onnx", folder / "references.npz"
        planted = (folder / "planted.txt").read_text()
        argv = [ONNXDBG, "bisect", model, "--reference", references, "-o", target, "--force"]
        argv += ["--look", "written", "--quick"]
        ours = Command(f"bisect-{name}", argv, target, exit_code=1)
        script = [PYTHON, SCRIPTS / "mark_all.py", model, references]
        peer = Peer(Command("mark_all.py", script, exit_code=1), targets)
        return [Contest(ours, (peer,), lambda log: require_named(planted, log))]

    return contests


def triage(name: str) -> Callable[[Path, Path], list[Contest]]:
    """Three ways to look for a planted node, against opening a session and running once."""

    def contests(root: Path, out: Path) -> list[Contest]:
        folder, target = model_folder(root, name), out / "ours"
        model, references = folder / "faulty.onnx", folder / "references.npz"
        planted = (folder / "planted.txt").read_text()
        argv = [ONNXDBG, "bisect", model, "--reference", references, "-o", target, "--force"]
        plain = Command("session, run", python(_SESSION_AND_RUN, model, folder / "feeds.npz"))
        saved = [POLYGRAPHY, "run", model, "--onnxrt", "--onnx-outputs", "mark", "all"]
        saved += ["--data-loader-script", folder / "loader.py"]
        saved += ["--load-outputs", folder / "outputs.json"]
        polygraphy = Peer(
            Command("polygraphy", saved, exit_code=1), (Target("time", 1 / 20),), True
        )

        def contest(how: str, words: list[str], memory: float, time: float, *more: Peer) -> Contest:
            ours = Command(f"{how}-{name}", [*argv, *words], target, exit_code=1)
            targets = (Target("time", time), Target("memory", memory))
            check = (lambda log: None) if how == "shipped" else partial(require_named, planted)
            return Contest(ours, (Peer(plain, targets), *more), check)

        return [
            contest("quick", ["--quick", "--look", "written"], 1.15, 1.6, polygraphy),
            contest("triage", [], 1.15, 4.0),
            contest("shipped", ["--look", "shipped"], 1.5, 5.0),
        ]

    return contests


def help_page(root: Path, out: Path) -> list[Contest]:
    """What every command waits for."""
    smallest = out / "two_commands.py"
    smallest.write_text(_TWO_COMMANDS)
    ours = Command("help", [ONNXDBG, "--help"])
    peer = Command("typer, two commands", [PYTHON, smallest, "--help"])
    return [Contest(ours, (Peer(peer, (Target("time", 1.3),)),), rounds_factor=4)]


ROWS: dict[str, Row] = {
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
    "bisect-dpt": Row(
        "one wrong node in DPT, references for every value",
        ("dpt",),
        100_000_000,
        bisection("dpt", Target("time", 0.75), Target("memory", 0.4)),
    ),
    "bisect-gpt2": Row(
        "one wrong node in GPT-2, references for every value",
        ("gpt2",),
        100_000_000,
        bisection("gpt2", Target("time", 0.3), Target("memory", 0.4)),
    ),
    **{
        f"triage-{name}": Row(
            f"one wrong node in {name}: quick, in full, as shipped",
            (name,),
            100_000_000,
            triage(name),
        )
        for name in ("resnet", "vit", "gpt2", "dpt")
    },
    "help": Row("the help page", (), 1_000_000, help_page),
}


# What a command must have done


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


def require_named(planted: str, log: str) -> None:
    """The report names the value of the planted node."""
    if f"mismatch at value {planted!r} " not in log:
        raise BenchError(
            f"the planted node makes {planted!r}, the report says: {log[:500].strip()}"
        )


# The run


def measure(names: Sequence[str], root: Path, rounds: int) -> list[Outcome]:
    """Measure rows, one after another; what their commands wrote is removed."""
    outcomes = []
    for name in names:
        out = root / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        for model in ROWS[name].models:
            _warm(model_folder(root, model))
        for contest in ROWS[name].contests(root, out):
            outcomes += hold(contest, rounds)
        shutil.rmtree(out)
    return outcomes


def _warm(folder: Path) -> None:
    """Read the files once: every command finds them in the page cache, if they fit."""
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Two benchmarks at once in one folder would overwrite each other's results."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BenchError(f"another benchmark is running in '{root}'") from error
        yield


def prepare(names: Sequence[str], root: Path) -> None:
    """Say what it takes, make sure that there is room, make the models that are missing."""
    wanted = dict.fromkeys(model for name in names for model in ROWS[name].models)
    missing = [model for model in wanted if not model_folder(root, model).exists()]
    models = sum(MAKERS[model][0] for model in missing)
    scratch = max(ROWS[name].scratch for name in names)
    free = shutil.disk_usage(root).free
    err.print(
        f"disk in '{root}': {_size(models)} for models that are not there yet (they stay for the next run), "
        f"{_size(scratch)} for results (removed at the end); {_size(free)} are free"
    )
    if models + scratch > free:
        raise BenchError("there is not enough room: choose another --folder, or fewer rows")
    for model in missing:
        make_model(root, model)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / MB:.0f} MB"


def show(outcomes: Sequence[Outcome]) -> None:
    """One table, a line a pair."""
    table = Table(
        title="medians; ratios are ours / peer, pair by pair (min-max); memory is the peak"
    )
    for heading in ("row", "peer"):
        table.add_column(heading, no_wrap=True)
    for heading in ("ours s", "peer s", "time ratio", "ours MB", "peer MB", "memory ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("target", "verdict"):
        table.add_column(heading, no_wrap=True)
    for outcome in outcomes:
        cells = [outcome.label, outcome.peer.command.label, *_figures(outcome)]
        targets = "\n".join(map(str, outcome.peer.targets))
        verdicts = "\n".join(map(_coloured, outcome.verdicts()))
        table.add_row(*map(escape, cells), escape(targets), verdicts)
    out = Console()
    (out if out.is_terminal else Console(width=170)).print(table)
    for outcome in outcomes:
        if outcome.failure:
            print(f"{outcome.label}, {outcome.peer.command.label}: {outcome.failure}")


def _figures(outcome: Outcome) -> list[str]:
    if outcome.failure:
        return [""] * 6
    cells = []
    for what, digits in (("seconds", 2), ("megabytes", 0)):
        for runs in (outcome.ours, outcome.theirs):
            cells.append(f"{statistics.median(getattr(run, what) for run in runs):.{digits}f}")
        cells.append(_spread(outcome.ratios(what)))
    return cells


def _spread(ratios: Sequence[float]) -> str:
    median = f"{statistics.median(ratios):.3g}x"
    return median if len(ratios) == 1 else f"{median} ({min(ratios):.3g}-{max(ratios):.3g})"


def _coloured(verdict: str) -> str:
    return f"[{'green' if verdict == 'reached' else 'bold red'}]{verdict}[/]"


def as_data(outcomes: Sequence[Outcome], rounds: int) -> dict[str, object]:
    """What `--json` writes."""
    packages = ("onnxsurgeon-lite", "onnx", "onnxruntime", "onnx-graphsurgeon", "polygraphy")
    return {
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "rounds": rounds,
        "results": [_outcome_data(outcome) for outcome in outcomes],
    }


def _outcome_data(outcome: Outcome) -> dict[str, object]:
    data: dict[str, object] = {"row": outcome.label, "peer": outcome.peer.command.label}
    if outcome.failure:
        return {**data, "failure": outcome.failure}
    for who, runs in (("ours", outcome.ours), ("theirs", outcome.theirs)):
        data[f"{who}_seconds"] = [round(run.seconds, 4) for run in runs]
        data[f"{who}_megabytes"] = [round(run.megabytes, 1) for run in runs]
    data["time_ratio"] = statistics.median(outcome.ratios("seconds"))
    data["memory_ratio"] = statistics.median(outcome.ratios("megabytes"))
    data["targets"] = [
        {"target": str(target), "measured": outcome.measured(target), "verdict": verdict}
        for target, verdict in zip(outcome.peer.targets, outcome.verdicts(), strict=True)
    ]
    return data


def show_rows() -> None:
    """What `--list` prints."""
    for name, row in ROWS.items():
        size = sum(MAKERS[model][0] for model in row.models) + row.scratch
        print(f"{name:18}{row.about} (disk: {_size(size)})")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows to measure; all by default")
    parser.add_argument("--list", action="store_true", help="show the rows and stop")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there, too")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(os.environ.get("TMPDIR") or "/var/tmp", "onnxsurgeon-bench"),
        help="where models and results go (default: %(default)s)",
    )
    given = parser.parse_args()
    given.rows = given.rows or list(ROWS)
    if unknown := [name for name in given.rows if name not in ROWS]:
        parser.error(f"no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    if given.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return given


def main() -> int:
    """Measure and show; 1 when a target is missed, 2 when it could not be done."""
    given = options()
    if given.list:
        show_rows()
        return 0
    root = given.folder.resolve()
    try:
        with alone(root):
            prepare(given.rows, root)
            outcomes = measure(given.rows, root, given.rounds)
    except BenchError as error:
        err.print(f"error: {error}", markup=False)
        return 2
    show(outcomes)
    load = os.getloadavg()[0]
    if load > 1 + (os.cpu_count() or 1):
        print(
            f"the machine was busy with other work (load {load:.1f}): times are not to be relied on"
        )
    if given.json:
        given.json.write_text(json.dumps(as_data(outcomes, given.rounds), indent=1) + "\n")
    return int(any(verdict != "reached" for outcome in outcomes for verdict in outcome.verdicts()))


if __name__ == "__main__":
    sys.exit(main())
