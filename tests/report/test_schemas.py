"""The JSON Schemas of docs/schemas: they follow from the types, and real output keeps them."""

import json

import jsonschema
import pytest
import schemas
from typer.testing import CliRunner

from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app

REFS = "references/whole_model.npz"
COMMANDS = {
    "inspect": ["inspect control_flow.onnx", "inspect external.onnx"],
    "inspect-node": ["inspect control_flow.onnx --node @2"],
    "inspect-value": [
        "inspect whole_model.onnx --value 23",
        "inspect whole_model.onnx --value op:Conv",
    ],
    "inspect-tree": ["inspect whole_model_dynamo.onnx --tree"],
    "inspect-histogram": [f"inspect {REFS} --histogram", "inspect external.onnx --histogram"],
    "check": ["check custom_op.onnx"],
    "diff": [
        "diff whole_model.onnx faulty_attribute.onnx --run",
        "diff whole_model.onnx faulty_constant.onnx",
    ],
    "split": ["split whole_model.onnx --at 23 -o parts"],
    "data-ls": ["data ls external.onnx", "data ls external.onnx --no-fingerprint"],
    "run": ["run control_flow.onnx --fetch @1/then_branch/*,y"],
    "compare": [
        f"compare faulty_attribute.onnx {REFS}",
        "compare references/transformer_block.npz references/transformer_block.npz",
    ],
    "profile": [
        "profile whole_model.onnx --runs 1",
        "profile faulty_attribute.onnx --against whole_model.onnx --runs 1",
    ],
    "test": ["test export edited"],
    "bisect": [
        f"bisect faulty_constant.onnx --reference {REFS} -o a",
        f"bisect whole_model.onnx --reference {REFS} -o b",
        "bisect transformer_block.onnx --find overflow:float16 -o c",
    ],
    "rank": [
        "rank faulty_constant.onnx --against whole_model.onnx",
        "rank faulty_constant.onnx --against whole_model.onnx --by output",
        "rank whole_model.onnx --bits 40",
        "rank whole_model.onnx --fp16-risk",
    ],
    "convert": ["convert whole_model.onnx --to float16 --tolerance 0.1 --report --dry-run"],
    "match": ["match whole_model.onnx whole_model_dynamo.onnx", f"match {REFS} whole_model.onnx"],
    "weights": ["weights faulty_constant.onnx --against whole_model.safetensors"],
}
CASES = [(name, command) for name, commands in COMMANDS.items() for command in commands]


def test_the_files_are_what_the_types_say():
    kept = {path.stem: path.read_text() for path in schemas.FOLDER.glob("*.json")}
    said = {name: schemas.text(schema) for name, schema in schemas.schemas().items()}

    wrong = sorted(name for name in kept | said if kept.get(name) != said.get(name))
    assert not wrong, (
        f"{wrong} of docs/schemas are out of date: run `python scripts/pages/schemas.py`"
    )


def test_every_json_option_has_a_schema():
    from generated import commands

    with_json = {
        name
        for name, command in commands().items()
        if any("--json" in p.opts for p in command.params)
    }

    assert with_json == {command.split(" --")[0] for _, command, _ in schemas.outputs()}


@pytest.mark.parametrize(("name", "command"), CASES, ids=[c for _, c in CASES])
def test_real_output_keeps_its_schema(name, command, tmp_path, monkeypatch):
    monkeypatch.chdir(FIXTURES)
    command = command.replace(" -o ", f" -o {tmp_path}/")

    done = CliRunner().invoke(app, [*command.split(), "--json"])

    assert done.exit_code in (0, 1), done.output
    jsonschema.validate(json.loads(done.stdout), schemas.schemas()[name])
