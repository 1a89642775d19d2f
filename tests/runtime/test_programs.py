"""The programs that docs/reference/runtimes.md has for TensorRT and for another machine; their tools are stand-ins."""

import json
import os
import sys

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.pages import BLOCK, ROOT
from onnxsurgeon_lite.errors import RuntimeFailure

TRTEXEC = f"""#!{sys.executable}
import json, sys
import numpy as np, onnx, onnxruntime

options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
with open("options.json", "w") as file:
    json.dump(options, file)
model = onnx.load(options["onnx"])
dims = [d for i in model.graph.input for d in i.type.tensor_type.shape.dim]
is_open = not all(d.HasField("dim_value") for d in dims)
shapes = dict(s.rsplit(":", 1) for s in options.get("shapes", "").split(",") if s)
if is_open != bool(shapes):  # as trtexec
    sys.exit("[I] building\\n[E] Static model does not take explicit shapes\\n&&&& FAILED")
feeds = {{}}
for i in model.graph.input:
    file = dict(p.rsplit(":", 1) for p in options["loadInputs"].split(","))[f"'{{i.name}}'"]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
    text = shapes.get(f"'{{i.name}}'", "x".join(str(d.dim_value) for d in i.type.tensor_type.shape.dim))
    feeds[i.name] = np.fromfile(file, dtype).reshape([int(n) for n in text.split("x")])
session = onnxruntime.InferenceSession(options["onnx"])
names = [o.name for o in session.get_outputs()]
told = []
for name, value in zip(names, session.run(None, feeds)):
    if "fp16" in options and value.dtype == np.float32:
        value = value.astype(np.float16).astype(np.float32)
    values = ", ".join(str(n.item() + 0) for n in value.ravel())
    shape = "x".join(map(str, value.shape))
    told.append(f'{{{{ "name" : "{{name}}", "dimensions" : "{{shape}}", "values" : [ {{values}} ] }}}}')
open(options["exportOutput"], "w").write("[" + ", ".join(told) + "]")
"""
SSH = """#!/bin/sh
echo "$1" > host
shift
exec sh -c "$*"
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """The files of the page, and the folder with what they find in PATH."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    files = {
        "bin/trtexec": TRTEXEC,
        "bin/ssh": SSH,
        **{
            block["file"]: block["body"]
            for block in BLOCK.finditer((ROOT / "docs/reference/runtimes.md").read_text())
            if (block["file"] or "").endswith((".sh", "board.py", "trt.py"))
        },
    }
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text.replace("#!/usr/bin/env python\n", f"#!{sys.executable}\n"))
        path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("model", ["whole_model.onnx", "transformer_block.onnx"])
def test_trtexec_computes_every_value_that_is_fetched(programs, model):
    values = ["29", "31"] if "whole" in model else ["activation", "output"]

    found = osl.run(FIXTURES / model, fetch=values, runtime="command:./trt.py")

    expected = osl.run(FIXTURES / model, fetch=values, opt="none")
    for name in values:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-4)


def test_settings_are_options_of_trtexec_and_rounding_is_seen(programs):
    runtime = "command:./trt.py,fp16=yes,builderOptimizationLevel=0"

    found = osl.run(FIXTURES / "whole_model.onnx", runtime=runtime)["31"]

    np.testing.assert_array_equal(found, found.astype(np.float16))
    options = json.loads((programs / "options.json").read_text())
    assert options["fp16"] == ""
    assert options["builderOptimizationLevel"] == "0"
    assert "shapes" not in options  # the model has them


def test_numbers_that_json_has_not_and_other_dtypes_come_back(programs):
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        odd (float[5] x) => (float[5] y, bool[5] positive, int64[5] whole) {
            y = Log(x) positive = Greater(x, y) a = Abs(x) whole = Cast<to = 7>(a)
        }
    """)
    x = np.array([-1, 0, 1, np.inf, 2.5], np.float32)

    found = osl.run(model, {"x": x}, runtime="command:./trt.py")

    np.testing.assert_array_equal(found["y"], osl.run(model, {"x": x})["y"])
    assert found["positive"].dtype == bool
    assert found["whole"].dtype == np.int64


def test_why_trtexec_refuses_a_model_is_said(programs):
    (programs / "bin/trtexec").write_text(
        "#!/bin/sh\necho '[I] reading'; echo '[E] no layer for Thing'; echo '&&&& FAILED'; exit 1\n"
    )

    with pytest.raises(RuntimeFailure, match=r"exit code 1: \[E\] no layer for Thing"):
        osl.run(FIXTURES / "whole_model.onnx", runtime="command:./trt.py")


def test_a_program_at_the_other_end_of_ssh_answers(programs):
    found = osl.run(FIXTURES / "linear_func.onnx", fetch=["c", "y"], runtime="command:./remote.sh")

    expected = osl.run(FIXTURES / "linear_func.onnx", fetch=["c", "y"])
    np.testing.assert_allclose(found["c"], expected["c"], rtol=1e-4, atol=1e-5)
    assert np.abs(found["y"] - expected["y"]).max() > 1e-3  # board.py adds wrongly
    assert (programs / "host").read_text() == "board\n"
