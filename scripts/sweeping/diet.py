"""Models to sweep, each with feeds: the onnx package's own cases, their open variants, and folders of models."""

import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from seeds import seeds

Feeds = dict[str, object]
"""Arrays by input; lists of arrays for sequences, None for an optional without a value."""
UNKNOWN = b"\xba\x3e\x03abc"  # field 999


@dataclass(frozen=True)
class Case:
    """A model and the feeds that came with it, if any."""

    name: str
    model: ModelProto
    feeds: tuple[Feeds, ...] = ()


def cases(folders: list[Path], backend: bool) -> list[Case]:
    """Return every model of the folders; without folders, or besides, the onnx package's cases with variants."""
    stored = [*small(), *(case for folder in folders for case in _stored(folder))]
    if folders and not backend:
        return stored
    given = [*_nodes(), *_packaged()]
    variants = [
        replace(case, name=f"{case.name}-{_OPEN[number % 3]}", model=opened(case.model, number % 3))
        for number, case in enumerate(given)
        if number % 4 == 0
    ]
    return [*given, *variants, *stored]


_OPEN = ("symbols", "unnamed", "rankless")


@functools.cache
def _nodes() -> tuple[Case, ...]:
    """The onnx package's node cases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return tuple(_node_case(each) for each in collect_testcases(None))


def _node_case(case: object) -> Case:
    model: ModelProto = case.model
    names = [each.name for each in model.graph.input]
    sets = case.data_sets or []
    feeds = tuple(dict(zip(names, map(_value, values), strict=False)) for values, _ in sets)
    return Case(case.name, model, feeds)


def _value(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, list):
        return [np.asarray(each) for each in value]
    return np.asarray(value)


def _packaged() -> Iterator[Case]:
    """The onnx package's other cases, which are files; those of large networks are left out."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for path in sorted((data / kind).glob("*/model.onnx")):
            model = onnx.load(path)
            feeds = tuple(_test_data(model, each) for each in sorted(path.parent.glob("test_data_set_*")))  # fmt: skip
            yield Case(f"{kind}-{path.parent.name}", model, feeds)


def _test_data(model: ModelProto, folder: Path) -> Feeds:
    found: Feeds = {}
    for declared, path in zip(model.graph.input, sorted(folder.glob("input_*.pb")), strict=False):
        data = path.read_bytes()
        if declared.type.HasField("tensor_type"):
            found[declared.name] = numpy_helper.to_array(TensorProto.FromString(data))
        elif declared.type.HasField("sequence_type"):
            found[declared.name] = numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        else:
            found[declared.name] = numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return found


def _stored(folder: Path) -> Iterator[Case]:
    """The models of a folder; `a.npz` beside `a.onnx` has its feeds."""
    for path in sorted(folder.rglob("*.onnx")):
        feeds = path.with_suffix(".npz")
        given = ({name: array for name, array in np.load(feeds).items()},) if feeds.exists() else ()
        name = str(path.relative_to(folder)).removesuffix(".onnx")
        yield Case(name, onnx.load(path), given)


_TEXTS = {
    "scalar": """g (float x) => (float y) <int64[0] none = {}> {
        a = Reshape(x, none) b = Expand(a, none) y = Relu(b) }""",
    "rankless": """g (float x) => (float y) <int64[1] one = {1}> { a = Reshape(x, one) y = Relu(a) }""",
    "symbols": """g (float[N,4] x, float[N,4] z) => (float[N,4] y) <float[4] w = {1,2,3,4}> {
        a = Add(x, w) b = Identity(a) c = Neg(b) d = Add(c, z) s = Shape(d) e = Reshape(d, s) y = Softmax(e) }""",
    "half": """g (float16[2,3] x) => (float16[2,3] y) { a = Neg(x) b = Clip(a) y = Exp(b) }""",
    "quantized": """g (float[2,4] x) => (float[2,4] y) <float s = {0.05}, int8 z = {1}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) n = Neg(d)
        e = QuantizeLinear(n, s, z) f = DequantizeLinear(e, s, z) y = Relu(f) }""",
    "dynamic": """g (float[2,4] x) => (float[2,3] y)
        <int8[4,3] w = {1,-2,3,4,5,-6,7,8,9,1,2,3}, int8 wz = {0}, float ws = {0.1}> {
        q, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, z, wz) f = Cast<to = 1>(i) t = Mul(s, ws)
        y = Mul(f, t) }""",
    "shadowed": """g (float[2] x, bool c) => (float[2] y) { h = Relu(x) k = Neg(h)
        y = If (c) <then_branch = t () => (float[2] h) { a = Neg(k) h = Abs(a) },
                    else_branch = e () => (float[2] b) { a = Exp(k) b = Abs(a) }> }""",
    "scan": """g (float[2] x, float[3,2] xs) => (float[2] y, float[3,2] all) {
        y, all = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] t, float[2] u)
            { t = Add(s, e) u = Identity(t) }> (x, xs) }""",
    "split": """g (float[4,2] x) => (float[n,2] y) <int64[2] sizes = {3,1}, int64 zero = {0}, int64 one = {1}> {
        s = SplitToSequence<axis = 0>(x, sizes) a = SequenceAt(s, zero) b = SequenceAt(s, one)
        c = Relu(a) y = Add(c, b) }""",
    "optional": """g (float[2] x) => (float[2] y) { o = Optional(x) g = OptionalGetElement(o) y = Relu(g) }""",
    "sequences": """g (float[2] x) => (seq(float[2]) y) { a = Relu(x) y = SequenceConstruct(a, x) }""",
    "optionals": """g (float[2] x) => (optional(float[2]) y) { a = Relu(x) y = Optional(a) }""",
    "optional-sequences": """g (float[2] x) => (optional(seq(float[2])) y) {
        a = Relu(x) s = SequenceConstruct(a, x) y = Optional(s) }""",
    "inner-sequences": """g (float[2] x) => (float[2] y) <int64 one = {1}> {
        a = Relu(x) s = SequenceConstruct(a, x) t = SequenceInsert(s, a, one) b = SequenceAt(t, one) y = Neg(b) }""",
    "conv": """g (float[1,2,4,4] x) => (float[1,3,4,4] y)
        <float[3,2,1,1] w = {1,2,3,4,5,6}, float[3] b = {1,2,3}, float[3] v = {1,1,2}> {
        c = Conv(x, w) n = BatchNormalization(c, b, b, b, v) r = Relu(n) y = Add(r, r) }""",
}  # fmt: skip


def small() -> list[Case]:
    """Return models of a few nodes that have what verbs stumble over, also as older files have it."""
    texts = {
        name: f'<ir_version: 10, opset_import: ["" : 21]> {text}' for name, text in _TEXTS.items()
    }
    texts[
        "ir3"
    ] = """<ir_version: 3, opset_import: ["" : 8]> g (float[2,2] x, float[2,2] w) => (float[2,2] y)
        <float[2,2] w = {1,2,3,4}> { a = MatMul(x, w) b = Add(w, w) c = Add(a, b) y = Dropout(c) }"""
    models = {name: onnx.parser.parse_model(text) for name, text in texts.items()}
    models["rankless"].graph.input[0].type.tensor_type.ClearField("shape")
    models["rankless"].graph.output[0].type.tensor_type.ClearField("shape")
    models |= {f"seed-{name}": ModelProto.FromString(data) for name, data in seeds().items()}
    return [Case(name, model) for name, model in models.items()]


def opened(model: ModelProto, how: int) -> ModelProto:
    """Return the model with sizes that are named (equal ones alike), unknown, or with unknown ranks."""
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.value_info[:]
    weights = {each.name for each in result.graph.initializer}
    for declared in [*result.graph.input, *result.graph.output]:
        kind = declared.type.tensor_type
        if declared.name in weights or not kind.HasField("shape"):
            continue
        if how == 2:
            kind.ClearField("shape")
            continue
        for dim in kind.shape.dim:
            size = dim.dim_value
            dim.Clear()
            if how == 0:
                dim.dim_param = f"n{size}"
    return result


def decorated(model: ModelProto, named: bool) -> ModelProto:
    """Return the model with a doc, metadata and a field of the future on each message that has them."""
    result = ModelProto()
    result.CopyFrom(model)
    for number, message in enumerate(_messages(result)):
        message.doc_string = message.doc_string or f"doc {number}"
        message.metadata_props.add(key="sweep", value=str(number))
        message.MergeFromString(UNKNOWN)
        if named and isinstance(message, onnx.NodeProto):
            message.name = f"/layer.{number % 3}/{message.op_type}_{number}"
    result.producer_name = result.producer_name or "maker"
    result.metadata_props.add(key="sweep", value="model")
    result.MergeFromString(UNKNOWN)
    return result


def _messages(model: ModelProto) -> Iterator[onnx.NodeProto | ValueInfoProto | TensorProto]:
    for graph in graphs(model.graph):
        yield from (
            graph,
            *graph.node,
            *graph.value_info,
            *graph.input,
            *graph.output,
            *graph.initializer,
        )
    for function in model.functions:
        yield function
        for node in function.node:
            yield node
            for body in bodies(node):
                for graph in graphs(body):
                    yield from graph.node


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and those of its nodes, from the outside in."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs(body)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that a node's attributes hold."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def feeds_for(case: Case) -> Iterator[Feeds]:
    """Yield the feeds that came with a case, or made ones; then those of other sizes, and of another rank."""
    base = case.feeds or (_made(case.model),)
    yield from base[:2]
    declared = {each.name: each.type for each in case.model.graph.input}
    if not any(map(_open, declared.values())):
        return
    for change in (lambda size: size + 1, lambda size: 2 * size + 1 if size > 1 else 1):
        yield {name: _resized(array, declared[name], change) for name, array in base[0].items()}
    yield {name: _other_rank(array, declared[name]) for name, array in base[0].items()}


def _open(kind: TypeProto) -> bool:
    if not kind.HasField("tensor_type"):
        return False
    tensor = kind.tensor_type
    return not tensor.HasField("shape") or any(
        not d.HasField("dim_value") for d in tensor.shape.dim
    )


def _resized(array: object, kind: TypeProto, change: object) -> object:
    if not isinstance(array, np.ndarray) or not _open(kind):
        return array
    # axes, sizes, indices: repeated, they are others
    if array.dtype.kind in "iu" and array.ndim <= 1:
        return array
    dims = kind.tensor_type.shape.dim
    shape = [
        size if dims and dims[axis].HasField("dim_value") else change(size)
        for axis, size in enumerate(array.shape)
    ]
    return np.resize(array, shape)


def _other_rank(array: object, kind: TypeProto) -> object:
    rankless = kind.HasField("tensor_type") and not kind.tensor_type.HasField("shape")
    return np.stack([array, array]) if isinstance(array, np.ndarray) and rankless else array


def _made(model: ModelProto) -> Feeds:
    draw = np.random.default_rng(0)
    weights = {each.name for each in model.graph.initializer}
    sizes: dict[str, int] = {}
    found: Feeds = {}
    for each in model.graph.input:
        if each.name in weights or not each.type.HasField("tensor_type"):
            continue
        shape = [
            d.dim_value
            if d.HasField("dim_value")
            else sizes.setdefault(d.dim_param, len(sizes) + 2)
            for d in each.type.tensor_type.shape.dim
        ]
        dtype = helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
        floats = dtype.kind == "f" or dtype.name == "bfloat16"
        numbers = draw.normal(size=shape) if floats else draw.integers(0, 2, shape)
        found[each.name] = np.asarray(numbers).astype(dtype)
    return found
