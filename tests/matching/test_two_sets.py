"""Two reference sets of other names, and every value of a model against references: `compare`."""

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit.bisecting import parsed, random
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError


def values(scale: float = 1.0) -> dict[str, np.ndarray]:
    x = random(16, 16)
    h = x @ random(16, 16, seed=1)
    r = np.maximum(h, 0)
    return {"x": x, "h": h, "r": r, "y": (r @ random(16, 16, seed=2)).T * np.float32(scale)}


def renamed(found: dict[str, np.ndarray], names: str) -> dict[str, np.ndarray]:
    return dict(zip(names.split(), found.values(), strict=True))


def test_sets_of_other_names_are_matched_and_compared_value_by_value():
    """Also where one side is transposed."""
    theirs = renamed(values(), "in a b c")
    theirs["c"] = np.ascontiguousarray(theirs["c"].T)

    result = osl.compare_sets(values(), theirs)

    assert result.match
    assert result.stored_as == {"x": "in", "h": "a", "r": "b", "y": "c"}


def test_what_comes_last_is_compared_although_nothing_of_it_matches():
    result = osl.compare_sets(values(1.5), renamed(values(), "in a b c"))

    assert [name for name, c in result.compared.items() if not c.match] == ["y"]
    assert result.stored_as["y"] == "c"


def test_sets_whose_ends_have_no_counterpart_do_not_agree(tmp_path):
    theirs = renamed(values(), "in a b c")
    theirs["c"] = theirs["c"][:, :5]
    for name, found in (("ours", values()), ("theirs", theirs)):
        np.savez(tmp_path / f"{name}.npz", **found)

    done = CliRunner().invoke(
        app, ["compare", str(tmp_path / "ours.npz"), str(tmp_path / "theirs.npz")]
    )

    assert done.exit_code == 1
    assert "1 reference after the last match was not compared: 'c'" in done.output


@pytest.mark.parametrize("turned", [False, True])
def test_a_map_of_either_direction_names_the_pairs_of_two_sets(turned, tmp_path):
    theirs = renamed(values(), "in a b c")
    model = parsed(
        "net (float[16,16] in) => (float[16,16] b) { a = MatMul (in, w) b = Relu (a) }",
        w=random(16, 16, seed=1),
    )
    osl.match(values(), model, feeds={"in": random(16, 16)}).save(tmp_path / "map.json")
    sides = (theirs, values()) if turned else (values(), theirs)

    result = osl.compare_sets(*sides, map=tmp_path / "map.json")

    assert len(result.compared) == 3
    assert result.match


def test_sets_that_have_nothing_in_common_are_refused():
    with pytest.raises(ReferenceSetError, match="no tensor of .* matches"):
        osl.compare_sets(values(), {"a": random(3, 5)})


def test_every_value_of_a_model_is_compared_in_order_with_what_modules_returned(tmp_path):
    text = """net (float[16,16] x) => (float[16,16] y) {
        h = MatMul (x, w)
        r = Relu (h)
        m = Mul (r, zero)
        y = Add (m, x)
    }"""
    constants = {"w": random(16, 16, seed=1), "zero": np.zeros(1, np.float32)}
    model = parsed(text, **constants)
    onnx.save(model, tmp_path / "model.onnx")
    osl.record(model, tmp_path / "refs", feeds={"x": random(16, 16)})
    stored = osl.open_references(tmp_path / "refs")
    theirs = {f"layers.{name}": stored.read(name) for name in stored} | {"x": stored.read("x")}
    wrong = parsed(text, **constants | {"w": 2 * constants["w"]})

    outputs, every = (
        osl.compare_sets(wrong, tmp_path / "refs", every=every) for every in (False, True)
    )

    assert outputs.match
    assert [name for name, c in every.compared.items() if not c.match] == ["h", "r"]
    assert [*every.compared] == ["h", "r", "m", "y"]
    by_content = osl.compare_sets(model, theirs, every=True)
    assert all(c.match for c in by_content.compared.values())
    assert by_content.only_inner  # the output equals the input: its content is no proof
    assert not by_content.match
    assert by_content.stored_as["r"] == "layers.r"


def test_every_sample_of_two_sets_is_compared_and_the_worst_is_named(tmp_path):
    for name, scale in (("ours", 1.0), ("theirs", 1.5)):
        (tmp_path / name).mkdir()
        for number in range(3):
            np.savez(tmp_path / name / f"{number}.npz", **values(scale if number == 2 else 1.0))
    sides = [str(tmp_path / name) for name in ("ours", "theirs")]

    done = CliRunner().invoke(app, ["compare", *sides])

    assert done.exit_code == 1
    assert "MISMATCH in 1 of 3 samples" in done.output
    renamed_too = osl.compare_sets(sides[0], [renamed(values(), "in a b c")] * 3)
    assert renamed_too.total == 3
    assert renamed_too.match


def test_a_set_of_fewer_samples_does_not_agree():
    with pytest.raises(
        ReferenceSetError, match=r"numbers of samples differ: .* \(1\) and .* \(2\)"
    ):
        osl.compare_sets(values(), [values(), values()])


def test_sets_with_nothing_but_inputs_in_common_are_refused():
    ours, theirs = values(), {"x": values()["x"], "other": random(3, 5)}
    sides = [osl.ReferenceSet.of(tensors, inputs=["x"]) for tensors in (ours, theirs)]

    with pytest.raises(ReferenceSetError, match=r"has none of the 4 tensors|matches one of"):
        osl.compare_sets(*sides, map="names")


def test_an_output_without_a_partner_is_not_proved_by_other_samples():
    theirs = renamed(values(), "in a b c")
    theirs["c"] = theirs["c"][:, :5]

    result = osl.compare_sets([values()] * 2, [theirs] * 2)

    assert not result.match
    assert result.failing == [0, 1]
