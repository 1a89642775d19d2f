"""Failures planted in models, each with the smallest number of nodes that can show it, known by construction."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from onnxsurgeon_lite import Model

CHECK = Path(__file__).with_name("failing_check.py")
_OPS = ("Relu", "Neg", "Abs", "Tanh")

Feeds = Mapping[str, object]


@dataclass(frozen=True)
class Failure:
    """A model that fails.

    Attributes:
        make: returns the model. feeds: of it; made ones by default.
        fails: the condition. command: the program that fails instead.
        nodes: the fewest that can show it, those of bodies included.
        how: further options of `reduce`.
    """

    make: Callable[[], ModelProto]
    nodes: int
    fails: str | Callable[[Model, Feeds], object] = "stops"
    command: str | None = None
    feeds: Feeds | None = None
    how: Mapping[str, object] = field(default_factory=dict)


def parsed(text: str, opset: int = 18, more: str = "", functions: str = "") -> ModelProto:
    return parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}{more}]>\n{text}\n{functions}'
    )


def within(
    middle: str,
    made: str,
    read: str = "h",
    around: int = 12,
    kind: str = "float[4,8]",
    **how: object,
) -> ModelProto:
    """Return a chain of nodes with others in the middle, which read `h` and make a value of the same type."""
    lines, last = [], "x"
    for place in range(around):
        name = read if place == around - 1 else f"a{place}"
        lines.append(f"{name} = {_OPS[place % 4]} ({last})")
        last = name
    lines.append(middle)
    last = made
    for place in range(around):
        lines.append(f"b{place} = {_OPS[place % 4]} ({last})")
        last = f"b{place}"
    body = "\n".join(lines)
    return parsed(f"chain ({kind} x) => ({kind} y) {{ {body}\n y = Identity ({last}) }}", **how)


def branches(middle: str, made: str, **how: object) -> ModelProto:
    """Return a model of two branches, of which one fails, that meet again."""
    text = f"""net (float[4,8] x) => (float[4,8] y, float[4,8] z) {{
        s = Relu (x)  l1 = Neg (s)  l2 = Tanh (l1)  l3 = Abs (l2)  z = Sigmoid (l3)
        h = Tanh (s)  {middle}  r1 = Abs ({made})  j = Add (l3, r1)  y = Relu (j) }}"""
    return parsed(text, **how)


def cnn(blocks: int = 50) -> ModelProto:
    """Return a CNN of four nodes a block, with an operator that no runtime has in the middle."""
    nodes, constants, last = [], [], "x"
    rng = np.random.default_rng(0)
    for block in range(blocks):
        weight = rng.normal(0, 0.1, (8, 8, 3, 3)).astype(np.float32)
        constants.append(numpy_helper.from_array(weight, f"w{block}"))
        conv = "Conv" if block != blocks * 2 // 3 else "Fonv"
        domain = "" if conv == "Conv" else "planted"
        pads = {"pads": [1, 1, 1, 1]}
        nodes += [
            helper.make_node(conv, [last, f"w{block}"], [f"c{block}"], domain=domain, **pads),
            helper.make_node("Relu", [f"c{block}"], [f"r{block}"]),
            helper.make_node("Tanh", [f"r{block}"], [f"t{block}"]),
            helper.make_node("Add", [f"t{block}", last], [f"s{block}"]),
        ]
        last = f"s{block}"
    shape = [1, 8, 16, 16]
    border = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", last)]
    graph = helper.make_graph(nodes, "cnn", border[:1], border[1:], constants)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("planted", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def large(folder: Path, side: int = 4096, layers: int = 36) -> Path:
    """Write a model of 2.4 GB of weights, a hole in a file, with an operator that no runtime has; return its path."""
    lines, last = [], "x"
    for layer in range(layers):
        lines.append(f"m{layer} = MatMul ({last}, w{layer})  r{layer} = Relu (m{layer})")
        last = f"r{layer}"
        if layer == layers * 2 // 3:
            lines.append(f"bad = planted.Nope ({last})  t = Tanh (bad)")
            last = "t"
    border = f"large (float[1,{side}] x) => (float[1,{side}] {last})"
    model = parsed(f"{border} {{ {' '.join(lines)} }}", more=', "planted" : 1')
    size = 4 * side * side
    with (folder / "weights").open("wb") as file:
        file.truncate(layers * size)
    for layer in range(layers):
        weight = model.graph.initializer.add(name=f"w{layer}", dims=[side, side], data_type=1)
        weight.data_location = TensorProto.EXTERNAL
        place = {"location": "weights", "offset": str(layer * size), "length": str(size)}
        for key, value in place.items():
            weight.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def quantized() -> ModelProto:
    return parsed(
        """q (float[1,4,8,8] x) => (float[1,4,8,8] y)
        <float s = {0.1}, uint8 z = {0}, float t = {0.2}> {
        a = Relu (x)  q0 = QuantizeLinear (a, s, z)  d0 = DequantizeLinear (q0, s, z)
        b = Abs (d0)  q1 = QuantizeLinear (b, t, z)  bad = planted.Requantize (q1)
        d1 = DequantizeLinear (bad, t, z)  c = Neg (d1)  y = Tanh (c) }""",
        more=', "planted" : 1',
    )


_CRASH = (
    "k = Cast <to = 7> (h)  zero = Sub (k, k)"
    "  low = Constant <value = int64 {-9223372036854775808}> ()"
    "  minus = Constant <value = int64 {-1}> ()"
    "  n = Add (zero, low)  d = Add (zero, minus)  crash = Div (n, d)  out = Cast <to = 1> (crash)"
)
_LOOP = """m = Constant <value = int64 {{9223372036854775807}}> ()
 go = Constant <value = bool {{1}}> ()
 out = Loop (m, go, h) <body = turn (int64 i, bool c, float[4,8] s) => (bool c2, float[4,8] s2)
   {{ c2 = Identity (c)  s1 = Neg (s)  s2 = {last} (s1) }}>"""
_SCAN = """e, es = Scan <num_scan_inputs = 1, body = turn (float[8] s, float[8] r) => (float[8] s2, float[8] z)
   { k = Cast <to = 7> (r)  zero = Sub (k, k)
     low = Constant <value = int64 {-9223372036854775808}> ()  minus = Constant <value = int64 {-1}> ()
     n = Add (zero, low)  d = Add (zero, minus)  crash = Div (n, d)
     f = Cast <to = 1> (crash)  s2 = Add (s, f)  z = Identity (s2) }> (first, h)
 out = Add (h, e)"""
_IF = """c = Constant <value = bool {1}> ()
 out = If (c) <then_branch = yes () => (float[4,8] t) { t0 = Neg (h)  t1 = planted.Nope (t0)  t = Abs (t1) },
               else_branch = no () => (float[4,8] e) { e = Abs (h) }>"""
_THREE_DEEP = """<domain: "l", opset_import: ["" : 18, "l" : 1]> f1 (x) => (y) { a = Neg (x)  y = l.f2 (a) }
<domain: "l", opset_import: ["" : 18, "l" : 1]> f2 (x) => (y) { a = Abs (x)  y = l.f3 (a) }
<domain: "l", opset_import: ["" : 18]> f3 (x) => (y) {
   a = Tanh (x)  s = Constant <value = int64[1] {7}> ()  y = Reshape (a, s) }"""
_ATTENTION = """q = MatMul (h, wq)  k = MatMul (h, wk)  v = MatMul (h, wv)
 o = com.microsoft.MultiHeadAttention <num_heads = 3> (q, k, v)  p = MatMul (o, wq)  out = Add (p, h)"""


def attention() -> ModelProto:
    return parsed(
        f"""block (float[1,4,8] x) => (float[1,4,8] y) {{ n = Relu (x)  h = Tanh (n) {_ATTENTION}
            z = Neg (out)  y = Abs (z) }}""".replace(
            "=> (float[1,4,8] y) {",
            "=> (float[1,4,8] y) <float[8,8] wq = {"
            + ",".join(["0.1"] * 64)
            + "}, float[8,8] wk = {"
            + ",".join(["0.2"] * 64)
            + "}, float[8,8] wv = {"
            + ",".join(["0.3"] * 64)
            + "}> {",
        ),
        more=', "com.microsoft" : 1',
    )


def genai() -> ModelProto:
    """Return a block as GenAI packages have it, whose attention gets more past than its lengths allow."""
    node = "com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>"
    return parsed(
        f"""block (float[1,2,32] x, float[1,2,3,8] pk, float[1,2,3,8] pv, int32[1] last, int32 total)
            => (float[1,2,32] y) {{
            n = Relu (x)  q = Tanh (n)  k0 = Abs (x)  k = Slice (k0, b, e, a)  v = Neg (k)
            o, nk, nv = {node} (q, k, v, pk, pv, last, total)  p = Abs (o)  y = Tanh (p) }}""".replace(
            "=> (float[1,2,32] y) {",
            "=> (float[1,2,32] y) <int64[1] b = {0}, int64[1] e = {16}, int64[1] a = {2}> {",
        ),
        more=', "com.microsoft" : 1',
    )


def folded() -> ModelProto:
    """Return a model that is slow where no constants are folded."""
    model = within(
        "ww = MatMul (w, w)  r = ReduceMean <keepdims = 0> (ww)  out = Add (h, r)", "out", around=1
    )
    numbers = np.random.default_rng(0).random((800, 800), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(numbers, "w"))
    return model


def finds_softplus(model: Model, _: Feeds) -> str:
    """Return why a model fails, as a function of a user does."""
    found = any(node.op_type == "Softplus" for node in model.proto.graph.node)
    return "Softplus is not supported" * found


def program(what: str) -> str:
    """Return a command that fails on a model with some pattern."""
    return f"{sys.executable} {CHECK} {what} {{model}}"


_PLANTED = {"more": ', "planted" : 1'}
_ONES = np.ones((4, 8), np.float32)

FAILURES: dict[str, Failure] = {
    "missing operator": Failure(
        lambda: within("out = planted.Nope (h)", "out", **_PLANTED), 1, "error"
    ),
    "missing operator, in a branch": Failure(
        lambda: branches("out = planted.Nope (h)", "out", **_PLANTED), 1, "error"
    ),
    "missing kernel": Failure(
        lambda: within("i = Cast <to = 2> (h)  e = Erf (i)  out = Cast <to = 1> (e)", "out"),
        1,
        "error",
    ),
    "CNN of 200 nodes": Failure(cnn, 1, "error"),
    "kernel that crashes": Failure(lambda: within(_CRASH, "out"), 1, "crash"),
    "kernel that crashes, in a branch": Failure(lambda: branches(_CRASH, "out"), 1, "crash"),
    "Loop that hangs": Failure(
        lambda: within(
            _LOOP.replace("{last}", "Abs").replace("{{", "{").replace("}}", "}"), "out", around=1
        ),
        3,
        "hang",
        how={"timeout": 1},
    ),
    "Scan whose body crashes": Failure(
        lambda: within(
            "zz = Constant <value = int64[1] {0}> ()  s0 = Shape (h)  first = ReduceSum <keepdims = 0> (h, zz)\n"
            + _SCAN,
            "out",
            around=4,
        ),
        1,
        "crash",
    ),
    "If whose branch has a missing operator": Failure(
        lambda: within(_IF, "out", **_PLANTED), 1, "error"
    ),
    "NaN": Failure(
        lambda: within("m = Neg (h)  n = Sub (m, h)  out = Sqrt (n)", "out", around=8),
        1,
        "nan",
        feeds={"x": _ONES},
    ),
    "infinity": Failure(
        lambda: within("m = Sub (h, h)  out = Reciprocal (m)", "out", around=3),
        1,
        "inf",
        feeds={"x": _ONES},
    ),
    "shape error three functions deep": Failure(
        lambda: parsed(
            "g (float[4,8] x) => (float[N] y) { a = Relu (x)  b = l.f1 (a)  c = Neg (b)  y = Abs (c) }",
            more=', "l" : 1',
            functions=_THREE_DEEP,
        ),
        1,
        "error",
    ),
    "index out of range": Failure(
        lambda: within(
            "i = Constant <value = int64[1] {9}> ()  out = Gather (h, i)", "out", kind="float[N,8]"
        ),
        1,
        "error",
        feeds={"x": _ONES},
    ),
    "shapes that do not fit": Failure(
        lambda: within("t = Transpose (h)  out = Add (h, t)", "out", kind="float[N,M]"),
        1,
        "error",
        feeds={"x": _ONES},
    ),
    "sequence": Failure(
        lambda: within(
            "i = Constant <value = int64 {7}> ()  s = SequenceConstruct (h, h)  out = SequenceAt (s, i)",
            "out",
        ),
        1,
        "error",
    ),
    "optional": Failure(
        lambda: within(
            "o = Optional <type = float[4,8]> ()  e = OptionalGetElement (o)  out = Add (e, h)",
            "out",
        ),
        2,
        "error",
    ),
    "quantized model": Failure(quantized, 1, "error"),
    "attention block": Failure(attention, 1, "error"),
    "attention of a GenAI package": Failure(
        genai,
        1,
        "error",
        feeds={
            "x": np.ones((1, 2, 32), np.float32),
            "pk": np.ones((1, 2, 3, 8), np.float32),
            "pv": np.ones((1, 2, 3, 8), np.float32),
            "last": np.array([9], np.int32),
            "total": np.array(5, np.int32),
        },
    ),
    "slower without folding": Failure(
        folded, 1, "slower=3", how={"a": "opt=all,threads=1", "b": "opt=none,threads=1"}
    ),
    "condition that is a function": Failure(
        lambda: within("out = Softplus (h)", "out"), 1, finds_softplus
    ),
    "invalid attribute": Failure(
        lambda: within("out = Softmax <axis = 7> (h)", "out"), 1, "invalid"
    ),
    "flaky program": Failure(
        lambda: within("out = Softsign (h)", "out", around=5),
        1,
        command=program("flaky-Softsign"),
        how={"runs": 12},
    ),
    "Clip without min": Failure(
        lambda: within("top = Constant <value = float {1.0}> ()  out = Clip (h, , top)", "out"),
        1,
        command=program("Clip-without-min"),
    ),
    "wrong fusion": Failure(
        lambda: within("m = Mul (h, h)  e = Exp (m)  out = Sub (e, h)", "out"),
        3,
        command=program("Mul-Exp-Sub"),
        how={"says": "wrong fusion"},
    ),
    "wrong fusion, in a branch": Failure(
        lambda: branches("m = Mul (h, h)  e = Exp (m)  out = Sub (e, h)", "out"),
        3,
        command=program("Mul-Exp-Sub"),
        how={"says": "wrong fusion"},
    ),
    "program that hangs": Failure(
        lambda: within("out = Softplus (h)", "out", around=1),
        1,
        command=program("hang-Softplus"),
        how={"timeout": 4},
    ),
    "program that dies": Failure(
        lambda: within("out = Softplus (h)", "out"), 1, command=program("die-Softplus")
    ),
    "two operators far apart": Failure(
        lambda: within("p = Softplus (h)  q = Neg (p)  r = Abs (q)  out = Softsign (r)", "out"),
        2,
        command=program("both-Softplus-Softsign"),
    ),
}
