"""One mistake in several nodes: the gates of all layers, fused projections, the place of normalizations."""

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.causes import model, numbers, references
from onnxsurgeon_lite.debug.causes import finding
from onnxsurgeon_lite.debug.causes.constants import epsilons
from onnxsurgeon_lite.debug.causes.everywhere import everywhere
from onnxsurgeon_lite.debug.causes.wiring import exchanged_parts
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes import Rewire

GRU = "GRU <hidden_size = 8>"
RECURRENT = (
    "g (float[5,2,6] x) => (float[5,1,2,8] y) "
    f"{{ h = {GRU} (x, w, r, b) s = Squeeze (h, one) y = {GRU} (s, v, q, c) }}"
)
ROOT = (
    "p{n} = Mul({of}, {of}) m{n} = ReduceMean(p{n}, last) r{n} = Sqrt(m{n}) d{n} = Div({of}, r{n})"
    " {to} = Mul(d{n}, s{n})"
)


def searched(wrong, right, keep: list[str], **feeds: np.ndarray) -> osl.BisectResult:
    known = {name: value for name, value in references(right, **feeds).items() if name in keep}
    result = osl.bisect(wrong, known, feeds=feeds)
    fixed = osl.repair(wrong, result).model
    fresh = {name: value[::-1] * np.float32(1.5) for name, value in feeds.items()}
    made, wanted = (references(m, **fresh) for m in (fixed.proto, right))
    np.testing.assert_allclose(made["y"], wanted["y"], rtol=1e-4, atol=1e-4)
    return result


def regated(array: np.ndarray) -> np.ndarray:
    parts = array.reshape(1, -1, 3, 8, *array.shape[2:])
    return parts[:, :, [1, 0, 2]].reshape(array.shape)


def test_the_gates_of_all_layers_are_reordered_at_once():
    shapes = {"w": (1, 24, 6), "r": (1, 24, 8), "b": (1, 48), "v": (1, 24, 8), "q": (1, 24, 8)}
    right = {n: numbers(*shape, seed=k) / 2 for k, (n, shape) in enumerate(shapes.items())}
    right["c"] = numbers(1, 48, seed=9) / 2
    wrong = {name: regated(array) for name, array in right.items()}
    right["one"] = wrong["one"] = np.array([1])

    result = searched(
        model(RECURRENT, **wrong), model(RECURRENT, **right), ["y"], x=numbers(5, 2, 6, seed=7)
    )

    sentence = result.culprits[0].causes[0].sentence
    said = "the gates of GRU (@0) are in another order in 'w', 'r', 'b', the same at GRU (@2)"
    assert f"{said}; taken as [1, 0, 2]" in sentence


def test_the_directions_of_all_layers_are_exchanged_at_once():
    both = 'GRU <hidden_size = 8, direction = "bidirectional"> '
    text = (
        f"g (float[5,2,6] x) => (float[5,2,2,8] y) {{ h = {both} (x, w, r, b)"
        f" t = Transpose <perm = [0, 2, 1, 3]> (h) s = Reshape (t, wide) y = {both} (s, v, q, c) }}"
    )
    shapes = {"w": (2, 24, 6), "r": (2, 24, 8), "b": (2, 48), "v": (2, 24, 16), "q": (2, 24, 8)}
    right = {n: numbers(*shape, seed=k) / 2 for k, (n, shape) in enumerate(shapes.items())}
    right["c"] = numbers(2, 48, seed=9) / 2
    wrong = {name: array[::-1].copy() for name, array in right.items()}
    right["wide"] = wrong["wide"] = np.array([5, 2, 16])

    result = searched(model(text, **wrong), model(text, **right), ["y"], x=numbers(5, 2, 6, seed=7))

    said = "the two directions of GRU (@0) are exchanged in 'w', 'r', 'b', the same at GRU (@3)"
    assert f"{said}; changed back" in result.culprits[0].causes[0].sentence


@pytest.mark.parametrize("whole", [False, True], ids=["behind the projection", "whole"])
def test_heads_of_fused_projections_are_taken_part_by_part(whole):
    given, made = ("v", "MatMul(v, w)") if whole else ("v", "Identity(v)")
    attend = (
        "t = Transpose <perm = [0, 1, 3, 2]> (k) z = MatMul(q, t) a = Softmax(z) o = MatMul(a, u)"
    )
    text = f"g (float[2,5,24] v) => (float[2,2,5,4] y) {{ f = {made} {{laid_out}} {attend} y = Add(o, z0) }}"
    by_head = (
        "h = Reshape(f, heads) b, c, d = Split <axis = 3> (h, each)"
        " q = Transpose <perm = [0, 2, 1, 3]> (b) k = Transpose <perm = [0, 2, 1, 3]> (c)"
        " u = Transpose <perm = [0, 2, 1, 3]> (d)"
    )
    by_part = (
        "h = Reshape(f, parts) b, c, d = Split <axis = 2> (h, ones)"
        " e = Squeeze(b, two) i = Squeeze(c, two) l = Squeeze(d, two)"
        " q = Transpose <perm = [0, 2, 1, 3]> (e) k = Transpose <perm = [0, 2, 1, 3]> (i)"
        " u = Transpose <perm = [0, 2, 1, 3]> (l)"
    )
    sizes = {"heads": [2, 5, 2, 12], "parts": [2, 5, 3, 2, 4], "each": [4] * 3, "ones": [1] * 3}
    weights = {name: np.array(size) for name, size in sizes.items()}
    weights |= {"two": np.array([2]), "w": numbers(24, 24) / 4, "z0": np.zeros(1, np.float32)}
    wrong, right = (
        model(text.replace("{laid_out}", laid_out), **weights) for laid_out in (by_head, by_part)
    )

    result = searched(wrong, right, ["y"], **{given: numbers(2, 5, 24, seed=3)})

    sentence = result.culprits[0].causes[0].sentence
    assert "3 parts of each of 2 heads" in sentence
    assert "taken head by head" in sentence


@pytest.mark.parametrize("norm", ["LayerNormalization({of}, s{n}, b{n})", ROOT])
@pytest.mark.parametrize("is_post", [True, False], ids=["post-norm", "pre-norm"])
def test_normalizations_at_the_other_end_of_their_branches_are_moved_at_once(norm, is_post):

    def normalized(n: int, of: str, to: str) -> str:
        nodes = norm.format(n=n, of=of, to=to)
        return nodes if "=" in nodes else f"{to} = {nodes}"

    pre = (
        f"{normalized(0, 'x', 'n0')} k0 = MatMul(n0, w0) a0 = Add(x, k0)"
        f" {normalized(1, 'a0', 'n1')} k1 = MatMul(n1, w1) a1 = Add(a0, k1) y = MatMul(a1, w2)"
    )
    post = (
        f"k0 = MatMul(x, w0) a0 = Add(x, k0) {normalized(0, 'a0', 'n0')}"
        f" k1 = MatMul(n0, w1) a1 = Add(n0, k1) {normalized(1, 'a1', 'n1')} y = MatMul(n1, w2)"
    )
    weights = {f"w{k}": numbers(12, 12, seed=k) for k in range(3)}
    weights |= {f"{name}{k}": numbers(12, seed=5 + k) for k in range(2) for name in "sb"}
    weights["last"] = np.array([-1])
    texts = (f"g (float[4,12] x) => (float[4,12] y) {{ {nodes} }}" for nodes in (pre, post))
    right, wrong = (model(text, **weights) for text in texts)
    if not is_post:
        right, wrong = wrong, right

    result = searched(wrong, right, ["n0", "n1", "k0", "k1", "y"], x=numbers(4, 12, seed=9))

    where = "after the addition instead of" if is_post else "before the branch instead of"
    sentences = {
        culprit.causes[0].sentence.partition(" the values")[0] for culprit in result.culprits
    }
    assert len(sentences) == 1
    assert f"are {where}" in sentences.pop()


def test_a_normalization_at_the_other_end_of_one_branch_is_moved():
    norm = "LayerNormalization"
    rest = f"n1 = {norm}(h, s1, b1) k1 = MatMul(n1, w1) a1 = Add(h, k1) y = MatMul(a1, w2)"
    texts = (
        f"n0 = {norm}(x, s0, b0) k0 = MatMul(n0, w0) h = Add(x, k0) {rest}",
        f"k0 = MatMul(x, w0) a0 = Add(x, k0) h = {norm}(a0, s0, b0) {rest}",
    )
    weights = {f"w{k}": numbers(12, 12, seed=k) for k in range(3)}
    weights |= {f"{name}{k}": numbers(12, seed=5 + k) for k in range(2) for name in "sb"}
    right, wrong = (
        model(f"g (float[4,12] x) => (float[4,12] y) {{ {nodes} }}", **weights) for nodes in texts
    )

    result = searched(wrong, right, ["k0", "n1", "k1", "y"], x=numbers(4, 12, seed=9))

    sentences = [culprit.causes[0].sentence for culprit in result.culprits]
    where = "(@2) is after the addition instead of before the branch; moved there"
    assert len(sentences) > 1
    assert all(where in sentence for sentence in sentences)


def test_a_number_that_is_wrong_in_several_layers_is_set_in_all_of_them(monkeypatch):
    monkeypatch.setattr(finding, "FAMILIES", (epsilons,))
    monkeypatch.setattr(finding, "SOLVED", ())
    norm = (
        "p{n} = Mul({of}, {of}) m{n} = ReduceMean(p{n}, last) v{n} = Add(m{n}, e{n})"
        " r{n} = Sqrt(v{n}) d{n} = Div({of}, r{n}) y{n} = Mul(d{n}, s{n})"
    )
    norms = " ".join(norm.format(n=n, of=of) for n, of in enumerate(("x", "k", "h")))
    more = "k = MatMul(y0, w) h = Add(y1, y0) y = Mul(y2, s0)"
    text = f"g (float[4,12] x) => (float[4,12] y) {{ {norms} {more} }}"
    weights = {f"s{k}": numbers(12, seed=k) for k in range(3)}
    weights |= {"w": numbers(12, 12, seed=3) / 4, "last": np.array([-1])}
    right, wrong = (
        model(text, **weights, **{f"e{k}": np.float32(epsilon) for k in range(3)})
        for epsilon in (1e-5, 0.1)
    )

    result = searched(wrong, right, ["y0", "y"], x=numbers(4, 12, seed=9))

    sentences = [culprit.causes[0].sentence for culprit in result.culprits]
    assert len(sentences) == 2
    assert all("epsilon of 3 Add nodes is 0.1; with 1e-05" in sentence for sentence in sentences)


@pytest.mark.parametrize("is_fixed", [False, True], ids=["of any size", "fixed"])
def test_pools_that_give_other_shapes_than_the_references_are_named(is_fixed):
    size = "kernel_shape = [2, 2], strides = [2, 2], ceil_mode = {}"
    wrong, right = (
        model(
            f"g (float[1,2,13,13] x) => (float[1,4,1,1] y) {{ r = Relu(x)"
            f" p{k} = MaxPool <{size.format(1 - k)}> (r) c{k} = Conv(p{k}, w)"
            f" q{k} = MaxPool <{size.format(1 - k)}> (c{k}) s{k} = Reshape(q{k}, sizes)"
            f" y = GlobalAveragePool(s{k}) }}",
            w=numbers(4, 2, 2, 2),
            sizes=np.array([1, 4, 3 - k, 3 - k] if is_fixed else [0, 0, 0, 0]),
        )
        for k in range(2)
    )
    x = numbers(1, 2, 13, 13, seed=2)

    (culprit,) = osl.bisect(wrong, references(right, x=x), feeds={"x": x}).culprits

    said = culprit.unexplained if is_fixed else culprit.causes[0].sentence
    pools = "MaxPool (@1)" if is_fixed else "all 2 MaxPool nodes"
    assert f"ceil_mode of {pools} is 1; with 0" in said
    assert ("[1, 2, 6, 6] instead of [1, 2, 7, 7]" in said) == is_fixed
    assert bool(culprit.causes) != is_fixed


def test_the_axes_of_patches_that_are_exchanged_are_put_back():
    text = """g (float[1,3,2,4,2,4] x) => (float[1,4,48] y) {{
        p = Transpose <perm = {perm}> (x)
        r = Reshape (p, patches)
        y = Mul (r, weights)
    }}"""
    constants = {"patches": np.int64([1, 4, 48]), "weights": numbers(48)}
    right, wrong = (
        model(text.format(perm=perm), **constants)
        for perm in ([0, 2, 4, 3, 5, 1], [0, 2, 4, 5, 3, 1])
    )

    result = searched(wrong, right, ["y"], x=numbers(1, 3, 2, 4, 2, 4, seed=3))

    assert "with [0, 2, 4, 3, 5, 1] the region agrees" in result.culprits[0].causes[0].sentence


def test_a_residual_without_a_reference_or_a_shape_is_found_in_front_of_a_long_branch():
    steps = " ".join(f"e{k + 1} = Tanh(e{k})" for k in range(10))
    branch = f"n = LayerNormalization(r, s, b) e0 = MatMul(n, w0) {steps} k = MatMul(e10, w1)"
    wrong, right = (
        model(
            f"g (float[n,12] x) => (float[n,12] y) {{ c = MatMul(x, w1) r = Add(x, c) {branch}"
            f" t = Mul(k, two) {ends} }}",
            **{f"w{k}": numbers(12, 12, seed=k) for k in range(2)},
            **{name: numbers(12, seed=k) for k, name in enumerate("sb")},
            two=np.float32(2),
        )
        for ends in (
            "y = LayerNormalization(t, s, b)",
            "h = Add(r, t) y = LayerNormalization(h, s, b)",
        )
    )

    result = searched(wrong, right, ["n", "e0", "k", "y"], x=numbers(4, 12, seed=9))

    assert "'r' is not added to 't'; with it" in result.culprits[0].causes[0].sentence


@pytest.mark.parametrize("step", ["", " q = Reshape(a1, rows)"], ids=["plain", "with a Reshape"])
def test_both_normalizations_of_one_layer_are_moved_where_the_end_alone_is_known(step):
    norm, end = "LayerNormalization", "q" if step else "a1"
    rest = f"n2 = {norm}(h, s, b) k2 = MatMul(n2, w) a2 = Add(h, k2) f = {norm}(a2, s, b) y = MatMul(f, v)"
    texts = (
        f"n0 = {norm}(x, s, b) k0 = MatMul(n0, w) a0 = Add(x, k0)"
        f" n1 = {norm}(a0, c, b) k1 = MatMul(n1, v) a1 = Add(a0, k1){step} h = Identity({end}) {rest}",
        f"k0 = MatMul(x, w) a0 = Add(x, k0) n0 = {norm}(a0, s, b)"
        f" k1 = MatMul(n0, v) a1 = Add(n0, k1){step} h = {norm}({end}, c, b) {rest}",
    )
    weights = {name: numbers(12, 12, seed=k) for k, name in enumerate("wv")}
    weights |= {name: numbers(12, seed=5 + k) for k, name in enumerate("sbc")}
    weights["rows"] = np.array([4, 12])
    right, wrong = (
        model(f"g (float[4,12] x) => (float[4,12] y) {{ {nodes} }}", **weights) for nodes in texts
    )

    result = searched(wrong, right, ["y"], x=numbers(4, 12, seed=9))

    sentence = result.culprits[0].causes[0].sentence
    assert "(@2) and LayerNormalization" in sentence
    assert "are after the addition instead of before the branch; moved there" in sentence


def of_cell(order: tuple[int, ...], cut: str, steps: int = 1) -> str:
    """Steps of an own LSTM cell, of whose projection the parts are read in an order."""
    text = ""
    for k in range(steps):
        read = [f"p{k}{part}" for part in order]
        text += f"g{k} = MatMul({f'h{k - 1}' if k else 'x'}, w) a{k} = Add(g{k}, b) "
        text += cut.format(k=k)
        text += f"i{k} = Sigmoid({read[0]}) f{k} = Sigmoid({read[1]}) t{k} = Tanh({read[2]}) "
        text += f"o{k} = Sigmoid({read[3]}) m{k} = Mul(i{k}, t{k}) r{k} = Mul(f{k}, c) "
        text += f"s{k} = Add(m{k}, r{k}) n{k} = Tanh(s{k}) h{k} = Mul(o{k}, n{k}) "
    return f"g (float[3,6] x, float[3,6] c) => (float[3,6] y) {{ {text} y = Neg(h{steps - 1}) }}"


SPLIT = "p{k}0, p{k}1, p{k}2, p{k}3 = Split <axis = 1, num_outputs = 4> (a{k}) "
SLICED = " ".join(f"p{{k}}{n} = Slice(a{{k}}, at{{k}}{n}, at{{k}}{n + 1}, one)" for n in range(4))
SLICED = (
    "z{k} = Shape(a{k}) d{k} = Gather(z{k}, one) q{k} = Div(d{k}, four) at{k}0 = Sub(q{k}, q{k})"
    " at{k}1 = Identity(q{k}) at{k}2 = Add(at{k}1, q{k}) at{k}3 = Add(at{k}2, q{k})"
    f" at{{k}}4 = Identity(d{{k}}) {SLICED} "
)


@pytest.mark.parametrize(
    ("cut", "steps"), [(SPLIT, 1), (SLICED, 2)], ids=["split", "slices of computed parts"]
)
def test_parts_are_read_in_another_order(monkeypatch, cut, steps):
    monkeypatch.setattr(finding, "FAMILIES", (exchanged_parts,))
    monkeypatch.setattr(finding, "SOLVED", ())
    weights = {"w": numbers(6, 24), "b": numbers(24, seed=1)}
    weights |= {"one": np.array([1]), "four": np.array([4])} if cut is SLICED else {}
    orders = (0, 2, 1, 3), (0, 1, 2, 3)
    wrong, right = (model(of_cell(order, cut, steps), **weights) for order in orders)

    result = searched(wrong, right, ["y"], x=numbers(3, 6, seed=2), c=numbers(3, 6, seed=3))

    sentence = result.culprits[0].causes[0].sentence
    values = "'a0' and of 'a1'" if steps > 1 else "'a0'"
    assert f"the 4 parts of {values} are read in another order; taken as [0, 2, 1, 3]" in sentence


def test_parts_are_exchanged_at_all_values_that_are_cut_and_read_alike():
    block = "l{n}, r{n} = Split <axis = 1, num_outputs = 2> (x) m{n} = {op}(l{n}, x) y{n} = Add(m{n}, r{n})"
    blocks = [block.format(n=n, op=op) for n, op in enumerate(("Mul", "Sub", "Mul"))]
    text = f"g (float[2,2] x) => (float[2,2] y2) {{ {' '.join(blocks)} }}"
    index = GraphIndex.of(Model(model(text)))
    exchanged = Rewire("l0", "r0", ("m0",), 0), Rewire("r0", "l0", ("y0",), 1)

    assert everywhere(index, exchanged) == (
        *(Rewire(f"l{n}", f"r{n}", (f"m{n}",), 0) for n in (0, 2)),
        *(Rewire(f"r{n}", f"l{n}", (f"y{n}",), 1) for n in (0, 2)),
    )
    assert not everywhere(index, [Rewire("l0", "x", ("m0",), 0)])


@pytest.mark.parametrize(("own", "sides"), [(True, (1, 0)), (False, (1, 0)), (False, (1, 1))])
def test_a_dilation_changes_with_the_pads_of_the_same_ends(own, sides):
    wrong, right = (
        model(
            "g (float[2,3,40] x) => (float[2,4,40] y) { "
            + (
                f"y = Conv <dilations = [{size}], pads = {[size * side for side in sides]}> (x, w) }}"
                if own
                else f"p = Pad(x, ends) y = Conv <dilations = [{size}]> (p, w) }}"
            ),
            w=numbers(4, 3, 1 + sum(sides)),
            **({} if own else {"ends": np.array([0, 0, size * sides[0], 0, 0, size * sides[1]])}),
        )
        for size in (4, 8)
    )

    result = searched(wrong, right, ["y"], x=numbers(2, 3, 40, seed=1))

    sentence = result.culprits[0].causes[0].sentence
    assert "dilations of Conv (@" in sentence
    assert "is [4], pads" in sentence


@pytest.mark.parametrize(
    ("slip", "sentence"),
    [
        ("a", "is transposed, the same at MatMul (@3)"),
        ("b", "Relu is missing"),
    ],
)
def test_a_mistake_of_each_layer_is_found_from_the_output_alone(slip, sentence):
    layer = "{h}_m = MatMul({x}, {w}) {h}_a = Relu({h}_m) {h} = Add({h}_a, {x})"
    lacking = "{h}_m = MatMul({x}, {w}) {h} = Add({h}_m, {x})"

    def made(layer: str, **weights: np.ndarray):
        nodes = "".join(
            layer.format(h=h, x=x, w=w) for h, x, w in (("e", "x", "w"), ("f", "e", "v"))
        )
        return model(
            f"g (float[9,6] x) => (float[9,3] y) {{ {nodes} y = MatMul(f, u) }}", **weights
        )

    weights = {"w": numbers(6, 6), "v": numbers(6, 6, seed=1), "u": numbers(6, 3, seed=2)}
    right = made(layer, **weights)
    turned = weights | {name: weights[name].T.copy() for name in "wv"}
    wrong = made(layer, **turned) if slip == "a" else made(lacking, **weights)
    x = numbers(9, 6, seed=3)

    result = osl.bisect(wrong, {"y": references(right, x=x)["y"]}, feeds={"x": x})

    assert sentence in result.culprits[0].causes[0].sentence
    fixed = osl.repair(wrong, result).model
    fresh = numbers(9, 6, seed=4)
    made_by = [osl.run(each, feeds={"x": fresh})["y"] for each in (fixed, right)]
    np.testing.assert_allclose(*made_by, rtol=1e-4, atol=1e-4)


def test_a_mistake_of_each_layer_is_found_where_references_see_the_first_one_alone():
    parts = "p{n}, q{n} = Split<axis = 1, num_outputs = 2>(m{n}) r{n} = Tanh(p{n})"
    layer = f"m{{n}} = MatMul({{x}}, {{w}}) {parts} {{h}} = Concat<axis = 1>(r{{n}}, q{{n}})"
    nodes = "".join(
        layer.format(n=n, x=x, w=w, h=h) for n, x, w, h in ((1, "x", "w", "e"), (2, "e", "v", "f"))
    )
    text = f"g (float[9,6] x) => (float[9,3] y) {{ {nodes} y = MatMul(f, u) }}"
    weights = {"w": numbers(6, 6), "v": numbers(6, 6, seed=1), "u": numbers(6, 3, seed=2)}
    right = model(text, **weights)
    wrong = model(text, **weights | {name: weights[name].T.copy() for name in "wv"})
    x = numbers(9, 6, seed=3)
    known = {name: value for name, value in references(right, x=x).items() if name in ("r1", "y")}

    result = osl.bisect(wrong, known, feeds={"x": x})

    said = result.culprits[0].causes[0].sentence
    assert "is transposed, the same at MatMul" in said


def test_of_a_mistake_that_one_layer_has_that_layer_is_named():
    layer = "m{0} = MatMul(h{0}, w{0}) h{1} = LeakyRelu <alpha = 0.01> (m{0})"
    layers = [layer.format(i, i + 1) for i in range(36)]
    # before the last layer nothing is negative: no slope matters there
    layers[35] = "m35 = Neg(h35) h36 = LeakyRelu <alpha = 0.01> (m35)"
    weights = {f"w{i}": np.eye(8, dtype=np.float32) for i in range(35)}
    head = "g (float[3,8] h0) => (float[3,8] h36) {{ {} }}"
    wrong = model(head.format(" ".join(layers)), **weights)
    layers[35] = layers[35].replace("0.01", "0.2")
    right = model(head.format(" ".join(layers)), **weights)
    x = np.abs(numbers(3, 8))

    result = osl.bisect(wrong, {"h36": references(right, h0=x)["h36"]}, feeds={"h0": x})

    sentence = result.culprits[0].causes[0].sentence
    assert sentence.startswith("alpha of LeakyRelu (@71) is 0.01; with 0.2 the region")
