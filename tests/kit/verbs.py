"""What every verb is tested with, a line in each of three tables; test_contract.py says where one is missing."""

from onnxsurgeon_lite import (
    AddConstant,
    Annotate,
    Append,
    Attribution,
    BatchOutputs,
    Clean,
    Cse,
    Dedupe,
    Dequantize,
    DropLayer,
    Expose,
    Extract,
    Fix,
    Fold,
    Freeze,
    Fuse,
    Gradient,
    Infer,
    Inference,
    Inline,
    Insert,
    NameOutputs,
    Opset,
    Outline,
    PadOutputs,
    Pass,
    Prepend,
    Promote,
    Rebatch,
    Remove,
    RemoveInput,
    RemoveOutput,
    Rename,
    Reorder,
    Replace,
    Rewire,
    Rewrite,
    Script,
    Set,
    SetAttr,
    SetConstant,
    SetLayout,
    SetOp,
    SetShape,
    SetType,
    Simplify,
    SkipNoops,
    Sort,
    Standardize,
    Unshare,
)  # fmt: skip

THREE = "three (float[4] x) => (float[4] y) { h = Relu(x) g = Neg(h) y = Abs(g) }"
CONSTANTS = """three (float[4] x) => (float[4] y) <float[4] w = {1,1,1,1}, float[4] v = {2,2,2,2}> {
    h = Relu(x)
    y = Add(h, w)
    dead = Add(h, v)
    deader = Softmax<axis = 0>(dead)
}"""
UNSORTED = "three (float[4] x) => (float[4] y) { y = Abs(h) h = Relu(x) }"
CALLS = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
three (float[4] x) => (float[4] y) { h = local.twice(x) y = local.twice(h) }
<domain: "local", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }"""
DROPOUT = """three (float[4] x) => (float[4] y) <float ratio = {0.5}, bool mode = {0}> {
    h = Relu(x) d = Dropout(h, ratio, mode) g = Neg(d) y = Abs(g)
}"""
RAGGED = """three (float[4] x) => (float[4] y, int64[n, 1] rows) {
    h = Relu(x) y = Abs(h) at = NonZero(h) rows = Transpose(at)
}"""

QUANTIZED = """two (float[4] x) => (float[4] y) <float scale = {0.0625}, uint8 zero = {0}> {
    h = Relu(x) q = QuantizeLinear(h, scale, zero) d = DequantizeLinear(q, scale, zero) y = Neg(d)
}"""
CONTRIB = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> two (float[4] x) => (float[4] y) {
    h = com.microsoft.QuickGelu <alpha = 1.5> (x) y = Neg(h)
}"""
OPEN = """three (float[n] x) => (float[m] y) <float[1] one = {1}> {
    h = Relu(x) same = Identity(h) g = Neg(same) two = Add(one, one)
    twice = Concat<axis = 0>(g, h) again = Neg(h) c = Concat<axis = 0>(twice, again)
    w = Mul(c, two) y = Abs(w)
}"""

DEFAULT = """three (float[4] x, float[4] w) => (float[4] y, float[4] g) <float[4] w = {1,1,1,1}> {
    h = Relu(x) g = Neg(h) y = Add(h, w)
}"""
SQUARE = """three (float[4] x) => (float[1,4,4] y) <int64[2] rows = {0,2}, int64[2] columns = {0,1}> {
    h = Relu(x) r = Unsqueeze(h, columns) c = Unsqueeze(h, rows) y = Mul(r, c)
}"""


LAYERS = """stack (float[4] x) => (float[4] y) {
    h = Relu(x) "/l.0/Abs_output_0" = Abs(h) "/l.0/Relu_output_0" = Relu("/l.0/Abs_output_0")
    "/l.1/Abs_output_0" = Abs("/l.0/Relu_output_0") "/l.1/Relu_output_0" = Relu("/l.1/Abs_output_0")
    y = Neg("/l.1/Relu_output_0")
}"""


def without_negation(graph):
    """An edit as graphsurgeon's users write it."""
    for node in graph.nodes:
        if node.op == "Neg":
            node.op = "Identity"


CONTRACT: dict[str, tuple[Pass, str]] = {
    "append": (Append("y = Identity(y)"), THREE),
    "prepend": (Prepend("x = Identity(x)"), THREE),
    "expose": (Expose(("h",)), THREE),
    "extract": (Extract(("h",), ("y",)), THREE),
    "rename": (Rename((("g", "k"),)), THREE),
    "remove": (Remove(("op:Neg",)), THREE),
    "drop-layer": (DropLayer(0), LAYERS),
    "insert": (Insert("g", "Abs"), THREE),
    "rewire": (Rewire("g", "h", to=("op:Abs",)), THREE),
    "rewrite": (Rewrite(("pattern (x) => (y) { y = Neg(x) } replacement (x) => (x) {}",)), THREE),
    "set-op": (SetOp(("@1",), "Identity"), THREE),
    "set-attr": (SetAttr(("op:Softmax",), (("axis", -1),)), CONSTANTS),
    "set-constant": (SetConstant("v", 3), CONSTANTS),
    "promote": (Promote(("w",), default=True), CONSTANTS),
    "freeze": (Freeze((("w", None),)), CONSTANTS.replace("x)", "x, float[4] w)", 1)),
    "set-type": (SetType({"y": "double"}), THREE),
    "set-layout": (SetLayout({"y": "NLC"}), SQUARE),
    "remove-input": (RemoveInput(("w",)), DEFAULT),
    "remove-output": (RemoveOutput(("g",)), DEFAULT),
    "reorder": (Reorder(("w",), ("g",)), DEFAULT),
    "add-constant": (AddConstant((("half", 0.5),)), THREE),
    "set": (Set((("metadata.author", "Ada"), ("producer_name", "me"))), THREE),
    "annotate": (Annotate("op:Neg", (("layer_ann", "tail"),)), THREE),
    "sort": (Sort(), UNSORTED),
    "clean": (Clean(), CONSTANTS),
    "fix": (Fix(), UNSORTED),
    "dedupe": (Dedupe(), CONSTANTS.replace("{2,2,2,2}", "{1,1,1,1}")),
    "unshare": (Unshare(("w",)), CONSTANTS.replace("Add(h, v)", "Add(h, w)")),
    "dequantize": (Dequantize(), QUANTIZED),
    "standardize": (Standardize(), CONTRIB),
    "fuse": (Fuse(), THREE.replace("h = Relu(x)", "h = Gelu(x)")),
    "fold": (Fold(), OPEN),
    "cse": (Cse(), OPEN.replace("Neg(same)", "Neg(h)")),
    "skip-noops": (SkipNoops(), OPEN),
    "infer": (Infer(), OPEN),
    "simplify": (Simplify(), OPEN),
    "inline": (Inline(), CALLS),
    "inference": (Inference(), DROPOUT),
    "opset": (Opset(22), THREE),
    "script": (Script(without_negation), THREE),
    "replace": (Replace(("h",), ("y",), "Identity"), THREE),
    "outline": (Outline("neg"), THREE),
    "rebatch": (Rebatch("N"), THREE),
    "set-shape": (SetShape({"x": ("N",)}), THREE),
    "name-outputs": (NameOutputs(("y", "detections")), RAGGED),
    "pad-outputs": (PadOutputs(4, ("rows",)), RAGGED),
    "batch-outputs": (BatchOutputs(4, {"all": ("rows",)}), RAGGED),
    "gradient": (Gradient("y", ("x",)), THREE),
    "attribution": (Attribution("saliency"), THREE),
}
"""Each pass with a model that it changes without changing what `y` is; see test_contract.py."""
ONCE = {  # applied again they find another model, or refuse it
    "rename", "remove", "drop-layer", "insert", "rewire", "pad-outputs", "batch-outputs", "outline", "gradient",
    "attribution", "set-layout", "remove-input", "remove-output", "add-constant", "append", "prepend",
}  # fmt: skip


def by_script(graph) -> None:
    graph.nodes[6].op = "Abs"


N, FIXED = "float [N, 4]", "float [3, 4]"
RESIZED = [f"changed {kind} '{name}': type {N} -> {FIXED}"
           for kind, names in (("input", "x"), ("output", "yz"), ("value", "abcd")) for name in names]  # fmt: skip
CALLS = [
    "removed node twice 'call' (@2): reads 'b'; makes 'c'",
    "removed node twice 'again' (@3): reads 'c'; makes 'e'",
]
FUNCTIONS = ["removed function 'local::twice::one': ", "removed function 'local::twice::two': "]
DEAD = "removed node Add 'dead' (@4): reads 'x', 'twin'; makes 'nothing'"
TWIN = "removed initializer 'twin' (float [4]): "
IDLE = "removed node Identity 'idle' (@10): reads 't'; makes 'i'"
SECOND = "removed node Neg 'other' (@12): reads 'i'; makes 'l'"
SPARSE = "removed node Add '/part/sparse' (@5): reads 'e', 's'; makes 'd'"
LAST = "removed node Relu '/part/last' (@6): reads 'd'; makes 'y'"
LOST = "doc string doc 6 -> ; metadata 'number' '6' -> ; fields unknown to this onnx version"

LOSSLESS = [
    (Append("w2 = Neg(z)"), [f"removed output 'z' ({N}): ", f"added output 'w2' ({N}): "], 1),
    (Prepend("x = Neg(x)"), [], 1),
    (Expose(("a",)), [f"added output 'a' ({N}): "], 0),
    (Extract((), ("z",)), [
        *CALLS, DEAD, SPARSE, LAST, f"removed output 'y' ({N}): ", "removed initializer 's' (sparse [4]): ", TWIN,
        "changed metadata quantization annotation of 'c': parameter 'SCALE_TENSOR' 'w' -> ", *FUNCTIONS], 0),
    (Rename((("a", "b"), ("b", "a"), ("w", "weight"))), [], 0),
    (Remove(("scale",)), ["removed node LeakyRelu 'scale' (@1): reads 'a'; makes 'b'"], 0),
    (DropLayer(0), [
        DEAD, TWIN, "removed node Abs '/l.1/Abs' (@9): reads 'q'; makes 'r'",
        "removed node Neg '/l.1/Neg' (@10): reads 'r'; makes 't'"], 0),
    (Insert("a", "Abs"), [], 1),
    (Rewire("a", "x", ("scale",)), ["changed node LeakyRelu 'scale' (@1): input 0 'a' -> 'x'"], 0),
    (Rewrite(("pattern (x) => (y) { y = Relu(x) } replacement (x) => (y) { y = Abs(x) }",)),
        ["changed node Relu '/part/last' (@6): operator Relu -> Abs"], 0),
    (SetOp(("/part/last",), "Abs"), ["changed node Relu '/part/last' (@6): operator Relu -> Abs"], 0),
    (SetAttr(("scale",), (("alpha", 0.25),)), ["changed node LeakyRelu 'scale' (@1): attribute alpha 0.5 -> 0.25"], 0),
    (SetConstant("w", 0), ["changed initializer 'w' (float [4]): 4 of 4 elements differ, max abs 4"], 0),
    (Promote(("same",)), ["changed initializer 'same': kind initializer -> input"], 0),
    (Freeze((("x", [[1, 2, 3, 4]]),)), [
        "changed initializer 'x': kind input -> initializer",
        *(line.replace("3, 4", "1, 4") for line in RESIZED[3:])], 0),
    (SetShape({"x": (3, 4)}), RESIZED, 0),
    (Rebatch(3), RESIZED, 0),
    (PadOutputs(3), [*RESIZED[1:3], "added output 'num_detections' (int64 [1]): "], 21),
    (BatchOutputs(5, {"both": ("y", "z")}), [
        f"removed output 'y' ({N}): ", f"removed output 'z' ({N}): ",
        "added output 'both' (float [2, 5, 4]): ", "added output 'num_detections' (int64 [2]): "], 34),
    (NameOutputs(("first", "second")), [], 0),
    (SetType({"x": "double"}), ["changed input 'x': type float [N, 4] -> double [N, 4]"], 1),
    (SetLayout({"x": "NC->CN"}), ["changed input 'x': type float [N, 4] -> float [4, N]"], 1),
    (RemoveInput(("same",)), [
        "removed input 'same' (float [4]): ",
        "changed initializer 'same' (float [4]): kind input with a default -> initializer"], 0),
    (RemoveOutput(("z",)), [f"removed output 'z' ({N}): "], 0),
    (Reorder((), ("z",)), ["changed output outputs: order 'y', 'z' -> 'z', 'y'"], 0),
    (AddConstant((("half", 0.5),)), ["added initializer 'half' (float []): "], 0),
    (Set((("doc_string", ""), ("model_version", 8))), [
        "changed metadata model: model version 7 -> 8", "changed metadata model: doc string of the model -> "], 0),
    (Annotate("scale", (("layer_ann", "tail"),)), [
        "changed node LeakyRelu 'scale' (@1): metadata 'layer_ann'  -> 'tail'"], 0),
    (Dedupe(), [TWIN], 0),
    (Unshare(), ["added initializer 'same_1' (float [4]): "], 0),
    (Dequantize(), [
        "removed node QuantizeLinear @7: reads 'b', 'qs', 'qz'; makes 'q'",
        "removed node DequantizeLinear @8: reads 'q', 'qs', 'qz'; makes 'dq'",
        "removed initializer 'qs' (float []): ", "removed initializer 'qz' (int8 []): "], 0),
    (Fold(), [
        "removed node Add 'const' (@8): reads 'same', 'same'; makes 'k'", "added initializer 'k' (float [4]): "], 0),
    (Cse(), [SECOND, "changed node Add 'sum' (@13, @12 in the second): input 1 'l' -> 'j'"], 0),
    (SkipNoops(), [IDLE], 0),
    (Infer(), ["added metadata types of 7 values: 'e', 'i', 'j', 'k', 'l', 'nothing', ...: "], 0),
    (Simplify(), [
        "added metadata types of 3 values: 'e', 'j', 't': ",
        DEAD, TWIN, IDLE, SECOND, "changed node Add 'sum' (@13, @9 in the second): input 1 'l' -> 'j'",
        "removed node Add 'const' (@8): reads 'same', 'same'; makes 'k'", "added initializer 'k' (float [4]): "], 0),
    (Inline(), [*CALLS, "removed opset local: version 1 -> ", *FUNCTIONS], 3),
    (Opset(19), ["changed opset ai.onnx: version 18 -> 19"], 0),
    (Script(by_script), ["changed node Relu '/part/last' (@6): operator Relu -> Abs"], 0),
    (Replace(("d",), ("y",), "Abs"), [f"changed node Relu '/part/last' (@6): operator Relu -> Abs; {LOST}"], 0),
    (Outline("part"), [
        "changed node Add '/part/sparse' (@5): operator Add -> local::part; "
        + LOST.replace("6", "5"), LAST, "added function 'local::part': "], 0),
    (Clean(), [DEAD, TWIN], 0),
    (Sort(), [], 0),
    (Standardize(), ["removed node QuickGelu 'gate' (@7): reads 'b'; makes 'gated'"], 5),
    (Fuse(), [
        "added opset com.microsoft: version  -> 1",
        "removed node Mul 'steep' (@7): reads 'b', 'slope'; makes 'steeper'",
        "removed node Sigmoid 'open' (@8): reads 'steeper'; makes 'gate'",
        "removed node Mul 'gated' (@9): reads 'b', 'gate'; makes 'gated'",
        "removed initializer 'slope' (float []): ",
    ], 1),
    (Inference(), ["changed node Dropout @7: input 2 'train' -> "], 0),
    (Fix(), [], 0),
    (Attribution("saliency", of="b"), [
        f"added output 'heatmap' ({N}): ", "added initializer 'gradient/3' (float []): ",
        "added initializer 'gradient/5' (float []): "], 7),
    (Gradient("b", ("x",)), [
        f"added output 'd(b)/d(x)' ({N}): ", "added initializer 'gradient/3' (float []): ",
        "added initializer 'gradient/5' (float []): "], 6),
]  # fmt: skip
"""Each step on the model of test_nothing_lost.py, the differences, and how many nodes it adds."""

CUSTOM_WORDS = {
    "append": ["more = Relu(u)"],
    "prepend": ["x = Relu(x)"],
    "expose": ["t"],
    "extract": ["--inputs", "h,offset", "--outputs", "s"],
    "rename": ["h=hidden", "t=sum"],
    "remove": ["/half"],
    "drop-layer": ["1"],
    "insert": ["t", "Abs"],
    "replace": ["--inputs", "s", "--outputs", "u", "--op", "Identity"],
    "rewire": ["t", "d", "--to", "/half"],
    "rewrite": ["rule.onnxtxt"],
    "set-op": ["/relu", "Abs"],
    "set-attr": ["/deform", "deform_groups=3"],
    "set-constant": ["half", "2"],
    "promote": ["half"],
    "freeze": ["x=0"],
    "set-shape": ["offset=N,18,8,8", "x=N,3,8,8", "--unproved"],
    "rebatch": ["--to", "4", "--unproved"],
    "pad-outputs": ["--max", "5", "--outputs", "rows"],
    "batch-outputs": ["--max", "5", "all=rows"],
    "name-outputs": ["out,places"],
    "set-type": ["y=double"],
    "set-layout": ["x=NHWC"],
    "remove-input": ["unused"],
    "remove-output": ["rows"],
    "reorder": ["--outputs", "rows"],
    "add-constant": ["three=3"],
    "set": ["producer_name=me"],
    "annotate": ["/relu", "layer_ann=tail"],
    "sort": [],
    "inference": [],
    "clean": [],
    "fix": [],
    "dedupe": [],
    "unshare": [],
    "dequantize": [],
    "standardize": [],
    "fuse": [],
    "fold": [],
    "cse": [],
    "skip-noops": [],
    "infer": [],
    "simplify": ["--unproved"],
    "inline": [],
    "outline": ["act"],
    "gradient": ["--of", "h", "--to", "x"],
    "attribution": ["--method", "saliency", "--of", "h"],
    "opset": ["18"],
    "script": [],  # its file is named before the model
}
"""Verb -> the words behind the model of test_tutorial.py, which has custom operators."""
