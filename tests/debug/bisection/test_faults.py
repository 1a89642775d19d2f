"""Real architectures, exported by torch with random weights, one planted fault each: that node is named."""

import os
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers

import onnxsurgeon_lite as osl
from kit.faults import ARCHITECTURES, FAULTS, Output, every_node, export
from onnxsurgeon_lite import load, open_references
from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.result import BisectResult
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.recording.from_model import record
from onnxsurgeon_lite.runtime.feeds import Recipe, feeds_from, make_feeds
from onnxsurgeon_lite.runtime.session import Runtime


@pytest.fixture(scope="module", params=ARCHITECTURES)
def exported(request, tmp_path_factory, runtime) -> Path:
    """A folder with the model and references of every value."""
    folder = tmp_path_factory.mktemp("exported")
    index = GraphIndex.of(load(export(request.param, folder)))
    record(index, make_feeds(index, Recipe(seed=1))[0], runtime, folder / "references")
    return folder


def searched(folder: Path, wrong: onnx.ModelProto, runtime: Runtime, quick: bool) -> BisectResult:
    onnx.save(wrong, folder / "wrong.onnx")
    model = load(folder / "wrong.onnx")
    references = open_references(folder / "references")
    feeds = feeds_from(GraphIndex.of(model), references)
    return bisect(model, references, feeds, runtime, search=Search(quick=quick))


def some(right: onnx.ModelProto, kind: str) -> list[tuple[str, onnx.ModelProto]]:
    """Faults of a kind spread over the network; each kind begins in another third of it."""
    found = list(FAULTS[kind](right))
    faults = found[len(found) // 6 :: max(1, len(found) // 3)][:3]
    first = list(FAULTS).index(kind) % len(faults)
    return faults[first:] + faults[:first]


# Three faults of each kind take a minute; one of each keeps the suite short.
EVERY_FAULT = bool(os.environ.get("EVERY_FAULT"))


@pytest.mark.parametrize("kind", FAULTS)
def test_the_planted_fault_is_the_only_culprit(exported, kind, runtime):
    right, counted = onnx.load(exported / "model.onnx"), 0

    for value, wrong in some(right, kind):
        result = searched(exported, wrong, runtime, quick=False)

        if result.verdict == "agrees":
            continue  # a fault counts when an output leaves its tolerance
        quick = searched(exported, wrong, runtime, quick=True)
        named = {culprit.value for culprit in result.culprits}
        if kind == "missing node":  # every consumer computes something else
            assert value in named
            assert all(culprit.lacking for culprit in result.culprits)
            assert quick.culprits[0].value in named
        else:
            assert named == {value}
            assert [culprit.value for culprit in quick.culprits] == [value]
        assert not result.cleared
        assert quick.sessions <= 2 * len(right.graph.node).bit_length() + 5
        counted += 1
        if not EVERY_FAULT:
            break
    assert counted


def test_every_fifth_node_of_a_resnet_is_named_in_turn(tmp_path_factory, runtime):
    folder = tmp_path_factory.mktemp("resnet")
    index = GraphIndex.of(load(export("ResNet-50", folder)))
    record(index, make_feeds(index, Recipe(seed=1))[0], runtime, folder / "references")
    right = onnx.load(folder / "model.onnx")
    without_effect = []

    for value, wrong in every_node(right, 5):
        result = searched(folder, wrong, runtime, quick=False)

        if result.verdict == "agrees":
            without_effect.append(value)
        else:
            assert [culprit.value for culprit in result.culprits] == [value]

    assert len(without_effect) <= 2, without_effect


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> onnx.ModelProto:
    """Two layers of BERT."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    config = transformers.BertConfig(
        **sizes,
        num_hidden_layers=2,
        vocab_size=64,
        attn_implementation="eager",
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    module = Output(transformers.BertModel(config).eval(), "last_hidden_state")
    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    given = (torch.arange(12).reshape(1, -1),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = {"dynamo": False, "opset_version": 18, "input_names": ["given"]}
        torch.onnx.export(module, given, path, **how)
    return onnx.load(path)


def with_two(bert: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """Alter a node of the first layer and one of the second: an epsilon, or a weight."""
    wrong = onnx.ModelProto()
    wrong.CopyFrom(bert)
    norms = [node for node in wrong.graph.node if node.op_type == "LayerNormalization"]
    for norm in (norms[1], norms[-1]) if what == "epsilons" else ():
        next(a for a in norm.attribute if a.name == "epsilon").f = 3.0
    weights = [w for w in wrong.graph.initializer if len(w.dims) == 2 and "MatMul" in w.name]
    for weight in (weights[1], weights[-1]) if what == "weights" else ():
        array = onnx.numpy_helper.to_array(weight)
        weight.CopyFrom(onnx.numpy_helper.from_array(1.5 * array, weight.name))
    return wrong


@pytest.mark.parametrize(("what", "said"), [("epsilons", "epsilon of"), ("weights", "is scaled")])
def test_two_faults_in_a_bert_are_named_with_every_fifth_reference(what, said, bert):
    feeds = {"given": np.arange(12).reshape(1, -1)}
    values = osl.run(bert, feeds=feeds, fetch=[node.output[0] for node in bert.graph.node])
    floats = [name for name, value in values.items() if value.dtype == np.float32]
    known = {name: values[name] for name in [*floats[::5], bert.graph.output[0].name]}
    wrong = with_two(bert, what)

    result = osl.bisect(wrong, known, feeds=feeds)

    causes = [culprit.causes[0].sentence for culprit in result.culprits]
    assert len(causes) == 2
    assert all(said in cause for cause in causes), causes
    fresh = {"given": np.arange(12)[None, ::-1] + 9}
    expected, actual = (osl.run(m, feeds=fresh) for m in (bert, osl.repair(wrong, result).model))
    assert osl.compare_sets(actual, expected).match
