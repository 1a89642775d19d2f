"""No command replaces data that a model refers to, whatever -o and --force say."""

import inspect
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from safetensors.numpy import save_file
from typer.testing import CliRunner

from kit.commands import COMMANDS
from onnxsurgeon_lite.cli.app import app

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[16,16] x) => (float[16,16] y, float[16,16] z) { h = Relu(x) y = MatMul(h, w) z = Add(h, v) }"""
MODELS = {
    "m.onnx": "m.data", "other.onnx": "m.data", "user.onnx": "t.data", "reader.onnx": "t.npz",
    "third.onnx": "t.safetensors", "own.onnx": "own.data",
}  # fmt: skip
"""Each with the file that has its data: `m.data` is that of two."""

ONTO = {
    "edit rename": ["m.onnx h=hh --in-place --copy-data", "m.onnx h=hh -o t.onnx --copy-data", "m.onnx h=hh -o m.data"],
    "edit set-constant": ["m.onnx w 0 --in-place --copy-data", "m.onnx w 0 -o t.data"],
    "extract": [f"m.onnx --outputs y -o {place}" for place in ("m.onnx", "t.onnx", "t.data")],
    "expose": ["m.onnx h -o t.data"],
    "split": ["m.onnx --at h -o ."],
    "merge": [f"m.onnx own.onnx --prefix b/ -o {place}" for place in ("m.onnx", "t.onnx", "t.data")],
    "build": ["m.txt -o t.data"],
    "inspect": ["m.onnx --html t.data"],
    "diff": ["m.onnx other.onnx --html t.data"],
    "view": ["m.onnx --no-open -o t.data"],
    "compare": ["numbers.npz numbers.npz --html t.data"],
    "rank": ["m.onnx --against other.onnx --html t.data", "m.onnx --against other.onnx --node-data t.data"],
    "print": ["m.onnx --weights t.safetensors"],
    "record": ["m.onnx -o t.npz", "m.onnx -o t.safetensors"],
    "run": ["m.onnx -o t.npz"],
    "profile": ["m.onnx --runs 1 --trace t.data"],
    "match": ["m.onnx other.onnx -o t.data"],
    "weights": ["m.onnx --against numbers.npz --update numbers.npz -o t.data"],
    "convert": [f"m.onnx --to float16 -o {place}" for place in ("m.onnx", "t.onnx", "t.data")],
    "data external": ["m.onnx -o t.onnx", "m.onnx -o t.data"],
    "data embed": ["m.onnx -o t.data"],
    "data link": ["m.onnx numbers.safetensors -o t.data"],
    "data move": ["m.onnx t.data"],
    "data strip": ["m.onnx -o t.onnx", "m.onnx -o t.data"],
    "data unstrip": ["stripped.onnx m.onnx -o t.onnx", "stripped.onnx m.onnx -o t.data"],
}  # fmt: skip
"""Command -> words with which it would write over data that a model needs."""
ELSEWHERE = {"bisect", "reduce", "test", "data manifest"}  # they write folders and reports


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    for seed, (name, location) in enumerate(MODELS.items()):
        proto, random = parser.parse_model(TEXT), np.random.default_rng(seed)
        for each in "wv":
            array = random.standard_normal((16, 16)).astype(np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(array, each))
        if (folder / location).exists():
            shutil.copy(folder / "m.onnx", folder / name)
        else:
            where = {"save_as_external_data": True, "location": location}
            onnx.save(proto, folder / name, size_threshold=0, **where)
    tensors = onnx.load(folder / "m.onnx").graph.initializer
    numbers = {t.name: numpy_helper.to_array(t) for t in tensors}
    np.savez(folder / "numbers.npz", **numbers)
    save_file(numbers, folder / "numbers.safetensors")
    strip = ["data", "strip", str(folder / "m.onnx"), "-o", str(folder / "stripped.onnx")]
    assert CliRunner().invoke(app, strip).exit_code == 0
    (folder / "m.txt").write_text("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    return folder


def contents(folder) -> dict[str, list[bytes]]:
    models = {name: onnx.load(folder / name).graph.initializer for name in MODELS}
    return {name: [tensor.raw_data for tensor in tensors] for name, tensors in models.items()}


@pytest.mark.parametrize(
    ("command", "words"), [(command, words) for command in ONTO for words in ONTO[command]]
)
def test_no_command_replaces_data_that_another_model_refers_to(
    command, words, shared, tmp_path, monkeypatch
):
    if "--html" in words or command.startswith("view"):
        pytest.importorskip("plotly")
    folder = shutil.copytree(shared, tmp_path / "folder")
    monkeypatch.chdir(folder)
    before = contents(folder)

    done = CliRunner().invoke(app, [*command.split(), *words.split(), "--force"])

    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert "nothing was changed" in said or "would be lost" in said, said
    assert contents(folder) == before
    assert {path.name for path in folder.iterdir()} == {path.name for path in shared.iterdir()}


def test_every_command_that_overwrites_is_tried():
    forced = {c for c, call in COMMANDS.items() if "force" in inspect.signature(call).parameters}

    assert {c for c in forced if not c.startswith("edit ")} == {
        c for c in (*ONTO, *ELSEWHERE) if not c.startswith("edit ")
    }
