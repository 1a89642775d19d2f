"""Edits, moves of data and diffs: of 4 GB in a file of its own, and of fifty thousand nodes."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx

from measuring import ONNXDBG, Command, Contest, Peer, Row, Target, python
from models import BLOCK_BYTES, CHAIN_NODES, model_folder

_LOAD_AND_SAVE = """
import sys
import onnx
onnx.save(onnx.load(sys.argv[1]), sys.argv[2])
"""
_INFER = """
import sys
import onnx
onnx.save(onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1])), sys.argv[2])
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
_LOAD_BOTH_AND_SAVE = """
import sys
import onnx
first, second = map(onnx.load, sys.argv[1:3])
first.graph.node.extend(second.graph.node)
onnx.save(first, sys.argv[3])
"""
_SAME_NUMBERS = {
    "infer": (),
    "fold": (),
    "cse": (),
    "skip-noops": (),
    "rewrite": ("transpose-pairs",),
    "simplify": ("--unproved",),
}
"""Verbs that leave what a model computes."""
_COPIED = 1.3  # on top of what a verb may take that moves nothing
_NODES_OF_A_BLOCK = 100


def _edit(label: str, source: Path, target: Path, verb: str, *arguments: str | Path) -> Command:
    argv = [ONNXDBG, "edit", verb, source, *arguments, "-o", target, "--force"]
    return Command(label, argv)


def edit_external(root: Path, out: Path) -> list[Contest]:
    """Verbs that read no weight, the result beside its source's data."""
    folder = _own_copy(root, out)
    source, target = folder / "model.onnx", folder / "edited.onnx"
    verbs = {
        "rename": ("h30=middle",),
        "insert": ("h30", "Relu"),
        "remove": ("op:Relu[3]",),
        "set-op": ("op:Relu[3]", "Abs"),
        "sort": (),
        "clean": (),
        "fix": (),
        **_SAME_NUMBERS,
    }
    return [
        Contest(_edit(f"external-{verb}", source, target, verb, *arguments), (_IMPORT,))
        for verb, arguments in verbs.items()
    ]


def move_external(root: Path, out: Path) -> list[Contest]:
    """Edits and moves that copy the data."""
    source = model_folder(root, "external") / "model.onnx"
    ours = out / "ours"
    peer = Peer(_copied(source.parent, out), (Target("time", _COPIED), Target("peak", 200)))
    rename = [ONNXDBG, "edit", "rename", source, "h30=middle", "-o", ours / "model.onnx"]
    move = [ONNXDBG, "data", "external", source, "-o", ours / "model.onnx"]
    return [
        Contest(Command("external-rename-copied", rename, ours), (peer,)),
        Contest(Command("external-moved", move, ours), (peer,)),
    ]


def _copied(folder: Path, out: Path) -> Command:
    copy = out / "copy"
    return Command("cp, sync", ["sh", "-c", f"cp {folder}/* {copy} && sync"], copy)


def read_external(root: Path, out: Path) -> list[Contest]:
    """What must read every weight."""
    copy, folder = _own_copy(root, out), model_folder(root, "external")
    model, data = folder / "model.onnx", folder / "weights.data"
    once = Peer(Command("b2sum", ["b2sum", data]), (Target("time", 1.5), Target("peak", 200)))
    twice = Peer(Command("b2sum of both", ["b2sum", data, copy / data.name]), once.targets)
    return [
        Contest(Command("external-ls", [ONNXDBG, "data", "ls", model]), (once,)),
        Contest(
            _edit("external-dedupe", copy / model.name, copy / "edited.onnx", "dedupe"), (once,)
        ),
        Contest(Command("external-diff", [ONNXDBG, "diff", model, copy / "model.onnx"]), (twice,)),
    ]


def strip_external(root: Path, out: Path) -> list[Contest]:
    """What reads every weight, makes noise of it, and writes that."""
    source, ours = model_folder(root, "external") / "model.onnx", out / "ours"
    strip = [ONNXDBG, "data", "strip", source, "-o", ours / "model.onnx"]
    copied = _copied(source.parent, out)
    return [Contest(Command("external-strip", strip, ours), (Peer(copied, once=True),))]


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
        "freeze": ("v0=1",),
        "promote": ("one",),
        "name-outputs": ("result",),
        "replace": ("--inputs", "v100", "--outputs", "v200", "--op", "Relu"),
        **_SAME_NUMBERS,
    }
    peer = Peer(load_and_save, (Target("time", 3),))
    contests = [
        Contest(_edit(f"chain-{verb}", source, target, verb, *arguments), (peer,))
        for verb, arguments in verbs.items()
    ]
    ours = [ONNXDBG, "edit", "script", script, source, "-o", target, "--force"]
    surgeon = Command("graphsurgeon", python(_GRAPHSURGEON, source, out / "saved.onnx"))
    reducing = out / "reducing.onnx"
    model = onnx.load(source)
    _with_reductions(model.graph)
    onnx.save(model, reducing)
    converters = {
        "chain-opset": source,  # no operator has another definition there
        "chain-opset-converted": reducing,
    }
    return [
        *contests,
        Contest(Command("chain-script", ours), (Peer(surgeon, (Target("time", 1.3),)),)),
        *(
            Contest(
                _edit(label, model, target, "opset", "21"),
                (
                    Peer(
                        Command("converter", python(_CONVERTER, model, out / "saved.onnx")),
                        (Target("time", 1.3),),
                    ),
                ),
            )
            for label, model in converters.items()
        ),
    ]


def edit_tf_bert(root: Path, out: Path) -> list[Contest]:
    """Verbs that need every type, on a graph whose shapes are computed from sizes without names."""
    source, target = model_folder(root, "tf-bert") / "model.onnx", out / "edited.onnx"
    saved = Command("onnx.load + onnx.save", python(_LOAD_AND_SAVE, source, out / "saved.onnx"))
    verbs = {"simplify": ("--unproved",), "fold": (), "infer": ()}
    return [
        Contest(
            _edit(f"tf-bert-{verb}", source, target, verb, *arguments),
            (Peer(saved, (Target("time", 3),)),),
        )
        for verb, arguments in verbs.items()
    ]


def infer_types(root: Path, out: Path) -> list[Contest]:
    """Types of small graphs of unknown sizes, of a long one, of an export and of one that computes its shapes."""
    models = {
        "negative": out / "negative.onnx",
        "chain": out / "chain.onnx",
        "resnet": model_folder(root, "resnet-alone") / "good.onnx",
        "tf-bert": model_folder(root, "tf-bert") / "model.onnx",
    }
    onnx.save(onnx.parser.parse_model(_NEGATIVE), models["negative"])
    chain = onnx.load(model_folder(root, "chain") / "model.onnx")
    del chain.graph.node[_INFERRED:]
    chain.graph.output[0].name = f"v{_INFERRED}"
    onnx.save(chain, models["chain"])
    contests = []
    for label, model in models.items():
        theirs = Command("onnx's inference", python(_INFER, model, out / "saved.onnx"))
        ours = _edit(f"infer-{label}", model, out / "edited.onnx", "infer")
        contests.append(Contest(ours, (Peer(theirs, (Target("time", 1.5),)),)))
    return contests


_INFERRED = 3900  # nodes of a chain
_NEGATIVE = """<ir_version: 8, opset_import: ["" : 17]>
negative (float[-1,3,-1,-1] x) => (float[-1,-1] y)
<float[8,3,1,1] w = {1,2,3,1,2,3,1,2,3,1,2,3,1,2,3,1,2,3,1,2,3,1,2,3}, int64[1] zero = {0}, int64[1] one = {1},
 int64[1] two = {2}, int64[1] rest = {-1}> {
    c = Conv<pads = [1,1,1,1], strides = [2,2]>(x, w) r = Relu(c)
    p = MaxPool<kernel_shape = [3,3], strides = [2,2]>(r)
    s = Shape(p) b = Slice(s, zero, two) l = Concat<axis = 0>(b, rest) f = Reshape(p, l)
    t = Transpose<perm = [0,2,1]>(f) m = Softmax(t) u = MatMul(f, m) a = Add(u, u) d = Concat<axis = 1>(a, u)
    e = Slice(d, zero, two, one) n = ReduceMean<axes = [2], keepdims = 0>(e) y = Sigmoid(n) }"""


def edit_chains_more(root: Path, out: Path) -> list[Contest]:
    """Verbs that need a chain of another kind: in modules, with attributes, of an open size; two chains; a text."""
    source, target = model_folder(root, "chain") / "model.onnx", out / "edited.onnx"
    made = {}
    for change in (_in_modules, _with_attributes, _open):
        model = onnx.load(source)
        change(model.graph)
        made[change] = out / f"{change.__name__}.onnx"
        onnx.save(model, made[change])
    outline = [ONNXDBG, "edit", "outline", made[_in_modules], "block.250"]
    subprocess.run([*outline, "-o", out / "outlined.onnx"], check=True, stdout=subprocess.DEVNULL)
    (out / "chain.txt").write_text(_chain_text())
    verbs = {
        "outline": (made[_in_modules], "block.250"),
        "inline": (out / "outlined.onnx",),
        "set-attr": (made[_with_attributes], f"add{CHAIN_NODES // 2}", "alpha=0.1"),
        "pad-outputs": (made[_open], "--max", "100"),
    }
    contests = []
    for verb, (model, *arguments) in verbs.items():
        saved = Command("onnx.load + onnx.save", python(_LOAD_AND_SAVE, model, out / "saved.onnx"))
        ours = _edit(f"chain-{verb}", Path(model), target, verb, *arguments)
        contests.append(Contest(ours, (Peer(saved, (Target("time", 3),)),)))
    merge = [ONNXDBG, "merge", source, source, "--map", f"v{CHAIN_NODES}=v0", "--prefix", "b_"]
    both = python(_LOAD_BOTH_AND_SAVE, source, source, out / "saved.onnx")
    build = [ONNXDBG, "build", out / "chain.txt"]
    split = [ONNXDBG, "split", source, "--at", _MIDDLE, "-o", out / "parts"]
    one = Command("onnx.load + onnx.save", python(_LOAD_AND_SAVE, source, out / "saved.onnx"))
    limit = (Target("time", 3),)
    return [
        *contests,
        Contest(
            Command("chain-merge", [*merge, "-o", target, "--force"]),
            (Peer(Command("onnx.load of both + onnx.save", both), limit),),
        ),
        Contest(Command("chain-build", [*build, "-o", target, "--force"]), (Peer(one, limit),)),
        Contest(Command("chain-split", split, out / "parts"), (Peer(one),)),  # it runs the parts
        Contest(_edit("chain-set-shape", made[_open], target, "set-shape", "v0=7"), (Peer(one),)),
    ]


def edit_chains_typed(root: Path, out: Path) -> list[Contest]:
    """Edits that decide types, on chains that declare the type of every value."""
    target, saved = out / "edited.onnx", out / "saved.onnx"
    contests = []
    for name, change, verb, *arguments in (
        ("freeze", _open, "freeze", "v0=[1,2,3,4]"),
        ("promote", _sized_by_number, "promote", "repeats"),
        ("fix", _sized_by_number, "fix"),
        ("set-constant", _sized_by_number, "set-constant", "repeats", "2"),
        ("rewire", _of_two_inputs, "rewire", "v0", "wide"),
        ("set-shape", _open, "set-shape", "v0=7", "--unproved"),
        ("rebatch", _of_one_row, "rebatch", "--unproved"),
        ("rebatch-proved", _of_one_row, "rebatch"),
        ("set-type", _sized_by_number, "set-type", "v0=float16", "--inward"),
        ("batch-outputs", _of_three_images, "batch-outputs", "--max", "100"),
    ):
        source = out / f"typed_{name}.onnx"
        model = onnx.load(model_folder(root, "chain") / "model.onnx")
        change(model.graph)
        onnx.save(onnx.shape_inference.infer_shapes(model), source)
        peer = Command("onnx.load + onnx.save", python(_LOAD_AND_SAVE, source, saved))
        limits = Target("time", 3), Target("peak", 200)
        targets = () if name == "rebatch-proved" else limits  # that one runs both
        ours = _edit(f"typed-{name}", source, target, verb, *arguments)
        contests.append(Contest(ours, (Peer(peer, targets),)))
    return contests


def edit_chain_busy(root: Path, out: Path) -> list[Contest]:
    """Verbs that find something in every tenth node of fifty thousand."""
    source, target, saved = out / "busy.onnx", out / "edited.onnx", out / "saved.onnx"
    model = onnx.load(model_folder(root, "chain") / "model.onnx")
    _busy(model.graph)
    onnx.save(model, source)
    peer = Peer(
        Command("onnx.load + onnx.save", python(_LOAD_AND_SAVE, source, saved)),
        (Target("time", 3), Target("peak", 200)),
    )
    return [
        Contest(_edit(f"busy-{verb}", source, target, verb, *arguments), (peer,))
        for verb, arguments in _SAME_NUMBERS.items()
    ]


_BUSY: tuple[tuple[str, int, *tuple[int | str, ...]], ...] = (
    ("Mul", 1, 0, "one"), ("Identity", 2, 1), ("Relu", 3, 2), ("Relu", 4, 2), ("Sub", 5, 3, 4),
    ("Transpose", 6, 5), ("Transpose", 7, 6), ("Add", 8, 7, "two"), ("Abs", 9, 8), ("Add", 10, 9, "one"),
)  # fmt: skip
"""Operator, the value that it makes, what it reads."""


def _busy(graph: onnx.GraphProto) -> None:
    """With constants to fold, a no-op, equal nodes and a pair of Transposes in every ten nodes."""
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_value=1))
    nodes = [onnx.helper.make_node("Mul", ["one", "one"], ["two"], "two")]
    for first in range(0, CHAIN_NODES, 10):
        names = [f"v{number}" for number in range(first, first + 11)]
        for operator, made, *reads in _BUSY:
            inputs = [names[r] if isinstance(r, int) else r for r in reads]
            nodes.append(onnx.helper.make_node(operator, inputs, [names[made]], names[made]))
    for node in nodes:
        if node.op_type == "Transpose":
            node.attribute.append(onnx.helper.make_attribute("perm", [1, 0]))
    del graph.node[:]
    graph.node.extend(nodes)


def _sized_by_number(graph: onnx.GraphProto) -> None:
    """Of a size that hangs on a constant, from the first value on."""
    _open(graph)
    repeats = onnx.numpy_helper.from_array(np.ones(1, np.int64), "repeats")
    graph.initializer.append(repeats)
    graph.node[0].CopyFrom(onnx.helper.make_node("Tile", ["v0", "repeats"], ["v1"], "tile"))
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 4


def _of_two_inputs(graph: onnx.GraphProto) -> None:
    """With a second input, of another size."""
    _sized_by_number(graph)
    graph.input.append(onnx.helper.make_tensor_value_info("wide", onnx.TensorProto.FLOAT, [8]))


def _of_one_row(graph: onnx.GraphProto) -> None:
    """With a batch of one."""
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_value=1))


def _of_three_images(graph: onnx.GraphProto) -> None:
    """With the results of three images as outputs."""
    _open(graph)
    del graph.output[:]
    for image, value in enumerate(("v100", _MIDDLE, f"v{CHAIN_NODES}")):
        graph.node.add(op_type="Identity", input=[value], output=[f"scores.{image}"])
        graph.output.append(
            onnx.helper.make_tensor_value_info(f"scores.{image}", onnx.TensorProto.FLOAT, ["n"])
        )


def _in_modules(graph: onnx.GraphProto) -> None:
    for number, node in enumerate(graph.node):
        node.name = f"/block.{number // _NODES_OF_A_BLOCK}/{node.name}"


def _with_attributes(graph: onnx.GraphProto) -> None:
    for node in graph.node[::2]:
        del node.input[1]
        node.op_type = "LeakyRelu"
        node.attribute.append(onnx.helper.make_attribute("alpha", 0.5))


def _with_reductions(graph: onnx.GraphProto) -> None:
    """With nodes that opset 18 defines anew."""
    for node in graph.node[::_NODES_OF_A_BLOCK]:
        del node.input[1]
        node.op_type = "ReduceMax"
        node.attribute.append(onnx.helper.make_attribute("axes", [0]))


def _open(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), "one")
    graph.initializer[0].CopyFrom(one)


def _chain_text() -> str:
    nodes = "".join(f"v{i + 1} = Add(v{i}, one)\n" for i in range(CHAIN_NODES))
    head = '<ir_version: 8, opset_import: ["" : 17]>\n'
    ends = f"chain (float[4] v0) => (float[4] v{CHAIN_NODES})\n<float[4] one = {{1, 1, 1, 1}}>\n"
    return f"{head}{ends}{{\n{nodes}}}\n"


def diff_chains(root: Path, out: Path) -> list[Contest]:
    """One attribute changed: of three thousand nodes, and of fifty thousand; and every fifth of these removed."""
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
    removed = out / "removed.onnx"
    del model.graph.node[::5]
    for before, after in zip(model.graph.node, model.graph.node[1:], strict=False):
        after.input[0] = before.output[0]
    model.graph.node[0].input[0] = "v0"
    onnx.save(model, removed)
    ours = Command("diff-removed", [ONNXDBG, "diff", pair[0], removed], exit_code=1)
    both = Command("onnx.load of both", python(_LOAD_BOTH, pair[0], removed))
    return [*contests, Contest(ours, (Peer(both, (Target("time", 8),)),))]


def _own_copy(root: Path, out: Path) -> Path:
    """A folder with a copy of the model: results may lie beside it, and ONNX refuses data that is linked twice."""
    source, folder = model_folder(root, "external"), out / "copy"
    folder.mkdir()
    for name in ("model.onnx", "weights.data"):
        shutil.copyfile(source / name, folder / name)
    return folder


_DATA = 64 * BLOCK_BYTES
ROWS = {
    "edit-external": Row(
        "verbs on 4 GB that stay where they are", ("external",), _DATA, edit_external
    ),
    "move-external": Row("verbs that move 4 GB", ("external",), 2 * _DATA, move_external),
    "read-external": Row("verbs that read 4 GB", ("external",), 2 * _DATA, read_external),
    "strip-external": Row("noise for 4 GB of weights", ("external",), 3 * _DATA, strip_external),
    "edit-chain": Row("verbs on fifty thousand nodes", ("chain",), 10_000_000, edit_chain),
    "edit-chain-more": Row(
        "verbs on other chains of fifty thousand nodes", ("chain",), 40_000_000, edit_chains_more
    ),
    "edit-chain-typed": Row(
        "edits of types on fifty thousand nodes", ("chain",), 60_000_000, edit_chains_typed
    ),
    "edit-chain-busy": Row(
        "verbs that change every tenth of fifty thousand nodes",
        ("chain",),
        10_000_000,
        edit_chain_busy,
    ),
    "edit-tf-bert": Row(
        "verbs on a BERT as tf2onnx writes it", ("tf-bert",), 900_000_000, edit_tf_bert
    ),
    "infer": Row(
        "types, beside onnx's inference",
        ("chain", "resnet-alone", "tf-bert"),
        600_000_000,
        infer_types,
    ),
    "diff": Row("one attribute among 3000 and 50 000 nodes", ("chain",), 10_000_000, diff_chains),
}
