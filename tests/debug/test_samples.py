"""Many samples: where they come from, what is said of them, and that it is the same for any number of runtimes."""

import json
import mmap
import py_compile

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError, UsageError
from onnxsurgeon_lite.tensors.in_file import InFile
from onnxsurgeon_lite.tensors.references import Samples, samples, write_test_data

ROWS = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
ROWS[5] = 1.8, 2.5, 0, 0  # the second is the largest, unless both are clipped
GOOD = -np.minimum(2 * ROWS, 4)
GENERATOR = """
import numpy as np
def rows():
    for row in np.load("rows.npy"):
        yield {"x": row[None]}
def single():
    yield from np.load("rows.npy")
def top1(reference, actual):
    return float(reference["y"].argmin() != actual["y"].argmin())
def share_wrong(pairs):
    wrong = [top1(*pair) for pair in pairs]
    return sum(wrong) / len(wrong)
def broken(reference, actual):
    return reference["z"]
def three(a, b, c):
    return 0.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models that differ where x is above 1.5, one of which clips earlier; and a file of functions."""
    folder = tmp_path_factory.mktemp("samples")
    header = '<ir_version: 10, opset_import: ["" : 21]>\n'
    body = "net (float[1, 4] x) => (float[1, 4] y) { h = Mul(x, two) c = Clip(h, low, high) y = Neg(c) }"
    for name, high in (("good", 4.0), ("bad", 3.0)):
        proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(header + body))
        for constant, value in (("two", 2.0), ("low", -9.0), ("high", high)):
            tensor = numpy_helper.from_array(np.float32(value), constant)
            proto.graph.initializer.append(tensor)
        onnx.save(proto, folder / f"{name}.onnx")
    (folder / "functions.py").write_text(GENERATOR)
    np.save(folder / "rows.npy", ROWS)
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


BEYOND = [n for n, row in enumerate(ROWS) if row.max() > 1.5]  # where the two models differ


def test_the_failing_samples_are_told_worst_first():
    result = osl.compare_sets("bad.onnx", "good.onnx", {"x": ROWS})

    assert not result.match
    assert result.total == 12
    assert result.failing == BEYOND
    gaps = {n: min(4.0, 2 * ROWS[n].max()) - 3.0 for n in BEYOND}
    assert [o.number for o in result.worst[: len(BEYOND)]] == sorted(gaps, key=lambda n: -gaps[n])
    value = result.values["y"]
    assert (value.samples, value.failing) == (12, len(BEYOND))
    assert value.largest == pytest.approx(max(gaps.values()), rel=1e-5)
    assert value.median == 0


@pytest.mark.parametrize(
    "store", ["npz", "compressed", "npy", "npys", "folder", "files", "list", "generator"]
)
def test_samples_come_from_anywhere(store, tmp_path):
    sets = [{"x": row[None]} for row in ROWS]
    if store in ("npz", "compressed"):
        (np.savez if store == "npz" else np.savez_compressed)(
            tmp_path / "rows.npz", x=ROWS[:, None]
        )
    for number, given in enumerate(sets):
        match store:
            case "folder":
                write_test_data(tmp_path / f"test_data_set_{number}", given, {})
            case "files":
                np.savez(tmp_path / f"{number:02}.npz", **given)
    (tmp_path / "npys").mkdir()
    for place in (tmp_path, tmp_path / "npys"):
        np.save(place / "x.npy", ROWS)
    places = {
        **dict.fromkeys(("npz", "compressed"), tmp_path / "rows.npz"),
        **dict.fromkeys(("folder", "files"), tmp_path),
        "npy": tmp_path / "x.npy",
        "npys": tmp_path / "npys",
        "list": sets,
        "generator": "functions.py:rows",
    }

    result = osl.compare_sets("bad.onnx", "good.onnx", places[store])

    assert (result.total, result.failing) == (12, BEYOND)


@pytest.mark.parametrize("store", ["rows.npz", "x.npy", "npys"])
def test_rows_of_any_file_are_read_alone(store, tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "_IN_MEMORY", 0)
    (tmp_path / "npys").mkdir()
    np.savez_compressed(tmp_path / "rows.npz", x=ROWS)
    for name in ("x.npy", "npys/x.npy"):
        np.save(tmp_path / name, ROWS)

    found = Samples(str(tmp_path / store), inputs=["x"], axes={"x": (2, 1)})

    assert found.at(3).read("x").tolist() == ROWS[3:4].tolist()
    stack = found.at(3).entries["x"].read.args[0]
    assert isinstance(stack, InFile) or isinstance(stack.base, mmap.mmap | np.memmap)


def test_what_is_yielded_may_lack_the_batch():
    found = osl.compare_sets("bad.onnx", "good.onnx", "functions.py:single")

    assert (found.total, found.failing) == (12, BEYOND)


def test_the_result_is_the_same_for_any_number_of_runtimes():
    results = [
        osl.compare_sets("bad.onnx", "good.onnx", {"x": ROWS}, every=True, jobs=jobs).to_json()
        for jobs in (1, 3)
    ]

    assert results[0] == results[1]
    assert results[0]["values"]["c"]["failing"] == len(BEYOND)


def test_references_that_hold_rows_belong_to_the_rows_of_the_feeds(tmp_path):
    np.savez(tmp_path / "refs.npz", y=GOOD)

    result = osl.compare_sets("bad.onnx", tmp_path / "refs.npz", {"x": ROWS})

    assert result.failing == BEYOND


def test_a_metric_decides_instead_of_tolerances():
    result = osl.compare_sets("bad.onnx", "good.onnx", {"x": ROWS}, metric="functions.py:top1")

    tops = [np.minimum(2 * ROWS, high).argmax(axis=1) for high in (4, 3)]
    assert result.failing == np.flatnonzero(tops[0] != tops[1]).tolist()
    assert result.metric.value == 1
    assert set(result.failing) < set(BEYOND)


def test_a_metric_of_all_samples_sees_each_once():
    result = osl.compare_sets(
        "bad.onnx",
        "good.onnx",
        {"x": ROWS},
        metric="functions.py:share_wrong",
        tolerance=1.0,
        jobs=2,
    )

    tops = [np.minimum(2 * ROWS, high).argmax(axis=1) for high in (4, 3)]
    assert result.match
    assert result.metric.whole
    assert result.metric.value == np.mean(tops[0] != tops[1]) > 0


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("functions.py:none", "has no function 'none'"),
        ("nowhere.py:f", "there is no metric at"),
        ("compiled.pyc:share_wrong", "there is no metric at"),
        ("functions.py:three", "takes 3 arguments"),
        ("functions.py:broken", "raised KeyError: 'z'"),
    ],
)
def test_a_metric_that_does_not_work_is_told(metric, says):
    py_compile.compile("functions.py", "compiled.pyc")

    with pytest.raises(UsageError, match=says):
        osl.compare_sets("bad.onnx", "good.onnx", {"x": ROWS}, metric=metric)


def test_a_sample_that_cannot_run_is_one_of_the_failing():
    sets = [{"x": ROWS[:1]}, {"x": ROWS[:1].astype(np.int64)}, {"x": ROWS[1:2]}]

    result = osl.compare_sets("good.onnx", "good.onnx", sets)

    assert result.failing == [1]
    assert "has dtype int64" in result.worst[0].failure


def test_samples_that_all_fail_are_an_error():
    with pytest.raises(FeedsError, match="has dtype int64"):
        osl.compare_sets("good.onnx", "good.onnx", [{"x": ROWS[:1].astype(np.int64)}] * 3)


def test_other_numbers_of_samples_are_refused():
    with pytest.raises(ReferenceSetError, match="numbers of samples differ"):
        osl.compare_sets("good.onnx", [{"y": ROWS[:1]}] * 2, [{"x": ROWS[:1]}] * 3)


def test_a_copy_of_samples_opens_them_again(tmp_path):
    import pickle

    np.savez(tmp_path / "rows.npz", x=ROWS)
    samples = Samples(str(tmp_path / "rows.npz"), ["x"], ["y"], {"x": (2, 1)})

    assert samples.count == 12
    copied = pickle.loads(pickle.dumps(samples))
    assert copied.at(7).read("x").tolist() == ROWS[7:8].tolist()


def test_the_command_says_how_many_fail_and_prints_json():
    done = CliRunner().invoke(
        app, ["compare", "bad.onnx", "good.onnx", "--feeds", "functions.py:rows"]
    )
    assert done.exit_code == 1
    assert f"MISMATCH in {len(BEYOND)} of 12 samples" in done.output

    words = ["compare", "bad.onnx", "good.onnx", "--feeds", "functions.py:rows", "--json"]
    assert json.loads(CliRunner().invoke(app, words).stdout)["failing"] == BEYOND


def test_a_suite_judges_every_sample(tmp_path):
    for number, row in enumerate(ROWS):
        given, made = {"x": row[None]}, {"y": GOOD[number : number + 1]}
        write_test_data(tmp_path / f"test_data_set_{number}", given, made)
    text = f'[[check]]\nname = "all"\nmodel = "bad.onnx"\nreference = "{tmp_path}"\n'
    with open("onnxdbg.toml", "w") as file:
        file.write(text)

    assert not osl.test("onnxdbg.toml").match


def test_samples_are_grouped_by_their_culprits(tmp_path):
    text = "net (float[1, 4] x) => (float[1, 4] y) { a = Min(x, one) b = Max(a, less) y = Neg(b) }"
    for name, high, low in (("good", 9.0, -9.0), ("bad", 1.0, -1.0)):
        header = '<ir_version: 10, opset_import: ["" : 21]>\n'
        proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(header + text))
        for constant, value in (("one", high), ("less", low)):
            proto.graph.initializer.append(numpy_helper.from_array(np.float32(value), constant))
        onnx.save(proto, tmp_path / f"{name}.onnx")
    rows = np.zeros((6, 4), np.float32)
    rows[1, 0], rows[3, 0], rows[4, 0] = 5, -5, 2

    def found(reference=None, **how):
        return osl.bisect(tmp_path / "bad.onnx", reference, cause=False, **how)

    osl.record(tmp_path / "good.onnx", tmp_path / "refs", {"x": rows})
    for result in (
        found(against=tmp_path / "good.onnx", feeds={"x": rows}, jobs=2),
        found(tmp_path / "refs"),
    ):
        assert result.samples.failing == [1, 3, 4]
        assert result.samples.worst in (1, 3)
        groups = {tuple(group.culprits): group.samples for group in result.samples.groups}
        assert groups == {("@0",): [1, 4], ("@1",): [3]}
        assert "@0: samples 1, 4" in str(result)


def test_a_metric_decides_which_samples_are_searched():
    how = {"against": "good.onnx", "feeds": {"x": ROWS}, "metric": "functions.py:top1"}
    result = osl.bisect("bad.onnx", **how, cause=False)
    assert result.samples.failing == [5]
    assert result.samples.worst == 5
    assert result.culprits[0].value == "c"
    assert result.notes == ["with @1 healed, top1 is 0: within 0"]
    loosely = how | {"atol": 9.0}
    loose = osl.bisect("bad.onnx", **loosely)
    assert loose.verdict == "agrees"
    assert any("judged by tolerances" in note for note in loose.notes)

    agreed = osl.bisect("bad.onnx", **how, tolerance=1.0)
    assert agreed.verdict == "agrees"
    assert agreed.samples.failing == []


def test_many_samples_are_recorded_in_their_order(tmp_path):
    for jobs in (1, 2):
        done = osl.record("good.onnx", tmp_path / f"refs{jobs}", "functions.py:rows", jobs=jobs)
        assert done.values == 12 * 4

    names = ("index.json", "values.bin")
    one, two = (
        [(tmp_path / f"refs{jobs}" / name).read_bytes() for name in names] for jobs in (1, 2)
    )
    assert one == two
    samples = Samples(str(tmp_path / "refs1"))
    assert [s.read("x")[0].tolist() for s in samples] == ROWS.tolist()
    assert samples.at(11).read("y") == pytest.approx(GOOD[11:])


def test_a_format_of_one_sample_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds one sample"):
        osl.record("good.onnx", tmp_path / "refs.npz", {"x": ROWS})


def test_nodes_are_ranked_by_the_sample_where_they_lose_most():
    ranking = osl.rank("bad.onnx", against="good.onnx", feeds={"x": ROWS}, jobs=2)

    clip = ranking.nodes[0]
    assert (clip.value, clip.samples) == ("c", 12)
    assert clip.own_db < clip.median_db == float("inf")
    assert ranking.exclude == ["@1"]


def test_a_conversion_is_held_on_samples_of_a_generator():
    converted = osl.convert("good.onnx", "float16", tolerance=0.01, feeds="functions.py:rows")

    assert converted.met
    whole = {"metric": "functions.py:share_wrong", "tolerance": 0.0}
    assert osl.convert("good.onnx", "float16", feeds={"x": ROWS}, **whole).met


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A decoder with its cache: a step appends its token; of the faulty one, tokens above 3 are too small."""
    folder = tmp_path_factory.mktemp("decoder")
    text = """<ir_version: 10, opset_import: ["" : 21]>
    decoder (float[1, 1] token, float[1, past] past_0) => (float[1, 1] y, float[1, all] present_0)
    <float low = {-9}, float high = {HIGH}, int64[1] axes = {1}> {
        seen = Clip(token, low, high) present_0 = Concat<axis = 1>(past_0, seen)
        sum = ReduceSum(present_0, axes) y = Tanh(sum) }"""
    for name, high in (("good", "9"), ("bad", "3")):
        onnx.save(onnx.parser.parse_model(text.replace("HIGH", high)), folder / f"{name}.onnx")
    return folder


def test_the_step_and_the_node_are_found_that_spoil_what_is_handed_on(decoder, tmp_path):
    tokens = [{"token": np.full((1, 1), t, np.float32)} for t in (1, -2, 4, -3, 0.5)]
    steps = {"sequence": {"present_*": "past_*"}}
    good, bad = decoder / "good.onnx", decoder / "bad.onnx"

    compared = osl.compare_sets(bad, good, tokens, **steps)
    assert compared.failing == [2, 3, 4]
    osl.record(good, tmp_path / "refs", tokens, **steps)
    handed = [s.read("past_0").tolist() for s in Samples(str(tmp_path / "refs"))]
    assert handed == [[[]], [[1]], [[1, -2]], [[1, -2, 4]], [[1, -2, 4, -3]]]
    for reference, how in ((None, {"against": good, "feeds": tokens}), (tmp_path / "refs", {})):
        result = osl.bisect(bad, reference, **how, **steps, cause=False)
        assert (result.samples.worst, result.samples.failing) == (2, [2, 3, 4])
        assert [culprit.value for culprit in result.culprits] == ["seen"]
        assert "fails on 3 of 5 steps; this is the first of them, number 2" in str(result)


def test_steps_are_not_shared_out(decoder):
    with pytest.raises(UsageError, match="steps follow each other"):
        osl.record(decoder / "good.onnx", "refs", [{}], sequence={"present_*": "past_*"}, jobs=2)
