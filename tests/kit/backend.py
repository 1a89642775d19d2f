"""The onnx package's backend node cases, run in our runtime."""

import functools
import warnings

import numpy as np
from onnx import ModelProto

from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.session import Runtime

RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomUniform"}


RANDOM |= {"RandomNormalLike", "RandomUniformLike", "Dropout"}


@functools.cache
def cases() -> dict[str, object]:
    """Every case by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None)}


def ops_of(model: ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


def fed(runtime: Runtime, model: ModelProto, values) -> list[str] | None:
    """Put a case's inputs; None where one of them is an optional, which numpy cannot say."""
    names = [value.name for value in model.graph.input]
    for declared, value in zip(model.graph.input, values, strict=False):
        if declared.type.HasField("optional_type") or value is None:
            return None
        element = declared.type.sequence_type.elem_type.tensor_type.elem_type or None
        array = list(map(np.asarray, value)) if isinstance(value, list) else np.asarray(value)
        runtime.put(declared.name, array, element)
    return names[: len(values)]


def outcome(runtime: Runtime, model: Model, feeds: list[str], fetch: list[str], keep=()):
    runtime.open(model)
    return runtime.run(feeds, fetch, keep)


def same(one, other) -> bool:
    """Bit for bit."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if one is None or other is None:
        return one is other
    if one.dtype.kind == "O":
        return one.tolist() == other.tolist()
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


# Half precision that the CPU provider computes in float32 between nodes: a cut rounds where the whole does not.
ROUNDED = {
    "test_attention_24_qk_matmul_output_mode3_softmax_precision_expanded",
    "test_attention_4d_causal_fp16_expanded",
    "test_attention_4d_fp16_expanded",
    "test_attention_4d_gqa_causal_nonpad_decode_fp16_expanded",
    "test_attention_4d_gqa_with_past_and_present_fp16_expanded",
    "test_causal_conv_with_state_silu_fp16_expanded",
    "test_flexattention_fp16_expanded_ver26",
}
