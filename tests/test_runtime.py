"""Values on their way between the runtime's process and this one."""

import numpy as np
import pytest

from onnxsurgeon_lite.runtime import memory
from onnxsurgeon_lite.runtime.session import Runtime

EVERY_KIND = """
    kinds (float[N] x, string[2] text) =>
        (float[N] y, string[2] same_text, int4[N] packed, seq(float[N]) both, float[0] nothing)
    <float one = {1.0}, int4 zero = {0}> {
        y = Neg(x)
        same_text = Identity(text)
        packed = QuantizeLinear(y, one, zero)
        both = SequenceConstruct(x, y)
        nothing = Constant<value = float[0] {}>()
    }
"""


def fetched(model):
    feeds = {
        "x": np.arange(5, dtype=np.float32),
        "text": np.array(["a", "ß"], dtype=object),
    }
    with Runtime() as runtime:
        runtime.open(model)
        for name, value in feeds.items():
            runtime.put(name, value)
        return runtime.run(list(feeds), [o.name for o in model.proto.graph.output]).values


def test_values_come_through_memory_and_through_the_socket_alike(model_of, monkeypatch):
    model = model_of(EVERY_KIND)
    through_memory = fetched(model)
    refused = []
    monkeypatch.setattr(memory, "read_memory", lambda *place: bool(refused.append(place)))
    through_socket = fetched(model)

    assert len(refused) == 5
    assert through_memory["y"].tolist() == [0, -1, -2, -3, -4]
    assert through_memory["same_text"].tolist() == ["a", "ß"]
    assert through_memory["packed"].tolist() == [0, -1, -2, -3, -4]
    assert [element.tolist() for element in through_memory["both"]] == [
        [0, 1, 2, 3, 4],
        [0, -1, -2, -3, -4],
    ]
    assert through_memory["nothing"].shape == (0,)
    for name, value in through_memory.items():
        np.testing.assert_array_equal(through_socket[name], value)


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux reads a child's memory")
def test_memory_is_read_where_the_system_gives_it(model_of, monkeypatch):
    answers = []

    def remember(*place):
        answers.append(read_memory(*place))
        return answers[-1]

    read_memory = memory.read_memory
    monkeypatch.setattr(memory, "read_memory", remember)
    fetched(model_of(EVERY_KIND))
    assert answers == [True] * 5
