"""Language models as onnxruntime's own builder writes them: operators of com.microsoft, a cache, int4 weights."""

import numpy as np
from onnx import numpy_helper

from onnxsurgeon_lite import Model
from onnxsurgeon_lite.passes.build import parse_text

VOCABULARY, WIDTH, HEADS, KV_HEADS, HEAD = 48, 64, 4, 2, 16
LONGEST = 32  # positions of the rotary tables

MASK = """    axis = Constant <value_ints = [1]> ()
    attended = ReduceSum <keepdims = 0> (attention_mask, axis)
    last = Sub (attended, axis)
    seqlens_k = Cast <to = 6> (last)
    mask_shape = Shape (attention_mask)
    one = Constant <value_int = 1> ()
    length = Gather <axis = 0> (mask_shape, one)
    total = Cast <to = 6> (length)
"""
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
    MASK
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
    model = parse_text(PACKAGE.replace("MASK", MASK))
    model.proto.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    )
    return model


LAYER = """
    ["/model/layers.I/attn/qkv_proj/MatMul"] qkv_I = MatMul (normed_I, "model.layers.I.attn.qkv_proj.MatMul.weight")
    ["/model/layers.I/attn/qkv_proj/Add"] biased_I = Add (qkv_I, "model.layers.I.attn.qkv_proj.Add.bias")
    ["/model/layers.I/attn/GroupQueryAttention"] heads_I, "present.I.key", "present.I.value" =
        com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, scale = 0.25, local_window_size = -1,
            softcap = 0.0, do_rotary = 1, rotary_interleaved = 0>
        (biased_I, , , "past_key_values.I.key", "past_key_values.I.value", seqlens_k, total, cos_cache, sin_cache)
    ["/model/layers.I/attn/o_proj/MatMul"] attended_I = MatMul (heads_I, "model.layers.I.attn.o_proj.MatMul.weight")
    ["/model/layers.I/post_attention_layernorm/SkipLayerNorm"] before_I, , , middle_I =
        com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-06> (
            residual_I, attended_I, "model.layers.I.post_attention_layernorm.weight")
    ["/model/layers.I/mlp/gate_proj/MatMul"] gate_I = MatMul (before_I, "model.layers.I.mlp.gate_proj.MatMul.weight")
    ["/model/layers.I/mlp/up_proj/MatMul"] up_I = MatMul (before_I, "model.layers.I.mlp.up_proj.MatMul.weight")
    ["/model/layers.I/mlp/act_fn/Sigmoid"] opened_I = Sigmoid (gate_I)
    ["/model/layers.I/mlp/act_fn/Mul"] acted_I = Mul (gate_I, opened_I)
    ["/model/layers.I/mlp/Mul"] product_I = Mul (acted_I, up_I)
    ["/model/layers.I/mlp/down_proj/MatMul"] down_I = MatMul (product_I, "model.layers.I.mlp.down_proj.MatMul.weight")
    ["/model/layers.J/NORM/SkipLayerNorm"] normed_J, , , residual_J =
        com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-06> (
            middle_I, down_I, "model.layers.J.NORM.weight")
"""
DECODER = """
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
main_graph (
    int64[batch_size, sequence_length] input_ids, int64[batch_size, total_sequence_length] attention_mask, PAST
) => (float[batch_size, sequence_length, 48] logits, PRESENT) {
    MASK
    ["/model/embed_tokens/Gather"] residual_0 = Gather ("model.embed_tokens.weight", input_ids)
    ["/model/layers.0/input_layernorm/LayerNorm"] normed_0 = SimplifiedLayerNormalization <
        axis = -1, epsilon = 1e-06, stash_type = 1> (residual_0, "model.layers.0.input_layernorm.weight")
    LAYERS
    ["/lm_head/MatMul"] logits = MatMul (normed_LAST, "lm_head.MatMul.weight")
}
"""


def checkpoint(layers: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Return parameters as transformers names them: a decoder with biases of q, k and v."""
    rng = np.random.default_rng(seed)

    def noise(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    found = {"model.embed_tokens.weight": noise(VOCABULARY, WIDTH) * 4}
    sizes = {"q": HEADS * HEAD, "k": KV_HEADS * HEAD, "v": KV_HEADS * HEAD}
    for layer in range(layers):
        start = f"model.layers.{layer}"
        found[f"{start}.input_layernorm.weight"] = 1 + noise(WIDTH)
        for part, size in sizes.items():
            found[f"{start}.self_attn.{part}_proj.weight"] = noise(size, WIDTH)
            found[f"{start}.self_attn.{part}_proj.bias"] = noise(size)
        found[f"{start}.self_attn.o_proj.weight"] = noise(WIDTH, HEADS * HEAD)
        found[f"{start}.post_attention_layernorm.weight"] = 1 + noise(WIDTH)
        found[f"{start}.mlp.gate_proj.weight"] = noise(2 * WIDTH, WIDTH)
        found[f"{start}.mlp.up_proj.weight"] = noise(2 * WIDTH, WIDTH)
        found[f"{start}.mlp.down_proj.weight"] = noise(WIDTH, 2 * WIDTH)
    return {
        **found,
        "model.norm.weight": 1 + noise(WIDTH),
        "lm_head.weight": noise(VOCABULARY, WIDTH),
    }


def decoder(parameters: dict[str, np.ndarray]) -> Model:
    """Return the package that the builder makes of a checkpoint: names as it gives them, packed projections."""
    layers = sum(name.endswith("q_proj.weight") for name in parameters)
    named = {f"model.layers.{layers}.final_norm_layernorm.weight": parameters["model.norm.weight"]}
    for name, array in parameters.items():
        if name.endswith("_proj.weight") or name == "lm_head.weight":
            named[name.replace("self_attn", "attn").replace(".weight", ".MatMul.weight")] = array.T
        elif name != "model.norm.weight":
            named[name] = array
    for layer in range(layers):
        for kind in ("MatMul.weight", "bias"):
            start = f"model.layers.{layer}."
            middle = "attn" if kind != "bias" else "self_attn"
            parts = [named.pop(f"{start}{middle}.{part}_proj.{kind}") for part in "qkv"]
            target = f"{start}attn.qkv_proj.{'Add.' * (kind == 'bias')}{kind}"
            named[target] = np.concatenate(parts, -1)
    angles = np.arange(LONGEST)[:, None] / 100.0 ** (np.arange(HEAD // 2) / (HEAD // 2))
    named |= {"cos_cache": np.cos(angles), "sin_cache": np.sin(angles)}

    def each(text: str, end: str = "") -> str:
        made = []
        for at in range(layers):
            norm = "final_norm_layernorm" if at + 1 == layers else "input_layernorm"
            made.append(text.replace("NORM", norm).replace(".I", f".{at}").replace("_I", f"_{at}")
                        .replace(".J", f".{at + 1}").replace("_J", f"_{at + 1}"))  # fmt: skip
        return end.join(made)

    cache = 'float[batch_size, 2, WHEN_sequence_length, kv_cache_dim] "NAME.I.key", ' \
        'float[batch_size, 2, WHEN_sequence_length, kv_cache_dim] "NAME.I.value"'  # fmt: skip
    past = each(cache.replace("WHEN", "past").replace("NAME", "past_key_values"), ", ")
    present = each(cache.replace("WHEN", "total").replace("NAME", "present"), ", ")
    text = DECODER.replace("MASK", MASK).replace("PAST", past).replace("PRESENT", present)
    model = parse_text(text.replace("LAYERS", each(LAYER)).replace("LAST", str(layers)))
    model.proto.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name)
        for name, array in named.items()
    )
    return model


def quantized(seed: int = 0, bits: int = 4, block: int = 16, source: Model | None = None) -> Model:
    """Return a package with its projections as MatMulNBits, as the builder writes them with `-p int4`."""
    model = source or package(seed)
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
