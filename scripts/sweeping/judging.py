"""What is wrong with a result: compared with the model that it was made of, by onnx and onnxruntime alone."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from ml_dtypes import bfloat16
from onnx import ModelProto, TypeProto, ValueInfoProto, numpy_helper

from diet import Feeds, bodies, graphs

Values = dict[str, object]
_NO_RANK = "Field 'shape' of 'type' is required but missing"
_NO_KERNEL = (
    "NOT_IMPLEMENTED",
    "NotImplemented",
    "Could not find an implementation",
    "Type 'tensor(bfloat16)'",
    "data type is not supported",
    "Number of elements of input 'sizes' (0)",  # of a Resize: it takes an unknown rank for no elements
)
_NARROW = {"float16": 2e-2, "bfloat16": 1e-1, "float8_e4m3fn": 0.3, "float8_e5m2": 0.5}
_COUNTING = {"NonMaxSuppression", "NonZero", "Unique", "Compress"}
_RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
    "Dropout",
}


@dataclass
class Original:
    """A model that runs, with all its values on each of its feeds."""

    model: ModelProto
    valid: bool
    runs: list[tuple[Feeds, Values]]
    unstable: frozenset[str]

    @property
    def rounded(self) -> float:
        """What half precision on the way to an output costs: onnxruntime keeps float32 between some nodes."""
        types = {t.data_type for graph in graphs(self.model.graph) for t in graph.initializer}
        types |= {
            a.i
            for graph in graphs(self.model.graph)
            for n in graph.node
            for a in n.attribute
            if a.name == "to"
        }
        return 2e-2 if types & {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16} else 0.0

    @classmethod
    def of(cls, model: ModelProto, candidates: Iterable[Feeds]) -> "Original":
        """Run a model on the feeds that it accepts."""
        return cls(model, not invalid(model), *_runs(model, candidates))


def _runs(
    model: ModelProto, candidates: Iterable[Feeds]
) -> tuple[list[tuple[Feeds, Values]], frozenset[str]]:
    outputs = [each.name for each in model.graph.output]
    made = {name for node in model.graph.node for name in node.output if name}
    session = _opened(_exposing(model, made - set(outputs))) or _opened(model)
    runs = []
    unstable = set()
    for feeds in candidates if session else ():
        with contextlib.suppress(Exception):
            values = run(session, feeds)
            again = run(session, feeds)
            unstable |= {name for name in values if differs(values[name], again[name])}
            runs.append((feeds, values))
    if any(node.op_type in _RANDOM for graph in graphs(model.graph) for node in graph.node):
        unstable |= made
    return runs[:4], frozenset(unstable)


def _exposing(model: ModelProto, values: Iterable[str]) -> ModelProto:
    result = ModelProto()
    result.CopyFrom(model)
    for name in sorted(values):
        result.graph.output.add(name=name)
    return result


def _opened(model: ModelProto) -> onnxruntime.InferenceSession | None:
    with contextlib.suppress(Exception):
        return session_of(model)
    return None


def session_of(model: ModelProto) -> onnxruntime.InferenceSession:
    """Open a model as it is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(session: onnxruntime.InferenceSession, feeds: Feeds) -> Values:
    """Return every output."""
    names = [each.name for each in session.get_outputs()]
    known = {each.name for each in session.get_inputs()} | {
        each.name for each in session.get_overridable_initializers()
    }
    given = {name: _ort(value) for name, value in feeds.items() if name in known}
    if all(isinstance(value, onnxruntime.OrtValue) for value in given.values()):
        values = map(_numpy, session.run_with_ort_values(None, given))
    else:
        values = session.run(None, {name: feeds[name] for name in given})
    return dict(zip(names, values, strict=True))


def _ort(value: object) -> object:
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS":
        return value
    with contextlib.suppress(KeyError):
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        whole = np.array(value, order="C")  # a copy: a runtime may write into what it is fed with
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(whole, kind)
    return value


def _numpy(value: onnxruntime.OrtValue) -> object:
    return value.numpy() if value.has_value() else None


def invalid(model: ModelProto) -> str:
    """What onnx.checker says against a model, by types too; '' for nothing."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        if _NO_RANK in str(error):  # a rank may be unknown: ONNX allows it, its checker does not
            return ""
        return str(error).strip().splitlines()[0][:300] or type(error).__name__
    return ""


def differs(one: object, other: object, near: bool = False, rounded: float = 0.0) -> str:
    """Say how two values differ; '' if they do not, within what rounding may do.

    Args:
        rounded: what a float may be off, relative to the largest one, where half precision is on its way.
    """
    if one is None or other is None:
        return "" if one is other else "one is nothing"
    if isinstance(one, list) or isinstance(other, list):
        if not isinstance(one, list) or not isinstance(other, list) or len(one) != len(other):
            return "lists of other lengths"
        return next(
            (d for a, b in zip(one, other, strict=True) if (d := differs(a, b, near, rounded))), ""
        )
    if isinstance(one, dict):
        return "" if one == other else "other maps"
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape and (a.size or b.size or a.ndim != b.ndim):
        return f"shape {list(a.shape)} became {list(b.shape)}"
    if a.dtype != b.dtype:
        return f"{a.dtype} became {b.dtype}"
    if not a.size:
        return ""
    if a.dtype.kind in "OUSb":
        unequal = int(np.sum(a != b))
        return f"{unequal} of {a.size} differ" if unequal > (a.size // 2 if near else 0) else ""
    return _numbers(a, b, near, rounded)


def _numbers(a: np.ndarray, b: np.ndarray, near: bool, rounded: float) -> str:
    allowed = _NARROW.get(a.dtype.name, 0 if a.dtype.kind in "iu" else max(1e-3, rounded))
    if near:
        allowed = max(allowed, 0.1)
    with np.errstate(all="ignore"):
        x, y = (
            np.asarray(each).astype(np.complex128 if a.dtype.kind == "c" else np.float64)
            for each in (a, b)
        )
        finite = np.isfinite(x) & np.isfinite(y)
        if not near and not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            return f"{int(np.sum(~finite))} are not finite"
        if not finite.any():
            return ""
        error = np.abs(x - y)[finite].max()
        largest = np.abs(x[finite]).max()
    return (
        f"{a.dtype}: off by {error:.3g} of {largest:.3g}"
        if error > allowed * max(largest, 1e-6) + near
        else ""
    )


@dataclass(frozen=True)
class Judgement:
    """What is wrong with a result, by kind; and whether it is another model at all."""

    changed: bool = False
    wrong: str = ""
    invalid: str = ""
    lost: str = ""


def judge(original: Original, result: ModelProto, expect: frozenset[str]) -> Judgement:
    """Ask a result everything."""
    model = original.model
    changed = result.SerializeToString(deterministic=True) != model.SerializeToString(
        deterministic=True
    )
    if not changed:
        return Judgement()
    lost = "; ".join(list(losses(model, result, expect))[:4])
    bad = invalid(result) if original.valid else ""
    if "runtime" in expect and bad.startswith("No Op registered for"):
        bad = ""
    bad = bad or twice_named(model, result)
    wrong = ""
    if "trains" in expect and _trains(model):
        return Judgement(True, "", bad, lost)
    if not bad and original.runs:
        wrong, bad = outcome(original, result, expect)
    return Judgement(True, wrong, bad, lost)


def _trains(model: ModelProto) -> bool:
    """Whether a normalization or a dropout may be in training mode, as an input says for all that is known."""
    nodes = [node for graph in graphs(model.graph) for node in graph.node]
    modes = {a.i for n in nodes for a in n.attribute if a.name == "training_mode"}
    return 1 in modes or any(n.op_type == "Dropout" and len(n.input) > 2 for n in nodes)


def outcome(original: Original, result: ModelProto, expect: frozenset[str]) -> tuple[str, str]:
    """Run a result on what the model was run on; return what is wrong, and why it does not run."""
    try:
        session = session_of(result)
    except Exception as error:
        return "", "" if _unsupported(error) else f"is not loaded: {_line(error)}"
    for feeds, values in original.runs[: 1 if "once" in expect else None]:
        feeds, values = _rounded(original, feeds, values, "near" in expect)
        given, known = _expected(original, result, feeds, values, expect)
        try:
            found = run(session, given)
        except Exception as error:
            return "", "" if _unsupported(error) else f"does not run: {_line(error)}"
        for name, value in found.items():
            if name not in known:
                continue
            wanted = known[name]
            if "retyped" in expect:
                wanted = _cast_as(wanted, value)
            problem = differs(wanted, value, "near" in expect, original.rounded)
            if problem and not _meant(problem, original.model, expect):
                return f"{name!r}: {problem}", ""
    return "", ""


def _meant(problem: str, model: ModelProto, expect: frozenset[str]) -> bool:
    """Whether a verb may do this to a value."""
    if "shape" in problem:  # how many there are may depend on rounded numbers
        return "padded" in expect or ("near" in expect and _counts(model))
    return "shallower" in expect and "became" not in problem


def _rounded(original: Original, feeds: Feeds, values: Values, near: bool) -> tuple[Feeds, Values]:
    """Run a model on feeds that both kinds of half precision hold: what rounding them does is no fault of a verb."""
    if not near:
        return feeds, values
    floats = {n: v for n, v in feeds.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"}
    held = {n: v.astype(bfloat16).astype(np.float16).astype(v.dtype) for n, v in floats.items()}
    if any(np.isinf(held[n]).any() and np.isfinite(v).all() for n, v in floats.items()):
        return feeds, values
    with contextlib.suppress(Exception):
        return {**feeds, **held}, {**values, **run(session_of(original.model), {**feeds, **held})}
    return feeds, values


def _counts(model: ModelProto) -> bool:
    return any(n.op_type in _COUNTING for graph in graphs(model.graph) for n in graph.node)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _unsupported(error: Exception) -> bool:
    return any(word in str(error) for word in _NO_KERNEL)


def _expected(
    original: Original, result: ModelProto, feeds: Feeds, values: Values, expect: frozenset[str]
) -> tuple[Feeds, Values]:
    """Return what the result is fed with, and what its values are then."""
    model = original.model
    weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    pool: Values = {**feeds, **values}
    values = {name: value for name, value in values.items() if name not in original.unstable}
    known: Values = dict(values)
    if "by-position" in expect:
        for one, other in zip(model.graph.input, result.graph.input, strict=False):
            if one.name in pool:
                pool[other.name] = pool[one.name]
        for one, other in zip(model.graph.output, result.graph.output, strict=False):
            if one.name in values:
                known[other.name] = values[one.name]
    if "twice" in expect:
        known |= {f"b/{name}": value for name, value in values.items()}
        pool |= {f"b/{name}": value for name, value in feeds.items()}
    turned = _turned(model, result)
    given = {
        each.name: _fed(
            each, pool.get(each.name, weights.get(each.name)), expect, each.name in turned
        )
        for each in result.graph.input
        if each.name in pool or each.name in weights
    }
    return given, known


def _fed(declared: ValueInfoProto, value: object, expect: frozenset[str], turned: bool) -> object:
    """Return what an input of the result is fed with."""
    if not isinstance(value, np.ndarray):
        return value
    if "NHWC" in expect and turned:
        return np.moveaxis(value, 1, -1)
    if "retyped" in expect and value.dtype.kind not in "OUS":
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.type.tensor_type.elem_type)
        return value.astype(dtype)
    return value


def _turned(model: ModelProto, result: ModelProto) -> set[str]:
    """Return the inputs that have another declared type, or that a new Transpose reads."""
    old = {(*node.input, *node.output) for node in model.graph.node}
    new = [node for node in result.graph.node if (*node.input, *node.output) not in old]
    types = {each.name: each.type for each in model.graph.input}
    retyped = {each.name for each in result.graph.input if types.get(each.name) != each.type}
    return retyped.union(*(node.input for node in new if node.op_type == "Transpose"))


def _cast_as(wanted: object, value: object) -> object:
    both = isinstance(wanted, np.ndarray) and isinstance(value, np.ndarray)
    floats = both and {wanted.dtype.kind, value.dtype.kind} <= {"f", "V", "i", "u", "b"}
    return wanted.astype(value.dtype) if floats else wanted


def twice_named(model: ModelProto, result: ModelProto) -> str:
    """Say which name two nodes have that no two had in the model."""
    before, after = (
        Counter(node.name for graph in graphs(each.graph) for node in graph.node if node.name)
        for each in (model, result)
    )
    found = [name for name, count in after.items() if count > max(1, before[name])]
    return f"{len(found)} names of two nodes: {found[0]!r}" if found else ""


def losses(model: ModelProto, result: ModelProto, expect: frozenset[str]) -> Iterator[str]:
    """Yield what of the model the result lost, though no edit of the kind touches it."""
    if "back" in expect:
        yield from _not_back(model, result)
        return
    # layers behind one that is gone have other numbers in their names
    renamed = bool(expect & {"by-position", "shallower"})
    may_remove = bool(expect & {"removes", "by-position"})
    further = may_remove or "twice" in expect
    yield from _lost_fields("the model", _header(model, further), _header(result, further))
    yield from _lost_fields("the graph", _plain_graph(model), _plain_graph(result))
    if not may_remove:
        domains = {each.domain for each in result.opset_import}
        yield from (f"import {e.domain!r}" for e in model.opset_import if e.domain not in domains)
        functions = {(f.domain, f.name, f.overload) for f in result.functions}
        yield from (
            f"function {f.name!r}"
            for f in model.functions
            if (f.domain, f.name, f.overload) not in functions
        )
    if renamed:
        return
    computed = _constant(model) if "resized" in expect else set()
    yield from _lost_nodes(model, result, may_remove, computed)
    yield from _lost_declarations(model, result, expect)
    yield from _lost_weights(model, result, may_remove or "resized" in expect)


def _header(model: ModelProto, may_remove: bool) -> ModelProto:
    plain = ModelProto()
    plain.CopyFrom(model)
    inner = ("graph", "functions", "opset_import", "ir_version")
    for name in (*inner, "training_info") if may_remove else inner:
        plain.ClearField(name)
    return plain


def _plain_graph(model: ModelProto) -> onnx.GraphProto:
    plain = onnx.GraphProto()
    plain.CopyFrom(model.graph)
    for name in (
        "node",
        "initializer",
        "sparse_initializer",
        "input",
        "output",
        "value_info",
        "quantization_annotation",
        "name",
    ):
        plain.ClearField(name)
    return plain


def _lost_fields(what: str, before: object, after: object) -> Iterator[str]:
    """Yield the fields of a message that another one lacks; entries of metadata may be added."""
    if before == after:
        return
    for field, value in before.ListFields():
        other = getattr(after, field.name)
        if field.name == "metadata_props":
            entries = {each.key: each.value for each in other}
            if any(entries.get(each.key) != each.value for each in value):
                yield f"metadata of {what}"
        elif not _same(value, other):
            yield f"{field.name} of {what}"
    if _unknown(before) - _unknown(after):
        yield f"unknown fields of {what}"


def _same(one: object, other: object) -> bool:
    repeated = hasattr(one, "extend")
    return list(one) == list(other) if repeated else one == other


def _unknown(message: object) -> set[tuple[int, object]]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    return {
        (each.field_number, each.data)
        for each in UnknownFieldSet(message)
        if isinstance(each.data, (bytes, int))
    }


def _nodes(model: ModelProto) -> dict[tuple[str, ...], onnx.NodeProto]:
    """Nodes by operator and outputs, in bodies and functions too; the first of several."""
    found: dict[tuple[str, ...], onnx.NodeProto] = {}
    lists = [("", graph.node) for graph in graphs(model.graph)]
    for function in model.functions:
        lists.append((f"{function.domain}:{function.name}:{function.overload}", function.node))
        inner = [g for node in function.node for body in bodies(node) for g in graphs(body)]
        lists += [(f"{function.domain}:{function.name}:{function.overload}", g.node) for g in inner]
    for where, nodes in lists:
        for node in nodes:
            found.setdefault((where, node.domain, node.op_type, *node.output), node)
    return found


def _constant(model: ModelProto) -> set[str]:
    """Return the values that depend on no input: a shape that is computed now takes the place of some."""
    known = {each.name for each in model.graph.initializer} | {""}
    for node in model.graph.node:
        if known.issuperset(node.input) and not list(bodies(node)):
            known.update(node.output)
    return known


def _lost_nodes(
    model: ModelProto, result: ModelProto, may_remove: bool, constant: set[str]
) -> Iterator[str]:
    after = _nodes(result)
    marked: dict[tuple[str, str], list[onnx.NodeProto]] = defaultdict(list)
    for node in after.values():
        marked[node.op_type, _mark(node)].append(node)
    for key, node in _nodes(model).items():
        kept = after.get(key)
        if kept is None:
            if may_remove or constant.issuperset(node.output):
                continue
            if not any(name in out for out in after for name in node.output):
                yield f"node {node.op_type} that makes {list(node.output)}"
            continue
        if may_remove and _mark(kept) not in ("", _mark(node)):  # another node makes this value now
            continue
        candidates = [kept, *marked[node.op_type, _mark(node)]]
        what = f"node {node.op_type} {node.name!r}"
        found = [list(_lost_fields(what, _bare(node), _bare(each))) for each in candidates]
        yield from min(found, key=len)


def _mark(node: onnx.NodeProto) -> str:
    return next((each.value for each in node.metadata_props if each.key == "sweep"), "")


def _bare(node: onnx.NodeProto) -> onnx.NodeProto:
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    for name in ("input", "output", "attribute", "name"):
        plain.ClearField(name)
    return plain


def _lost_declarations(
    model: ModelProto, result: ModelProto, expect: frozenset[str]
) -> Iterator[str]:
    graph = result.graph
    after = {each.name: each for each in [*graph.value_info, *graph.output, *graph.input]}
    made = {name for node in graph.node for name in node.output}
    weights = {each.name for each in graph.initializer}
    own = {each.name: each.data_type for each in model.graph.initializer}
    for kind in ("input", "output", "value_info"):
        for each in getattr(model.graph, kind):
            kept = after.get(each.name)
            if kept is None:
                if each.name in made and kind == "value_info" and each.name not in weights:
                    yield f"declaration of {each.name!r}"
                continue
            before, now = ValueInfoProto(), ValueInfoProto()
            before.CopyFrom(each)
            now.CopyFrom(kept)
            before.ClearField("type")
            now.ClearField("type")
            yield from _lost_fields(f"{kind} {each.name!r}", before, now)
            # what the model's own initializer contradicts says nothing that could be lost
            dtype = each.type.tensor_type.elem_type
            if own.get(each.name, dtype) != dtype:
                continue
            if not expect & {"retyped", "resized", "padded"} and not refines(each.type, kept.type):
                yield f"type of {kind} {each.name!r}"


def refines(before: TypeProto, after: TypeProto) -> bool:
    """Whether a declared type says all that another did."""
    kind = before.WhichOneof("value")
    if kind is None:
        return True
    if kind != after.WhichOneof("value"):
        return False
    if kind != "tensor_type":
        return True
    one, other = before.tensor_type, after.tensor_type
    if one.elem_type != other.elem_type:
        return False
    if not one.HasField("shape"):
        return True
    if not other.HasField("shape") or len(one.shape.dim) != len(other.shape.dim):
        return False
    pairs = zip(one.shape.dim, other.shape.dim, strict=True)
    return all(
        not a.HasField("dim_value") or a.dim_value < 0 or a.dim_value == b.dim_value
        for a, b in pairs
    )


def _lost_weights(model: ModelProto, result: ModelProto, may_remove: bool) -> Iterator[str]:
    after = {each.name: each for each in result.graph.initializer}
    inputs = {each.name for each in result.graph.input}
    for each in model.graph.initializer:
        kept = after.get(each.name)
        if kept is None:
            if not may_remove and each.name not in inputs:
                yield f"weight {each.name!r}"
            continue
        if kept.data_type == each.data_type:
            yield from _lost_fields(f"weight {each.name!r}", _undata(each), _undata(kept))


def _undata(tensor: onnx.TensorProto) -> onnx.TensorProto:
    plain = onnx.TensorProto()
    plain.CopyFrom(tensor)
    for field, _ in tensor.ListFields():
        if field.name.endswith("_data") or field.name in ("data_location", "dims", "data_type"):
            plain.ClearField(field.name)
    return plain


def _not_back(model: ModelProto, result: ModelProto) -> Iterator[str]:
    """Yield where a result is not the model; the order of declarations is free."""
    one, other = _settled(model), _settled(result)
    if one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True):
        return
    yield from _lost_fields("the model", _header(one, False), _header(other, False))
    names = [field.name for field in onnx.GraphProto.DESCRIPTOR.fields]
    for name in names:
        before, after = getattr(one.graph, name), getattr(other.graph, name)
        if _same(before, after):
            continue
        yield f"{name} is not as it was" + _first(before, after)
    if list(one.functions) != list(other.functions):
        yield "functions are not as they were"


def _first(before: object, after: object) -> str:
    if isinstance(before, str) or not hasattr(before, "extend"):
        return ""
    for one, other in zip(before, after, strict=False):
        if one != other:
            return (
                f": {' '.join(str(one).split())[:200]} became {' '.join(str(other).split())[:200]}"
            )
    return f": {len(before)} became {len(after)}"


def _settled(model: ModelProto) -> ModelProto:
    result = ModelProto()
    result.CopyFrom(model)
    for name in ("value_info", "initializer", "quantization_annotation"):
        repeated = getattr(result.graph, name)
        ordered = sorted(repeated, key=lambda each: each.SerializeToString(deterministic=True))
        del repeated[:]
        repeated.extend(ordered)
    for tensor in result.graph.initializer:
        if tensor.data_location == onnx.TensorProto.DEFAULT:
            tensor.ClearField("data_location")
        numbers = (
            numpy_helper.to_array(tensor) if tensor.data_type != onnx.TensorProto.STRING else None
        )
        if numbers is not None and not tensor.external_data:
            for field, _ in tensor.ListFields():
                if field.name.endswith("_data"):
                    tensor.ClearField(field.name)
            tensor.raw_data = numbers.tobytes()
    return result
