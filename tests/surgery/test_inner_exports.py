"""What PyTorch exports of control flow compute inside: dynamo's cond and while_loop, and TorchScript's loops."""

import warnings

import numpy as np
import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from onnxsurgeon_lite import load, open_references
from onnxsurgeon_lite.debug.bisection.bisect import bisect
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.passes.targets import chosen_nodes
from onnxsurgeon_lite.recording.from_model import record
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.surgery.exposing import exposable

X = np.float32([1, -2, 3])


class Cond(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: (x * 2).relu(), lambda x: x - 1, (x,)) + 1


class While(torch.nn.Module):
    def forward(self, x):
        start = (torch.tensor(0), x)
        return while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, a * 0.5 + i), start)[1]


class Scripted(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        out = []
        for i in range(n):
            x = x * 2 - i
            if bool(x.sum() > 0):
                x = x - 3
            out.append(x)
        return torch.stack(out)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder, x = tmp_path_factory.mktemp("exports"), torch.from_numpy(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in (Cond(), While()):
            path = folder / f"{type(module).__name__}.onnx"
            torch.onnx.export(module, (x,), path, dynamo=True, verbose=False)
        torch.onnx.export(
            torch.jit.script(Scripted()),
            (x, torch.tensor(3)),
            folder / "Scripted.onnx",
            dynamo=False,
            input_names=["x", "n"],
        )
    return folder


def inside(model, feeds, runtime, *selectors: str) -> list[np.ndarray]:
    """The values of some selectors, each time that they were computed, in order."""
    index = GraphIndex.of(model)
    names = select_values(index, selectors, inner=True).names
    return list(run(index, feeds, runtime, names).values())


def node_of(model, op_type: str) -> str:
    return next(f"@{i}" for i, n in enumerate(model.proto.graph.node) if n.op_type == op_type)


def test_the_branch_of_a_cond(exported, runtime):
    model = load(exported / "Cond.onnx")
    branch = f"{node_of(model, 'If')}/then_branch"

    relu, mul, not_taken = inside(
        model, {"x": X}, runtime, f"{branch}/op:Relu", f"{branch}/op:Mul",
        branch.replace("then", "else") + "/op:Sub"
    )  # fmt: skip

    assert mul.tolist() == (X * 2).tolist()
    assert relu.tolist() == np.maximum(X * 2, 0).tolist()
    assert not_taken is None


def test_the_iterations_of_a_while_loop(exported, runtime):
    model = load(exported / "While.onnx")
    body = f"{node_of(model, 'Loop')}/body"

    halves = inside(model, {"x": X}, runtime, f"{body}/op:Mul")

    a, expected = X, []
    for i in range(4):
        expected.append(a * np.float32(0.5))
        a = expected[-1] + np.float32(i)
    assert np.array_equal(halves, expected)


def test_branches_and_sequences_in_a_scripted_loop(exported, runtime):
    model, feeds = load(exported / "Scripted.onnx"), {"x": X, "n": np.array(3)}
    body = f"{node_of(model, 'Loop')}/body"
    inner = load(exported / "Scripted.onnx").proto.graph.node
    nodes = next(n for n in inner if n.op_type == "Loop").attribute[0].g.node
    branch = next(i for i, n in enumerate(nodes) if n.op_type == "If")

    lists = inside(model, feeds, runtime, f"{body}/op:SequenceInsert")
    taken = inside(model, feeds, runtime, f"{body}/@{branch}/then_branch/op:Sub")

    x, out, expected = X, [], []
    for i in range(3):
        x = x * 2 - np.float32(i)
        if x.sum() > 0:
            x = x - 3
            expected.append(x)
        out.append(x)
        assert np.array_equal(lists[i], out)
    assert np.array_equal(taken, expected)


def test_a_wrong_constant_in_a_scripted_loop_is_found(exported, runtime, tmp_path):
    good, feeds = load(exported / "Scripted.onnx"), {"x": X, "n": np.array(3)}
    index = GraphIndex.of(good)
    record(index, feeds, runtime, tmp_path / "refs", [*index.producer, *exposable(index)[0]])
    faulty, loop = good.copy(), node_of(good, "Loop")
    sub = next(
        f"{loop}/body/@{i}"
        for i, node in enumerate(chosen_nodes(index, [loop])[loop].attribute[0].g.node)
        if node.op_type == "Sub"
    )
    chosen_nodes(GraphIndex.of(faulty), [sub])[sub].op_type = "Add"

    result = bisect(faulty, open_references(tmp_path / "refs"), feeds, runtime)

    found = result.culprits[0].inside[0]
    assert found.id == sub
    assert found.value.endswith("[1]")  # the first iteration subtracts zero
