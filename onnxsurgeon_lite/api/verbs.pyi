"""Written by scripts/pages/stubs.py."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Unpack

import onnx_graphsurgeon as gs

from onnxsurgeon_lite.api.call import Limiting, Running
from onnxsurgeon_lite.matching.edit_result import EditResult
from onnxsurgeon_lite.model import Model, ModelLike
from onnxsurgeon_lite.passes.attribution import Method
from onnxsurgeon_lite.passes.protocol import AttributeValue
from onnxsurgeon_lite.surgery.constants import Numbers
from onnxsurgeon_lite.tensors.references import Tensors

class _Filled(Running, total=False):
    verify: bool
    unproved: bool
    feeds: Tensors | None
    seed: int
    dim: Mapping[str, int] | None

class _Edit(_Filled, total=False):
    fill: Mapping[str, str] | None

_Names = str | Sequence[str]

def add_constant(
    model: ModelLike, /, constants: Mapping[str, Numbers], dtype: str = "", **how: Unpack[_Edit]
) -> EditResult: ...
def annotate(
    model: ModelLike, /, target: str, entries: Mapping[str, str], **how: Unpack[_Edit]
) -> EditResult: ...
def append(
    model: ModelLike,
    /,
    what: str | Model,
    links: Mapping[str, str] = ...,
    share: _Names = (),
    prefix: str = "",
    keep: _Names = (),
    **how: Unpack[_Edit],
) -> EditResult: ...
def attribution(
    model: ModelLike,
    /,
    method: Method,
    target: int | str | None = None,
    of: str | None = None,
    to: str | None = None,
    steps: int | None = None,
    noise: float | str = 1.0,
    layer: str | None = None,
    **how: Unpack[_Edit],
) -> EditResult: ...
def batch_outputs(
    model: ModelLike,
    /,
    most: int,
    groups: Mapping[str, Sequence[str]] = ...,
    fill: Mapping[str, float] = ...,
    count: str = "num_detections",
    **how: Unpack[_Filled],
) -> EditResult: ...
def clean(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def cse(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def dedupe(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def dequantize(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def drop_layer(
    model: ModelLike, /, layer: int, stack: str | None = None, **how: Unpack[_Edit]
) -> EditResult: ...
def expose(
    model: ModelLike, /, values: _Names = (), all_values: bool = False, **how: Unpack[Limiting]
) -> EditResult: ...
def extract(
    model: ModelLike,
    /,
    inputs: _Names = (),
    outputs: _Names = (),
    auto_inputs: bool = False,
    part: _Names = (),
    **how: Unpack[Limiting],
) -> EditResult: ...
def fix(model: ModelLike, /, join: bool = False, **how: Unpack[_Edit]) -> EditResult: ...
def fold(model: ModelLike, /, limit: int = ..., **how: Unpack[_Edit]) -> EditResult: ...
def freeze(
    model: ModelLike,
    /,
    values: Mapping[str, Numbers | None] | Sequence[str],
    fold: bool = False,
    limit: int = ...,
    unroll: int = 0,
    **how: Unpack[_Edit],
) -> EditResult: ...
def fuse(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def gradient(
    model: ModelLike,
    /,
    of: str,
    to: _Names = (),
    wrt_weights: bool = False,
    vector: str | None = None,
    **how: Unpack[_Edit],
) -> EditResult: ...
def infer(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def inference(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def inline(model: ModelLike, /, functions: _Names = (), **how: Unpack[_Edit]) -> EditResult: ...
def insert(
    model: ModelLike,
    /,
    value: str,
    op_type: str,
    inputs: _Names = (),
    attributes: Mapping[str, AttributeValue] = ...,
    domain: str = "",
    to: _Names = (),
    before: bool = False,
    output: str | None = None,
    node_name: str = "",
    constants: Mapping[str, Numbers] = ...,
    **how: Unpack[_Edit],
) -> EditResult: ...
def name_outputs(model: ModelLike, /, names: _Names, **how: Unpack[_Edit]) -> EditResult: ...
def opset(model: ModelLike, /, version: int, **how: Unpack[_Edit]) -> EditResult: ...
def outline(
    model: ModelLike, /, scope: str, domain: str = "local", **how: Unpack[_Edit]
) -> EditResult: ...
def pad_outputs(
    model: ModelLike,
    /,
    most: int,
    outputs: _Names = (),
    fill: Mapping[str, float] = ...,
    count: str = "num_detections",
    **how: Unpack[_Filled],
) -> EditResult: ...
def prepend(
    model: ModelLike,
    /,
    what: str | Model,
    links: Mapping[str, str] = ...,
    share: _Names = (),
    **how: Unpack[_Edit],
) -> EditResult: ...
def promote(
    model: ModelLike, /, values: _Names, default: bool = False, **how: Unpack[_Edit]
) -> EditResult: ...
def rebatch(
    model: ModelLike,
    /,
    to: int | str = "N",
    inputs: _Names = (),
    axis: int = 0,
    second: ModelLike | None = None,
    **how: Unpack[_Edit],
) -> EditResult: ...
def remove(
    model: ModelLike, /, nodes: _Names, bridge: str | None = None, **how: Unpack[_Edit]
) -> EditResult: ...
def remove_input(model: ModelLike, /, inputs: _Names, **how: Unpack[_Edit]) -> EditResult: ...
def remove_output(model: ModelLike, /, outputs: _Names, **how: Unpack[_Edit]) -> EditResult: ...
def rename(
    model: ModelLike, /, names: Mapping[str, str], nodes: bool = False, **how: Unpack[_Edit]
) -> EditResult: ...
def reorder(
    model: ModelLike, /, inputs: _Names = (), outputs: _Names = (), **how: Unpack[_Edit]
) -> EditResult: ...
def replace(
    source: ModelLike,
    /,
    inputs: _Names,
    outputs: _Names,
    op_type: str = "",
    attributes: Mapping[str, AttributeValue] = ...,
    domain: str = "",
    node_name: str = "",
    model: ModelLike | None = None,
    **how: Unpack[_Edit],
) -> EditResult: ...
def rewire(
    model: ModelLike,
    /,
    old: str,
    new: str,
    to: _Names = (),
    slot: int | None = None,
    **how: Unpack[_Edit],
) -> EditResult: ...
def rewrite(
    model: ModelLike, /, rules: _Names, reverse: bool = False, **how: Unpack[_Edit]
) -> EditResult: ...
def script(
    model: ModelLike,
    /,
    edit: Callable[[gs.Graph], gs.Graph | None] | str | PathLike[str],
    **how: Unpack[_Edit],
) -> EditResult: ...
def set(
    model: ModelLike, /, fields: Mapping[str, str | int], target: str = "", **how: Unpack[_Edit]
) -> EditResult: ...
def set_attr(
    model: ModelLike,
    /,
    nodes: _Names,
    attributes: Mapping[str, AttributeValue] = ...,
    remove: _Names = (),
    **how: Unpack[_Edit],
) -> EditResult: ...
def set_constant(
    model: ModelLike, /, value: str, numbers: Numbers, to: _Names = (), **how: Unpack[_Edit]
) -> EditResult: ...
def set_layout(
    model: ModelLike, /, layouts: Mapping[str, str] = ..., **how: Unpack[_Edit]
) -> EditResult: ...
def set_op(
    model: ModelLike,
    /,
    nodes: _Names,
    op_type: str,
    domain: str | None = None,
    **how: Unpack[_Edit],
) -> EditResult: ...
def set_shape(
    model: ModelLike,
    /,
    shapes: Mapping[str, Sequence[int | str]] = ...,
    second: ModelLike | None = None,
    **how: Unpack[_Edit],
) -> EditResult: ...
def set_type(
    model: ModelLike, /, types: Mapping[str, str] = ..., inward: bool = False, **how: Unpack[_Edit]
) -> EditResult: ...
def simplify(
    model: ModelLike, /, limit: int = ..., without: _Names = (), **how: Unpack[_Edit]
) -> EditResult: ...
def skip_noops(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def sort(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def standardize(model: ModelLike, /, **how: Unpack[_Edit]) -> EditResult: ...
def unshare(model: ModelLike, /, initializers: _Names = (), **how: Unpack[_Edit]) -> EditResult: ...
