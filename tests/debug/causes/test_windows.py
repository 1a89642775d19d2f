"""A large region: only the nodes that an edit touches are edited, and families of hypotheses take turns."""

import itertools
import math

import numpy as np
import pytest

from kit.causes import model, numbers, references
from onnxsurgeon_lite import Model
from onnxsurgeon_lite.debug.causes import trying, windows
from onnxsurgeon_lite.debug.causes.families import FAMILIES
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, RegionSample
from onnxsurgeon_lite.debug.causes.trying import Bench
from onnxsurgeon_lite.debug.judge import AgainstReferences
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.passes.protocol import key
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.options import RuntimeOptions
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.references import ReferenceSet

LAYER = """m{i} = MatMul (h{i}, w) b{i} = Add (m{i}, bias) a{i} = {act} (b{i})
    s{i} = Softmax <axis = 1> (a{i}) p{i} = Mul (s{i}, a{i}) t{i} = Transpose <perm = [0, 2, 1]> (p{i})
    u{i} = Transpose <perm = [0, 2, 1]> (t{i}) h{n} = Add (u{i}, h{i})"""


@pytest.fixture
def place():
    def net(act: str):
        layers = (LAYER.format(i=i, n=i + 1, act=act if i == 2 else "Tanh") for i in range(5))
        text = f"g (float[2,6,6] h0) => (float[2,6,6] h5) {{ {' '.join(layers)} }}"
        return model(text, w=numbers(6, 6), bias=numbers(6, seed=1))

    x = numbers(2, 6, 6, seed=2)
    wanted = references(net("Sigmoid"), h0=x)["h5"]
    index = GraphIndex.of(Model(net("Relu")))
    known = ReferenceSet.of({"h5": wanted})
    with Runtime(RuntimeOptions(opt="none")) as runtime:
        sample = RegionSample({"h0": x}, {"h5": wanted}, {}.__getitem__)
        nodes = range(len(index.nodes))
        judge = AgainstReferences(references=known)
        yield Place.at(Observer(index, runtime), nodes, "h5", [sample], judge, {})


def outcomes(place: Place, several: list[Hypothesis]) -> dict:
    with Bench(place, 1 << 30, math.inf) as bench:
        fits = list(itertools.chain.from_iterable(bench.fitting([several])))
        every = bench.outcomes(several)
        found = {key(o.hypothesis.edits): (o.fits, round(o.error, 5)) for o in every}
        return {"fits": {key(fit.hypothesis.edits) for fit in fits}, "all": found}


def test_an_edit_of_a_window_makes_what_one_of_the_region_makes(place, monkeypatch):
    with np.errstate(all="ignore"):
        several = [h for family in FAMILIES[:20] for h in itertools.islice(family(place), 150)]

    by_windows = outcomes(place, several)
    monkeypatch.setattr(windows, "_LEAST", math.inf)
    whole = outcomes(place, several)

    assert len(by_windows["all"]) > 100
    assert by_windows["fits"] == whole["fits"]
    assert len(whole["fits"]) >= 1
    assert by_windows["all"] == whole["all"]


def test_a_family_that_takes_long_goes_on_after_the_others(monkeypatch):
    monkeypatch.setattr(trying, "_LONGER", 0)
    monkeypatch.setattr(trying, "_TURN", 0)
    endless, short = itertools.count(), iter("ab")

    batches = trying._drawn([endless, short], 2, 0.0)

    assert [next(batches) for _ in range(3)] == [[0, 1], ["a", "b"], [2, 3]]


def test_the_first_families_have_longer_turns(monkeypatch):
    monkeypatch.setattr(trying, "_FIRST", 1)
    monkeypatch.setattr(trying, "_TURN", 0)
    likely, other = iter("abcd"), itertools.count()

    batches = trying._drawn([likely, other, iter("xy")], 2, 0.0)

    assert [next(batches) for _ in range(4)] == [["a", "b"], ["c", "d"], [0, 1], ["x", "y"]]
