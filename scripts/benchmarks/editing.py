"""Edits, moves of data and diffs: of 4 GB in a file of its own, and of fifty thousand nodes."""

import shutil
from pathlib import Path

import onnx

from measuring import ONNXDBG, Command, Contest, Peer, Row, Target, python
from models import BLOCK_BYTES, CHAIN_NODES, model_folder

_LOAD_AND_SAVE = """
import sys
import onnx
onnx.save(onnx.load(sys.argv[1]), sys.argv[2])
"""
_LOAD_BOTH = """
import sys
import onnx
models = [onnx.load(path) for path in sys.argv[1:]]
"""
_GRAPHSURGEON = """
import sys
import onnx, onnx_graphsurgeon as gs
graph = gs.import_onnx(onnx.load(sys.argv[1]))
graph.nodes[25_000].op = "Sub"
onnx.save(gs.export_onnx(graph), sys.argv[2])
"""
_CONVERTER = """
import sys
import onnx
from onnx import version_converter
onnx.save(version_converter.convert_version(onnx.load(sys.argv[1]), 21), sys.argv[2])
"""
_SCRIPT = """
def edit(graph):
    graph.nodes[25_000].op = "Sub"
"""
_MIDDLE = f"v{CHAIN_NODES // 2}"
_IMPORT = Peer(
    Command("import onnx", python("import onnx")), (Target("time", 4), Target("peak", 200))
)
_COPIED = 1.3


def _edit(label: str, source: Path, target: Path, verb: str, *arguments: str | Path) -> Command:
    argv = [ONNXDBG, "edit", verb, source, *arguments, "-o", target, "--force"]
    return Command(label, argv)


def edit_external(root: Path, out: Path) -> list[Contest]:
    """Verbs that read no weight, the result beside its source's data."""
    folder = _linked(root, out)
    source, target = folder / "model.onnx", folder / "edited.onnx"
    verbs = {
        "rename": ("h30=middle",),
        "insert": ("h30", "Relu"),
        "remove": ("op:Relu[3]",),
        "set-op": ("op:Relu[3]", "Abs"),
        "sort": (),
        "clean": (),
        "fix": (),
    }
    return [
        Contest(_edit(f"external-{verb}", source, target, verb, *arguments), (_IMPORT,))
        for verb, arguments in verbs.items()
    ]


def move_external(root: Path, out: Path) -> list[Contest]:
    """Edits and moves that copy the data."""
    source = model_folder(root, "external") / "model.onnx"
    ours = out / "ours"
    copied = Command(
        "cp, sync", ["sh", "-c", f"cp {source.parent}/* {out}/copy && sync"], out / "copy"
    )
    peer = Peer(copied, (Target("time", _COPIED), Target("peak", 200)))
    rename = [ONNXDBG, "edit", "rename", source, "h30=middle", "-o", ours / "model.onnx"]
    embed = [ONNXDBG, "data", "embed", source, "-o", ours / "model.onnx"]
    return [
        Contest(Command("external-rename-copied", rename, ours), (peer,)),
        Contest(Command("external-embed", embed, ours), (peer,)),
    ]


def read_external(root: Path, out: Path) -> list[Contest]:
    """What must read every weight."""
    folder = _linked(root, out)
    model, data = folder / "model.onnx", folder / "weights.data"
    copy = out / "copy"
    copy.mkdir()
    for path in (model, data):
        shutil.copyfile(path, copy / path.name)
    once = Peer(Command("b2sum", ["b2sum", data]), (Target("time", 1.5), Target("peak", 200)))
    twice = Peer(Command("b2sum of both", ["b2sum", data, copy / data.name]), once.targets)
    stripped = out / "stripped"
    strip = [ONNXDBG, "data", "strip", model, "-o", stripped / "model.onnx"]
    return [
        Contest(Command("external-ls", [ONNXDBG, "data", "ls", model]), (once,)),
        Contest(_edit("external-dedupe", model, folder / "edited.onnx", "dedupe"), (once,)),
        Contest(Command("external-diff", [ONNXDBG, "diff", model, copy / "model.onnx"]), (twice,)),
        Contest(Command("external-strip", strip, stripped), (Peer(once.command, once=True),)),
    ]


def edit_chain(root: Path, out: Path) -> list[Contest]:
    """Verbs on fifty thousand nodes."""
    source, target = model_folder(root, "chain") / "model.onnx", out / "edited.onnx"
    load_and_save = Command(
        "onnx.load + onnx.save", python(_LOAD_AND_SAVE, source, out / "saved.onnx")
    )
    script = out / "patch.py"
    script.write_text(_SCRIPT)
    verbs = {
        "rename": (f"{_MIDDLE}=middle",),
        "insert": (_MIDDLE, "Relu"),
        "remove": (f"add{CHAIN_NODES // 2}", "--bridge", _MIDDLE),
        "rewire": (_MIDDLE, "v7"),
        "set-op": (f"add{CHAIN_NODES // 2}", "Sub"),
        "set-constant": ("one", "2"),
        "sort": (),
        "clean": (),
        "fix": (),
        "dedupe": (),
    }
    peer = Peer(load_and_save, (Target("time", 3),))
    contests = [
        Contest(_edit(f"chain-{verb}", source, target, verb, *arguments), (peer,))
        for verb, arguments in verbs.items()
    ]
    ours = [ONNXDBG, "edit", "script", script, source, "-o", target, "--force"]
    surgeon = Command("graphsurgeon", python(_GRAPHSURGEON, source, out / "saved.onnx"))
    converter = Command("converter", python(_CONVERTER, source, out / "saved.onnx"))
    return [
        *contests,
        Contest(Command("chain-script", ours), (Peer(surgeon, (Target("time", 1.3),)),)),
        Contest(
            _edit("chain-opset", source, target, "opset", "21"),
            (Peer(converter, (Target("time", 1.3),)),),
        ),
    ]


def diff_chains(root: Path, out: Path) -> list[Contest]:
    """One attribute changed: of three thousand nodes, and of fifty thousand."""
    contests = []
    for count in (3000, CHAIN_NODES):
        pair = [out / f"{count}.onnx", out / f"{count}_edited.onnx"]
        model = onnx.load(model_folder(root, "chain") / "model.onnx")
        del model.graph.node[count:]
        model.graph.output[0].name = f"v{count}"
        onnx.save(model, pair[0])
        model.graph.node[count // 2].op_type = "Sub"
        onnx.save(model, pair[1])
        ours = Command(f"diff-{count}", [ONNXDBG, "diff", *pair], exit_code=1)
        both = Command("onnx.load of both", python(_LOAD_BOTH, *pair))
        targets = (Target("time", 4),) if count == 3000 else ()
        contests.append(Contest(ours, (Peer(both, targets),)))
    return contests


def _linked(root: Path, out: Path) -> Path:
    """A folder with the model, its data under another name of the same file."""
    source, folder = model_folder(root, "external"), out / "linked"
    folder.mkdir()
    shutil.copyfile(source / "model.onnx", folder / "model.onnx")
    (folder / "weights.data").hardlink_to(source / "weights.data")
    return folder


_DATA = 64 * BLOCK_BYTES
ROWS = {
    "edit-external": Row(
        "verbs on 4 GB that stay where they are", ("external",), 1_000_000, edit_external
    ),
    "move-external": Row("verbs that move 4 GB", ("external",), 2 * _DATA, move_external),
    "read-external": Row("verbs that read 4 GB", ("external",), 2 * _DATA, read_external),
    "edit-chain": Row("verbs on fifty thousand nodes", ("chain",), 10_000_000, edit_chain),
    "diff": Row("one attribute among 3000 and 50 000 nodes", ("chain",), 10_000_000, diff_chains),
}
