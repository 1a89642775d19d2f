"""Run onnxruntime's own quantizers, in a process of their own: `quantize_worker.py REQUEST.json`.

The request names the files of the float model, of the samples and of the result, and which nodes to quantize.
"""

import inspect
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from onnx import numpy_helper
from onnxruntime import quantization

Request = dict[str, Any]


class CalibrationSamples(quantization.CalibrationDataReader):  # type: ignore[misc]
    """The feeds of each sample, once."""

    def __init__(self, paths: list[str]) -> None:
        self._feeds: Iterator[dict[str, Any]] = ({**np.load(path)} for path in paths)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def static(request: Request) -> None:
    """Quantize weights and activations, with ranges from the samples; in the QDQ format."""
    cache = {"calibration_cache_path": request["cache"]}
    # older versions of the tool have no cache
    known = inspect.signature(quantization.quantize_static).parameters
    quantization.quantize_static(
        request["model"],
        request["result"],
        CalibrationSamples(request["samples"]),
        nodes_to_quantize=request["nodes"],
        per_channel=request["channels"],
        calibrate_method=quantization.CalibrationMethod[request["calibrate"]],
        **{name: value for name, value in cache.items() if name in known},
    )


def dynamic(request: Request) -> None:
    """Quantize weights; activations at each run."""
    quantization.quantize_dynamic(
        request["model"], request["result"], nodes_to_quantize=request["nodes"]
    )


def blocked(request: Request) -> None:
    """Quantize the weights of MatMul in blocks, first those of one width, then those of the next."""
    # The tool reads and writes tensors by onnx_ir, which nothing installs with onnxruntime. onnx does the same.
    tensors: Any = SimpleNamespace(
        from_proto=lambda proto: SimpleNamespace(numpy=lambda: numpy_helper.to_array(proto)),
        Tensor=numpy_helper.from_array,
        serde=SimpleNamespace(serialize_tensor=lambda proto: proto),
    )
    sys.modules["onnx_ir"] = tensors
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    model, widths = request["model"], request["widths"]
    for bits in set(widths.values()) - {0}:
        quantizer = MatMulNBitsQuantizer(
            model,
            block_size=32,
            is_symmetric=request["symmetric"],
            nodes_to_exclude=[name for name, own in widths.items() if own != bits],
            # older versions of the tool have 4 bits alone
            **({} if bits == 4 else {"bits": bits}),
        )
        quantizer.process()
        model = quantizer.model.model
    quantizer.model.save_model_to_file(request["result"])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asked: Request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    work = blocked if asked["widths"] else static if asked["calibrate"] else dynamic
    work(asked)
