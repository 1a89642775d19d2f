"""The next export under other names, with one layer more: matched, found right, and one wrong weight found in it."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from typer.testing import CliRunner, Result

from onnxsurgeon_lite import open_references
from onnxsurgeon_lite.cli.app import app


class Net(torch.nn.Module):
    """Two convolutions and a gate; a second version has one more ReLU, after what is never negative."""

    def __init__(self, extra: torch.nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = (torch.nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))
        self.gate, self.last = torch.nn.Sigmoid(), torch.nn.Conv2d(3, 3, 3, padding=1)
        self.extra = extra

    def forward(self, given):
        x = self.gate(self.second(self.first(given)))
        return self.last(x if self.extra is None else self.extra(x))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """`v1.onnx` by TorchScript, what it computes in `refs`, and `v2.onnx` by dynamo."""
    folder = tmp_path_factory.mktemp("exports")
    export(Net(), folder / "v1.onnx", dynamo=False)
    export(Net(torch.nn.ReLU()), folder / "v2.onnx", dynamo=True)
    done = onnxdbg("record", folder / "v1.onnx", "-o", folder / "refs")
    assert done.exit_code == 0
    return folder


def export(net: Net, path: Path, dynamo: bool) -> None:
    options = {"opset_version": 18, "external_data": False, "verbose": False}
    with pytest.warns():
        torch.onnx.export(net.eval(), (torch.randn(1, 3, 8, 8),), path, dynamo=dynamo, **options)


def onnxdbg(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)))


def test_the_inserted_relu_is_all_that_is_listed(folder):
    for first in ("v1.onnx", "refs"):
        shown = onnxdbg("match", folder / first, folder / "v2.onnx").output

        left = [line for line in shown.splitlines() if "only in" in line]
        assert len(left) == 1
        assert "(Relu, extra (ReLU))" in left[0]


def test_nothing_is_wrong_with_it(folder, tmp_path):
    done = onnxdbg(
        "bisect", folder / "v2.onnx", "--reference", folder / "refs", "-o", tmp_path / "culprit"
    )

    assert done.exit_code == 0, done.output
    assert "agrees" in done.output


@pytest.fixture(scope="module")
def wrong(folder) -> Path:
    """`v2.onnx` with one weight altered."""
    proto = onnx.load(folder / "v2.onnx")
    weight = next(t for t in proto.graph.initializer if t.name == "second.weight")
    altered = numpy_helper.to_array(weight) + np.float32(0.1)
    weight.CopyFrom(numpy_helper.from_array(altered, weight.name))
    onnx.save(proto, folder / "wrong.onnx")
    return folder / "wrong.onnx"


def test_one_altered_weight_is_all_that_is_found(folder, wrong, tmp_path):
    done = onnxdbg(
        "bisect",
        wrong,
        "--reference",
        folder / "refs",
        "-o",
        tmp_path / "culprit",
    )

    assert done.exit_code == 1, done.output
    assert done.output.count(" makes ") == 1
    source = Path(__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(source, 1) if "self.gate(self.second(" in text)
    assert f"scope: second (Conv2d), test_next_export.py:{line}" in done.output


def test_a_session_compares_with_references_of_other_names(folder, wrong):
    session = ("repl", wrong, "--reference", folder / "refs")

    walked = onnxdbg(*session, "-c", "break scope:second; run; heal scope:second; continue")
    unmatched = onnxdbg(*session, "--map", "names", "-c", "break scope:second; run")

    assert walked.exit_code == 0, walked.output
    at, healed, end = (walked.output.index(word) for word in ("MISMATCH", "agrees", "at the end"))
    assert at < healed < end
    assert "agrees" in walked.output[end:]
    assert "MISMATCH" not in unmatched.output


def test_values_of_two_exports_are_compared_side_by_side(folder):
    done = onnxdbg("compare", folder / "v2.onnx", folder / "refs", "--map", "auto")

    assert done.exit_code == 0, done.output


def test_float64_references_agree_with_the_model_that_they_are_of(folder, tmp_path):
    done = onnxdbg("record", folder / "v1.onnx", "--float64", "-o", tmp_path / "wide")
    wide, narrow = open_references(tmp_path / "wide"), open_references(folder / "refs")

    assert done.exit_code == 0
    assert [*wide] == [*narrow]
    for name in narrow:
        if not narrow.entries[name].is_input and name in wide:
            np.testing.assert_allclose(wide.read(name), narrow.read(name), rtol=1e-4, atol=1e-5)
    assert {str(wide.read(name).dtype) for name in wide if "output" in name} == {"float64"}
    for words in (("--operators",), ("--scope", "first")):
        refused = onnxdbg("record", folder / "v1.onnx", *words, "-o", tmp_path / "none")
        assert refused.exit_code == 2
        assert "is not for an ONNX model" in refused.output
