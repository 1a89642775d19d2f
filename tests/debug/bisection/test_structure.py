"""What differs in structure: forks, missing and extra operations, faults without a reference of their own."""

import json
import warnings

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit.bisecting import Case, altered, parsed, random, verdicts
from onnxsurgeon_lite import load, open_references, save_tensors
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.dtypes import type_of

FORK = """net (float[4,16] x) => (float[4,16] y) {
    h = MatMul (x, w0)
    n = LayerNormalization (h, g, b)
    r = Mul (n, s)
    q = MatMul (r, w1)
    k = MatMul (r, w2)
    v = MatMul (r, w3)
    t = Mul (q, k)
    u = Softmax (t)
    m = Mul (u, v)
    y = Add (m, r)
}"""


def fork() -> ModelProto:
    constants = {f"w{i}": random(16, 16, seed=i) / 4 for i in range(4)}
    norm = {"g": 1 + random(16, seed=5) / 9, "b": random(16, seed=6), "s": random(16, seed=7)}
    return parsed(FORK, **constants, **norm)


def some(case: Case, *names: str):
    kept = {name: case.values[name] for name in ("x", *names)}
    np.savez(case.folder / "some.npz", **kept)
    return osl.open_references(case.folder / "some.npz")


def replaced(model: ModelProto, value: str, op_type: str, *inputs: str) -> ModelProto:
    """The model with another operator, or other inputs, at one value."""
    copy = ModelProto()
    copy.CopyFrom(model)
    node = next(node for node in copy.graph.node if value in node.output)
    node.op_type = op_type
    node.input[:] = inputs or node.input
    return copy


@pytest.mark.parametrize(("value", "region"), [("n", {"@1", "@2"}), ("r", {"@1", "@2"})])
def test_one_fault_seen_through_a_fork_is_one_culprit(value, region, tmp_path, runtime):
    right = fork()
    case = Case(tmp_path, right, runtime)
    g = {"g": np.float32([1.5] * 16)} if value == "n" else {"s": np.float32([1.5] * 16)}

    result = case.bisect(altered(right, **g), references=some(case, "h", "q", "k", "v", "y"))

    (culprit,) = result.culprits
    assert set(culprit.region) == region
    assert {culprit.value, *culprit.seen} == {"q", "k", "v", "y"}
    assert "one of 2 nodes up to Mul (@2), or what follows it, seen at 'q', 'k', 'v', 'y'" in str(
        result
    )


def layers() -> ModelProto:
    """Two layers that read one mask."""
    return parsed(
        """net (float[4,16] x) => (float[4,16] y) {
            m = Sigmoid (x)
            a0 = Mul (x, w0)
            b0 = Exp (a0)
            c0 = Add (b0, m)
            d0 = Tanh (c0)
            p = MatMul (d0, w1)
            a1 = Mul (p, w0)
            b1 = Exp (a1)
            c1 = Add (b1, m)
            d1 = Tanh (c1)
            y = MatMul (d1, w1)
        }""",
        w0=random(16, seed=1),
        w1=random(16, 16, seed=2) / 8,
    )


def test_the_same_mistake_in_two_layers_is_not_blamed_on_what_they_share(tmp_path, runtime):
    case = Case(tmp_path, layers(), runtime)
    wrong = replaced(replaced(layers(), "d0", "Softsign"), "d1", "Softsign")

    result = case.bisect(wrong, references=some(case, "p", "y"))

    assert {(c.id, *c.seen) for c in result.culprits} == {("@4", "p"), ("@9", "y")}


def test_two_faults_on_two_branches_are_two_culprits(tmp_path, runtime):
    right = fork()
    case = Case(tmp_path, right, runtime)
    wrong = altered(right, w1=random(16, 16, seed=8), w3=random(16, 16, seed=9))

    result = case.bisect(wrong, references=some(case, "h", "r", "q", "k", "v", "y"))

    assert {culprit.value for culprit in result.culprits} == {"q", "v"}


def test_an_amplification_does_not_outrank_the_node_that_is_wrong(tmp_path, runtime):
    right = parsed(
        """net (float[1000] x) => (float[1000] y, float[1000] z) {
            a = Mul (x, w)
            y = Tanh (a)
            c = Add (x, o)
            d = Sub (c, o)
            z = Mul (d, big)
        }""",
        w=np.float32([0.5]),
        o=np.float32([1000]),
        big=np.float32([1e6]),
    )
    case = Case(tmp_path, right, runtime)
    near = case.values["c"].copy()
    near[:5] += 0.05
    references = case.references(c=near, d=near - 1000, z=(near - 1000) * np.float32(1e6))

    result = case.bisect(altered(right, w=np.float32([0.6])), references=references)

    assert [culprit.value for culprit in result.culprits] == ["a", "d"]
    assert verdicts(result.culprits[1])[0] == "amplification"


BLOCK = """net (float[4,16] x) => (float[4,16] y) {
    h = MatMul (x, w0)
    c = Add (h, b)
    a = Relu (c)
    d = MatMul (a, w1)
    s = Add (d, x)
    n = LayerNormalization (s, g, b)
    q = MatMul (n, w2)
    k = MatMul (n, w3)
    t = Mul (q, k)
    y = Add (t, s)
}"""


def block() -> ModelProto:
    constants = {f"w{i}": random(16, 16, seed=i) / 4 for i in range(4)}
    return parsed(BLOCK, **constants, g=1 + random(16, seed=5) / 9, b=random(16, seed=6))


def without(model: ModelProto, value: str, instead: str) -> ModelProto:
    """The model with a node left out: what reads it reads another value."""
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.graph.node.remove(next(node for node in copy.graph.node if value in node.output))
    for node in copy.graph.node:
        node.input[:] = [instead if name == value else name for name in node.input]
    return copy


@pytest.mark.parametrize(
    ("value", "instead", "said"),
    [
        ("a", "c", "Relu is missing behind 'c'"),
        ("c", "h", "Add of a bias is missing behind 'h'"),
        ("s", "d", "Add of 'x' is missing behind 'd'"),
        ("n", "s", "LayerNormalization is missing behind 's'"),
    ],
)
def test_a_missing_operation_is_said_once(value, instead, said, tmp_path, runtime):
    case = Case(tmp_path, block(), runtime)

    result = case.bisect(without(block(), value, instead))

    (culprit,) = result.culprits
    assert verdicts(culprit)[0] == "missing node"
    assert culprit.findings[0].because.startswith(said)
    assert culprit.lacking == [value]


def test_a_missing_residual_without_a_reference_of_its_own_is_one_culprit(tmp_path, runtime):
    right = block()
    case = Case(tmp_path, right, runtime)

    result = case.bisect(without(right, "s", "x"), references=some(case, "h", "d", "n", "t", "y"))

    (culprit,) = result.culprits
    assert verdicts(culprit)[0] == "missing node"
    assert "Add of 'd' is missing behind 'x'" in str(result)


def test_a_missing_residual_is_known_also_where_no_reference_holds_what_is_added(tmp_path, runtime):
    right = parsed(
        """net (float[16,16] x) => (float[16,16] y) {
            e = Exp (x)
            s = Add (e, c)
            b = MatMul (s, w)
            r = Add (b, s)
            n = LayerNormalization (r, g, c)
            y = Add (n, r)
        }""",
        w=random(16, 16) / 4,
        g=1 + random(16, seed=5) / 9,
        c=random(16, seed=6),
    )
    case = Case(tmp_path, right, runtime)
    wrong = replaced(
        replaced(right, "n", "LayerNormalization", "b", "g", "c"), "y", "Add", "n", "b"
    )
    del wrong.graph.node[3]

    (culprit,) = case.bisect(wrong, references=some(case, *"ebny")).culprits

    assert (culprit.value, culprit.findings[0].verdict) == ("n", "missing node")
    assert culprit.findings[0].because.startswith("Add of 's' is missing behind 'b'")


def test_a_missing_residual_that_a_fork_hides_as_well_is_one_culprit(tmp_path, runtime):
    """What is missing before the fork is only known when its branches are one culprit."""
    right = parsed(
        """net (float[16,16] x) => (float[16,16] y) {
            e = Exp (x)
            b = MatMul (e, w0)
            s = Add (b, e)
            n = LayerNormalization (s, g, z)
            f = MatMul (n, w1)
            t = Add (f, s)
            u = Neg (t)
            v = Sigmoid (u)
            r = Neg (v)
            p = Sin (r)
            q = Cos (r)
            y = Add (p, q)
        }""",
        **{f"w{i}": random(16, 16, seed=i) / 4 for i in range(2)},
        g=1 + random(16, seed=5) / 9,
        z=random(16, seed=6),
    )
    case = Case(tmp_path, right, runtime)
    wrong = replaced(
        replaced(right, "n", "LayerNormalization", "b", "g", "z"), "t", "Add", "f", "b"
    )
    del wrong.graph.node[2]

    (culprit,) = case.bisect(wrong, references=some(case, *"ebnfpqy")).culprits

    assert (culprit.value, culprit.lacking) == ("n", ["e"])
    assert culprit.findings[0].because.startswith("Add of 'e' is missing behind 'b'")


def test_a_value_that_passes_through_half_precision_in_a_float32_model_is_wrong(tmp_path, runtime):
    right = block()
    case = Case(tmp_path, right, runtime)
    wrong = replaced(right, "n", "LayerNormalization")
    wrong.graph.node[5].output[0] = "wide"
    there = helper.make_node("Cast", ["wide"], ["narrow"], to=onnx.TensorProto.BFLOAT16)
    back = helper.make_node("Cast", ["narrow"], ["n"], to=onnx.TensorProto.FLOAT)
    wrong.graph.node.insert(6, there)
    wrong.graph.node.insert(7, back)

    result = case.bisect(wrong)

    assert [culprit.value for culprit in result.culprits] == ["n"]


def test_what_a_module_returns_and_the_model_lacks_is_said_with_its_class(tmp_path, runtime):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16))
    right = parsed(
        """net (float[4,16] x) => (float[4,16] y) {
            a = Gemm <transB = 1> (x, w0, b0)
            y = Gemm <transB = 1> (a, w1, b1)
        }""",
        **{f"w{i}": net[2 * i].weight.detach().numpy() for i in (0, 1)},
        **{f"b{i}": net[2 * i].bias.detach().numpy() for i in (0, 1)},
    )
    onnx.save(right, tmp_path / "m.onnx")
    osl.record((net.eval(), (torch.randn(4, 16),)), tmp_path / "refs")

    result = osl.bisect(tmp_path / "m.onnx", tmp_path / "refs")

    assert "Tanh is missing behind 'a'" in str(result)


@pytest.mark.parametrize("op_type", ["Relu", "Softsign"])
def test_an_extra_operation_is_the_culprit_itself(op_type, tmp_path, runtime):
    case = Case(tmp_path, block(), runtime)
    beside, under = ModelProto(), ModelProto()
    for wrong in (beside, under):
        wrong.CopyFrom(block())
    for node in beside.graph.node:
        node.input[:] = ["extra" if name == "n" else name for name in node.input]
    beside.graph.node.insert(6, helper.make_node(op_type, ["n"], ["extra"]))
    under.graph.node[5].output[0] = "before"
    under.graph.node.insert(6, helper.make_node(op_type, ["before"], ["n"]))

    for wrong in (beside, under):
        (culprit,) = case.bisect(wrong).culprits

        assert (culprit.id, culprit.op_type, culprit.region) == ("@6", op_type, ["@6"])
        assert verdicts(culprit)[0] == "extra node"


def test_the_operator_the_attribute_and_the_input_that_give_the_reference_are_said(
    tmp_path, runtime
):
    right = parsed(
        """net (float[4,8,8] x) => (float[4,8,8] y) {
            e = Exp (x)
            p = Softmax <axis = -1> (e)
            t = Transpose <perm = [0, 2, 1]> (p)
            y = Sub (t, e)
        }"""
    )
    case = Case(tmp_path, right, runtime)
    axis, operator = ModelProto(), replaced(right, "y", "Mul")
    axis.CopyFrom(right)
    axis.graph.node[1].attribute[0].i = 1
    wiring = replaced(right, "y", "Sub", "p", "e")

    def because(wrong: ModelProto, *names: str) -> str:
        (culprit,) = case.bisect(wrong, references=some(case, *names)).culprits
        assert verdicts(culprit)[0] == "wrong node"
        return culprit.findings[0].because

    assert "axis=-1 gives the reference" in because(axis, "e", "y")
    assert "Sub gives the reference, Mul does not" in because(operator, "e", "y")
    assert "reading 't' in place of 'p'" in because(wiring, "e", "p", "t", "y")


def test_an_operation_that_is_missing_before_two_readers_is_one_culprit(tmp_path, runtime):
    text = "net (float[4,4] x) => (float[4,4] y) { e = Exp (x) t = Tanh (e) p = Sin (t) q = Neg (t) y = Add (p, q) }"
    right = parsed(text)
    case = Case(tmp_path, right, runtime)
    named = {"x": "x", "e": "e", "of a module": "t", "p": "p", "q": "q", "y": "y"}
    np.savez(tmp_path / "some.npz", **{name: case.values[value] for name, value in named.items()})
    wrong = replaced(replaced(right, "p", "Sin", "e"), "q", "Neg", "e")
    del wrong.graph.node[1]

    (culprit,) = case.bisect(wrong, references=osl.open_references(tmp_path / "some.npz")).culprits

    assert verdicts(culprit)[0] == "missing node"
    assert {culprit.value, *culprit.seen} == {"p", "q"}


CONSTANT = """net (float[4,4] x) => (float[4,4] y) {{
    e = Exp (x)
    c = Constant <value = float[4] {{{numbers}}}> ()
    r = Neg (c)
    m = Mul (e, {read})
    y = Tanh (m)
}}"""


@pytest.mark.parametrize(("read", "region"), [("c", ["@3"]), ("r", ["@2", "@3"])])
def test_a_culprit_that_reads_a_constant_without_a_reference_has_its_verdict(
    read, region, tmp_path, runtime
):
    """What computes the constant may be wrong, too."""
    right, wrong = (
        parsed(CONSTANT.format(numbers=n, read=read)) for n in ("1, 2, 3, 4", "1.1, 2.2, 3.3, 4.4")
    )
    case = Case(tmp_path, right, runtime)

    (culprit,) = case.bisect(wrong, references=some(case, "e", "m", "y")).culprits

    assert (culprit.value, culprit.region) == ("m", region)
    assert culprit.findings[0].verdict == "wrong constant"
    assert (
        culprit.findings[0].because
        == f"{read!r} is wrong, or a factor is missing: the effect is x1.1"
    )
    assert culprit.values[-1].introduced is not None


def test_what_computes_a_constant_without_a_reference_may_be_the_culprit(tmp_path, runtime):
    text = "net (float[4,4] x) => (float[4,4] y) { e = Exp (x) s = Softmax (w) m = MatMul (e, s) y = Tanh (m) }"
    right = parsed(text, w=random(4, 4))
    case = Case(tmp_path, right, runtime)

    wrong = replaced(right, "s", "LogSoftmax")
    (culprit,) = case.bisect(wrong, references=some(case, "e", "m", "y")).culprits

    assert culprit.region == ["@1"]


def test_a_wrong_node_far_up_in_what_computes_a_constant_is_named(tmp_path, runtime):
    """The effect is that of a wrong constant, which no one stored."""
    chain = "a = Exp (w) s = Add (a, o) r = Sqrt (s) n = Neg (r) c = Abs (n)"
    right = parsed(
        f"net (float[4,4] x) => (float[4,4] y) {{ {chain} m = Mul (x, c) y = Tanh (m) }}",
        w=random(4),
        o=np.float32([0.25]),
    )
    case = Case(tmp_path, right, runtime)

    wrong = replaced(right, "s", "Mul")
    (culprit,) = case.bisect(wrong, references=some(case, "m", "y")).culprits

    assert (culprit.id, culprit.findings[0].verdict) == ("@1", "wrong node")
    assert "Add gives the reference, Mul does not" in culprit.findings[0].because


def test_a_constant_that_differs_from_its_reference_is_a_wrong_constant(tmp_path, runtime):
    right, wrong = (
        parsed(CONSTANT.format(numbers=n, read="c")) for n in ("1, 2, 3, 4", "1, 2, 3, 5")
    )

    first = Case(tmp_path, right, runtime).bisect(wrong).culprits[0]

    assert (first.value, first.findings[0].verdict) == ("c", "wrong constant")
    said = "the constant differs in 1 of 4 elements, at [3]: 5 where the reference is 4, x1.25"
    assert first.findings[0].because == said


@pytest.mark.parametrize("bias", [", b", ""])
def test_a_lost_bias_is_called_so(bias, tmp_path, runtime):
    text = "net (float[16,8] x) => (float[16,8] y) { h = Gemm (x, wBIAS) y = Tanh (h) }"
    constants = {"w": random(8, 8), "b": random(8, seed=1)}
    case = Case(tmp_path, parsed(text.replace("BIAS", ", b"), **constants), runtime)

    wrong = parsed(text.replace("BIAS", bias), **constants | {"b": np.zeros(8, np.float32)})
    (culprit,) = case.bisect(wrong).culprits

    assert culprit.findings[0].verdict == "wrong constant"
    which = "the bias 'b' is lost: it is zero" if bias else "the bias is lost"
    assert culprit.findings[0].because.startswith(f"{which}, the reference has -")


def test_a_cancellation_that_loses_three_percent_is_an_amplification(tmp_path, runtime):
    right = parsed(
        "net (float[1000] x) => (float[1000] y) { c = Add (x, o) d = Sub (c, o) y = Tanh (d) }",
        o=np.float32([1e6]),
    )
    case = Case(tmp_path, right, runtime, {"x": random(1000)})
    exact = {"d": case.feeds["x"], "y": np.tanh(case.feeds["x"])}

    result = case.bisect(right, references=case.references(**exact))

    assert [(c.value, verdicts(c)[0]) for c in result.culprits] == [("d", "amplification")]
    assert "its operands cancel" in result.culprits[0].findings[0].because


def test_the_one_optimizer_that_makes_the_difference_is_named(tmp_path):
    right = parsed(
        """net (float[1,4,6,6] x) => (float[1,4,4,4] y) {
            c = Conv (x, w)
            y = BatchNormalization (c, g, b, m, v)
        }""",
        w=random(4, 4, 3, 3) * np.float32(1e30),
        g=np.float32([1e10] * 4),
        b=random(4, seed=1),
        m=random(4, seed=3),
        v=np.ones(4, np.float32),
    )
    onnx.save(right, tmp_path / "m.onnx")

    feeds = {"x": random(1, 4, 6, 6) * np.float32(1e-30)}
    how = {"a": "opt=none", "b": "opt=all", "feeds": feeds}
    result = osl.bisect(tmp_path / "m.onnx", **how, workaround=True, repair=tmp_path / "split.onnx")

    assert "without ConvBNFusion it agrees" in str(result)
    assert "workaround: with a Max of one input behind 'c' the runtime gives the reference" in str(
        result
    )
    assert result.repair.verdict == "agrees"
    assert osl.bisect(tmp_path / "split.onnx", **how).verdict == "agrees"
    assert not {"random", "observer effect"} & {finding.verdict for finding in result.findings}


def test_every_output_of_a_random_node_is_replayed(tmp_path, runtime):
    right = parsed(
        """net (float[64] x) => (float[64] y) {
            d, mask = Dropout (x, ratio, training)
            y = Tanh (d)
        }""",
        ratio=np.float32(0.5),
        training=np.array(True),
    )
    case = Case(tmp_path, right, runtime)

    for _ in range(3):
        result = case.bisect(right)

        assert result.verdict == "agrees"
        assert "'mask' is random: its recorded value is replayed" in result.notes


NEAR = np.float32(np.tile([0.5, 0.1], (4, 16))) + np.float32(1e-6) * random(4, 32)
BOXES = np.abs(random(1, 16, 4)) @ np.float32(
    [[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]]
)
SELECTING = {
    "TopK": """(float[4,32] x) => (float[4,8] y) {
        s = Neg (x)
        v, i = TopK (s, k)
        f = Cast <to = 1> (i)
        y = Sqrt (f)
    }""",
    "ArgMax": """(float[4,32] x) => (float[4] y) {
        s = Neg (x)
        i = ArgMax <axis = 1, keepdims = 0> (s)
        f = Cast <to = 1> (i)
        y = Sqrt (f)
    }""",
    "Unique": "(float[4,32] x) => (float[n] y) { s = Neg (x) u, a, b, c = Unique (s) y = Tanh (u) }",
    "NonMaxSuppression": """(float[1,16,4] boxes, float[1,1,16] q) => (float[n,3] y) {
        s = Sqrt (q)
        i = NonMaxSuppression (boxes, s, k, iou, low)
        f = Cast <to = 1> (i)
        y = Sqrt (f)
    }""",
}
GIVEN = {"NonMaxSuppression": {"boxes": BOXES, "q": np.full((1, 1, 16), 0.5, np.float32)}}


@pytest.mark.parametrize("references", ["all", "outputs"])
@pytest.mark.parametrize("op_type", SELECTING)
def test_near_values_that_change_places_are_a_tie_and_a_real_change_is_found(
    op_type, references, tmp_path, runtime
):
    constants = {"k": np.int64([8]), "iou": np.float32([0.5]), "low": np.float32([0.1])}
    text = f"net {SELECTING[op_type]}"
    right = parsed(text, **{n: v for n, v in constants.items() if n in text})
    case = Case(tmp_path, right, runtime, GIVEN.get(op_type, {"x": NEAR}))
    index = GraphIndex.of(load(tmp_path / "right.onnx"))
    elsewhere = Observer(index, runtime)
    elsewhere.feed(case.feeds)
    moved = case.values["s"] + np.float32(2e-6) * random(*case.values["s"].shape, seed=3)
    elsewhere.put("s", moved, type_of(moved))
    values = {**case.feeds, "s": moved, **elsewhere.fetch([n for n in index.producer if n != "s"])}
    kept = values if references == "all" else {n: values[n] for n in (*case.feeds, "y")}
    save_tensors(tmp_path / "other", kept)
    wrong = replaced(right, "s", "Abs" if op_type != "NonMaxSuppression" else "Neg")

    tied = case.bisect(right, references=open_references(tmp_path / "other"))
    changed = case.bisect(wrong, references=open_references(tmp_path / "other"))

    assert tied.verdict == "agrees", tied
    assert [finding.verdict for finding in tied.findings] == ["tie"]
    assert changed.verdict == "mismatch"
    assert "@0" in changed.culprits[0].region


def test_of_two_epsilons_that_agree_the_closest_is_named(tmp_path, runtime):
    text = """net (float[4,16] x) => (float[4,16] y) {
        n = LayerNormalization <epsilon = 1e-12> (x, g, b) y = Tanh (n) }"""
    constants = {"g": random(16, seed=1), "b": random(16, seed=2)}
    right, wrong = (parsed(text.replace("1e-12", e), **constants) for e in ("1e-12", "0.01"))

    found = Case(tmp_path, right, runtime).bisect(wrong).culprits[0].findings[0].because

    assert "epsilon=1e-12 gives the reference" in found


def test_many_culprits_of_one_operator_are_one_group(tmp_path, runtime):
    lines = [
        f"n{i} = LayerNormalization <epsilon = 1e-5> ({f't{i - 1}' if i else 'x'}, g{i}, b) t{i} = Tanh (n{i})"
        for i in range(6)
    ]
    scales = {f"g{i}": random(16, seed=i) for i in range(6)}
    text = f"net (float[4,16] x) => (float[4,16] t5) {{ {' '.join(lines)} }}"
    right = parsed(text, **scales, b=random(16, seed=9))
    wrong = parsed(text.replace("1e-5", "0.3"), **scales, b=random(16, seed=9))

    result = Case(tmp_path, right, runtime).bisect(wrong)

    headline = str(result).splitlines()[1]
    assert len(result.culprits) == 6
    assert headline.startswith("  wrong node: all 6 LayerNormalization make 'n0', 'n1', 'n2'")
    assert "epsilon=1e-05 gives the reference" in headline
    assert str(result).count("LayerNormalization") == 2


ATTENTION = """
import torch

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        p = torch.softmax((q @ k.transpose(1, 2)) * SCALE, -1)
        return self.out(torch.tanh(p @ v))

def factory():
    torch.manual_seed(0)
    return torch.nn.Sequential(Attention(), Attention()).eval(), (torch.randn(2, 8, 16),)
"""


@pytest.mark.filterwarnings("ignore")
def test_the_factory_of_the_references_narrows_a_region_of_many_nodes(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(ATTENTION.replace("SCALE", "0.25"))
    space: dict = {}
    exec(ATTENTION.replace("SCALE", "1.0"), space)  # the export has lost 1 / sqrt(d)
    module, args = space["factory"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, args, tmp_path / "m.onnx", dynamo=True, verbose=False, external_data=False
        )
    target, refs = f"{tmp_path / 'net.py'}:factory", str(tmp_path / "refs")
    CliRunner().invoke(app, ["record", target, "-o", refs])

    wide = osl.bisect(tmp_path / "m.onnx", refs, cause=False)
    given = ["--reference", refs, "-o", str(tmp_path / "culprit"), "--no-cause", "--json"]
    narrow = CliRunner().invoke(app, ["bisect", str(tmp_path / "m.onnx"), *given])

    assert len(wide.culprits[0].region) > 3
    assert "to narrow it, give --factory" in str(wide)
    wide.has_factory = True  # and did not narrow it
    assert "to narrow it, give references in between" in str(wide)
    culprit, *_ = json.loads(narrow.stdout)["culprits"]  # the factory is remembered
    assert len(culprit["region"]) <= 3
    assert culprit["op_type"] in ("MatMul", "Softmax", "Mul"), culprit


def test_what_a_folded_normalization_reads_is_no_node_that_is_missing(tmp_path):
    torch = pytest.importorskip("torch")
    blocks = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()]
    module, image = torch.nn.Sequential(*blocks).eval(), torch.randn(1, 3, 6, 6)
    module[1].running_mean.uniform_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (image,), tmp_path / "m.onnx", dynamo=False)
    model = onnx.load(tmp_path / "m.onnx")
    osl.record(module, tmp_path / "refs", {"input": image.numpy()})
    weight = model.graph.node[0].input[1]
    wrong = osl.set_constant(model, weight, random(4, 3, 3, 3)).model

    said = str(osl.bisect(wrong, tmp_path / "refs", cause=False))

    assert [node.op_type for node in model.graph.node] == ["Conv", "Relu"]
    assert "wrong node: Conv" in said
    assert "missing" not in said


def test_a_mistake_in_every_layer_is_not_blamed_on_the_mask_that_they_share(tmp_path, runtime):
    layer = """q{0} = MatMul ({1}, w{0}) t{0} = Transpose <perm = [1, 0]> ({1}) a{0} = MatMul (q{0}, t{0})
        d{0} = Mul (a{0}, scale) e{0} = Add (d{0}, mask) p{0} = Softmax (e{0}) h{0} = MatMul (p{0}, {1})"""
    more = """u = Tanh (h1) v = Mul (u, u) z = Exp (v) o = Neg (z)
        i = Abs (o) j = Sqrt (i) l = Sigmoid (j) y = Add (l, h1)"""
    nodes = f"c = Cast <to = 1> (keep) mask = Mul (c, low) {layer.format(0, 'x')} {layer.format(1, 'h0')} {more}"
    constants = {"low": np.float32(-1e4), "scale": np.float32(0.25)}
    right = parsed(
        f"net (float[4,8] x, int64[4,4] keep) => (float[4,8] y) {{ {nodes} }}",
        **constants,
        **{f"w{i}": random(8, 8, seed=i) / 2 for i in range(2)},
    )
    feeds = {"x": random(4, 8, seed=3), "keep": np.triu(np.ones((4, 4), np.int64), 1)}
    values = osl.run(right, feeds, ["h0", "y"])

    found = osl.bisect(
        altered(right, scale=np.float32(1.0)),
        {**feeds, **values},
        cause=False,
        output=tmp_path / "out",
    )

    names = [node.output[0] for node in right.graph.node]
    regions = [{names[int(n[1:])] for n in culprit.region} for culprit in found.culprits]
    assert [culprit.value for culprit in found.culprits] == ["h0", "y"]
    assert "d0" in regions[0]
    assert "d1" in regions[1]


def test_mistakes_that_share_the_shape_of_a_value_are_not_blamed_on_its_node(tmp_path):
    turned = """{0}1 = Slice ({1}, {2}, long, zero) {0}2 = Slice ({1}, zero, {2}, zero)
        {0} = Concat <axis = 0> ({0}1, {0}2)"""
    nodes = f"""p = Pad (x, pads) n = Shape (p) {turned.format("a", "p", "one")} b = Reshape (a, n)
        q = MatMul (b, w) k = MatMul (b, v) m = Add (q, k) t = Tanh (m) u = Sigmoid (t)
        {turned.format("c", "u", "back")} d = Reshape (c, n) o = MatMul (d, w) e = Exp (o) y = Add (e, k)"""
    sizes = {"zero": [0], "one": [1], "back": [7], "long": [99], "pads": [1, 0, 1, 0]}
    right = parsed(
        f"net (float[6,8] x) => (float[8,8] y) {{ {nodes} }}",
        **{name: np.array(value, np.int64) for name, value in sizes.items()},
        **{name: random(8, 8, seed=n) / 3 for n, name in enumerate("wv")},
    )
    feeds = {"x": random(6, 8, seed=3)}
    values = osl.run(right, feeds, ["q", "k", "y"])
    wrong = altered(altered(right, one=np.array([2])), back=np.array([6]))

    found = osl.bisect(wrong, {**feeds, **values}, cause=False, output=tmp_path / "out")

    names = [node.output[0] for node in right.graph.node]
    regions = [{names[int(n[1:])] for n in culprit.region} for culprit in found.culprits]
    assert [(culprit.value, culprit.seen) for culprit in found.culprits] == [
        ("q", ["k"]),
        ("y", []),
    ]
    assert ({"a", "b"} <= regions[0], {"c", "d"} <= regions[1]) == (True, True)


DECODER = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        mask = torch.triu(torch.ones(8, 8), 1) * -1e4
        p = torch.softmax((q @ k.transpose(1, 2)) * 0.25 + mask, -1)
        x = x + self.out(p @ v)
        return x + self.down(torch.relu(self.up(x)))

class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(50, 16), torch.nn.Embedding(10, 16)
        self.blocks = torch.nn.Sequential(Block(), Block())

    def forward(self, ids):
        return self.blocks(self.words(ids) + self.places(torch.arange(8)))

def factory():
    torch.manual_seed(0)
    return Decoder().eval(), (torch.randint(0, 50, (2, 8)),)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("right", "wrong", "blamed"),
    [
        ("torch.arange(8)", "torch.arange(1, 9)", "wrong node: Add '/Add'"),
        ("* -1e4", "* -1.0", "wrong node: Add '/blocks/blocks.0/Add_1'"),
        ("+ mask, -1", "+ mask, 1", "wrong node: Softmax '/blocks/blocks.0/Softmax'"),
        ("* 0.25", "", "missing node: Add '/blocks/blocks.0/Add_1'"),
        ("up(x))", "up(torch.relu(x)))", "extra node: Relu '/blocks/blocks.0/Relu'"),
    ],
    ids=["position", "mask", "axis", "scale", "activation"],
)
def test_what_an_export_does_otherwise_is_found_with_references_by_module(
    right, wrong, blamed, tmp_path
):
    torch = pytest.importorskip("torch")
    space: dict = {}
    assert right in DECODER
    exec(DECODER.replace(right, wrong), space)
    module, args = space["factory"]()
    torch.onnx.export(module, args, tmp_path / "m.onnx", dynamo=False)
    (tmp_path / "net.py").write_text(DECODER)
    target = f"{tmp_path / 'net.py'}:factory"

    result = osl.bisect(
        tmp_path / "m.onnx",
        osl.record(target, tmp_path / "refs"),
        factory=target,
        cause=False,
        output=tmp_path / "out",
    )

    assert blamed in str(result)
    assert len(result.culprits[0].region) <= 3


def test_a_normalization_before_instead_of_after_the_addition_is_said(tmp_path):
    weights = {n: random(8, 8, seed=i) for i, n in enumerate("wv")} | {
        n: random(8, seed=i) for i, n in enumerate("gb", 2)
    }
    x = {"x": random(4, 8, seed=4)}
    behind, before = (
        parsed(f"net (float[4,8] x) => (float[4,8] y) {{ {nodes} }}", **weights)
        for nodes in (
            "s = MatMul(x, w) a = Add(x, s) n = LayerNormalization(a, g, b) y = MatMul(n, v)",
            "n = LayerNormalization(x, g, b) s = MatMul(n, w) a = Add(x, s) y = MatMul(a, v)",
        )
    )

    result = osl.bisect(
        before, osl.run(behind, x, ["s", "a", "n", "y"]) | x, cause=False, output=tmp_path / "out"
    )

    assert result.culprits[0].op_type == "LayerNormalization"
    assert "reading 'a' in place of 'x' gives the reference" in str(result)


def test_a_factory_that_cannot_be_recorded_leaves_what_was_found(tmp_path):
    (tmp_path / "net.py").write_text("def factory():\n    raise ImportError('no such thing')\n")
    chain = parsed(
        "net (float[4] x) => (float[4] y) { a = Neg(x) b = Exp(a) c = Neg(b) d = Cos(c) y = Neg(d) }"
    )
    references = {"x": random(4), "y": random(4, seed=1)}

    result = osl.bisect(
        chain,
        references,
        factory=f"{tmp_path / 'net.py'}:factory",
        cause=False,
        output=tmp_path / "out",
    )

    assert len(result.culprits[0].region) == 5
    assert "no such thing" in result.notes[-1]
