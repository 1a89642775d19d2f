"""Feeds: made from the declared types, read from files, checked before the runtime sees them."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import Recipe, make_feeds
from onnxsurgeon_lite.errors import FeedsError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.text import shape_text
from onnxsurgeon_lite.runtime.feeds import check_feeds, read_feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.tensors.dtypes import numpy_dtype
from onnxsurgeon_lite.tensors.references import save_tensors, write_test_data

DTYPES = {name: number for name, number in TensorProto.DataType.items() if number}
INTEGERS = [name for name in DTYPES if "INT" in name]
RUNTIME_TAKES = [
    name
    for name in DTYPES
    if name not in ("COMPLEX64", "COMPLEX128", "FLOAT6E2M3", "FLOAT6E3M2")
    and not name.endswith(("INT4", "INT2"))
    and name not in ("FLOAT4E2M1", "FLOAT8E8M0")
]
TWO_INPUTS = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[n, 3] x, int64[2] k, float[3] bias = {1, 2, 3}) => (float[n, 3] y, int64[2] j) {
    y = Add (x, bias)
    j = Identity (k)
}
"""


def identity(model_of, data_type: int, shape=(3,)) -> GraphIndex:
    declared = [helper.make_tensor_value_info(name, data_type, shape) for name in "xy"]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "g", declared[:1], declared[1:])
    opset = [helper.make_opsetid("", 25)]
    return GraphIndex.of(model_of(helper.make_model(graph, opset_imports=opset, ir_version=13)))


@pytest.mark.parametrize("name", RUNTIME_TAKES)
def test_made_feeds_have_the_declared_dtype_and_pass_through_the_runtime(name, model_of, runtime):
    index = identity(model_of, DTYPES[name])

    feeds, _ = make_feeds(index, Recipe())
    result = run(index, feeds, runtime)["y"]

    assert feeds["x"].dtype == numpy_dtype(DTYPES[name])
    assert result.dtype == feeds["x"].dtype
    assert result.tolist() == feeds["x"].tolist()


@pytest.mark.parametrize("fill", [None, "zeros", "ones", "normal", "uniform:-300,300"])
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_takes_every_fill(name, fill, model_of):
    index = identity(model_of, DTYPES[name], (40,))

    feeds, lines = make_feeds(index, Recipe(fills={"x": fill} if fill else {}))

    assert feeds["x"].dtype == numpy_dtype(DTYPES[name])
    assert feeds["x"].shape == (40,)
    assert len(lines) == 1


@pytest.mark.parametrize("name", [*INTEGERS, "BOOL"])
def test_integers_are_0_or_1(name, model_of):
    feeds, lines = make_feeds(identity(model_of, DTYPES[name], (100,)), Recipe())

    assert set(feeds["x"].astype(np.int64).tolist()) == {0, 1}
    assert "0 or 1" in lines[0]


def test_numbers_beyond_an_integer_dtype_stop_at_its_ends(model_of):
    recipe = Recipe(fills={"x": "uniform:-1000,1000"})

    narrow, _ = make_feeds(identity(model_of, TensorProto.UINT8, (100,)), recipe)
    four, _ = make_feeds(identity(model_of, TensorProto.INT4, (100,)), recipe)

    assert {0, 255} <= set(narrow["x"].tolist())
    assert {-8, 7} <= set(four["x"].astype(int).tolist())


def test_the_recipe_says_how_each_feed_was_made(model_of):
    index = GraphIndex.of(model_of(TWO_INPUTS))

    feeds, lines = make_feeds(index, Recipe(7, {"n": 5}, {"k": "uniform:0,9"}))

    assert {name: value.shape for name, value in feeds.items()} == {"x": (5, 3), "k": (2,)}
    assert lines == ["x: float [5, 3] normal, seed 7", "k: int64 [2] uniform:0,9, seed 7"]


def test_a_seed_gives_the_same_feeds_again_and_another_seed_others(model_of):
    index = GraphIndex.of(model_of(TWO_INPUTS))

    first, again, other = (make_feeds(index, Recipe(seed))[0]["x"] for seed in (3, 3, 4))

    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_a_feed_does_not_depend_on_how_the_others_are_made(model_of):
    index = GraphIndex.of(model_of(TWO_INPUTS))

    one, _ = make_feeds(index, Recipe())
    other, _ = make_feeds(index, Recipe(fills={"x": "zeros"}))

    assert one["k"].tobytes() == other["k"].tobytes()


def test_an_input_with_a_default_is_made_only_when_asked_for(model_of):
    index = GraphIndex.of(model_of(TWO_INPUTS))

    feeds, _ = make_feeds(index, Recipe(fills={"bias": "zeros"}))

    assert feeds["bias"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("declared", "made"),
    [((None, 2), (1, 2)), (("n", 2), (1, 2)), ((-1, 2), (1, 2)), ((0, 2), (0, 2)), ((), ())],
)
def test_open_dimensions_are_1(declared, made, model_of):
    feeds, _ = make_feeds(identity(model_of, TensorProto.FLOAT, declared), Recipe())

    assert feeds["x"].shape == made


def test_a_fill_from_a_file_is_checked_like_a_feed(model_of, tmp_path):
    index = identity(model_of, TensorProto.FLOAT)
    np.save(tmp_path / "good.npy", np.arange(3, dtype=np.float32))
    np.save(tmp_path / "bad.npy", np.arange(3))

    feeds, lines = make_feeds(index, Recipe(fills={"x": str(tmp_path / "good.npy")}))

    assert feeds["x"].tolist() == [0, 1, 2]
    assert "good.npy" in lines[0]
    with pytest.raises(FeedsError, match="has dtype int64, the model declares float"):
        make_feeds(index, Recipe(fills={"x": str(tmp_path / "bad.npy")}))


TWO_OF_ONE_SIZE = "two (float[n,4] x, float[n,4] z) => (float[n,4] y) { y = Add (x, z) }"


def test_a_fill_from_a_file_is_called_so_and_gives_others_their_size(model_of, tmp_path):
    index = GraphIndex.of(model_of(TWO_OF_ONE_SIZE))
    np.save(tmp_path / "x.npy", np.ones((3, 4)))

    feeds, lines = make_feeds(index, Recipe(fills={"x": str(tmp_path / "x.npy")}))

    assert lines == [
        f"x: float [3, 4] from {str(tmp_path / 'x.npy')!r}, cast from double",
        "z: float [3, 4] normal, seed 0",
    ]
    assert feeds["x"].dtype == np.float32
    assert feeds["z"].shape == (3, 4)


def test_sizes_and_files_that_contradict_each_other_are_refused(model_of, tmp_path):
    model = model_of(TWO_OF_ONE_SIZE)
    ones = np.ones((3, 4), np.float32)
    np.save(tmp_path / "x.npy", ones)

    with pytest.raises(FeedsError, match="feed 'x' has n = 3, --dim has n = 5") as filled:
        osl.run(model, fill={"x": str(tmp_path / "x.npy")}, dim={"n": 5})
    with pytest.raises(FeedsError, match="feed 'x' has n = 3, --dim has n = 5"):
        osl.run(model, {"x": ones, "z": ones}, dim={"n": 5})

    assert filled.value.hint
    assert osl.run(model, {"x": ones, "z": ones}, dim={"n": 3})["y"].shape == (3, 4)


def test_a_fill_file_gives_strings_too(model_of, tmp_path):
    save_tensors(tmp_path / "s", {"anything": np.array(["a", "b", "c"], object)})

    feeds, _ = make_feeds(
        identity(model_of, TensorProto.STRING), Recipe(fills={"x": str(tmp_path / "s")})
    )

    assert feeds["x"].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe(fills={"y": "zeros"}), "has no input 'y'"),
        (Recipe(dims={"m": 2}), "has no symbolic dimension 'm'"),
        (Recipe(fills={"x": "zeroes"}), "'zeroes', the fill of input 'x', is not a known fill"),
        (Recipe(fills={"x": "uniform"}), "not a known fill"),
        (Recipe(fills={"x": "zero" * 2000}), "not a known fill"),
        (Recipe(seed=-1), "is negative"),
        (Recipe(dims={"n": -1}), "is negative"),
        (Recipe(fills={"x": "uniform:1"}), "needs two numbers"),
        (Recipe(fills={"x": "uniform:2,1"}), "needs two numbers"),
        (Recipe(fills={"x": "uniform:nan,1"}), "needs two numbers"),
        (Recipe(fills={"x": "uniform:0,inf"}), "needs two numbers"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused(recipe, message, model_of):
    with pytest.raises(FeedsError, match=message) as caught:
        make_feeds(identity(model_of, TensorProto.FLOAT), recipe)

    assert caught.value.hint


def test_a_sequence_is_not_made(model_of):
    text = "g (seq(float[2]) s) => (float[2] y) { zero = Constant <value_int = 0> () y = SequenceAt (s, zero) }"

    with pytest.raises(FeedsError, match="not a tensor and cannot be generated"):
        make_feeds(GraphIndex.of(model_of(text)), Recipe())


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": np.zeros((1, 3), np.float32)}, "no feed for input 'k'"),
        ({"z": np.zeros(1)}, "has no input 'z'"),
        ({"x": np.zeros((1, 3))}, "has dtype double, the model declares float"),
        (
            {"x": np.zeros((1, 3), ml_dtypes.bfloat16)},
            "has dtype bfloat16, the model declares float",
        ),
        ({"x": np.zeros((1, 4), np.float32)}, r"has shape \[1, 4\], the model declares \[n, 3\]"),
        ({"x": np.zeros(3, np.float32)}, r"has shape \[3\], the model declares \[n, 3\]"),
    ],
)
def test_feeds_of_another_name_dtype_or_shape_are_refused(feeds, message, model_of):
    with pytest.raises(FeedsError, match=message) as caught:
        check_feeds(GraphIndex.of(model_of(TWO_INPUTS)), feeds)

    assert caught.value.hint


@pytest.mark.parametrize("name", ["f.npz", "f.safetensors", "f", "test_data_set_0"])
def test_feeds_are_read_from_every_kind_of_file(name, model_of, tmp_path):
    index = GraphIndex.of(model_of(TWO_INPUTS))
    values = {"x": np.ones((4, 3), np.float32), "k": np.array([1, 2]), "y": np.zeros(1)}
    if name == "test_data_set_0":
        write_test_data(tmp_path / name, {n: values[n] for n in "xk"}, {"y": values["y"]})
    else:
        save_tensors(tmp_path / name, values)

    feeds = read_feeds(index, str(tmp_path / name))

    assert set(feeds) == {"x", "k"}
    assert feeds["x"].shape == (4, 3)


def test_feeds_that_lack_an_input_name_it_and_what_is_there(model_of, tmp_path):
    save_tensors(tmp_path / "f.npz", {"X": np.ones((1, 3), np.float32), "k": np.array([1, 2])})

    with pytest.raises(FeedsError, match="no tensor for input 'x'") as caught:
        read_feeds(GraphIndex.of(model_of(TWO_INPUTS)), str(tmp_path / "f.npz"))

    assert "'X'" in caught.value.hint


def test_strings_and_sequences_reach_the_runtime(model_of, runtime):
    text = """
    g (string[2] s, seq(float[2]) q) => (string[2] t, float[2] y) {
        t = Identity (s)
        one = Constant <value_int = 1> ()
        y = SequenceAt (q, one)
    }
    """
    index = GraphIndex.of(model_of(text))
    sequence = [np.zeros(2, np.float32), np.array([3, 4], np.float32)]

    results = run(index, {"s": np.array(["é", ""], object), "q": sequence}, runtime)

    assert results["t"].tolist() == ["é", ""]
    assert results["y"].tolist() == [3, 4]


def test_a_shape_is_text():
    def text(shape):
        return shape_text(helper.make_tensor_type_proto(TensorProto.FLOAT, shape))

    assert text((1, "batch", None)) == "[1, batch, ?]"
    assert text(()) == "[]"
    assert text(None) == "[...]"
