"""Compare each gradient rule with torch.autograd in float64, on the operator cases of the onnx package."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from gradient_checks import NotRun, cases, dtype_of, frozen, is_float, run
from onnx import ModelProto, helper, shape_inference
from onnx.reference import ReferenceEvaluator
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes import Gradient

Attributes = Mapping[str, object]
Torch = Callable[..., Tensor]
UNDEFINED = {"test_l2normalization_axis_0"}  # torch adds an epsilon to the norm of zeros
SAME = 1e-4  # of the outputs: where they differ more, torch means another operator


def axes_of(a: Attributes, x: Tensor, given: Sequence[Tensor]) -> list[int]:
    axes = a.get("axes") or (given[0].tolist() if given else None)
    return list(axes) if axes else ([] if a.get("noop_with_empty_axes") else list(range(x.ndim)))


def reduced(function: Callable[[Tensor, list[int], bool], Tensor]) -> Torch:
    def made(a: Attributes, x: Tensor, *given: Tensor) -> Tensor:
        axes = axes_of(a, x, given)
        return function(x, axes, bool(a.get("keepdims", 1))) if axes else x

    return made


def unary(function: Callable[[Tensor], Tensor]) -> Torch:
    return lambda a, x: function(x)


def binary(function: Callable[[Tensor, Tensor], Tensor]) -> Torch:
    return lambda a, x, y: function(x, y)


def folded(function: Callable[[Tensor, Tensor], Tensor]) -> Torch:
    def made(a: Attributes, x: Tensor, *more: Tensor) -> Tensor:
        for other in more:
            x = function(x, other)
        return x

    return made


def window(a: Attributes, count: int) -> dict[str, object]:
    pads = a.get("pads") or [0] * 2 * count
    return {"stride": a.get("strides") or [1] * count, "padding": pads[:count]}


def convolved(a: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    count = x.ndim - 2
    function = (F.conv1d, F.conv2d, F.conv3d)[count - 1]
    more = {"dilation": a.get("dilations") or [1] * count, "groups": a.get("group", 1)}
    return function(x, w, b, **window(a, count), **more)


def spread(a: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    count = x.ndim - 2
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[count - 1]
    more = {"dilation": a.get("dilations") or [1] * count, "groups": a.get("group", 1)}
    padding = a.get("output_padding") or [0] * count
    return function(x, w, b, **window(a, count), output_padding=padding, **more)


def largest(a: Attributes, x: Tensor) -> Tensor:
    count = x.ndim - 2
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[count - 1]
    more = {"dilation": a.get("dilations") or 1, "ceil_mode": bool(a.get("ceil_mode"))}
    return function(x, a["kernel_shape"], **window(a, count), **more)


def averaged(a: Attributes, x: Tensor) -> Tensor:
    count = x.ndim - 2
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[count - 1]
    more = {"ceil_mode": bool(a.get("ceil_mode"))}
    more |= {"count_include_pad": bool(a.get("count_include_pad"))}
    return function(x, a["kernel_shape"], **window(a, count), **more)


def multiplied(a: Attributes, x: Tensor, y: Tensor, c: Tensor | None = None) -> Tensor:
    x, y = (x.T if a.get("transA") else x), (y.T if a.get("transB") else y)
    made = x @ y * a.get("alpha", 1.0)
    return made if c is None else made + c * a.get("beta", 1.0)


def normalized(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float
) -> Tensor:
    moved = x.movedim(1, -1)
    return ((moved - mean) / torch.sqrt(variance + epsilon) * scale + bias).movedim(-1, 1)


def layer_normal(a: Attributes, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    shape = x.shape[a.get("axis", -1) :]
    return F.layer_norm(x, shape, w, b, a.get("epsilon", 1e-5))


def root_mean(a: Attributes, x: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[a.get("axis", -1) :], w, a.get("epsilon", 1e-5))


def sampled(a: Attributes, x: Tensor, grid: Tensor) -> Tensor:
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    mode = str(a.get("mode", "linear"))
    padding, corners = a.get("padding_mode", "zeros"), bool(a.get("align_corners"))
    return F.grid_sample(x, grid, modes.get(mode, mode), padding, corners)


def fourier(
    a: Attributes, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None
) -> Tensor:
    given = torch.view_as_complex(x) if x.shape[-1] == 2 else x[..., 0] + 0j
    dim = (int(axis) if axis is not None else -2) % x.ndim
    count = None if length is None else int(length)
    if not a.get("onesided"):
        function = torch.fft.ifft if a.get("inverse") else torch.fft.fft
        return torch.view_as_real(function(given, count, dim))
    if a.get("inverse"):
        return torch.fft.irfft(given, count, dim)[..., None]
    return torch.view_as_real(torch.fft.rfft(x[..., 0], count, dim))


def folded_image(a: Attributes, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    count = len(block)
    how = {"dilation": a.get("dilations") or [1] * count, **window(a, count)}
    return F.fold(x, image.tolist(), block.tolist(), **how)


def attended(a: Attributes, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    causal = bool(a.get("is_causal"))
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=a.get("scale"))


def resized(
    a: Attributes, x: Tensor, roi: Tensor | None, scales: Tensor | None, sizes: Tensor | None = None
) -> Tensor:
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    mode = modes.get(str(a.get("mode", "nearest")), "nearest")
    how = (
        {"size": sizes.tolist()[2:]} if sizes is not None else {"scale_factor": scales.tolist()[2:]}
    )
    if mode != "nearest":
        how["align_corners"] = a.get("coordinate_transformation_mode") == "align_corners"
    return F.interpolate(x, mode=mode, **how)


def loss(a: Attributes, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    how = {"reduction": a.get("reduction", "mean"), "ignore_index": a.get("ignore_index", -100)}
    return F.nll_loss(x, target.long(), weight, **how)


def cross_entropy(a: Attributes, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    return loss(a, F.log_softmax(x, 1), target, weight)


SIMPLE = "abs acos acosh asin asinh atan atanh cos cosh erf exp log neg reciprocal relu sigmoid sin sinh sqrt tan tanh"
TORCH: dict[str, Torch] = {
    **{name.capitalize(): unary(getattr(torch, name)) for name in SIMPLE.split()},
    "Add": binary(torch.add),
    "AffineGrid": lambda a, x, s: F.affine_grid(x, s.tolist(), bool(a.get("align_corners"))),
    "Attention": attended,
    "AveragePool": averaged,
    "BatchNormalization": lambda a, x, *more: normalized(x, *more, a.get("epsilon", 1e-5)),
    "Celu": lambda a, x: F.celu(x, a.get("alpha", 1.0)),
    "Clip": lambda a, x, low=None, high=None: torch.clamp(x, low, high),
    "Col2Im": folded_image,
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Conv": convolved,
    "ConvTranspose": spread,
    "CumProd": lambda a, x, axis: torch.cumprod(x, int(axis)),
    "CumSum": lambda a, x, axis: torch.cumsum(x, int(axis)),
    "DFT": fourier,
    "DepthToSpace": lambda a, x: F.pixel_shuffle(x, a["blocksize"]),
    "Det": unary(torch.linalg.det),
    "Div": binary(torch.div),
    "Dropout": lambda a, x, *more: x,
    "Einsum": lambda a, *x: torch.einsum(a["equation"], *x),
    "Elu": lambda a, x: F.elu(x, a.get("alpha", 1.0)),
    "Expand": lambda a, x, shape: x * torch.ones(shape.tolist(), dtype=x.dtype),
    "Flatten": lambda a, x: x.reshape(int(np.prod(x.shape[: a.get("axis", 1)])), -1),
    "Gather": lambda a, x, i: torch.stack(
        [x.select(a.get("axis", 0), int(n)) for n in i.flatten()], a.get("axis", 0)
    ).reshape([*x.shape[: a.get("axis", 0)], *i.shape, *x.shape[a.get("axis", 0) + 1 :]]),
    "GatherElements": lambda a, x, i: torch.gather(
        x, a.get("axis", 0), i.long() % x.shape[a.get("axis", 0)]
    ),
    "Gelu": lambda a, x: F.gelu(x, approximate=a.get("approximate", "none")),
    "Gemm": multiplied,
    "GlobalAveragePool": lambda a, x: x.mean(list(range(2, x.ndim)), keepdim=True),
    "GlobalMaxPool": lambda a, x: x.amax(list(range(2, x.ndim)), keepdim=True),
    "GlobalLpPool": lambda a, x: x.abs().pow(a.get("p", 2)).sum(-1, True) ** (1 / a.get("p", 2)),
    "GridSample": sampled,
    "GroupNormalization": lambda a, x, w, b: F.group_norm(
        x, a["num_groups"], w, b, a.get("epsilon", 1e-5)
    ),
    "HardSigmoid": lambda a, x: torch.clamp(x * a.get("alpha", 0.2) + a.get("beta", 0.5), 0, 1),
    "HardSwish": unary(F.hardswish),
    "Identity": unary(torch.clone),
    "InstanceNormalization": lambda a, x, w, b: F.instance_norm(
        x, weight=w, bias=b, eps=a.get("epsilon", 1e-5)
    ),
    "LRN": lambda a, x: F.local_response_norm(
        x, a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0)
    ),
    "LayerNormalization": layer_normal,
    "LeakyRelu": lambda a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "LogSoftmax": lambda a, x: F.log_softmax(x, a.get("axis", -1)),
    "LpNormalization": lambda a, x: F.normalize(x, a.get("p", 2), a.get("axis", -1)),
    "LpPool": lambda a, x: F.lp_pool2d(x, a.get("p", 2), a["kernel_shape"], a.get("strides", 1)),
    "MatMul": binary(torch.matmul),
    "Max": folded(torch.maximum),
    "MaxPool": largest,
    "Mean": lambda a, *x: sum(x) / len(x),
    "Min": folded(torch.minimum),
    "Mish": unary(F.mish),
    "Mod": lambda a, x, y: (torch.fmod if a.get("fmod") else torch.remainder)(x, y),
    "Mul": binary(torch.mul),
    "NegativeLogLikelihoodLoss": loss,
    "PRelu": lambda a, x, s: torch.where(x > 0, x, x * s),
    "Pow": binary(torch.pow),
    "RMSNormalization": root_mean,
    "ReduceL1": reduced(lambda x, axes, kept: x.abs().sum(axes, kept)),
    "ReduceL2": reduced(lambda x, axes, kept: torch.linalg.vector_norm(x, 2, axes, kept)),
    "ReduceLogSum": reduced(lambda x, axes, kept: x.sum(axes, kept).log()),
    "ReduceLogSumExp": reduced(torch.logsumexp),
    "ReduceMax": reduced(torch.amax),
    "ReduceMean": reduced(torch.mean),
    "ReduceMin": reduced(torch.amin),
    "ReduceProd": reduced(lambda x, axes, kept: x.prod(axes[0], kept)),
    "ReduceSum": reduced(torch.sum),
    "ReduceSumSquare": reduced(lambda x, axes, kept: (x * x).sum(axes, kept)),
    "Reshape": lambda a, x, shape: x.reshape(
        [n or x.shape[i] for i, n in enumerate(shape.tolist())]
    ),
    "Resize": resized,
    "Selu": unary(F.selu),
    "ScatterElements": lambda a, x, i, u: torch.scatter(
        x, a.get("axis", 0), i.long() % x.shape[a.get("axis", 0)], u
    ),
    "Shrink": lambda a, x: F.hardshrink(x, a.get("lambd", 0.5)),
    "Softmax": lambda a, x: F.softmax(x, a.get("axis", -1)),
    "SoftmaxCrossEntropyLoss": cross_entropy,
    "Softplus": unary(F.softplus),
    "Softsign": unary(F.softsign),
    "Squeeze": lambda a, x, axes: x.squeeze(tuple(axes.tolist())),
    "Sub": binary(torch.sub),
    "Sum": lambda a, *x: sum(x),
    "Swish": unary(F.silu),
    "ThresholdedRelu": lambda a, x: F.threshold(x, a.get("alpha", 1.0), 0.0),
    "Tile": lambda a, x, n: x.tile(n.tolist()),
    "TopK": lambda a, x, k: torch.topk(x, int(k), a.get("axis", -1), bool(a.get("largest", 1)))[0],
    "Transpose": lambda a, x: x.permute(a.get("perm") or list(range(x.ndim))[::-1]),
    "Trilu": lambda a, x: torch.triu(x) if a.get("upper", 1) else torch.tril(x),
    "Unsqueeze": lambda a, x, axes: x[
        tuple(
            None if i in axes % (x.ndim + len(axes)) else slice(None)
            for i in range(x.ndim + len(axes))
        )
    ],
    "Where": lambda a, c, x, y: torch.where(c, x, y),
}
"""Operator -> (attributes, inputs) -> its first output in torch."""


def compared(name: str) -> float | None:
    """The largest relative difference from torch in a case; None where torch has no such operator."""
    model, arrays = cases()[name]
    node = model.graph.node[0]
    write = TORCH.get(node.op_type)
    if (
        write is None
        or name in UNDEFINED
        or len(model.graph.node) > 1
        or not is_float(model.graph.output[0])
    ):
        return None
    feeds = dict(zip((v.name for v in model.graph.input), map(np.asarray, arrays), strict=False))
    floats = [v.name for v in model.graph.input if v.name in feeds and is_float(v)]
    tensors = {
        n: torch.from_numpy(np.array(v, np.float64 if n in floats else None))
        for n, v in feeds.items()
    }
    for given in floats:
        tensors[given].requires_grad_()
    try:
        made = write(attributes_of(model), *(tensors.get(n) for n in node.input))
        right = ReferenceEvaluator(model).run([node.output[0]], feeds)[0]
        weights = np.asarray(np.random.default_rng(0).standard_normal(np.shape(right)))
        (made * torch.from_numpy(weights)).sum().backward()
    except Exception:  # torch has it for other attributes
        return None
    if made.shape != right.shape or not np.allclose(made.detach(), right, SAME, SAME):
        return None
    expected = {n: tensors[n].grad for n in floats if tensors[n].grad is not None}
    given = {name: feeds[name] for name in floats}
    constant = frozen(model, arrays)[0]
    return worst(constant, given, weights, {n: g.numpy() for n, g in expected.items()})


def attributes_of(model: ModelProto) -> dict[str, object]:
    """The attributes of the first node, text as text."""
    found = {a.name: helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
    return {n: v.decode() if isinstance(v, bytes) else v for n, v in found.items()}


def worst(
    model: ModelProto,
    feeds: Mapping[str, np.ndarray],
    weights: np.ndarray,
    expected: Mapping[str, np.ndarray],
) -> float | None:
    """The largest relative difference of the gradients from these; None if there are none."""
    typed = Model(shape_inference.infer_shapes(model, data_prop=True))
    of, found = model.graph.output[0], []
    for name, right in expected.items():
        try:
            edited = Gradient(of.name, (name,), vector="vector").apply(typed).model
            actual = run(edited, {**feeds, "vector": np.asarray(weights, dtype_of(of))})
        except (EditError, NotRun):
            continue
        if np.isfinite(right).all():
            size = max(float(np.abs(right).max(initial=0.0)), 1e-3)
            found.append(float(np.abs(actual - right).max(initial=0.0)) / size)
    return max(found, default=None)
