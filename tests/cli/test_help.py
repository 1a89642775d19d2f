"""`--help`: the same panels everywhere, two examples a command, and every example runs."""

import re
import shlex
import shutil
from collections import deque

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from safetensors.numpy import save_file
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES, packages
from kit.commands import HELP
from onnxsurgeon_lite.cli.app import app

FILES = {
    "model.onnx": "whole_model.onnx",
    "quantized.onnx": "low_precision.onnx",
    "faulty.onnx": "faulty_attribute.onnx",
    "dynamo.onnx": "whole_model_dynamo.onnx",
    "block.onnx": "transformer_block.onnx",
    "fixed.onnx": "frozen_batch.onnx",
    "linear.onnx": "linear_func.onnx",
    "weights.safetensors": "whole_model.safetensors",
    "model.py": "whole_model.py",
    **{name: name for name in ("detector.onnx", "external.onnx", "external.data")},
    "whole_model.safetensors": "whole_model.safetensors",
}
RECIPE = '[[step]]\nverb = "set-op"\nnodes = "Add_7"\nop_type = "Sub"\n'
SUITE = '[[check]]\nname = "whole"\nmodel = "model.onnx"\nreference = "refs"\n'
CRASHES = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] x) => (float[n,m] y) { h = Relu(x)  s = Constant<value_ints = [7]>()  y = Reshape(h, s) }"""
PACKAGE = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[2,3] x) => (float[2,3] y) { y = com.microsoft.QuickGelu (x) }"""
LAYER = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,32] x) => (float[2,32] y) { y = MatMul(x, w) }"""
PATCH = 'def edit(graph):\n    graph.nodes[7].op = "Sub"\n'


def helped(command: str, monkeypatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, [*command.split(), "--help"])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", HELP)
def test_every_command_has_panels_and_two_examples(command, monkeypatch):
    told = helped(command, monkeypatch)

    panels = [line.split()[1] for line in told.splitlines() if line.startswith("╭─")]
    assert panels == [p for p in ("Arguments", "Main", "Feeds", "Runtime", "Output") if p in panels]
    assert "Options" not in panels
    assert told.count("$ onnxdbg") == 2
    assert max(map(len, told.splitlines())) <= 80


def test_brackets_in_a_help_text_are_shown(monkeypatch):
    assert "A TOML file: [[step]], verb = ..." in helped("edit apply", monkeypatch)
    assert "[1,2]" in helped("edit freeze", monkeypatch)


def test_every_example_runs(tmp_path, monkeypatch):
    for name, source in FILES.items():
        shutil.copy(FIXTURES / source, tmp_path / name)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "onnxdbg.toml").write_text(SUITE)
    (tmp_path / "patch.py").write_text(PATCH)
    (tmp_path / "result.json").write_text("{}")
    onnx.save(parser.parse_model(CRASHES), tmp_path / "crashes.onnx")
    onnx.save(parser.parse_model(PACKAGE), tmp_path / "package.onnx")
    osl.save(packages.decoder(packages.checkpoint(3)), tmp_path / "decoder.onnx")
    parameters, name = packages.checkpoint(3), "model.layers.1.mlp.down_proj"
    save_file(parameters, tmp_path / "decoder.safetensors")
    rows, width = parameters[f"{name}.weight"].shape
    ends = {"lora_A": np.ones((1, width), np.float32), "lora_B": np.ones((rows, 1), np.float32)}
    save_file(
        {f"{name}.{end}.weight": a for end, a in ends.items()}, tmp_path / "adapter.safetensors"
    )
    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 16}')
    layer, square = parser.parse_model(LAYER), np.ones((32, 32), np.float32)
    layer.graph.initializer.append(numpy_helper.from_array(square, "w"))
    onnx.save(layer, tmp_path / "layer.onnx")
    save_file({"layer.weight": square}, tmp_path / "layer.safetensors")
    (tmp_path / "check.py").write_text("raise SystemExit('not supported')")
    np.save(tmp_path / "a.npy", np.eye(10, dtype=np.float32))
    np.save(tmp_path / "hidden.npy", np.ones((1, 8, 16), np.float32))
    monkeypatch.chdir(tmp_path)

    lines = deque(re.findall(r"^\$ (.*)", "\n".join(HELP.values()), re.MULTILINE))
    late = set[str]()
    while lines:
        line = lines.popleft()
        words, _, file = line.partition(" > ")
        done = CliRunner().invoke(app, shlex.split(words)[1:])
        # once more behind the others: one of them may write what it reads
        if "cannot read" in done.output and line not in late:
            late.add(line)
            lines.append(line)
            continue
        if file:
            (tmp_path / file).write_text(done.stdout)

        assert done.exit_code in (0, 1), f"{line}\n{done.output}"
        assert isinstance(done.exception, SystemExit | None), f"{line}\n{done.exception!r}"
