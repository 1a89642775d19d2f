"""Language models as onnxruntime's own builder writes them: operators of com.microsoft, a cache, int4 weights."""

import numpy as np
from onnx import numpy_helper

from onnxsurgeon_lite import Model
from onnxsurgeon_lite.passes.build import parse_text

VOCABULARY, WIDTH, HEADS, KV_HEADS, HEAD = 48, 64, 4, 2, 16
LONGEST = 32  # positions of the rotary tables

PACKAGE = """
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
package (
    int64[batch_size, sequence_length] input_ids,
    int64[batch_size, total_sequence_length] attention_mask,
    float[batch_size, 2, past_sequence_length, kv_cache_dim] "past_key_values.0.key",
    float[batch_size, 2, past_sequence_length, kv_cache_dim] "past_key_values.0.value"
) => (
    float[batch_size, sequence_length, 48] logits,
    float[batch_size, 2, total_sequence_length, kv_cache_dim] "present.0.key",
    float[batch_size, 2, total_sequence_length, kv_cache_dim] "present.0.value"
) {
    axis = Constant <value_ints = [1]> ()
    attended = ReduceSum <keepdims = 0> (attention_mask, axis)
    last = Sub (attended, axis)
    seqlens_k = Cast <to = 6> (last)
    mask_shape = Shape (attention_mask)
    one = Constant <value_int = 1> ()
    length = Gather <axis = 0> (mask_shape, one)
    total = Cast <to = 6> (length)
    embedded = Gather (embed_tokens, input_ids)
    normed = SimplifiedLayerNormalization <axis = -1, epsilon = 1e-06, stash_type = 1> (embedded, norm_0)
    qkv = MatMul (normed, qkv_proj)
    heads, "present.0.key", "present.0.value" = com.microsoft.GroupQueryAttention <
        num_heads = 4, kv_num_heads = 2, scale = 0.25, local_window_size = -1, softcap = 0.0,
        do_rotary = 1, rotary_interleaved = 0
    > (qkv, , , "past_key_values.0.key", "past_key_values.0.value", seqlens_k, total, cos_cache, sin_cache)
    projected = MatMul (heads, o_proj)
    normed_1, , , residual = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-06> (
        embedded, projected, norm_1)
    logits = MatMul (normed_1, lm_head)
}
"""


def package(seed: int = 0) -> Model:
    """Return a package of one layer with random weights; packed projections, a rotary cache."""
    rng = np.random.default_rng(seed)
    angles = np.arange(LONGEST)[:, None] / 100.0 ** (np.arange(HEAD // 2) / (HEAD // 2))
    arrays = {
        "embed_tokens": rng.standard_normal((VOCABULARY, WIDTH)),
        "norm_0": rng.uniform(0.5, 1.5, WIDTH),
        "norm_1": rng.uniform(0.5, 1.5, WIDTH),
        "qkv_proj": rng.standard_normal((WIDTH, (HEADS + 2 * KV_HEADS) * HEAD)) / 4,
        "o_proj": rng.standard_normal((HEADS * HEAD, WIDTH)) / 4,
        "lm_head": rng.standard_normal((WIDTH, VOCABULARY)) / 4,
        "cos_cache": np.cos(angles),
        "sin_cache": np.sin(angles),
    }
    model = parse_text(PACKAGE)
    model.proto.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    )
    return model


def quantized(seed: int = 0, bits: int = 4, block: int = 16) -> Model:
    """Return the package with its projections as MatMulNBits, as the builder writes them with `-p int4`."""
    model = package(seed)
    graph = model.proto.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "MatMul":
            tensor = weights[node.input[1]]
            codes, scales = _blocks(numpy_helper.to_array(tensor).T, bits, block)
            k, n = tensor.dims
            graph.initializer.remove(tensor)
            for name, array in ((f"{tensor.name}_Q4", codes), (f"{tensor.name}_scales", scales)):
                graph.initializer.append(numpy_helper.from_array(array, name))
            node.op_type, node.domain = "MatMulNBits", "com.microsoft"
            node.input[1:] = [f"{tensor.name}_Q4", f"{tensor.name}_scales"]
            for name, value in (("K", k), ("N", n), ("bits", bits), ("block_size", block)):
                node.attribute.add(name=name, type=2, i=value)
    return model


def _blocks(weight: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes [N, blocks, bytes] and scales [N, blocks] of a weight [N, K]; the zero point is in the middle."""
    parts = weight.reshape(weight.shape[0], -1, block)
    middle = 1 << bits - 1
    scales = np.abs(parts).max(-1) / (middle - 1)
    codes = (np.rint(parts / scales[..., None]) + middle).astype(np.uint8)
    packed = sum(codes[..., place :: 8 // bits] << place * bits for place in range(8 // bits))
    return packed.astype(np.uint8), scales.astype(np.float32)


def feeds(tokens: int = 3, past: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Return feeds for some tokens after a cache of some."""
    rng = np.random.default_rng(seed)
    cache = (rng.standard_normal((2, 1, KV_HEADS, past, HEAD)) / 2).astype(np.float32)
    return {
        "input_ids": rng.integers(0, VOCABULARY, (1, tokens)),
        "attention_mask": np.ones((1, past + tokens), np.int64),
        "past_key_values.0.key": cache[0],
        "past_key_values.0.value": cache[1],
    }
