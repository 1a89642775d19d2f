"""What `simplify` leaves of exports, beside what onnxsim and OnnxSlim leave."""

import warnings
from pathlib import Path

import pytest

import onnxsurgeon_lite as osl

pytest.importorskip("torch")
pytest.importorskip("transformers")

SCRIPTS = Path(__file__).parents[2] / "scripts"
LEFT = {
    "bert": 124,
    "distilbert": 35,
    "segformer": 211,
    "vit": 120,
    "wav2vec2": 60,
    "convnext": 94,
}
"""Architecture -> the nodes that the better of onnxsim 0.8.1 and OnnxSlim 0.1.98 leaves of its TorchScript export."""


@pytest.mark.parametrize("name", LEFT)
def test_no_more_nodes_are_left_of_an_export_than_peers_leave(name, tmp_path, monkeypatch):
    for folder in ("fuzzing", "matching", "sweeping"):
        monkeypatch.syspath_prepend(str(SCRIPTS / folder))
    import exports
    from architectures import ARCHITECTURES, FURTHER, Output
    from exporting import export

    make = (ARCHITECTURES | FURTHER | exports.OWN)[name]
    exports.torch.manual_seed(0)
    module, given, output = make(True)
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(Output(module.eval(), output), given, path, "torchscript")

    result = osl.simplify(path)

    operators = [node.op_type for node in result.model.proto.graph.node]
    assert len(operators) - operators.count("Constant") <= LEFT[name]
    assert result.proof == ("agrees with the original in 2 runs",)
