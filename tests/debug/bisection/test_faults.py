"""Real architectures, exported by torch with random weights, one planted fault each: that node is named."""

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from kit.faults import ARCHITECTURES, FAULTS, every_node, export
from onnxsurgeon_lite import load, open_references
from onnxsurgeon_lite.debug.bisection import BisectResult, Search, bisect
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


def some(faults: Iterator, count: int) -> list:
    """Faults spread over the network."""
    found = list(faults)
    return found[len(found) // (2 * count) :: max(1, len(found) // count)][:count]


@pytest.mark.parametrize("kind", FAULTS)
def test_the_planted_fault_is_the_only_culprit(exported, kind, runtime):
    right = onnx.load(exported / "model.onnx")

    for value, wrong in some(FAULTS[kind](right), 3):
        result = searched(exported, wrong, runtime, quick=False)
        quick = searched(exported, wrong, runtime, quick=True)

        if result.verdict == "agrees":
            continue  # a fault counts when an output leaves its tolerance
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
