"""Older versions of onnxruntime, and a model that one of them computes wrongly."""

import contextlib
from collections.abc import Iterator

import pytest

from kit import ROOT

POOLED = """<ir_version: 9, opset_import: ["" : 19]>
pooled (float[1,2,8,8] x) => (float[1,2,H,W] y) {
    a = Relu(x)
    p = AveragePool<kernel_shape = [3,3], strides = [2,2], ceil_mode = 1, count_include_pad = 1>(a)
    y = Neg(p)
}"""
"""Wrong in onnxruntime 1.20.1: with `ceil_mode` it divides by what lies outside of the padding, too."""


@contextlib.contextmanager
def versions_kept() -> Iterator[None]:
    """Keep the environments of versions in a folder of the project."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(ROOT / ".venv-versions"))
        yield
