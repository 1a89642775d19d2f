"""One judge: every command gives one answer for one pair of models; what decides can be chosen."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit.bisecting import parsed, random
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.repl.commands import do
from onnxsurgeon_lite.repl.opening import open_session
from onnxsurgeon_lite.tensors.metrics import METRICS, Block

HALF = """net (float[4,16] x) => (float[4,16] y) {
    h = Cast <to=10> (x)
    m = MatMul (h, w)
    s = Softmax (m)
    y = Cast <to=1> (s)
}"""


def half(factor: float = 1.0) -> onnx.ModelProto:
    return parsed(HALF, w=(factor * random(16, 16, seed=1)).astype(np.float16))


def wide() -> onnx.ModelProto:
    text = HALF.replace("to=10", "to=1")
    return parsed(text, w=random(16, 16, seed=1).astype(np.float16).astype(np.float32))


def exact() -> onnx.ModelProto:
    return parsed("net (float[4,16] x) => (float[4,16] y) { y = MatMul (x, w) }", w=random(16, 16))


def scaled() -> onnx.ModelProto:
    w = np.float32(1.001) * random(16, 16)
    return parsed("net (float[4,16] x) => (float[4,16] y) { y = MatMul (x, w) }", w=w)


INDICES = """net (float[4,16] x) => (int64[4,3] y) {
    h = MatMul (x, w)
    best, y = TopK (h, k)
}"""
ROWS = """net (float[4,16] x) => (float[4,3] y) {
    h = MatMul (x, w)
    best, at = TopK (h, k)
    b = MatMul (x, v)
    y = GatherElements <axis=1> (b, at)
}"""


def ranked(gap: float, text: str = INDICES) -> onnx.ModelProto:
    """The three best of 16 scores; of the first row the best two are a share apart."""
    x, w = random(4, 16, seed=5)[0], random(16, 16, seed=1)
    first, second = np.argsort(-(x @ w))[:2]
    w[:, second] += x / (x @ x) * (x @ w[:, first] * (1 + gap) - x @ w[:, second])
    constants = {"v": random(16, 16, seed=2)} if text == ROWS else {}
    return parsed(text, w=w, k=np.int64([3]), **constants)


PAIRS = {
    "rounded by half precision": (half(), wide(), True),
    "wrong in half precision": (half(1.5), wide(), False),
    "beside half precision": (wide(), half(), True),
    "beside wrong half precision": (wide(), half(1.5), False),
    "the same": (exact(), exact(), True),
    "scaled": (scaled(), exact(), False),
    "near values change places": (ranked(1e-6), ranked(-1e-6), True),
    "other values are chosen": (ranked(1e-2), ranked(-1e-2), False),
    "rows of near values": (ranked(1e-6, ROWS), ranked(-1e-6, ROWS), True),
    "rows of other values": (ranked(1e-2, ROWS), ranked(-1e-2, ROWS), False),
}


def state_of(page: Path) -> str:
    """The verdict of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    return json.loads(found[1])["verdict"]["state"]


@pytest.mark.parametrize("pair", PAIRS)
def test_all_commands_give_one_answer(pair, tmp_path):
    pytest.importorskip("plotly")
    model, other, agrees = PAIRS[pair]
    onnx.save(model, tmp_path / "m.onnx")
    feeds = {"x": random(4, 16, seed=5)}
    osl.record(other, tmp_path / "refs", feeds=feeds, value="y")
    suite = '[[check]]\nmodel = "m.onnx"\nreference = "refs"\n'
    (tmp_path / "onnxdbg.toml").write_text(suite)
    session = open_session(tmp_path / "m.onnx", reference=tmp_path / "refs")
    with session.dbg:
        do(session, "compare", "y")
    page = tmp_path / "page.html"
    bisected = osl.bisect(model, tmp_path / "refs", html=page, cause=False, force=True)

    compared = tmp_path / "compared.html"
    osl.compare_sets(model, tmp_path / "refs", html=compared)

    answers = {
        "compare": osl.compare_sets(model, tmp_path / "refs").match,
        "compare with a model": osl.compare_sets(model, other, feeds).match,
        "compare samples": osl.compare_sets(model, other, [feeds, feeds]).match,
        "bisect": bisected.verdict == "agrees",
        "bisect samples": osl.bisect(
            model, against=other, feeds=[feeds, feeds], cause=False
        ).verdict
        == "agrees",
        "test": osl.test(tmp_path / "onnxdbg.toml").match,
        "prompt": not session.mismatch,
        "page": state_of(page) == "agrees",
        "page of compare": state_of(compared) == "agrees",
    }
    if "rows" in pair and agrees:  # values alone do not say what they were selected by
        answers = {
            how: answers[how]
            for how in ("compare", "test", "bisect", "bisect samples", "page", "page of compare")
        }
    assert set(answers.values()) == {agrees}, answers


CHAIN = """net (float[4,16] x) => (float[4,16] y) {
    a = MatMul (x, w)
    b = Tanh (a)
    y = MatMul (b, v)
}"""


def test_rank_and_convert_measure_what_compare_and_bisect_decide_by():
    model = parsed(CHAIN, w=random(16, 16, seed=1), v=random(16, 16, seed=2))
    feeds = {"x": random(4, 16, seed=5)}
    made = osl.convert(model, "float16", tolerance=0.02, feeds=feeds)
    (last,) = (n for n in osl.rank(made.model, against=model, feeds=feeds).nodes if n.value == "y")

    def agrees(metric: str, limit: float) -> set[bool]:
        asked = {"feeds": feeds, "metric": metric, "tolerance": limit}
        bisected = osl.bisect(made.model, against=model, cause=False, **asked)
        return {osl.compare_sets(made.model, model, **asked).match, bisected.verdict == "agrees"}

    reached = float(re.search("error ([0-9.e-]+)", made.ran or made.measured)[1])
    assert made.met
    assert agrees("max_abs", 0.02) == {True}
    assert agrees("max_abs", 1.2 * reached) == {True}
    assert agrees("max_abs", 0.5 * reached) == {False}
    assert agrees("sqnr", last.total_db - 0.5) == {True}
    assert agrees("sqnr", last.total_db + 0.5) == {False}


def test_a_tolerance_holds_for_the_tensors_of_its_name(tmp_path):
    reference = {"hidden": np.ones(3, np.float32), "y": np.ones(3, np.float32)}
    actual = {"hidden": np.float32([1, 1.005, 1]), "y": np.float32([1, 1, 1])}
    np.savez(tmp_path / "a.npz", **actual)
    np.savez(tmp_path / "b.npz", **reference)

    def code(*options: str) -> int:
        sides = [str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]
        return CliRunner().invoke(app, ["compare", *sides, *options]).exit_code

    assert code() == 1
    assert code("--rtol", "hid*:1e-2") == 0
    assert code("--rtol", "hidden:1e-2", "--rtol", "1e-9") == 0
    assert code("--rtol", "y:1e-2") == 1
    assert code("--rtol", "lost:1e-2") == 2
    assert code("--allow", "hidden:40%") == 0
    assert code("--allow", "1%") == 1
    assert osl.compare_sets(actual, reference, rtol={"hidden": 1e-2}).match


def test_a_tolerance_holds_by_name_in_a_search():
    model, other = scaled(), exact()
    feeds = {"x": random(4, 16, seed=5)}

    assert osl.bisect(model, against=other, feeds=feeds, cause=False).verdict == "mismatch"
    loose = osl.bisect(
        model, against=other, feeds=feeds, rtol={"y": 1e-2}, atol={"y": 1e-2}, cause=False
    )
    assert loose.verdict == "agrees"


def test_elements_may_be_units_in_the_last_place_apart():
    reference = np.float32([1.0, 1000.0, 0.0])
    actual = np.nextafter(np.nextafter(reference, np.float32(np.inf)), np.float32(np.inf))

    assert osl.compare_sets({"y": actual}, {"y": reference}, ulp=2).match
    assert not osl.compare_sets({"y": actual}, {"y": reference}, ulp=1).match


def test_a_share_of_the_elements_may_be_off_but_not_what_is_not_finite():
    reference = np.zeros(1000, np.float32)
    actual = reference.copy()
    actual[7] = 5

    assert osl.compare_sets({"y": actual}, {"y": reference}, allow="0.1%").match
    assert not osl.compare_sets({"y": actual}, {"y": reference}, allow=0.0005).match
    actual[7] = np.nan
    assert not osl.compare_sets({"y": actual}, {"y": reference}, allow="0.1%").match


@pytest.mark.parametrize(
    ("metric", "near", "far"),
    [
        ("cosine>=0.999", 0.01, 1.0),
        ("sqnr>=30", 0.01, 1.0),
        ("psnr>=30", 0.01, 1.0),
        ("rmse<=0.02", 0.01, 1.0),
        ("max_abs<=0.1", 0.01, 1.0),
        ("kl<=0.01", 0.01, 2.0),
        ("top1>=0.9", 0.001, 3.0),
        ("iou>=0.9", 0.001, 1.0),
    ],
)
def test_every_metric_can_decide(metric, near, far):
    reference, noise = random(64, 10), random(64, 10, seed=3)

    def match(share: float) -> bool:
        actual = reference + np.float32(share) * noise
        return osl.compare_sets({"y": actual}, {"y": reference}, metric=metric).match

    assert match(near)
    assert not match(far)


def test_a_metric_decides_in_a_search_and_in_a_suite(tmp_path):
    model, other = scaled(), exact()
    feeds = {"x": random(4, 16, seed=5)}
    onnx.save(model, tmp_path / "m.onnx")
    osl.record(other, tmp_path / "refs", feeds=feeds)
    check = '[[check]]\nmodel = "m.onnx"\nreference = "refs"\nmetric = "cosine>=0.999"\n'
    (tmp_path / "onnxdbg.toml").write_text(check)

    assert osl.test(tmp_path / "onnxdbg.toml").match
    assert osl.bisect(model, tmp_path / "refs", metric="cosine>=0.999").verdict == "agrees"
    result = osl.bisect(model, tmp_path / "refs", metric="sqnr>=80", cause=False)
    assert (result.verdict, len(result.culprits)) == ("mismatch", 1)


def test_a_metric_of_a_user_decides_for_two_sets():
    def off(reference, actual):
        return float(np.abs(reference["y"] - actual["y"]).max())

    sets = {"y": np.float32([1, 2.5])}, {"y": np.float32([1, 2])}

    assert osl.compare_sets(*sets, metric=off, tolerance=0.6).match
    assert not osl.compare_sets(*sets, metric=off, tolerance=0.4).match


@pytest.mark.parametrize("metric", ["cosine", "cosine<=0.9", "rmse>=1", "sqnr>=x"])
def test_a_metric_without_a_limit_is_refused(metric):
    with pytest.raises(UsageError, match="has no limit"):
        osl.compare_sets({"y": np.ones(2)}, {"y": np.ones(2)}, metric=metric)


@pytest.mark.parametrize("turned", [False, True])
def test_scores_beside_boxes_have_their_own_unit(turned):
    boxes, scores = 640 * np.abs(random(1, 300, 4)), np.abs(random(1, 300, 80)) / 3
    reference = np.concatenate([boxes, scores], 2).astype(np.float32)
    actual = reference.copy()
    actual[0, 7, 5] += 0.008
    sides = [side.transpose(0, 2, 1) if turned else side for side in (actual, reference)]

    found = osl.compare_sets({"y": sides[0]}, {"y": sides[1]})

    assert not found.match
    assert "columns differ by orders of magnitude" in str(found)
    assert osl.compare_sets({"y": sides[1].copy()}, {"y": sides[1]}).match


def test_probabilities_have_one_unit():
    scores = np.exp(random(64, 10).astype(np.float64))
    scores[:, 3] *= 1e-7
    reference = (scores / scores.sum(1, keepdims=True)).astype(np.float32)

    assert osl.compare_sets({"y": reference + np.float32(2e-6)}, {"y": reference}).match


def test_a_new_metric_is_a_class_and_a_line():
    a, r = random(100, seed=1), random(100, seed=2)
    whole = Block(0, (a, r), 100)

    for name, metric in METRICS.items():
        at_once, by_parts = metric.make(), metric.make()
        at_once.add(whole)
        for start in (0, 50):
            by_parts.add(Block(start, (a[start : start + 50], r[start : start + 50]), 50))
        if not metric.rows:
            assert at_once.result() == pytest.approx(by_parts.result()), name
        same = metric.make()
        same.add(Block(0, (a, a), 100))
        assert same.result() == pytest.approx(metric.best), name


CANCELS = """net (float[4,64] x) => (float[4,8] y) {
    a = MatMul (x, w)
    b = Add (a, c)
    d = Sub (b, c)
    y = Mul (d, s)
}"""


def cancelling(factor: float = 1.0) -> onnx.ModelProto:
    """The result is small beside what is added and taken away again."""
    w = np.float32(1e-3 * factor) * random(64, 8)
    return parsed(CANCELS, w=w, c=np.full(8, 1e4, np.float32), s=np.float32(100))


def exact_of_cancelling(x: np.ndarray) -> np.ndarray:
    w = np.float32(1e-3) * random(64, 8)
    return (x.astype(np.float64) @ w.astype(np.float64) * 100).astype(np.float32)


def test_noise_is_measured_and_allowed():
    feeds = {"x": random(4, 64, seed=5)}
    known = {"y": exact_of_cancelling(feeds["x"])}

    usual = osl.compare_sets(cancelling(), known, feeds)
    measured = osl.compare_sets(cancelling(), known, feeds, noise=True)
    found = osl.bisect(cancelling(), known, feeds=feeds, noise=True)
    wrong = osl.bisect(cancelling(1.5), known, feeds=feeds, noise=True)

    assert not usual.match
    assert measured.match
    off, allowed = usual.compared["y"].max_abs, measured.compared["y"].tolerance.atol
    assert off / 2 < allowed / 2 < off * 2
    assert measured.told == (
        f"noise of 'y': {allowed / 2:.3g} by float64; {allowed:.3g} is allowed",
    )
    assert found.verdict == "agrees"
    assert found.told == measured.told
    assert wrong.verdict == "mismatch"
    assert "'w'" in wrong.culprits[0].causes[0].sentence


def test_noise_never_makes_a_tolerance_narrower(tmp_path):
    feeds = {"x": random(4, 16, seed=5)}
    osl.record(exact(), tmp_path / "refs", feeds=feeds)

    assert osl.compare_sets(exact(), tmp_path / "refs", noise=True).match
    assert not osl.compare_sets(scaled(), tmp_path / "refs", noise=True).match
    loose = osl.compare_sets(scaled(), tmp_path / "refs", noise=True, rtol=1e-2)
    assert loose.match


def test_the_command_says_the_noise(tmp_path):
    x = random(4, 64, seed=5)
    onnx.save(cancelling(), tmp_path / "m.onnx")
    np.savez(tmp_path / "refs.npz", x=x, y=exact_of_cancelling(x))
    sides = [str(tmp_path / "m.onnx"), str(tmp_path / "refs.npz")]

    usual, measured = (CliRunner().invoke(app, ["compare", *sides, *o]) for o in ([], ["--noise"]))

    assert (usual.exit_code, measured.exit_code) == (1, 0)
    assert "note: noise of 'y':" in measured.stderr
