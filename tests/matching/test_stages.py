"""An encoder and its decoder decode as one: `[[stage]]` of onnxdbg.toml says what one passes to the other."""

import numpy as np
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import FeedsError, ModelFileError, UnknownNameError, UsageError
from onnxsurgeon_lite.passes.build import parse_text

# as of T5: both read input_ids
ENCODER = """<ir_version: 10, opset_import: ["" : 21]>
    encoder (int64[b, n] input_ids, int64[b, n] attention_mask) => (float[b, n, 6] last_hidden_state) {
        embedded = Gather (table, input_ids) last_hidden_state = Tanh (embedded) }"""
DECODER = """<ir_version: 10, opset_import: ["" : 21]>
    decoder (
        int64[b, s] input_ids, float[b, n, 6] encoder_hidden_states, int64[b, n] encoder_attention_mask,
        float[b, past, 6] "past.0"
    ) => (float[b, s, 11] logits, float[b, total, 6] "present.0") {
        last = Constant <value_ints = [-1]> () texts = Constant <value_ints = [1]> ()
        embedded = Gather (table, input_ids)
        "present.0" = Concat <axis = 1> ("past.0", embedded)
        given = CastLike (encoder_attention_mask, encoder_hidden_states)
        mask = Unsqueeze (given, last)
        attended = Mul (encoder_hidden_states, mask)
        context = ReduceSum (attended, texts)
        own = ReduceSum ("present.0", texts)
        both = Add (context, own)
        hidden = Sub (both, embedded)
        logits = MatMul (hidden, head) }"""
STAGES = """
[[stage]]
model = "encoder.onnx"
[stage.feeds]
last_hidden_state = "encoder_hidden_states"
attention_mask = "encoder_attention_mask"
decoder_input_ids = "input_ids"

[[stage]]
model = "decoder.onnx"
"""
FEEDS = {
    "input_ids": np.array([[3, 7, 9]]),
    "attention_mask": np.array([[1, 1, 0]]),
    "decoder_input_ids": np.array([[0]]),
}
HOW = {"decode": {"logits": "input_ids"}, "sequence": {"present.*": "past.*"}, "steps": 6}
RNG = np.random.default_rng(3)
TABLE, HEAD = RNG.standard_normal((11, 6)), RNG.standard_normal((6, 11))


def model(text, **arrays):
    made = parse_text(text)
    made.proto.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    )
    return made


@pytest.fixture
def package(tmp_path):
    """Write an encoder and a decoder, and what connects them; gives their folder."""

    def made(name="right", stages=STAGES, encoder=TABLE, head=HEAD):
        folder = tmp_path / name
        folder.mkdir()
        osl.save(model(ENCODER, table=encoder), folder / "encoder.onnx")
        osl.save(model(DECODER, table=TABLE, head=head), folder / "decoder.onnx")
        (folder / "onnxdbg.toml").write_text(stages)
        return folder

    return made


def decoded(count):
    """The tokens that the pair should decode."""
    own, tokens = np.zeros(6), [0]
    context = np.tanh(TABLE[[3, 7]]).sum(0)  # the last token is masked
    for _ in range(count):
        embedded = TABLE[tokens[-1]]
        own = own + embedded
        tokens.append(int(np.argmax((context + own - embedded) @ HEAD)))
    return tokens[1:]


def test_a_decoder_reads_what_its_encoder_makes_at_each_step(package):
    folder = package()

    found = osl.compare_sets(folder, str(folder), FEEDS, **HOW)

    assert [step.wanted for step in found.steps] == decoded(6)
    assert len(set(decoded(6))) > 1
    assert found.prompt == [0]
    assert found.match


def test_a_wrong_encoder_is_seen_in_the_tokens(package):
    wrong = package("wrong", encoder=-TABLE)

    found = osl.compare_sets(wrong, package(), FEEDS, **HOW)

    assert not found.match
    assert found.steps[0].kl > 0.01


def test_bisect_goes_on_with_what_a_wrong_decoder_was_fed(package, tmp_path):
    wrong, right = package("wrong", head=-HEAD), package()

    found = osl.compare_sets(wrong, right, FEEDS, step_feeds=tmp_path / "step.npz", **HOW)

    assert found.divergent == 0
    result = osl.bisect(
        wrong / "decoder.onnx", against=right / "decoder.onnx", feeds=tmp_path / "step.npz"
    )
    assert [culprit.op_type for culprit in result.culprits] == ["MatMul"]


def test_a_pair_decodes_beside_a_recording_of_its_decoder(package):
    right, text = package(), FEEDS["decoder_input_ids"]
    hidden = np.tanh(TABLE[FEEDS["input_ids"]]).astype(np.float32)
    feeds = {"encoder_hidden_states": hidden, "encoder_attention_mask": FEEDS["attention_mask"]}
    made = osl.run(
        right / "decoder.onnx",
        feeds | {"input_ids": text, "past.0": np.zeros((1, 0, 6), np.float32)},
    )
    recording = [{"input_ids": text, "logits": made["logits"]}]

    found = osl.compare_sets(right, recording, FEEDS, **HOW)

    assert found.match
    assert found.steps[0].kl < 1e-9


def test_the_outputs_of_all_layers_are_passed_on_by_a_pattern(package):
    stages = STAGES.replace('last_hidden_state = "', '"last_*_state" = "').replace(
        '"encoder_hidden_states', '"encoder_*_states'
    )

    found = osl.compare_sets(package(), package("glob", stages), FEEDS, **HOW)

    assert found.match


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('model = "decoder.onnx"', "model = 3", ModelFileError, "cannot read"),
        ('model = "decoder.onnx"', "", UsageError, "not understood"),
        ('model = "decoder.onnx"', 'model = "decoder.onnx"\nx = 1', UsageError, "not understood"),
        ('"encoder_hidden_states"', "[3]", UnknownNameError, r"no input '\[3\]'"),
        ("[stage.feeds]", "feeds = 3\n[[stage]]", UsageError, "not understood"),
        ("last_hidden_state =", "hidden =", UnknownNameError, "no output 'hidden'"),
        ('"encoder_hidden_states"', '"x"', UnknownNameError, "no input 'x'"),
        (
            'attention_mask = "encoder_attention_mask"',
            "",
            UsageError,
            "'encoder_attention_mask' has no value",
        ),
        (
            'decoder_input_ids = "input_ids"',
            'decoder_input_ids = "past.0"',
            UsageError,
            "'past.0' is fed by --sequence and by a stage",
        ),
    ],
)
def test_stages_that_do_not_fit_are_refused(old, new, error, message, package):
    assert old in STAGES
    folder = package(stages=STAGES.replace(old, new))

    with pytest.raises(error, match=message):
        osl.compare_sets(folder, folder, FEEDS, **HOW)


def test_the_first_stage_is_fed_by_the_user(package):
    folder = package()

    with pytest.raises(FeedsError, match="no tensor for input 'input_ids', 'attention_mask'") as at:
        osl.compare_sets(folder, folder, **HOW)
    assert "--feeds" in at.value.hint


@pytest.mark.parametrize("place", ["../out.onnx", "/etc/passwd", "link.onnx", "http://h/m.onnx"])
def test_a_stage_outside_of_its_folder_is_refused(place, package, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a request"))
    folder = package(stages=STAGES.replace("encoder.onnx", place))
    (folder / "encoder.onnx").rename(folder.parent / "out.onnx")
    (folder / "link.onnx").symlink_to("../out.onnx")

    with pytest.raises(UsageError, match="not in its folder"):
        osl.compare_sets(folder, folder, FEEDS, **HOW)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[check]]\n", "a model is needed"),
        ("stage = []\n", "a model is needed"),
        ("stage = 3\n", "not understood"),
        ('[stage]\nmodel = "decoder.onnx"\n', "not understood"),
    ],
)
def test_a_file_without_stages_is_no_model(text, message, package):
    folder = package(stages=text)

    with pytest.raises(UsageError, match=message):
        osl.compare_sets(folder, package("right2"), FEEDS, **HOW)


def test_the_command_takes_folders_and_bisect_leaves_the_stages(package, tmp_path, monkeypatch):
    osl.save_tensors(tmp_path / "feeds.npz", FEEDS)
    places = [str(package()), str(package("wrong", head=-HEAD)), str(tmp_path / "feeds.npz")]
    how = ["--decode", "logits=input_ids", "--sequence", "present.*=past.*", "--steps", "6"]

    result = CliRunner().invoke(app, ["compare", *places[:2], "--feeds", places[2], *how])

    assert result.exit_code == 1
    assert "differs first: " in result.stdout
    # the file is for bisect as well, which takes no stages
    monkeypatch.chdir(places[0])
    told = CliRunner().invoke(app, ["bisect"]).output
    assert "does not say what to bisect" not in told
