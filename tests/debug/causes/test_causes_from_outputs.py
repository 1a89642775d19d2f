"""Causes from the outputs alone: the same mistake of several nodes, told by what follows from a rule."""

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.causes import model, numbers
from onnxsurgeon_lite.debug.causes import finding, operators, recurrent


def named(wrong, right, feeds: dict, fresh: dict) -> str:
    """The first cause, of a model whose repair agrees on fresh inputs, from the outputs alone."""
    result = osl.bisect(wrong, osl.run(right, feeds=feeds), feeds=feeds)
    fixed = osl.repair(wrong, result).model
    made, known = (osl.run(each, feeds=fresh) for each in (fixed, right))
    for name in known:
        np.testing.assert_allclose(made[name], known[name], rtol=1e-3, atol=1e-4)
    return result.culprits[0].causes[0].sentence


def images(*shape: int) -> tuple[dict, dict]:
    return {"x": numbers(*shape, seed=8)}, {"x": numbers(*shape, seed=9)}


def pads(*ends: int) -> np.ndarray:
    return np.array([0, 0, *ends[:2], 0, 0, *ends[2:]])


def test_pads_of_kernels_of_two_sizes_follow_from_one_rule():
    text = """g (float[1,3,16,16] x) => (float[1,4] y) {
        a = Pad (x, p) b = Conv <strides = [2, 2]> (a, w) c = Relu (b)
        d = Pad (c, q) e = Conv <strides = [2, 2]> (d, v) f = Relu (e)
        h = GlobalAveragePool (f) i = Flatten (h) y = MatMul (i, u)
    }"""
    weights = {
        "w": numbers(6, 3, 3, 3),
        "v": numbers(8, 6, 5, 5, seed=1),
        "u": numbers(8, 4, seed=2),
    }
    wrong = model(text, p=pads(1, 1, 1, 1), q=pads(2, 2, 2, 2), **weights)
    right = model(text, p=pads(0, 0, 1, 1), q=pads(1, 1, 2, 2), **weights)

    sentence = named(wrong, right, *images(1, 3, 16, 16))

    assert "pads of Pad (@0) are [0, 0, 1, 1, 0, 0, 1, 1], the same at Pad (@3)" in sentence
    assert "with those of SAME_UPPER, [0, 0, 0, 0, 0, 0, 1, 1]," in sentence


def test_new_channels_of_blocks_of_several_sizes_are_at_the_wrong_end():
    text = """g (float[1,4,6,6] x) => (float[1,16,6,6] y) {
        a = Conv (x, w) b = Pad (x, p) c = Add (a, b) d = Relu (c)
        e = Conv (d, v) f = Pad (d, q) h = Add (e, f) i = Relu (h) y = Conv (i, u)
    }"""
    weights = {
        "w": numbers(6, 4, 1, 1),
        "v": numbers(12, 6, 1, 1, seed=1),
        "u": numbers(16, 12, 1, 1, seed=2),
    }
    before, behind = (
        model(text, **weights, **{"p": np.array(first), "q": np.array(second)})
        for first, second in (
            ([0, 2, 0, 0, 0, 0, 0, 0], [0, 6, 0, 0, 0, 0, 0, 0]),
            ([0, 0, 0, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, 6, 0, 0]),
        )
    )

    sentence = named(before, behind, *images(1, 4, 6, 6))

    assert "of Pad (@1) is [0, 2, 0, 0, 0, 0, 0, 0], the same at Pad (@5); with" in sentence


def test_nodes_that_only_name_constants_are_not_counted():
    """TorchScript writes an Identity for each reader of a constant that several nodes share."""
    names = [f"c{number}" for number in range(600)]
    shared = " ".join(f"{name} = Identity (one)" for name in names)
    text = "g (float[4,8] x) => (float[4,8] y) {{ a = {} (x) {} s = Sum (a, {}) t = Sin (s) y = MatMul (t, w) }}"
    wrong, right = (
        model(text.format(op_type, shared, ", ".join(names)), one=np.float32(1e-3), w=numbers(8, 8))
        for op_type in ("Cos", "Sin")
    )
    given = {"x": numbers(4, 8, seed=8)}, {"x": numbers(4, 8, seed=9)}

    assert "Cos (@0) should be Sin; with that" in named(wrong, right, *given)


def test_dilations_of_branches_are_half_as_large():
    def branches(near: int, far: int):
        return model(
            f"""g (float[1,3,16,16] x) => (float[1,6,16,16] y) {{
                z = Conv <pads = [1,1,1,1]> (x, u) r = Relu (z)
                a = Conv <dilations = [{near},{near}], pads = [{near},{near},{near},{near}]> (r, w)
                b = Conv <dilations = [{far},{far}], pads = [{far},{far},{far},{far}]> (r, v)
                c = Relu (a) d = Relu (b) e = Concat <axis = 1> (c, d)
                y = Conv <pads = [1,1,1,1]> (e, t)
            }}""",
            u=numbers(4, 3, 3, 3),
            w=numbers(4, 4, 3, 3, seed=1),
            v=numbers(4, 4, 3, 3, seed=2),
            t=numbers(6, 8, 3, 3, seed=3),
        )

    sentence = named(branches(1, 2), branches(2, 4), *images(1, 3, 16, 16))

    assert "the same at Conv (@3); with dilations=[2, 2], pads=[2, 2, 2, 2]" in sentence


@pytest.mark.parametrize("order", [[3, 0, 1, 2], [1, 2, 3, 0]])
def test_operands_of_a_concatenation_are_moved(order):
    read = [f"p{number}" for number in order]
    head = "g (float[4,9] x) => (float[4,1] y) { p0, p1, p2, p3 = Split <axis = 1> (x, s) "
    tail = " m = MatMul (c, w) n = Relu (m) o = MatMul (n, v) y = Sigmoid (o) }"
    constants = {"s": np.array([1, 3, 2, 3]), "w": numbers(9, 16), "v": numbers(16, 1, seed=1) / 4}
    wrong, right = (
        model(f"{head} c = Concat <axis = 1> ({', '.join(parts)}) {tail}", **constants)
        for parts in (["p0", "p1", "p2", "p3"], read)
    )

    sentence = named(wrong, right, *images(4, 9))

    how = "the last one first" if order[0] == 3 else "the first one last"
    assert f"Concat (@1) reads its operands in the wrong order; {how}" in sentence


def test_two_axes_of_a_split_are_exchanged_before_they_are_put_in_order():
    text = """g (float[1,6,4,5] x) => (float[1,2,4,5,3] y) {{
        r = Reshape (x, s) t = Transpose <perm = {}> (r) e = Tanh (t) y = Mul (e, w)
    }}"""
    w = numbers(1, 2, 1, 1, 3)
    wrong = model(text.format([0, 2, 3, 4, 1]), s=np.array([1, 3, 2, 4, 5]), w=w)
    right = model(text.format([0, 1, 3, 4, 2]), s=np.array([1, 2, 3, 4, 5]), w=w)

    sentence = named(wrong, right, *images(1, 6, 4, 5))

    assert "Reshape (@0) splits into [1, 3, 2, 4, 5]" in sentence
    assert "with [1, 2, 3, 4, 5] and [0, 1, 3, 4, 2]" in sentence


def attending(masked: bool):
    """Two layers that attend, and a sum of what a mask shows."""
    nodes = "m = Unsqueeze (mask, one) f = Cast <to = 9> (m)" * masked
    for x, y in ("x", "h"), ("h", "l"):
        nodes += f" q{y} = MatMul ({x}, w) k{y} = MatMul ({x}, v) t{y} = Transpose <perm = [0, 2, 1]> (k{y})"
        nodes += f" s{y} = MatMul (q{y}, t{y})" + f" u{y} = Where (f, s{y}, low)" * masked
        nodes += f" a{y} = Softmax ({'us'[not masked]}{y}) o{y} = MatMul (a{y}, {x}) {y} = Add (o{y}, {x})"
    nodes += (
        " c = Cast <to = 1> (mask) d = Unsqueeze (c, two) e = Mul (l, d) y = ReduceSum (e, one)"
    )
    constants = {"w": numbers(8, 8), "v": numbers(8, 8, seed=1), "low": np.array(-1e9, np.float32)}
    constants |= {"one": np.array([1]), "two": np.array([2])}
    text = f"g (float[2,6,8] x, int64[2,6] mask) => (float[2,1,8] y) {{ {nodes} }}"
    return model(text, **constants)


def test_the_mask_that_every_layer_lacks_is_named():
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]])
    feeds = {"x": numbers(2, 6, 8, seed=3) / 2, "mask": mask}
    fresh = {"x": numbers(2, 6, 8, seed=4) / 2, "mask": mask[::-1].copy()}

    sentence = named(attending(False), attending(True), feeds, fresh)

    assert "attends to what the mask 'mask' hides, and Softmax" in sentence


def test_a_triangle_that_ignores_the_keys_of_a_cache_is_moved_by_their_number():
    text = """g (float[2,8] q, float[5,8] past) => (float[2,8] y) {
        k = Concat <axis = 0> (past, q) t = Transpose <perm = [1, 0]> (k) s = MatMul (q, t)
        o = Shape (s) e = ConstantOfShape <value = float[1] {1}> (o) m = Trilu <upper = 0> (e, by)
        f = Cast <to = 9> (m) u = Where (f, s, low) a = Softmax (u) y = MatMul (a, k)
    }"""
    wrong, right = (model(text, by=np.array(by), low=np.array(-1e9, np.float32)) for by in (0, 5))
    feeds, fresh = ({"q": numbers(2, 8, seed=n), "past": numbers(5, 8, seed=n + 1)} for n in (1, 3))

    sentence = named(wrong, right, feeds, fresh)

    assert "of Trilu (@5) is 0; with 5" in sentence


def test_a_bias_is_found_through_the_function_behind_it():
    text = "g (float[3,8] x) => (float[3,2] y) {{ a = MatMul (x, w) {} y = Sigmoid (b) }}"
    weights = {"w": numbers(8, 2) / 3}
    wrong = model(text.format("b = Identity (a)"), **weights)
    right = model(text.format("b = Add (a, two)"), two=np.array(-2, np.float32), **weights)

    sentence = named(wrong, right, *images(3, 8))

    assert "-2 is not added behind " in sentence


def test_mean_and_deviation_of_pixels_are_in_one_wrong_order():
    text = """g (float[1,3,8,8] x) => (float[1,4,6,6] y) {
        a = Sub (x, mean) b = Div (a, deviation) y = Conv (b, w)
    }"""
    mean, deviation = (
        np.array(each, np.float32).reshape(1, 3, 1, 1)
        for each in ((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))
    )
    kernel = numbers(4, 3, 3, 3)
    wrong = model(text, mean=mean[:, ::-1].copy(), deviation=deviation[:, ::-1].copy(), w=kernel)
    right = model(text, mean=mean, deviation=deviation, w=kernel)

    sentence = named(wrong, right, *images(1, 3, 8, 8))

    assert "each of 'mean', 'deviation' is reversed along the axis that they share" in sentence


def test_the_last_step_of_both_directions_is_the_first_one_of_the_second():
    gru = 'GRU <hidden_size = 4, direction = "bidirectional"> (x, w, r)'
    head = (
        f"g (float[5,2,3] x) => (float[2,6] y) {{{{ h = {gru} t = Transpose <perm = [0,2,1,3]> (h)"
    )
    head += " s = Reshape (t, shape) {} y = MatMul (e, v) }}"
    taken = "e = Gather <axis = 0> (s, last)"
    ends = (
        "f = Gather <axis = 0> (s, last) b = Gather <axis = 0> (s, first) p, q = Split <axis = 1> (f, halves)"
        " u, o = Split <axis = 1> (b, halves) e = Concat <axis = 1> (p, o)"
    )
    weights = {"w": numbers(2, 12, 3), "r": numbers(2, 12, 4, seed=1), "v": numbers(8, 6, seed=2)}
    weights |= {"shape": np.array([5, 2, 8]), "last": np.array(-1)}
    wrong = model(head.format(taken), **weights)
    right = model(head.format(ends), **weights, first=np.array(0), halves=np.array([4, 4]))

    sentence = named(wrong, right, *images(5, 2, 3))

    assert "takes one step of both directions; with the last of the first half" in sentence


def test_both_halves_of_the_gate_of_every_layer_are_exchanged():
    nodes = ""
    for x, y in ("x", "h"), ("h", "y"):
        nodes += f" g{y} = MatMul ({x}, a{y}) u{y} = MatMul ({x}, b{y}) s{y} = Sigmoid (g{y})"
        nodes += f" m{y} = Mul (g{y}, s{y}) p{y} = Mul (m{y}, u{y}) d{y} = MatMul (p{y}, w) {y} = Add ({x}, d{y})"
    text = f"g (float[5,8] x) => (float[5,8] y) {{ {nodes} }}"
    gates = {f"a{y}": numbers(8, 12, seed=n) / 3 for n, y in enumerate("hy")}
    ups = {f"b{y}": numbers(8, 12, seed=n + 2) / 3 for n, y in enumerate("hy")}
    exchanged = {f"a{y}": ups[f"b{y}"] for y in "hy"} | {f"b{y}": gates[f"a{y}"] for y in "hy"}
    w = numbers(12, 8, seed=5) / 3

    sentence = named(model(text, w=w, **exchanged), model(text, w=w, **gates, **ups), *images(5, 8))

    assert "'gh' and 'uh' are exchanged" in sentence
    assert "'gy' and 'uy' are exchanged" in sentence or "the same at" in sentence


def test_what_is_resized_twice_is_multiplied_twice():
    def flows(made: str, doubled: str):
        return model(
            f"""g (float[1,3,8,8] x) => (float[1,2,32,32] y) {{
                a = Conv <pads = [1,1,1,1]> (x, w) b{made} = Resize <mode = "linear"> (a, , s)
                {doubled.format("b")} d = Resize <mode = "linear"> (x, , s)
                e = Concat <axis = 1> (b, d) f = Conv <pads = [1,1,1,1]> (e, v) h = Tanh (f)
                i = Add (b, h) y{made} = Resize <mode = "linear"> (i, , s) {doubled.format("y")}
            }}""",
            k=np.float32(2),
            s=np.array([1, 1, 2, 2], np.float32),
            w=numbers(2, 3, 3, 3),
            v=numbers(2, 5, 3, 3, seed=1),
        )

    wrong, right = flows("", ""), flows("0", "{0} = Mul ({0}0, k)")

    sentence = named(wrong, right, *images(1, 3, 8, 8))

    assert "is not multiplied by 2 before" in sentence
    assert "the result of Resize (@7) is not multiplied by 2; with it" in sentence


def test_the_channels_of_two_levels_are_moved_to_the_end():
    def heads(*moved: str):
        first, second = (f"{m} = Transpose <perm = [0, 2, 3, 1]> ({m[0]})" for m in ("am", "bm"))
        return model(
            f"""g (float[1,3,8,8] x) => (float[1,60,4] y) {{
                a = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w) r = Relu (a)
                b = Conv <pads = [1,1,1,1], strides = [2,2]> (r, v)
                {first if moved else ""} {second if moved else ""}
                c = Reshape ({"am" if moved else "a"}, s) d = Reshape ({"bm" if moved else "b"}, s)
                e = Concat <axis = 1> (c, d) y = Softmax <axis = -1> (e)
            }}""",
            s=np.array([1, -1, 4]),
            w=numbers(12, 3, 3, 3),
            v=numbers(12, 12, 3, 3, seed=1),
        )

    sentence = named(heads(), heads("moved"), *images(1, 3, 8, 8))

    assert "Transpose [0, 2, 3, 1] is missing between 'a' and Reshape" in sentence
    assert "Transpose [0, 2, 3, 1] is missing between 'b' and Reshape" in sentence


def test_the_value_of_another_layer_is_read():
    """Features of the layer before the last one, say: no other layer has a reader like this one."""

    def layers(tap: str):
        rows = [
            f"m{k} = MatMul (x{k}, w{k}) b{k} = Add (m{k}, c{k}) r{k} = Tanh (b{k}) x{k + 1} = Add (x{k}, r{k})"
            for k in range(4)
        ]
        rows.append(f"s = Slice ({tap}, one, five, one) h = MatMul (s, v) y = Sigmoid (h)")
        rows.append("p = MatMul (x4, u) z = Tanh (p)")
        weights = {f"w{k}": numbers(8, 8, seed=k) / 2 for k in range(4)}
        weights |= {f"c{k}": numbers(8, seed=9 + k) for k in range(4)}
        weights |= {"v": numbers(4, 3, seed=20), "u": numbers(8, 2, seed=21)}
        text = f"g (float[6,8] x0) => (float[6,3] y, float[6,2] z) {{ {' '.join(rows)} }}"
        return model(text, **weights, one=np.array([1]), five=np.array([5]))

    given = {"x0": numbers(6, 8, seed=8)}, {"x0": numbers(6, 8, seed=9)}
    sentence = named(layers("x4"), layers("x3"), *given)

    assert "Slice (@16) reads 'x4'; with 'x3', the same of another layer," in sentence


@pytest.mark.parametrize("pool", ["ReduceMax", "ReduceSum", "ReduceMean"])
def test_what_is_pooled_counts_padding(pool):
    """As in a sentence's embedding, or the weights of a sparse retriever."""
    text = """g (float[2,5,4] x, int64[2,5] mask) => (float[2,3] y) {{
        e = Sigmoid (x) {} s = Sub (p, one) h = MatMul (s, w) y = Tanh (h)
    }}"""
    over = "p = {} <keepdims = 0{}> ({})"
    all_axes = ("", "{}, axis") if pool == "ReduceSum" else (", axes = [1]", "{}")
    whole = over.format(pool, all_axes[0], all_axes[1].format("e"))
    masked = "c = Cast <to = 1> (mask) u = Unsqueeze (c, two) m = Mul (e, u) "
    if pool == "ReduceMean":
        masked += "a = ReduceSum <keepdims = 0> (m, axis) n = ReduceSum <keepdims = 0> (u, axis) p = Div (a, n)"
    else:
        masked += over.format(pool, all_axes[0], all_axes[1].format("m"))
    constants = {"axis": np.array([1]), "two": np.array([2])}
    constants |= {"one": np.float32(1), "w": numbers(4, 3)}
    # ReduceMax and ReduceMean have their axes as an attribute before opset 18
    wrong, right = (model(text.format(nodes), **constants) for nodes in (whole, masked))
    for each in (wrong, right):
        each.opset_import[0].version = 13
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    given, fresh = ({"x": numbers(2, 5, 4, seed=seed), "mask": mask} for seed in (8, 9))

    what = pool.removeprefix("Reduce").lower()
    said = f"is the {what} of all positions of axis 1; with the {what} of those that 'mask' shows"
    assert said in named(wrong, right, given, fresh)


def test_frames_are_taken_from_the_first_to_the_last():
    text = "g (float[1,3,16,4] x) => (float[1,2,4,4] y) { f = Gather <axis = 2> (x, i) y = Conv (f, w) }"
    weights = {"w": numbers(2, 3, 1, 1)}
    each_fourth, whole = (
        model(text, i=np.array(indices), **weights) for indices in ([0, 4, 8, 12], [0, 5, 10, 15])
    )

    sentence = named(each_fourth, whole, *images(1, 3, 16, 4))

    assert "constant 'i' of Gather (@0) is [0, 4, 8, 12]; with [0, 5, 10, 15]" in sentence


def test_points_lack_half_a_pixel():
    text = """g (float[2,6,2] x) => (float[2,6,4] y) {{
        a = Mul (x, scale) {} c = Div ({}, size) d = MatMul (c, w) e = Sin (d) y = MatMul (e, v)
    }}"""
    constants = {"scale": np.float32(1.5), "size": np.float32([64, 48]), "half": np.float32(0.5)}
    weights = {"w": numbers(2, 8), "v": numbers(8, 4, seed=1)}
    wrong, right = (
        model(text.format(*nodes), **constants, **weights)
        for nodes in (("", "a"), ("b = Add (a, half)", "b"))
    )
    given, fresh = ({"x": np.abs(numbers(2, 6, 2, seed=seed)) * 20} for seed in (8, 9))

    sentence = named(wrong, right, given, fresh)

    assert "0.5 is not added to 'a' before Div" in sentence


def test_a_family_that_fails_leaves_the_others(monkeypatch):
    def broken(place):
        raise ValueError("a bug")
        yield

    monkeypatch.setattr(finding, "FAMILIES", (broken, *finding.FAMILIES))
    wrong, right = (
        model(f"g (float[4,8] x) => (float[4,8] y) {{ a = {op_type} (x) y = MatMul (a, w) }}", w=w)
        for w in [numbers(8, 8)]
        for op_type in ("Cos", "Sin")
    )
    feeds = {"x": numbers(4, 8, seed=1)}

    result = osl.bisect(wrong, osl.run(right, feeds=feeds), feeds=feeds)

    assert "Cos (@0) should be Sin" in result.culprits[0].causes[0].sentence
    assert any("left out: internal error (ValueError)" in note for note in result.notes)


def test_sizes_that_are_read_one_by_one_beside_a_recurrent_node_are_no_steps(monkeypatch):
    families = recurrent.ends_of_directions, operators.other_operators
    monkeypatch.setattr(finding, "FAMILIES", families)
    text = """g (float[6,2,4] x) => (float[2,5] y) {{
        z = Shape (x) n = Gather (z, one) f = Cast <to = 1> (n)
        s, h = LSTM <hidden_size = 5> (x, w, r) t = Squeeze (h, zeros) d = Div (t, f) y = {} (d)
    }}"""
    weights = {"w": numbers(1, 20, 4), "r": numbers(1, 20, 5, seed=1) / 2}
    wrong, right = (
        model(text.format(op_type), one=np.array(1), zeros=np.array([0]), **weights)
        for op_type in ("Cos", "Sin")
    )
    feeds = {"x": numbers(6, 2, 4, seed=8)}

    result = osl.bisect(wrong, osl.run(right, feeds=feeds), feeds=feeds)

    assert "should be Sin; with that" in result.culprits[0].causes[0].sentence
    assert not any("internal error" in note for note in result.notes)
