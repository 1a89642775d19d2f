"""What people do with packages of language models every day: print and build, halve, rank."""

import numpy as np
import pytest
from onnx import TensorProto
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.graph.index import GraphIndex


def package(bits=0):
    model = packages.decoder(packages.checkpoint())
    return packages.quantized(source=model, bits=bits) if bits else model


@pytest.mark.parametrize("bits", [0, 4])
def test_what_is_printed_of_a_package_is_built_again(bits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    osl.save(package(bits), "model.onnx")

    printed = CliRunner().invoke(app, ["print", "model.onnx", "--weights", "w.safetensors"])
    (tmp_path / "model.txt").write_text(printed.stdout)
    words = ["build", "model.txt", "--weights", "w.safetensors", "-o", "built.onnx"]

    assert CliRunner().invoke(app, words).exit_code == 0
    assert osl.diff("model.onnx", "built.onnx").same


@pytest.mark.parametrize("bits", [0, 4])
def test_a_package_is_half_between_its_inputs_and_outputs(bits):
    half = osl.convert(package(bits), to="float16").model

    index = GraphIndex.of(half)
    index.learn_types(index.producer)
    single = [
        node.op_type
        for node in index.nodes
        if node.op_type != "Cast" and index.element_of(node.output[0]) == TensorProto.FLOAT
    ]
    assert single == []
    feeds, _ = osl.make_feeds(GraphIndex.of(package(bits)), osl.Recipe(seed=1))
    right, made = (osl.run(model, feeds)["logits"] for model in (package(bits), half))
    np.testing.assert_allclose(made, right, atol=0.02 * np.abs(right).max())


def test_nothing_of_a_healthy_package_in_half_precision_or_int4_is_excluded():
    for healthy in (osl.convert(package(), to="float16").model, package(4)):
        found = osl.rank(healthy, against=package())

        assert found.exclude == []
        # the mask is integers: no node of it is ranked at -inf
        assert min(node.own_db for node in found.nodes) > 20
