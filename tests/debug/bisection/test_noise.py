"""What is shaken gets the same noise at every opset: from 22 on onnxruntime draws no random numbers."""

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.packages import package, quantized
from onnxsurgeon_lite.debug.bisection.quantized.shaking import noise_like


@pytest.mark.parametrize("opset", [18, 21, 22, 23])
def test_noise_has_the_mean_and_the_variance_of_a_uniform_one(opset):
    model = osl.build(
        f'<ir_version: 10, opset_import: ["" : {opset}]>\n'
        "g (float[40, 50] x) => (float[40, 50] noise) { noise = Identity(x) }"
    )
    nodes = noise_like(model.proto, "x", "noise", (0.5, 1.5), seed=3)
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(nodes)

    drawn = osl.run(model, seed=0)["noise"]

    assert drawn.shape == (40, 50)
    assert 0.5 <= drawn.min() < drawn.max() <= 1.5
    assert abs(drawn.mean() - 1) < 0.03
    assert abs(drawn.std() - 1 / 12**0.5) < 0.01


@pytest.mark.parametrize("opset", [21, 22])
def test_a_healthy_int4_package_agrees_with_its_float_one(opset):
    models = [package(), quantized()]
    for model in models:
        model.proto.opset_import[0].version = opset

    result = osl.bisect(models[1], against=models[0])

    assert result.verdict == "agrees"
    assert not np.array_equal(*(osl.run(model, seed=0)["logits"] for model in models))
