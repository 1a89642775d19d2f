"""Run onnxruntime's own quantizers, in a process of their own: `quantize_worker.py REQUEST.json`.

The request names the files of the float model, of the samples and of the result, and which nodes to quantize.
"""

import inspect
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
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


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asked: Request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    work = static if asked["calibrate"] else dynamic
    work(asked)
