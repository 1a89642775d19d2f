"""Check each gradient rule against central differences in float64, on the operator cases of the onnx package."""

import contextlib
import functools
import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto, defs, helper, parser, shape_inference
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.passes import Gradient
from onnxsurgeon_lite.surgery.gradients.expansion import expanded
from onnxsurgeon_lite.surgery.gradients.rules import ZERO
from onnxsurgeon_lite.surgery.gradients.tape import Names, Tape
from onnxsurgeon_lite.tensors.dtypes import from_array

STEP, WIDE_STEP = 1e-5, 1e-2  # of central differences in float64 and float32
NEWEST = 23  # opset
LEAST = 1e-3  # a smaller derivative of a saturated operator is rounding
DEPRECATED = {"Scatter", "Upsample"}
BODIES = {"If", "Loop", "Scan", "SequenceMap"}
PLAIN = {"Range"}  # the evaluator makes columns of the function's Loop
BY_RUNTIME = {"LpNormalization"}  # the evaluator's norm of order 1 has no absolute values
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)

Array = NDArray[np.generic]
Evaluate = Callable[[Mapping[str, Array]], Sequence[Array]]
PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "gradients.md"
HEAD = "| operator | gradient | checked to | cases |\n|---|---|---|---|\n"


@dataclass
class Checked:
    """How the gradient of an operator compares with central differences.

    Attributes:
        worst: the largest relative difference of a directional derivative. cases: how many were compared.
        refused: what the edit said where there is no gradient.
    """

    worst: float = 0.0
    cases: int = 0
    refused: list[str] = field(default_factory=list)


SEQUENCE = """m (float[2,6] x, float[2,3] z) => (float[2,?] y) {
    parts = SplitToSequence <axis = 1> (x, three)
    more = SequenceInsert (parts, z, one)
    two = SequenceErase (more, one)
    all = SequenceConstruct (z, z)
    first = SequenceAt (more, zero)
    last = SequenceAt (two, minus)
    left = ConcatFromSequence <axis = 1> (more)
    right = ConcatFromSequence <axis = 0, new_axis = 1> (all)
    flat = ReduceSum <keepdims = 0> (right, zeros)
    s = Mul (first, last)
    t = Mul (flat, s)
    y = Concat <axis = 1> (left, t)
}"""
ONE = """m (float[2,3] x) => ({dtype}[2,3] y) {{ y = {node} }}"""
OWN = {
    "Cast": ONE.format(dtype="double", node="Cast <to = 11> (x)"),
    "CastLike": "m (float[2,3] x, double[1] z) => (double[2,3] y) { y = CastLike (x, z) }",
    "GlobalLpPool": "m (float[2,3,4] x) => (float[2,3,1] y) { y = GlobalLpPool <p = 3> (x) }",
    "If": """m (float[2,3] x, bool c) => (float[2,3] y) { y = If (c) <
        then_branch = t () => (float[2,3] a) { s = Sin (x) a = Mul (s, x) },
        else_branch = e () => (float[2,3] b) { b = Identity (x) }> }""",
    "Optional": ONE.format(dtype="float", node="OptionalGetElement (o)").replace(
        "{ y", "{ o = Optional (x) y"
    ),
    "Range": "m (float a, float b, float c) => (float[n] y) { y = Range (a, b, c) }",
    "Trilu": ONE.format(dtype="float", node="Trilu <upper = 0> (x)"),
    **dict.fromkeys(
        (
            "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceErase", "SequenceInsert",
            "SplitToSequence",
        ),
        SEQUENCE,
    ),
}  # fmt: skip
"""Operators that the onnx package has no case with floats for, in ONNX text."""
GIVEN = {"three": [3, 3], "one": 1, "zero": 0, "minus": -1, "zeros": [0]}
FED = {"a": 1.0, "b": 6.5, "c": 2.0}
LOWER = {"RoiAlign": 21}
"""The newest opset that the runtime has an operator in, where it is not the newest one."""
AT_A_JUMP = {"test_range_float_type_positive_delta"}


def own_case(operator: str) -> tuple[ModelProto, Sequence[Array]]:
    """A case written here."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {OWN[operator]}')
    model.graph.initializer.extend(
        from_array(np.array(number), name)
        for name, number in GIVEN.items()
        if f" {name})" in OWN[operator]
    )
    rng = np.random.default_rng(0)
    arrays = []
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        number = FED.get(value.name, rng.standard_normal(shape))
        arrays.append(np.asarray(number if is_float(value) else True, dtype_of(value)))
    return model, arrays


def operator_of(name: str) -> str:
    """The operator that a case is about."""
    return name if name in OWN else str(cases()[name][0].graph.node[0].op_type)


@functools.cache
def cases() -> dict[str, tuple[ModelProto, Sequence[Array]]]:
    """The cases of one node that takes and makes floats, by name, with their inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = {case.name: case for case in collect_testcases(None)}
    return {operator: own_case(operator) for operator in OWN} | {
        name: (lowered(case.model), case.data_sets[0][0])
        for name, case in found.items()
        if name not in AT_A_JUMP
        and len(case.model.graph.node) == 1
        and case.model.opset_import[0].version > 8
        and case.model.graph.node[0].domain == ""
        and case.model.graph.node[0].op_type not in DEPRECATED
        and any(map(is_float, case.model.graph.input))
        and any(map(is_float, case.model.graph.output))
        and all(isinstance(v, np.ndarray | np.generic) for v in case.data_sets[0][0])
    }


def lowered(model: ModelProto) -> ModelProto:
    """The model in an opset that the runtime has, if its operator is that old."""
    imported = model.opset_import[0]
    node = model.graph.node[0]
    newest = LOWER.get(node.op_type, NEWEST)
    if imported.version > newest and defs.has(node.op_type, newest):
        known = defs.get_schema(node.op_type, newest)
        if len(node.input) <= known.max_input and all(
            a.name in known.attributes for a in node.attribute
        ):
            imported.version = newest
    return model


def widened(model: ModelProto) -> ModelProto:
    """The model in float64, its operator as the nodes that define it where there are such."""
    wide = copied(model)
    for value in (*wide.graph.input, *wide.graph.output):
        if is_float(value):
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return wide


def defined(wide: ModelProto) -> ModelProto:
    """The model with the nodes that define its operator."""
    types = {value.name: value.type for value in wide.graph.input}
    tape = Tape(Names(set(), wide.opset_import[0].version, types.get, lambda _: None))
    wide, node = copied(wide), wide.graph.node[0]
    if "stash_type" in defs.get_schema(node.op_type).attributes:
        node = copied(node)
        node.attribute.append(helper.make_attribute("stash_type", TensorProto.DOUBLE))
    body = expanded(tape, node)
    if body is None:
        return wide
    del wide.graph.node[:]
    wide.graph.node.extend(tape.nodes)
    wide.graph.initializer.extend(tape.names.constants.values())
    for made, name in zip(body.outputs, node.output, strict=False):
        wide.graph.node.add(op_type="Identity", input=[made], output=[name])
    return wide


def frozen(model: ModelProto, arrays: Sequence[Array]) -> tuple[ModelProto, Sequence[Array]]:
    """The model with the inputs that are no floats as constants."""
    made = copied(model)
    given = list(zip(model.graph.input, arrays, strict=False))
    del made.graph.input[:]
    made.graph.input.extend(value for value, _ in given if is_float(value))
    made.graph.initializer.extend(
        from_array(np.asarray(array), value.name) for value, array in given if not is_float(value)
    )
    return made, [array for value, array in given if is_float(value)]


class NotRun(Exception):
    """Neither the runtime nor the evaluator runs a gradient."""


class Erf(OpRun):
    """Keeps float64, unlike the evaluator's own."""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


def evaluator(model: ModelProto, feeds: Mapping[str, Array]) -> tuple[Evaluate, float]:
    """What computes the outputs, and a step for it: in float64 where the evaluator or the runtime does."""
    wide, op = widened(model), model.graph.node[0].op_type
    ways = [
        lambda: functools.partial(ReferenceEvaluator(wide, new_ops=[Erf]).run, None),
        lambda: functools.partial(ReferenceEvaluator(defined(wide), new_ops=[Erf]).run, None),
        lambda: functools.partial(opened(wide).run, None),
    ]
    known = op not in PLAIN and len(model.graph.node) == 1
    if known and defs.get_schema(op).has_context_dependent_function:  # for float64, too
        ways[:2] = ways[1::-1]
    if op in BY_RUNTIME:
        ways.reverse()
    for way in ways:
        with contextlib.suppress(Exception):
            found = way()
            if not any(np.asarray(value).dtype == np.float32 for value in found(feeds)):
                return found, STEP
    try:
        narrow = functools.partial(ReferenceEvaluator(model).run, None)
    except NotImplementedError:
        narrow = functools.partial(opened(model).run, None)
    dtypes = {value.name: dtype_of(value) for value in model.graph.input}
    return lambda given: narrow({n: np.asarray(v, dtypes[n]) for n, v in given.items()}), WIDE_STEP


def opened(model: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def dtype_of(value: ValueInfoProto) -> np.dtype[np.generic]:
    return helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


def is_float(value: ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in FLOATS


def check(model: ModelProto, arrays: Sequence[Array]) -> Iterator[float]:
    """Yield relative differences of directional derivatives, for each float output by each float input."""
    rng = np.random.default_rng(0)
    feeds = dict(zip((v.name for v in model.graph.input), map(np.asarray, arrays), strict=False))
    floats = [v.name for v in model.graph.input if v.name in feeds and is_float(v)]
    for name in floats:  # away from kinks
        noise = rng.uniform(-1e-2, 1e-2, feeds[name].shape)
        feeds[name] = np.asarray(feeds[name] + noise, feeds[name].dtype)
    typed = Model(shape_inference.infer_shapes(model, data_prop=True))
    wide = {n: np.asarray(v, np.float64) if n in floats else v for n, v in feeds.items()}
    evaluate, step = evaluator(model, wide)
    for place, output in enumerate(model.graph.output):
        for name in floats if is_float(output) else ():
            try:
                edited = Gradient(output.name, (name,), vector="vector").apply(typed).model
            except EditError as error:
                if "depend" in error.message:
                    continue
                raise
            seed = np.asarray(rng.standard_normal(np.shape(evaluate(wide)[place])))
            actual = run(edited, feeds | {"vector": np.asarray(seed, dtype_of(output))})
            way = np.asarray(rng.standard_normal(feeds[name].shape))
            parts = actual.astype(np.float64) * way

            def off(step: float, name: str = name, place: int = place) -> float:
                moved = [np.asarray(wide[name] + h * way) for h in (step, -step)]  # noqa: B023
                ends = [np.asarray(evaluate(wide | {name: there})[place]) for there in moved]
                if {np.shape(end) for end in ends} != {seed.shape}:  # noqa: B023 # a Range grew
                    return math.inf
                expected = ((ends[0] - ends[1]) / (2 * step) * seed).sum()  # noqa: B023
                size = max(np.abs(parts).sum(), abs(expected), LEAST)  # noqa: B023
                return float(abs(expected - parts.sum()) / size)  # noqa: B023

            yield min(off(step), off(WIDE_STEP))


def run(model: Model, feeds: Mapping[str, Array]) -> Array:
    """Run with onnxruntime, or with the reference evaluator where it has no kernel; return the last output."""
    try:
        return opened(model.proto).run([model.proto.graph.output[-1].name], feeds)[0]
    except Exception:
        try:
            return ReferenceEvaluator(model.proto).run(None, feeds)[-1]
        except Exception as error:
            raise NotRun(f"nothing here runs the gradient: {error}") from error


def measured(names: Iterable[str]) -> dict[str, Checked]:
    """Check cases, by operator."""
    found: dict[str, Checked] = defaultdict(Checked)
    for name in names:
        model, arrays = cases()[name]
        checked = found[operator_of(name)]
        try:
            with np.errstate(all="ignore"):
                try:
                    differences = list(check(model, arrays))
                except EditError:
                    differences = list(check(*frozen(model, arrays)))
        except EditError as error:
            checked.refused.append(f"{name}: {error.message}")
            continue
        except NotRun as error:
            checked.refused.append(f"{name}: {error}")
            continue
        if differences:
            checked.cases += 1
            checked.worst = max(checked.worst, *differences)
    return found


def status(operator: str, checked: Checked | None) -> str:
    """One of: exact, zero, not differentiable, missing."""
    schema = defs.get_schema(operator)
    kinds = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}

    def floats(formals: Iterable[defs.OpSchema.FormalParameter]) -> bool:
        return any("tensor(float)" in kinds.get(f.type_str, [f.type_str]) for f in formals)

    if checked is not None and checked.cases:
        return "exact"
    if operator in ZERO:
        return "zero"
    differentiable = floats(schema.inputs) and floats(schema.outputs)
    return "missing" if differentiable or schema.name in BODIES else "not differentiable"


def row(operator: str, checked: Checked | None) -> str:
    """What the table says of an operator."""
    said = status(operator, checked)
    figure = f"{checked.worst:.0e}" if checked and said == "exact" else ""
    return f"| {operator} | {said} | {figure} | {checked.cases if figure and checked else ''} |\n"


def table(found: Mapping[str, Checked], before: Mapping[str, str]) -> str:
    """The row of each operator of ONNX's own domain; as in `before` where it was not measured."""
    schemas = (s for s in defs.get_all_schemas() if s.domain == "" and not s.deprecated)
    operators = sorted({schema.name for schema in schemas})
    rows = [
        before[operator] if operator in before else row(operator, found.get(operator))
        for operator in operators
    ]
    return HEAD + "".join(rows)


def main(operators: Collection[str]) -> None:
    """Measure operators, all by default, and write their rows."""
    found = measured(name for name in cases() if not operators or operator_of(name) in operators)
    start, _, rows = PAGE.read_text().partition(HEAD)
    listed = {line.split()[1]: f"{line}\n" for line in rows.splitlines()}
    kept = {name: line for name, line in listed.items() if operators and name not in operators}
    PAGE.write_text(start + table(found, kept))
    for operator, checked in found.items():
        print(operator, *checked.refused, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
