"""Causes of several edits: what is missing at once, what stands together, what is solved for."""

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit.causes import found, model, numbers, references
from onnxsurgeon_lite.debug.causes import finding
from onnxsurgeon_lite.debug.causes.finding import Finder
from onnxsurgeon_lite.debug.causes.operations import moved
from onnxsurgeon_lite.debug.causes.wiring import wiring


def named(wrong, right, keep: str, **feeds: np.ndarray) -> str:
    """The first cause, of a model whose repair agrees, against some of the right model's values."""
    known = {name: value for name, value in references(right, **feeds).items() if name in keep}
    result = osl.bisect(wrong, known, feeds=feeds)

    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, known, feeds=feeds, cause=False).verdict == "agrees"
    return result.culprits[0].causes[0].sentence


def test_a_bias_of_the_state_that_is_zero_is_solved_for_behind_a_normalization(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", ())
    lstm = 'LSTM <hidden_size = 10, direction = "bidirectional"> (x, w, r, b)'
    nodes = f"h = {lstm} y = LayerNormalization (h, s, c)"
    text = f"g (float[15,1,12] x) => (float[15,2,1,10] y) {{ {nodes} }}"
    weights = {"w": numbers(2, 40, 12) / 3, "r": numbers(2, 40, 10, seed=1) / 3}
    weights |= {"s": numbers(10, seed=3), "c": numbers(10, seed=4)}
    bias = numbers(2, 80, seed=2) / 2
    wrong = bias.copy()
    wrong[0, 40:] = 0
    x = numbers(15, 1, 12, seed=5)

    sentence = named(model(text, b=wrong, **weights), model(text, b=bias, **weights), "y", x=x)

    assert "'b' of LSTM (@0) is zero at 40 places in [0] of axis 0" in sentence


def test_kernels_of_groups_in_another_order_are_seen_behind_a_folded_normalization():
    text = "g (float[2,6,9,9] x) => (float[2,6,7,7] y) { y = Conv <group = 6> (x, w) }"
    kernel, scale = (
        numbers(6, 1, 3, 3),
        np.linspace(0.5, 2, 6).astype(np.float32)[:, None, None, None],
    )
    wrong, right = model(text, w=kernel[::-1] * scale), model(text, w=kernel * scale)

    sentence = named(wrong, right, "y", x=numbers(2, 6, 9, 9, seed=1))

    assert "'w' of Conv (@0) is reversed along axis 0; turned around, behind a scale" in sentence


@pytest.mark.parametrize("rank", [1, 2])
def test_kernels_are_solved_for(rank):
    sizes = "40" if rank == 1 else "9,9"
    text = f"g (float[2,4,{sizes}] x) => (float y) {{ y = Conv <group = {rank}> (x, w) }}"
    kernel = numbers(6, 4 // rank, *[3] * rank)
    wrong = kernel.copy()
    wrong[3] = numbers(*wrong[3].shape, seed=2)

    sentence = named(
        model(text, w=wrong),
        model(text, w=kernel),
        "y",
        x=numbers(2, 4, *([40] if rank == 1 else [9, 9]), seed=1),
    )

    assert "'w' of Conv (@0) differs only at [3] of axis 0; solved for" in sentence


def test_rows_of_a_table_that_no_input_chooses_are_solved_for():
    text = "g (float[6,6,3] x) => (float[6,6,3] y) { t = Gather (w, i) y = Add(x, t) }"
    apart = np.arange(6)[None] - np.arange(6)[:, None]
    table = numbers(12, 3)
    both, causal = np.abs(apart) + 6 * (apart > 0), np.maximum(-apart, 0)

    sentence = named(
        model(text, w=table, i=both),
        model(text, w=table, i=causal),
        "y",
        x=numbers(6, 6, 3, seed=1),
    )

    assert "Gather (@0) takes other rows of 'w' at 15 of 36 places" in sentence


@pytest.mark.parametrize("half", [False, True])
def test_a_key_that_is_not_turned_is_turned_by_the_angles_of_the_query(half):
    turn = (
        "{0}1, {0}2 = Split <axis = -1, num_outputs = 2> ({0}) {0}n = Neg({0}2)"
        " {0}t = Concat <axis = -1> ({0}n, {0}1) {0}c = Mul({0}, cos) {0}s = Mul({0}t, sin)"
        " {0}r = Add({0}c, {0}s) "
    )
    if half:
        turn = (
            "{0}1, {0}2 = Split <axis = -1, num_outputs = 2> ({0}) {0}a = Mul({0}1, cos) {0}b = Mul({0}2, sin)"
            " {0}c = Mul({0}2, cos) {0}d = Mul({0}1, sin) {0}e = Sub({0}a, {0}b) {0}f = Add({0}c, {0}d)"
            " {0}r = Concat <axis = -1> ({0}e, {0}f) "
        )
    end = "t = Transpose <perm = [0,2,1]> ({}) y = MatMul(qr, t)"
    head = "g (float[2,7,6] q, float[2,7,6] k) => (float[2,7,7] y) { "
    angles = np.outer(np.arange(7), 100 ** (-np.arange(3) / 3)).astype(np.float32)
    angles = angles if half else np.tile(angles, 2)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    right = model(f"{head}{turn.format('q')}{turn.format('k')}{end.format('kr')} }}", **tables)
    wrong = model(f"{head}{turn.format('q')}{end.format('k')} }}", **tables)
    feeds = {"q": numbers(2, 7, 6), "k": numbers(2, 7, 6, seed=1)}

    sentence = named(wrong, right, "y", **feeds)

    assert "'k' is not turned by the rotary embedding of 'cos' and 'sin'" in sentence


def test_strides_of_two_convolutions_are_exchanged():
    conv = "Conv <strides = [{0},{0}], pads = [1,1,1,1]>"
    nodes = f"h = {conv} (x, w) y = {conv.replace('0', '2')} (h, v)".replace("{2}", "{1}")
    text = f"g (float[1,3,12,12] x) => (float[1,5,6,6] y) {{{{ {nodes} }}}}"
    weights = {"w": numbers(4, 3, 3, 3), "v": numbers(5, 4, 3, 3, seed=1)}
    right, wrong = (model(text.format(*strides), **weights) for strides in ((2, 1), (1, 2)))

    sentence = named(wrong, right, "y", x=numbers(1, 3, 12, 12, seed=2))

    assert "strides of Conv (@0) and Conv (@1) are [1, 1] and [2, 2]; exchanged" in sentence


def test_another_number_of_groups_comes_before_a_second_normalization():
    nodes = (
        "f = Reshape(x, split) n = InstanceNormalization (f, ones, zeros) h = Reshape(n, whole)"
        " m = Mul(h, s) y = Add(m, b)"
    )
    text = f"g (float[1,6,5,4] x) => (float[1,6,5,4] y) {{ {nodes} }}"

    def normalized(groups: int):
        ones, sizes = np.ones(groups, np.float32), {"whole": np.array([1, 6, 5, 4])}
        sizes |= {"split": np.array([0, groups, -1]), "ones": ones, "zeros": 0 * ones}
        return model(text, s=numbers(6, 1, 1), b=numbers(6, 1, 1, seed=1), **sizes)

    x = numbers(1, 6, 5, 4, seed=2) * np.arange(1, 7, dtype=np.float32)[:, None, None]

    sentence = named(normalized(1), normalized(3), "y", x=x)

    assert "normalizes 6 channels in 1 groups; in 3" in sentence


def test_a_window_of_attention_is_of_another_size():
    text = "g (float[2,9,9] x) => (float[2,9,9] y) { m = Add(x, mask) y = Softmax(m) }"
    ahead = np.arange(9)[None] - np.arange(9)[:, None]

    def mask(size: int) -> np.ndarray:
        return np.where((ahead <= 0) & (ahead > -size), 0, -1e9).astype(np.float32)

    sentence = named(model(text, mask=mask(5)), model(text, mask=mask(4)), "y", x=numbers(2, 9, 9))

    assert (
        "'mask' of Add (@0) is a mask that keeps -4 .. 0 positions ahead; with -3 .. 0" in sentence
    )


def test_an_image_is_moved_along_height_and_width():
    cut = "r = Reshape({}, sizes) w = Transpose <perm = [0,1,3,2,4,5]> (r) y = Tanh(w)"
    roll = "a = Gather <axis = 1> (x, i) b = Gather <axis = 2> (a, i) "
    text = f"g (float[1,8,8,3] x) => (float[1,2,2,4,4,3] y) {{{{ {{}}{cut} }}}}"
    known = {"sizes": np.array([1, 2, 4, 2, 4, 3])}
    right = model(text.format(roll, "b"), i=np.roll(np.arange(8), -2), **known)

    sentence = named(model(text.format("", "x"), **known), right, "y", x=numbers(1, 8, 8, 3))

    assert "'x' is off by 2 along axes 1 and 2; moved by -2" in sentence


def test_slices_of_height_and_width_are_off_together():
    nodes = "h = Slice (x, s, e, a) w = Slice (h, s, e, b) y = Tanh(w)"
    text = f"g (float[2,9,9] x) => (float[2,7,7] y) {{ {nodes} }}"
    axes = {"a": np.array([1]), "b": np.array([2])}
    wrong, right = (model(text, s=np.array([n]), e=np.array([n + 7]), **axes) for n in (0, 1))

    sentence = named(wrong, right, "y", x=numbers(2, 9, 9))

    assert "Slice (@0) is off by 1, the same at Slice (@1); moved by 1" in sentence


def test_key_and_value_read_another_value_than_the_query():
    parts = "q = MatMul(x, a) k = MatMul({0}, b) v = MatMul({0}, c)"
    parts += " t = Transpose <perm = [0,2,1]> (k) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v)"
    text = f"g (float[2,6,8] x, float[2,6,8] m) => (float[2,6,8] y) {{{{ {parts} }}}}"
    weights = {name: numbers(8, 8, seed=seed) / 3 for seed, name in enumerate("abc")}
    right, wrong = (model(text.format(read), **weights) for read in "mx")
    feeds = {"x": numbers(2, 6, 8, seed=4), "m": numbers(2, 6, 8, seed=5)}

    sentence = named(wrong, right, "y", **feeds)

    assert "MatMul (@1) and MatMul (@2) read 'x'; with 'm'" in sentence


def test_heads_that_are_repeated_in_another_order():
    text = "g (float[1,2,5,4] v, float[1,6,5,5] p) => (float[1,6,5,4] y) {{ {} y = MatMul(p, t) }}"
    wrong = model(text.format("t = Tile(v, n)"), n=np.array([1, 3, 1, 1]))
    right = model(text.format("t = Gather <axis = 1> (v, n)"), n=np.arange(6) // 3)
    feeds = {"v": numbers(1, 2, 5, 4), "p": numbers(1, 6, 5, 5, seed=1)}

    sentence = named(wrong, right, "y", **feeds)

    assert "the order of 't' is another: it is interleaved along axis 1" in sentence


def test_a_normalization_moves_over_a_large_region(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (moved,))
    pairs = "{0}1 = Neg({0}) {0}2 = Tanh({0}1) {0}3 = Neg({0}2) {0}4 = Sigmoid({0}3) "
    pairs += "{0}5 = Sqrt({0}4) {0}6 = Neg({0}5) "
    both = pairs.format("a") + pairs.format("b")
    norm = "n = LayerNormalization ({}, s, c)"
    start = "g (float[4,8] x) => (float[4,8] y) { q = MatMul(x, w) "
    end = "{} z = Add(a6, b6) t = MatMul(z, v) "
    wrong = (
        f"{start}{norm.format('q')} a = Neg(n) b = Exp(n) {both}{end.format('')} y = Identity(t) }}"
    )
    right = f"{start} a = Neg(q) b = Exp(q) {both}{end.format('')} {norm.format('t')} y = Identity(n) }}"
    weights = {
        "w": numbers(8, 8),
        "v": numbers(8, 8, seed=1),
        "s": numbers(8, seed=2),
        "c": numbers(8, seed=3),
    }
    models = (model(text, **weights) for text in (wrong, right))

    sentence = named(*models, "y", x=numbers(4, 8, seed=4))

    assert "stands at the wrong place" in sentence


def test_no_node_reads_a_size_for_another_value():
    said: list[str] = []

    def watched(place):
        for hypothesis in wiring(place):
            said.append(hypothesis.sentence)
            yield hypothesis

    sizes = "s = Shape(x) a = Gather(s, zero) b = Gather(s, one) c = Mul(a, b) d = Add(a, b)"
    text = f"g (float[4,6] x) => (float[10] y) {{{{ {sizes} e = {{}}(x) y = Expand(e, d) }}}}"
    text = text.replace("Expand(e, d)", "ReduceSum<keepdims = 0>(e, zero)").replace(
        "float[10]", "float[6]"
    )
    known = {"zero": np.array([0]), "one": np.array([1])}

    found(model(text.format("Tanh"), **known), model(text.format("Relu"), **known), x=numbers(4, 6))

    assert not [sentence for sentence in said if "'a'" in sentence or "'b'" in sentence]


def test_a_region_is_not_searched_once_more_as_a_fork(monkeypatch):
    searched: list[tuple[int, ...]] = []
    search = Finder._search

    def counted(self, place, *rest):
        searched.append(tuple(place.positions))
        return search(self, place, *rest)

    monkeypatch.setattr(Finder, "_search", counted)
    nodes = "h = MatMul(x, w) a = Add(h, x) y = Mul(a, h)"
    text = f"g (float[6,6] x) => (float[6,6] y) {{ {nodes} }}"
    right, wrong = model(text, w=numbers(6, 6)), model(text, w=numbers(6, 6, seed=1))
    known = {"y": references(right, x=numbers(6, 6, seed=2))["y"]}

    osl.bisect(wrong, known, feeds={"x": numbers(6, 6, seed=2)})

    assert len(searched) == len(set(searched))


def test_query_and_key_are_not_turned_and_no_table_is_there():
    turn = (
        "{0}1, {0}2 = Split <axis = -1, num_outputs = 2> ({0}) {0}n = Neg({0}2)"
        " {0}t = Concat <axis = -1> ({0}n, {0}1) {0}c = Mul({0}, cos) {0}s = Mul({0}t, sin)"
        " {0}r = Add({0}c, {0}s) "
    )
    end = "t = Transpose <perm = [0,2,1]> ({}) y = MatMul({}, t)"
    head = "g (float[2,7,8] q, float[2,7,8] k) => (float[2,7,7] y) { "
    angles = np.tile(np.outer(np.arange(7), 10000 ** (-np.arange(4) / 4)), 2).astype(np.float32)
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    turns = turn.format("q") + turn.format("k")
    right = model(f"{head}{turns}{end.format('kr', 'qr')} }}", **tables)
    feeds = {"q": numbers(2, 7, 8), "k": numbers(2, 7, 8, seed=1)}

    sentence = named(model(f"{head}{end.format('k', 'q')} }}"), right, "y", **feeds)

    assert "is not turned by the rotary embedding of 'cos of base 10000" in sentence
    assert "'q'" in sentence
    assert "'k'" in sentence


def test_two_factors_are_missing_at_once():
    nodes = "a = MatMul(x, u) {} b = Add(x, {}) n = Tanh(b) c = MatMul(n, v) {} y = Add(b, {})"
    text = f"g (float[5,8] x) => (float[5,8] y) {{{{ {nodes} }}}}"
    weights = {"u": numbers(8, 8), "v": numbers(8, 8, seed=1)}
    halved = text.format("ah = Mul(a, half)", "ah", "ch = Mul(c, half)", "ch")
    right = model(halved, half=np.float32(0.5), **weights)

    sentence = named(model(text.format("", "a", "", "c"), **weights), right, "y", x=numbers(5, 8))

    assert "'a' is not multiplied by" in sentence
    assert "and 'c' is not multiplied by" in sentence


def test_a_factor_is_missing_behind_a_bias():
    text = "g (float[5,8] x) => (float[5,8] y) {{ a = MatMul(x, w) b = Add(a, c) {} s = Add(x, {}) y = Tanh(s) }}"
    weights = {"w": numbers(8, 8), "c": numbers(8, seed=1)}
    right = model(text.format("h = Mul(b, half)", "h"), half=np.float32(0.5), **weights)

    sentence = named(model(text.format("", "b"), **weights), right, "y", x=numbers(5, 8, seed=2))

    assert "'b' is not multiplied by 0.5" in sentence or "'b' is not multiplied by 1/2" in sentence


@pytest.mark.parametrize("constant", [True, False])
def test_query_key_and_value_of_every_head_are_laid_out_part_by_part(constant):
    nodes = "h = Neg(x) s = Cast <to = 7> (c) r = Reshape(h, s) t = Transpose <perm = [2,0,3,1,4]> (r) y = Tanh(t)"
    other = nodes.replace("2,0,3,1,4", "3,0,2,1,4")
    text = "g (float[2,5,24] x) => (float[3,2,4,5,2] y) {{ {} }}"
    name, kind = ("s", np.int64) if constant else ("c", np.int32)
    if constant:
        nodes, other = (each.replace("s = Cast <to = 7> (c) ", "") for each in (nodes, other))
    right = model(text.format(nodes), **{name: np.array([2, 5, 3, 4, 2], kind)})
    wrong = model(text.format(other), **{name: np.array([2, 5, 4, 3, 2], kind)})

    sentence = named(wrong, right, "hy", x=numbers(2, 5, 24))

    what = "has 3 parts of each of 4 heads along axis 2"
    assert ("with [2, 5, 3, 4, 2] and [2, 0, 3, 1, 4]" if constant else what) in sentence


def test_a_kernel_of_three_axes_has_two_of_them_exchanged():
    text = "g (float[1,2,7,7,7] x) => (float[1,3,5,5,5] y) { y = Conv(x, w) }"
    kernel = numbers(3, 2, 3, 3, 3)
    wrong = model(text, w=kernel.swapaxes(3, 4))

    sentence = named(wrong, model(text, w=kernel), "y", x=numbers(1, 2, 7, 7, 7, seed=1))

    assert "'w' of Conv (@0) has its axes laid out in the order [0, 1, 2, 4, 3]" in sentence


def test_a_factor_follows_from_a_size_that_a_product_sums_over():
    nodes = "r = Reshape(x, sizes) t = Transpose <perm = [0,2,1]> (r) m = MatMul(r, t) s = Div(m, c) y = Softmax(s)"
    text = f"g (float[3,42] x) => (float[3,6,6] y) {{ {nodes} }}"
    right, wrong = (
        model(text, c=np.float32(np.sqrt(n)), sizes=np.array([3, 6, 7])) for n in (7, 42)
    )

    sentence = named(wrong, right, "y", x=numbers(3, 42))

    assert "'c' of Div (@3) is 6.48074; with 2.64575" in sentence


def test_a_pool_gives_what_is_behind_it_its_size():
    pool = "h = MaxPool <kernel_shape = [3,3], strides = [2,2], {}> (x)"
    text = f"g (float[1,2,11,11] x) => (float[1,3,n,m] y) {{{{ {pool} y = Conv (h, w) }}}}"
    weights = {"w": numbers(3, 2, 1, 1)}
    right, wrong = (
        model(text.format(pads), **weights) for pads in ("pads = [0,0,0,0]", "pads = [1,1,1,1]")
    )

    sentence = named(wrong, right, "y", x=numbers(1, 2, 11, 11, seed=1))

    assert "pads of MaxPool (@0) is [1, 1, 1, 1]; with [0, 0, 0, 0]" in sentence


def test_a_residual_that_is_missing_for_all_readers_is_added_for_all(monkeypatch):
    monkeypatch.setattr(finding.Finder, "_search_fork", lambda *_: [])
    nodes = "n = LayerNormalization({a}, s, b) m = MatMul(n, v) y = Add({a}, m)"
    text = "g (float[6,16] x) => (float[6,16] y) {{ k = MatMul(x, w) {more} {nodes} }}"
    weights = {"w": numbers(16, 16), "v": numbers(16, 16, seed=1)}
    weights |= {"s": numbers(16, seed=2), "b": numbers(16, seed=3)}
    right, wrong = (
        model(text.format(more=more, nodes=nodes.format(a=a)), **weights)
        for more, a in (("a = Add(k, x)", "a"), ("", "k"))
    )

    sentence = named(wrong, right, "aknmy", x=numbers(6, 16, seed=4))

    assert "'x' is not added to 'k'; with it" in sentence


def test_a_region_that_was_larger_for_one_culprit_is_searched_first_for_the_next(monkeypatch):
    searched = []
    monkeypatch.setattr(finding, "FAMILIES", (lambda place: searched.append(place.value) or (),))
    monkeypatch.setattr(finding, "SOLVED", ())
    laid_out = {
        "right": "q{n} = Reshape({of}, other) t{n} = Transpose <perm = [0, 2, 1]> (q{n}) {to} = Sigmoid(t{n})",
        "wrong": "{to} = Sigmoid(r{n})",
    }
    right, wrong = (
        model(
            f"g (float[4,12] x) => (float[4,3,4] y) {{ u = Neg(x) r0 = Reshape(u, sizes) {first}"
            f" f = Flatten(h) k = MatMul(f, w) r1 = Reshape(k, sizes) {second} }}",
            sizes=np.array([4, 3, 4]),
            other=np.array([4, 4, 3]),
            w=numbers(12, 12) / 4,
        )
        for first, second in (
            (each.format(n=0, of="u", to="h"), each.format(n=1, of="k", to="y"))
            for each in laid_out.values()
        )
    )

    x = numbers(4, 12, seed=4)

    result = osl.bisect(wrong, references(right, x=x), feeds={"x": x})

    assert [bool(culprit.causes) for culprit in result.culprits] == [True, True]
    assert searched == ["h"]


ALL = {
    "attribute": (
        "a = LeakyRelu <alpha = {0}> (x) b = MatMul(a, w) c = LeakyRelu <alpha = {0}> (b)"
        " d = MatMul(c, w) y = LeakyRelu <alpha = {0}> (d)",
        ("0.01", "0.2"),
        "alpha of LeakyRelu (@0) is 0.01, the same at LeakyRelu (@2) and LeakyRelu (@4); with 0.2",
    ),
    "operator": (
        "a = {0}(x) b = MatMul(a, w) c = {0}(b) d = MatMul(c, w) y = {0}(d)",
        ("Relu", "Gelu"),
        "Relu (@0) should be Gelu, the same at Relu (@2) and Relu (@4); with that",
    ),
    "number": (
        "p = Mul(x, {0}) a = Tanh(p) b = MatMul(a, w) q = Mul(b, {0}) c = Tanh(q)"
        " d = MatMul(c, w) r = Mul(d, {0}) y = Tanh(r)",
        ("one", "half"),
        "constant 'one' of Mul (@0) is 1, the same at Mul (@3) and Mul (@6); with 0.5",
    ),
    "epsilon": (
        "h = Mul(x, x) p = Add(h, {0}) a = Sqrt(p) b = MatMul(a, v) i = Mul(b, b) q = Add(i, {0})"
        " c = Sqrt(q) d = MatMul(c, v) j = Mul(d, d) r = Add(j, {0}) y = Sqrt(r)",
        ("large", "small"),
        "epsilon 'large' of Add (@1) is 0.01, the same at Add (@5) and Add (@9); with 1e-05",
    ),
}


@pytest.mark.parametrize("what", ALL)
def test_the_same_mistake_at_all_nodes_of_a_region_is_one_cause(what):
    nodes, (old, new), said = ALL[what]
    text = "g (float[8,8] x) => (float[8,8] y) {{ {} }}"
    weights = {
        "w": numbers(8, 8, seed=1),
        "v": numbers(8, 8, seed=1) * 0.1,
        "one": np.float32(1),
        "half": np.float32(0.5),
        "large": np.float32(1e-2),
        "small": np.float32(1e-5),
    }
    wrong, right = (model(text.format(nodes.format(each)), **weights) for each in (old, new))
    x = numbers(8, 8) * 0.3

    (culprit,) = osl.bisect(wrong, osl.run(right, {"x": x}), feeds={"x": x}).culprits

    assert said in culprit.causes[0].sentence


def test_an_operator_and_its_attribute_are_set_in_their_order_at_several_nodes():
    nodes = "a = {0} (x) y = Neg(a) b = {0} (z) o = Neg(b)"
    text = f"g (float[4,12] x, float[4,12] z) => (float[4,12] y, float[4,12] o) {{{{ {nodes} }}}}"
    hard = "HardSigmoid <alpha = 0.16666667, beta = 0.5>"
    wrong, right = (model(text.format(operator)) for operator in ("Sigmoid", hard))

    said = named(wrong, right, "abyo", x=numbers(4, 12) * 3, z=numbers(4, 12, seed=1) * 3)

    assert "all 2 Sigmoid nodes should be HardSigmoid" in said


def test_a_table_that_two_nodes_share_has_one_wrong_row():
    text = (
        "g (int64[4,7] i, int64[5] j) => (float[4,7,6] y, float[5,6] z)"
        " { a = Gather (w, i) y = Neg(a) b = Gather (w, j) z = Neg(b) }"
    )
    table = numbers(9, 6)
    wrong = table.copy()
    wrong[0] = 0
    i, j = np.arange(28).reshape(4, 7) % 9, np.array([3, 4, 0, 5, 6])
    feeds = {"i": i, "j": j}

    known = references(model(text, w=table), **feeds)
    result = osl.bisect(model(text, w=wrong), known, feeds=feeds)

    fixed = osl.repair(model(text, w=wrong), result).model
    assert osl.bisect(fixed, known, feeds=feeds, cause=False).verdict == "agrees"
    assert "'w' of Gather (@0) is zero at [0] of axis 0" in result.culprits[1].causes[0].sentence


def test_a_culprit_is_searched_again_where_the_cause_of_another_is_repaired(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (wiring,))
    monkeypatch.setattr(finding, "SOLVED", ())
    text = (
        "g (float[6,16] x) => (float[6,16] y) {{ n = Neg(x) l = MatMul(n, u) a = Add({}, l)"
        " m = LayerNormalization(a, s, b) k = MatMul(m, v) y = Add({}, k) }}"
    )
    weights = {"u": numbers(16, 16), "v": numbers(16, 16, seed=1)}
    weights |= {"s": numbers(16, seed=2), "b": numbers(16, seed=3)}
    right, wrong = (model(text.format(*read), **weights) for read in ("xa", "nm"))
    x = numbers(6, 16, seed=4)
    known = {name: value for name, value in references(right, x=x).items() if name != "a"}

    result = osl.bisect(wrong, known, feeds={"x": x})

    sentences = sorted(culprit.causes[0].sentence for culprit in result.culprits)
    assert "Add (@2) reads 'n'; with 'x'" in sentences[0]
    assert "Add (@5) reads 'm'; with 'a'" in sentences[1]
    assert sentences[1].endswith(", once the other causes are repaired")
    fixed = osl.repair(wrong, result).model
    assert osl.bisect(fixed, known, feeds={"x": x}, cause=False).verdict == "agrees"


BOXES = """g (float[6,8] x) => (float[6,6] y) {{
    h = Gemm(x, w) c, s, k = Split<axis = 1>(h, n) a = Sigmoid(c) b = Mul(s, s) v = Div(b, three)
    {} z = Sigmoid(k) y = Concat<axis = 1>(l, r, z)
}}"""


def test_parts_of_a_value_that_different_mistakes_make_wrong_have_a_cause_each():
    weights = {"w": numbers(8, 6), "n": np.int64([2, 2, 2]), "three": np.float32(3)}
    right = model(BOXES.format("l = Identity(a) r = Tanh(b)"), **weights)
    wrong = model(BOXES.format("l = Sub(a, v) r = Exp(b)"), **weights)
    x, fresh = numbers(6, 8, seed=4), {"x": numbers(6, 8, seed=5)}

    result = osl.bisect(wrong, {"y": references(right, x=x)["y"]}, feeds={"x": x})
    repaired = osl.run(osl.repair(wrong, result).model, feeds=fresh)

    sentence = result.culprits[0].causes[0].sentence
    assert "Sub (@5) is one too many" in sentence
    assert "Exp (@6) should be Tanh" in sentence
    np.testing.assert_allclose(repaired["y"], osl.run(right, feeds=fresh)["y"], rtol=1e-5)


def test_a_node_that_is_seen_at_several_values_may_have_another_mistake_behind_it_for_each():
    text = """g (float[1,4,8,8] x) => (float[1,4,8,8] y, float[1,4,8,8] z) {
        p = Relu(x) y = Conv<kernel_shape=[1,1]>(p, w, b) z = Conv<kernel_shape=[1,1]>(p, v, d)
    }"""

    def folded(one: np.ndarray, two: np.ndarray) -> onnx.ModelProto:
        w, v = numbers(4, 4, 1, 1), numbers(4, 4, 1, 1, seed=3)
        return model(
            text,
            w=w * one.reshape(4, 1, 1, 1),
            b=numbers(4, seed=2) * one,
            v=v * two.reshape(4, 1, 1, 1),
            d=numbers(4, seed=9) * two,
        )

    x, same = numbers(1, 4, 8, 8, seed=11), np.ones(4, np.float32)
    right = folded(same, same)
    wrong = folded(np.float32([0.97, 0.98, 0.99, 0.96]), np.float32([0.95, 0.99, 0.98, 0.97]))
    known = {name: references(right, x=x)[name] for name in "yz"}

    (culprit,) = osl.bisect(wrong, known, feeds={"x": x}).culprits

    sentence = culprit.causes[0].sentence
    assert "'w' of Conv (@1) is scaled by output" in sentence
    assert "'v' of Conv (@2) is scaled by output" in sentence


def test_an_operator_that_is_wrong_at_all_nodes_explains_what_several_values_show():
    text = """g (float[6,6] e, float[6,4] x) => (float[4] y) {{
        a = Mul(e, e) h = MatMul(a, x) p = {0}(h) t = MatMul(p, w)
        k = MatMul(a, t) q = {0}(k) y = ReduceMean<keepdims=0>(q, zero)
    }}"""
    weights = {"w": numbers(4, 4), "zero": np.int64([0])}
    right, wrong = (model(text.format(op), **weights) for op in ("Relu", "Elu"))
    feeds = {"e": numbers(6, 6, seed=2), "x": numbers(6, 4, seed=3)}
    known = {name: value for name, value in references(right, **feeds).items() if name in "ty"}

    causes = [c.causes[0].sentence for c in osl.bisect(wrong, known, feeds=feeds).culprits]

    assert "should be Relu" in causes[0]
    assert causes == causes[:1] * len(causes)


def test_a_wrong_score_and_a_wrong_box_of_one_detector_are_named_behind_what_they_share():
    text = """
        g (float[1,6,8,8] f) => (float[1,1,64] s, float[1,64,4] b) {
            h = Relu(f)
            c = Conv <kernel_shape = [1,1]> (h, ws)
            d = Add(c, bias)
            e = Sigmoid(d)
            s = Reshape(e, scores)
            i = Conv <kernel_shape = [1,1]> (h, wb)
            j = Reshape(i, boxes)
            k = Transpose <perm = [0,2,1]> (j)
            l = Tanh(k)
            b = Mul(l, scale)
        }
    """
    known = {
        "ws": numbers(1, 6, 1, 1, seed=1),
        "wb": numbers(4, 6, 1, 1, seed=2),
        "scores": np.array([1, 1, 64]),
        "boxes": np.array([1, 4, 64]),
    }
    right = model(text, bias=np.float32([[[[-0.3]]]]), scale=np.float32([0.4]), **known)
    wrong = model(text, bias=np.float32([[[[0.2]]]]), scale=np.float32([0.7]), **known)
    f, fresh = numbers(1, 6, 8, 8), numbers(1, 6, 8, 8, seed=9)

    result = osl.bisect(wrong, osl.run(right, feeds={"f": f}), feeds={"f": f})

    (culprit,) = result.culprits
    assert "'scale' of Mul" in culprit.causes[0].sentence
    assert "'bias' of Add" in culprit.causes[0].sentence
    made, expected = (
        osl.run(m, feeds={"f": fresh}) for m in (osl.repair(wrong, result).model, right)
    )
    assert osl.compare_sets(made, expected).match
