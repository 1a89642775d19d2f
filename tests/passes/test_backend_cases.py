"""The onnx package's backend node cases: round trips, and a cut at every inner value."""

import os
from concurrent.futures import ThreadPoolExecutor

from onnx import shape_inference

from kit.backend import RANDOM, ROUNDED, cases, fed, ops_of, outcome, same
from onnxsurgeon_lite import Extract, load, save
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions


def test_every_case_is_saved_byte_for_byte(tmp_path):
    assert len(cases()) > 1800

    for name, case in cases().items():
        (tmp_path / "in.onnx").write_bytes(case.model.SerializeToString())
        save(load(tmp_path / "in.onnx"), tmp_path / "out.onnx")

        same = (tmp_path / "in.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()
        assert same, name


# Models of a hundred nodes take minutes; two values of each keep the suite short.
EVERY_CUT = bool(os.environ.get("EVERY_CUT"))


def cut_at_values(runtime: Runtime, model: Model, feeds: list[str], whole) -> list[str]:
    """The inner values at which the two halves do not give what the whole gives."""
    model.proto.CopyFrom(shape_inference.infer_shapes(model.proto))  # once, not at each cut
    index = GraphIndex.of(model)
    wrong = []
    inner = [value for value in index.producer if value not in index.outputs]
    for value in inner[:: 1 if EVERY_CUT else len(inner) // 2 + 1]:
        upper = Extract((), (value,)).apply(model).model
        upper.proto.graph.output[0].ClearField("type")
        kept = outcome(runtime, upper, feeds, [], [value])
        lower = Extract((value, *feeds), ()).apply(model).model
        declared = next(i for i in lower.proto.graph.input if i.name == value)
        declared.type.CopyFrom(kept.types[value])
        inputs = [i.name for i in lower.proto.graph.input]
        try:
            actual = outcome(runtime, lower, inputs, list(index.outputs)).values
        except RuntimeFailure as error:  # a Scan's body has its shapes from constants alone
            if "Subgraph must have the shape set" not in error.message:
                raise
            continue
        if not all(same(actual[name], whole[name]) for name in index.outputs):
            wrong.append(value)
    return wrong


def cut_case(runtime: Runtime, case, path) -> list[str] | None:
    """The inner values at which a case goes wrong; None where the runtime does not run the model."""
    path.write_bytes(case.model.SerializeToString())
    model = load(path)
    outputs = [value.name for value in case.model.graph.output]
    try:
        feeds = fed(runtime, case.model, case.data_sets[0][0])
        whole = None if feeds is None else outcome(runtime, model, feeds, outputs).values
    except RuntimeFailure:
        return None
    return None if whole is None else cut_at_values(runtime, model, feeds, whole)


def cut_all(names: list[str], path) -> dict[str, list[str] | None]:
    """Every named case in one child process."""
    with Runtime(RuntimeOptions(opt="none", threads=1)) as runtime:
        return {name: cut_case(runtime, cases()[name], path) for name in names}


def test_both_halves_of_every_cut_give_the_whole(tmp_path):
    several = {name: case for name, case in cases().items() if len(case.model.graph.node) > 1}
    names = [name for name, case in several.items() if not ops_of(case.model) & RANDOM]

    with ThreadPoolExecutor(2) as pool:
        halves = [(names[i::2], tmp_path / f"{i}.onnx") for i in range(2)]
        found = [
            done for half in pool.map(cut_all, *zip(*halves, strict=True)) for done in half.items()
        ]

    ran = {name: values for name, values in found if values is not None}
    wrong = {name for name, values in ran.items() if values}
    assert wrong == ROUNDED if EVERY_CUT else wrong <= ROUNDED
    assert len(ran) > 350
