"""Language models: caches that are empty at first, half precision, layers that are taken for each other."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import onnxsurgeon_lite as osl
from kit import packages
from kit.causes import model, numbers
from kit.planted import FAULTS
from kit.versions import STURDY_ATTENTION

STEP = """<ir_version: 10, opset_import: ["" : 21]>
step (float[1, n, 4] x, float[1, 2, p, 2] past) => (float[1, 2, m, 2] y, float[1, 2, m, 2] present)
<float[4, 4] w = {WEIGHT}> {
    made = MatMul (x, w)
    parts = Constant <value_ints = [0, 0, 2, 2]> ()
    heads = Reshape (made, parts)
    new = Transpose <perm = [0, 2, 1, 3]> (heads)
    present = Concat <axis = 2> (past, new)
    y = Tanh (present)
}
"""


def cached(names=("y", "present")):
    """Return a module with a cache, its model, and two steps: the cache is empty at the first one."""
    torch = pytest.importorskip("torch")

    class Join(torch.nn.Module):
        def forward(self, past, new):
            return torch.cat([past.transpose(1, 2), new], 1)

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.join = torch.nn.Parameter(torch.randn(4, 4)), Join()

        def forward(self, x, past):
            new = (x @ self.weight).view(1, -1, 2, 2)
            present = self.join(past, new).transpose(1, 2)
            made = {"present": present, "y": torch.tanh(present)}
            return {name: made[name] for name in names}

    torch.manual_seed(0)
    module = Step()
    weight = module.weight.detach().numpy()
    steps = [
        (torch.randn(1, 3, 4), torch.zeros(1, 2, 0, 2)),
        (torch.randn(1, 1, 4), torch.randn(1, 2, 3, 2)),
    ]
    return module, osl.build(STEP.replace("WEIGHT", ", ".join(map(str, weight.ravel())))), steps


@pytest.mark.filterwarnings("ignore")
def test_a_prompt_without_a_cache_and_a_step_of_one_token_blame_nothing_in_a_healthy_export(
    tmp_path,
):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from kit.cached import exported_step, step

    module = exported_step(tmp_path / "m.onnx")
    osl.record(module, tmp_path / "refs", args=[step(7, 0), step(1, 13)])

    found = osl.bisect(tmp_path / "m.onnx", tmp_path / "refs", cause=False)

    assert found.verdict == "agrees"
    assert not found.culprits
    assert osl.compare_sets(tmp_path / "m.onnx", tmp_path / "refs", every=True).match


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with what the source of a package computes at a prompt and at a step, and the package."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from kit.cached import of_checkpoint, step

    folder = tmp_path_factory.mktemp("recorded")
    parameters = packages.checkpoint()
    steps = [step(*size, layers=2, head=packages.HEAD) for size in ((5, 0), (1, 6))]
    osl.record(of_checkpoint(parameters), folder / "refs", args=steps)
    osl.save(packages.decoder(parameters), folder / "right.onnx")
    return folder


@STURDY_ATTENTION
@pytest.mark.filterwarnings("ignore")
def test_q_k_and_v_of_a_module_are_the_packed_projection_of_its_package(recorded):
    compared = osl.compare_sets(recorded / "right.onnx", recorded / "refs", every=True)

    assert compared.match
    assert {"biased_0", "biased_1", "attended_0", "attended_1"} <= compared.values.keys()
    found = osl.bisect(recorded / "right.onnx", recorded / "refs", cause=False)
    assert (found.verdict, found.culprits) == ("agrees", [])


def packed_gates(model):
    """Let one product make gate and up of each layer, as packages of Phi-3 and others have it."""
    graph, weight = model.graph, "model.layers.{}.mlp.{}_proj.MatMul.weight"
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for layer in (0, 1):
        gate, up = (tensors[weight.format(layer, part)] for part in ("gate", "up"))
        both = np.concatenate([numpy_helper.to_array(each) for each in (gate, up)], 1)
        gate.CopyFrom(numpy_helper.from_array(both, weight.format(layer, "gate_up")))
        graph.initializer.remove(up)
        nodes = {node.name: node for node in graph.node}
        first, second = (
            nodes[f"/model/layers.{layer}/mlp/{part}_proj/MatMul"] for part in ("gate", "up")
        )
        names = [first.output[0], second.output[0]]
        first.name = first.name.replace("gate_proj", "gate_up_proj")
        first.input[1], first.output[0] = gate.name, f"both_{layer}"
        split = helper.make_node("Split", [f"both_{layer}"], names, axis=-1, num_outputs=2)
        second.CopyFrom(split)
    return model


@STURDY_ATTENTION
@pytest.mark.filterwarnings("ignore")
def test_gate_and_up_of_a_module_are_the_packed_projection_of_its_package(recorded, tmp_path):
    right, wrong = (packed_gates(osl.load(recorded / "right.onnx").materialize()) for _ in range(2))
    osl.save(right, tmp_path / "right.onnx")

    compared = osl.compare_sets(tmp_path / "right.onnx", recorded / "refs", every=True)

    assert compared.match
    assert {"both_0", "both_1"} <= compared.values.keys()
    held = next(t for t in wrong.graph.initializer if "layers.1.mlp.gate_up" in t.name)
    gate, up = np.split(numpy_helper.to_array(held), 2, 1)
    held.CopyFrom(numpy_helper.from_array(np.concatenate([gate, 1.5 * up], 1), held.name))
    osl.save(wrong, tmp_path / "wrong.onnx")
    found = osl.bisect(tmp_path / "wrong.onnx", recorded / "refs")
    assert [culprit.name for culprit in found.culprits] == [
        "/model/layers.1/mlp/gate_up_proj/MatMul"
    ]


@STURDY_ATTENTION
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("fault", "node", "said"),
    [
        ("K and V exchanged", "qkv_proj/", "has its 4 parts along axis 1 in another order"),
        ("cache of another layer", "Attention", "with 'past_key_values.1.key' and 'past_key_values.1.value'"),
        ("o_proj of another layer", "o_proj/", "with 'model.layers.1.attn.o_proj.MatMul.weight'"),
    ],
)  # fmt: skip
def test_a_fault_behind_a_packed_projection_is_no_fault_of_the_mask(
    fault, node, said, recorded, tmp_path
):
    planted = osl.load(recorded / "right.onnx").materialize()
    assert any([each.plant(planted) for each in FAULTS if each.name == fault])
    osl.save(planted, tmp_path / "wrong.onnx")

    found = osl.bisect(tmp_path / "wrong.onnx", recorded / "refs")

    assert all(node in culprit.name for culprit in found.culprits)
    assert said in found.culprits[0].causes[0].sentence
    assert not any("q_proj" in name for name in found.culprits[0].lacking)


@STURDY_ATTENTION
@pytest.mark.filterwarnings("ignore")
def test_a_projection_that_packs_head_by_head_is_not_taken_for_q_k_and_v_in_a_row(
    recorded, tmp_path
):
    """Gathers after each projection take the heads of q, k and v out of it."""
    order = np.arange(packages.HEAD * 8).reshape(8, -1)[[0, 1, 4, 6, 2, 3, 5, 7]].ravel()
    right = osl.load(recorded / "right.onnx").materialize()
    graph = right.graph
    for tensor in graph.initializer:
        if "qkv_proj" in tensor.name:
            packed = numpy_helper.to_array(tensor)[..., order]
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(packed), tensor.name))
    columns = np.split(np.argsort(order), [packages.HEAD * 4, packages.HEAD * 6])
    for part, taken in zip("qkv", columns, strict=True):
        graph.initializer.append(numpy_helper.from_array(taken, f"of_{part}"))
    for node in [n for n in graph.node if n.op_type == "GroupQueryAttention"]:
        at, whole = list(graph.node).index(node), node.input[0]
        parts = [f"{whole}_{part}" for part in "qkv"]
        made = [
            helper.make_node("Gather", [whole, f"of_{name[-1]}"], [name], axis=-1) for name in parts
        ]
        graph.node[at].input[:3] = parts
        for one in made:
            graph.node.insert(at, one)
    (scale,) = [each for each in FAULTS if each.name == "scale of a layer's attention"]
    assert scale.plant(right)
    osl.save(right, tmp_path / "heads.onnx")

    found = osl.bisect(tmp_path / "heads.onnx", recorded / "refs", cause=False)

    assert found.culprits
    assert not any("qkv_proj" in culprit.name for culprit in found.culprits)


def test_a_dict_that_a_module_returns_has_no_order(tmp_path):
    module, right, steps = cached(("present", "y"))
    osl.record(module, tmp_path / "refs", args=steps[1])

    assert osl.bisect(right, tmp_path / "refs").verdict == "agrees"


@STURDY_ATTENTION
def test_a_repair_is_proved_on_fresh_inputs_though_a_cache_in_a_file_is_empty(tmp_path):
    right, wrong = packages.decoder(packages.checkpoint()), packages.decoder(packages.checkpoint())
    for node in wrong.proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "scale":
                attribute.f = 2.0
    empty = np.zeros((1, 2, 0, 16), np.float32)
    caches = {name.name: empty for name in right.proto.graph.input if "past" in name.name}
    tokens = np.array([[3, 17, 5, 40]])
    np.savez(tmp_path / "f.npz", input_ids=tokens, attention_mask=np.ones_like(tokens), **caches)

    found = osl.bisect(wrong, against=right, feeds=tmp_path / "f.npz", repair=tmp_path / "r.onnx")

    assert found.repair.fresh == "agrees on fresh inputs"


def test_weights_of_two_layers_that_are_exchanged_in_half_precision_are_no_matter_of_precision():
    text = "g (float16[7,64] x) => (float16[7,64] y) { a = MatMul (x, one) b = MatMul (x, two) y = Sub (a, b) }"
    weights = [(numbers(64, 64, seed=seed) / 8).astype(np.float16) for seed in (0, 1)]
    right = model(text, one=weights[0], two=weights[1])
    wrong = model(text, one=weights[1], two=weights[0])

    found = osl.bisect(wrong, against=right, feeds={"x": numbers(7, 64, seed=2).astype(np.float16)})

    assert [c.findings[0].verdict for c in found.culprits] == ["wrong constant"] * 2
    assert "'one' of MatMul (@0) and 'two' are exchanged" in found.culprits[0].causes[0].sentence


@STURDY_ATTENTION
def test_the_cache_of_another_layer_is_named_where_the_other_model_reads_its_own(tmp_path):
    right, wrong = packages.decoder(packages.checkpoint()), packages.decoder(packages.checkpoint())
    for node in wrong.proto.graph.node:
        node.input[:] = [
            name.replace("past_key_values.1", "past_key_values.0") for name in node.input
        ]
    caches = {
        f"past_key_values.{n}.{p}": numbers(1, 2, 3, 16, seed=n)
        for n in (0, 1)
        for p in ("key", "value")
    }
    feeds = {"input_ids": np.array([[7]]), "attention_mask": np.ones((1, 4), np.int64), **caches}

    found = osl.bisect(wrong, against=right, feeds=feeds, repair=tmp_path / "r.onnx")

    assert [culprit.name for culprit in found.culprits] == [
        "/model/layers.1/attn/GroupQueryAttention"
    ]
    sentence = found.culprits[0].causes[0].sentence
    assert (
        "reads 'past_key_values.0.key' and 'past_key_values.0.value'; with 'past_key_values.1.key' and"
        in sentence
    )
    assert found.repair.verdict == "agrees"


def test_a_mask_of_few_flags_is_no_chance_where_the_other_model_has_its_operator():
    text = (
        "g (int64[1,11] k, int64[1,1] q) => (float[1,11] y) { m = OP (k, q) y = Cast <to = 1> (m) }"
    )
    right, wrong = (model(text.replace("OP", op)) for op in ("LessOrEqual", "Less"))
    feeds = {"k": np.arange(11)[None], "q": np.array([[10]])}

    found = osl.bisect(wrong, against=right, feeds=feeds)

    assert found.culprits[0].causes[0].sentence.startswith("Less (@0) should be LessOrEqual")


def test_the_scale_of_packed_attention_is_that_of_its_head():
    right, wrong = packages.decoder(packages.checkpoint()), packages.decoder(packages.checkpoint())
    for node in wrong.proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "scale":
                attribute.f = 0.375
    feeds = {
        "input_ids": np.array([[3, 17, 5, 40, 2]]),
        "attention_mask": np.ones((1, 5), np.int64),
    }
    caches = [name.name for name in right.proto.graph.input if "past" in name.name]
    feeds |= {name: np.zeros((1, 2, 0, 16), np.float32) for name in caches}
    known = osl.run(right, feeds, fetch=["attended_0", "attended_1", "before_0", "logits"])

    found = osl.bisect(wrong, known, feeds=feeds)

    assert len(found.culprits) == 2
    for culprit in found.culprits:
        assert "is 0.375; with 0.25 " in culprit.causes[0].sentence


LATE = """<ir_version: 10, opset_import: ["" : 21]>
step (float[1, n, 4] x, float[1, p, 4] past) => (float[n, 8] cos)
<int64 one = {1}, int64 zero = {0}, int64 from = {9}, float[8] rates = {1, 0.6, 0.4, 0.25, 0.16, 0.1, 0.06, 0.04}> {
    new = Shape <start = 1, end = 2> (x)
    number = Squeeze (new)
    before = Shape <start = 1, end = 2> (past)
    first = Squeeze (before)
    counted = Range (zero, number, one)
    added = Add (counted, first)
    column = Unsqueeze (added, one)
    LATER
    cast = Cast <to = 1> (POSITIONS)
    angles = Mul (cast, rates)
    cos = Cos (angles)
}
"""
LATER = """
    is_late = GreaterOrEqual (column, from)
    late = Cast <to = 7> (is_late)
    positions = Sub (column, late)
"""


def test_positions_that_are_wrong_from_some_step_on_have_no_repair_that_a_prompt_and_a_step_do_not_prove(
    tmp_path,
):
    """The step has one position: Equal, Less or another bound make it right, and are wrong at the next one."""
    right = osl.build(LATE.replace("LATER", "").replace("POSITIONS", "column"))
    wrong = osl.build(LATE.replace("LATER", LATER).replace("POSITIONS", "positions"))
    steps = [
        {"x": np.ones((1, new, 4), np.float32), "past": np.ones((1, past, 4), np.float32)}
        for new, past in ((7, 0), (1, 13))
    ]
    osl.record(right, tmp_path / "refs", feeds=steps, value=["cos"])

    found = osl.bisect(wrong, tmp_path / "refs", feeds=steps)

    assert found.verdict == "mismatch"
    (culprit,) = found.culprits
    assert not culprit.causes
    assert "so few integers stand between it and the references" in culprit.unexplained
    assert "gives the reference, " not in " ".join(f.because for f in culprit.findings)
