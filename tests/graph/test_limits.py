"""Small files that ask for endless work: it is bounded, it is linear, or it is refused in words."""

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import SequenceProto, TensorProto, helper, numpy_helper, parser

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import Model, load
from onnxsurgeon_lite.debug.journal import Journal
from onnxsurgeon_lite.debug.reduction.conditions import Failing, alike
from onnxsurgeon_lite.errors import (
    EditError,
    GraphError,
    RuntimeCrash,
    RuntimeFailure,
    RuntimeTimeout,
    ShapeError,
    SurgeonError,
    UsageError,
)
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.bodies import iterations_of
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.text import attribute_texts
from onnxsurgeon_lite.limits import limited
from onnxsurgeon_lite.matching.values.mapping import load_map
from onnxsurgeon_lite.names import shown_text
from onnxsurgeon_lite.passes import inverse, merge
from onnxsurgeon_lite.passes import rewrite as rewriting
from onnxsurgeon_lite.passes.recipe import read_recipe
from onnxsurgeon_lite.surgery.edits import fresh
from onnxsurgeon_lite.tensors.references import open_references

HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'
LEAF = '<domain: "local", opset_import: ["" : 21]> f{0} (a) => (b) {{ b = Relu(a) }}'


def model(text: str, *functions: str) -> Model:
    return Model(parser.parse_model("\n".join([HEADER + text, *functions])))


def calling(count: int, body: str) -> Model:
    """Functions that each call the next."""
    head = '<domain: "local", opset_import: ["" : 21, "local" : 1]>'
    functions = [f"{head} f{i} (a) => (b) {{ {body.format(i + 1)} }}" for i in range(count)]
    graph = "g (float[4] x) => (float[4] y) { h = local.f0(x) y = Relu(h) }"
    return model(graph, *functions, LEAF.format(count))


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


# what runs in a fork, at module level: it finds its work by name


def crash() -> bytes:
    os.kill(os.getpid(), signal.SIGSEGV)
    return b""


def hang() -> bytes:
    while True:
        pass


def grow() -> bytes:
    return bytes(bytearray(4 << 30)[:1])


def who() -> bytes:
    return str(os.getpid()).encode()


@pytest.mark.parametrize(
    ("work", "seconds", "error", "says"),
    [
        (crash, 60, RuntimeCrash, "the thing crashed on the model: SIGSEGV"),
        (hang, 0.5, RuntimeTimeout, "the thing did not finish within 0.5 seconds"),
        (grow, 60, RuntimeFailure, "the thing needs more than 0.1 GB of memory"),
    ],
    ids=["crash", "hang", "grow"],
)
def test_what_crashes_hangs_or_grows_is_an_error_and_the_next_request_works(
    work, seconds, error, says
):
    with limited(seconds, 10**8), pytest.raises(error, match=says):
        native.apart("the thing", work)

    assert native.apart("the thing", who).isdigit()


def test_one_fork_answers_a_thread_and_ends_with_it():
    def twice(found: list[int]) -> None:
        found += [int(native.apart("the thing", who)) for _ in range(2)]

    found: list[int] = []
    thread = threading.Thread(target=twice, args=[found])
    thread.start()
    thread.join()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{found[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)

    assert found[0] == found[1] != int(native.apart("the thing", who))
    with pytest.raises(ProcessLookupError):
        os.kill(found[0], 0)


def test_a_forked_process_does_not_talk_to_the_fork_of_its_parent():
    mine = native.apart("the thing", who)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        other = pool.apply(native.apart, ["the thing", who])

    assert other != mine
    assert native.apart("the thing", who) == mine


def test_what_is_begun_ahead_ends_at_its_limit_though_nobody_asks_for_it():
    with limited(0.2, 10**9):
        native._begin(hang)

    ended = os.waitid(os.P_PID, native._forks.begun[0][0].process, os.WEXITED | os.WNOWAIT)
    assert ended.si_status == signal.SIGALRM
    with limited(0.2, 10**9), pytest.raises(RuntimeTimeout):
        native.apart("the thing", hang)


def test_a_fork_that_is_kept_works_again_with_what_it_knew_until_it_dies():
    known, kept = [1], []

    def add(number: int) -> tuple[int, int]:
        return os.getpid(), known[0] + number

    first, found = native.begin_together("adding", add, 1, kept=kept)()
    known[0] = 5
    again, found_again = native.begin_together("adding", add, 2, kept=kept)()
    os.kill(first, signal.SIGKILL)
    with pytest.raises(RuntimeCrash):
        native.begin_together("adding", add, 3, kept=kept)()
    _, found_anew = native.begin_together("adding", add, 3, kept=kept)()

    assert first == again != os.getpid()
    assert (found, found_again, found_anew) == (2, 3, 8)


def test_a_fork_leaves_the_garbage_of_its_parent_alone(tmp_path):
    """A session that the parent is done with waits for its threads, which are not in the fork."""

    class Session:
        def __init__(self) -> None:
            self.itself, self.ended = self, tmp_path / "ended"

        def __del__(self) -> None:
            self.ended.write_text(str(os.getpid()))

    gc.disable()
    try:
        Session()
        native.begin_together("collecting", lambda: str(gc.collect()).encode())()
    finally:
        gc.enable()

    assert not (tmp_path / "ended").exists()


def test_limits_are_options_of_what_infers():
    endless = model(
        "g (float[1] x) => (float[N] y) <int64[1] n = {1099511627776}> { r = ConstantOfShape(n) y = Add(r, x) }"
    )

    with pytest.raises(RuntimeFailure, match=r"type inference needs more than 0\.1 GB"):
        osl.fix(endless, memory_limit="100MB")
    with pytest.raises(RuntimeTimeout, match="did not finish within 0 seconds"):
        osl.fix(endless, timeout=0)


# linear


@pytest.mark.parametrize("times", [18, 40])
def test_functions_that_multiply_are_refused(times):
    multiplied = calling(times, "c = local.f{0}(a) b = local.f{0}(c)")

    for work in (osl.inline, osl.fix, lambda given: osl.inspect(given, value="h")):
        with (
            within(5),
            pytest.raises(GraphError, match=r"'local::f\d+' stands for more than 250000"),
        ):
            work(multiplied)
    with within(5):
        assert "its calls multiply" in osl.check(multiplied).problem


def test_functions_nested_deeper_than_can_be_followed_are_refused_in_linear_time():
    with pytest.raises(GraphError, match="'local::f4900' nest deeper than 100"):
        GraphIndex.of(calling(5000, "b = local.f{0}(a)")).require_sound()
    with within(10), pytest.raises(GraphError, match="nest deeper than 100"):
        osl.convert(calling(2000, "b = local.f{0}(a)"), to="float16")
    GraphIndex.of(calling(99, "b = local.f{0}(a)")).require_sound()


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        (("b = local.f(a)",), "call themselves, directly or indirectly: 'local::f'"),
        (("b = local.g(a)", "c = local.f(a) b = local.f(c)"), "'local::[fg]', 'local::[fg]'"),
    ],
)
def test_recursion_is_found_when_a_model_is_loaded(functions, problem, tmp_path):
    heads = ("f (a) => (b)", "g (a) => (b)")
    text = "g (float[1] x) => (float[1] y) { y = local.f(x) }" + "".join(
        f'<domain: "local", opset_import: ["local": 1]> {head} {{ {body} }}'
        for head, body in zip(heads, functions, strict=False)
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(HEADER + text).SerializeToString())

    for given in (path, path.read_bytes()):
        with pytest.raises(GraphError, match=problem):
            osl.view(given)
        found = osl.check(given)
        assert not found.valid
        assert re.search(problem, found.problem)


def test_rules_look_only_at_functions_that_have_their_operators(monkeypatch):
    model = calling(90, "b = local.f{0}(a)")
    seen = []
    monkeypatch.setattr(rewriting, "matchers_of", lambda index, _: seen.append(index) or [])

    osl.rewrite(model, "pattern (x) => (y) { y = Tanh(x) } replacement (x) => (x) {}")

    assert len(seen) == 1


def test_nodes_of_one_name_are_renamed_in_linear_time():
    taken = {"same", *(f"same_{number}" for number in range(1, 30_001))}

    with within(2):
        assert [fresh("same", taken) for _ in range(1000)][-1] == "same_31000"


def test_values_of_an_unsorted_graph_are_typed_at_once():
    nodes = [helper.make_node("Relu", [f"q{i + 1}"], [f"q{i}"]) for i in range(2000)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("q2000", "q0"))
    unsorted = Model(helper.make_model(helper.make_graph(nodes, "g", [x], [y])))

    with within(10):
        assert len(osl.inspect(unsorted, value="*")) == 2001


@pytest.mark.parametrize("payload", [b"", b"1234"], ids=["none", "short"])
def test_a_tensor_with_fewer_elements_than_declared_is_neither_stripped_nor_filled(
    payload, tmp_path
):
    short = model("g (float[1] x) => (float[1] y) { y = Add(x, w) }")
    short.proto.graph.initializer.add(
        name="w", data_type=1, dims=[1 << 20, 1 << 20], raw_data=payload
    )

    with pytest.raises(SurgeonError, match="'w'.* lacks|malformed"):
        osl.data.strip(short, output=tmp_path / "out.onnx")
    with pytest.raises(SurgeonError, match="malformed"):
        osl.set_constant(short, "w", 0)
    assert not list(tmp_path.iterdir())


def test_an_input_of_endless_size_is_not_frozen():
    with pytest.raises(EditError, match="too many elements"):
        osl.freeze(model("g (float[1099511627776] x) => (float[M] y) { y = Relu(x) }"), {"x": 0})


# what fuzzing found


def test_an_original_of_endless_batch_is_not_proved():
    endless = model("g (float[1099511627776, 2] x) => (float[N, 2] y) { y = Relu(x) }")

    with pytest.raises(ShapeError, match="not proved: the original takes .* too large to be made"):
        osl.set_shape(endless, {"x": [2, 2]})


def test_a_tensor_of_no_dtype_is_told_by_the_bridge():
    undefined = model("g (float[1] x) => (float[1] y) <float w = {1}> { y = Add(x, w) }")
    undefined.proto.graph.initializer[0].data_type = 0

    with pytest.raises(GraphError, match="onnx-graphsurgeon cannot hold the graph"):
        osl.script(undefined, lambda graph: None)


RELYING = {
    "infer": lambda broken: osl.infer(broken),
    "fold": lambda broken: osl.fold(broken),
    "skip_noops": lambda broken: osl.skip_noops(broken),
    "cse": lambda broken: osl.cse(broken),
    "simplify": lambda broken: osl.simplify(broken),
    "rewrite": lambda broken: osl.rewrite(broken, "silu"),
    "opset": lambda broken: osl.opset(broken, 20),
    "set_shape": lambda broken: osl.set_shape(broken, {"x": (3,)}),
    "gradient": lambda broken: osl.gradient(broken, "y", "x"),
    "attribution": lambda broken: osl.attribution(broken, "saliency"),
}


@pytest.mark.parametrize("verb", RELYING)
@pytest.mark.parametrize(
    ("nodes", "wrong"),
    [
        ("y = Concat(x)", "Concat @0: Concat needs attribute 'axis'"),
        ("y = Softmax<axis = 1.5>(x)", "attribute 'axis' of Softmax has type int, not float"),
        ("y = Reshape(x)", "Reshape @0: Reshape takes 2 inputs, the node has 1"),
        (
            "c = Size(x) b = Cast<to = 9>(c) y = If(b) <then_branch = t () => () { z = Neg(x) },"
            " else_branch = e () => (float[2] z) { z = Neg(x) }>",
            "If @2: a body takes or makes another number of values than the node",
        ),
        (
            "c = Size(x) b = Cast<to = 9>(c) y = If(b) <then_branch = t () => (float[2] z) { z = Neg(x) },"
            " else_branch = e () => (float[2] z, float[2] x) { z = Neg(x) }>",
            "If @2: a body takes or makes another number of values than the node",
        ),
        ("y = Add(x, lost)", "Add @0 reads 'lost', which nothing produces"),
    ],
    ids=["no attribute", "wrong attribute", "no input", "body", "unlike bodies", "lost input"],
)
def test_a_verb_that_relies_on_what_operators_mean_refuses_a_malformed_node(verb, nodes, wrong):
    broken = model(f"g (float[2] x) => (float[2] y) {{ {nodes} }}")

    with pytest.raises(EditError, match=wrong):
        RELYING[verb](broken)


@pytest.mark.parametrize("node", ["Constant(x)", "Loop(x)", "Concat(x)", "Reshape(x)", "If(x)"])
def test_a_malformed_node_is_not_recorded_in_float64(node, tmp_path):
    broken = model(f"g (float[2] x) => (float[2] y) {{ h = {node} y = Add(h, x) }}")

    with pytest.raises(SurgeonError, match="refuses the model|needs attribute|takes 2 inputs"):
        osl.record(broken, tmp_path / "refs", float64=True)


def test_an_unknown_operator_without_outputs_is_no_constant():
    silent = model("g (float[1] x) => (float[1] y) { y = Neg(x) }")
    silent.proto.graph.node.add(op_type="Nope", input=["x"])

    assert not osl.fold(silent).changed


def test_a_loop_without_a_body_gives_no_types():
    empty = model("g (float[1] x) => (float[1] y) { h = Neg(x) y = Neg(h) }")
    empty.proto.graph.node[0].op_type = "Loop"

    assert GraphIndex.of(empty).type_of("h") is None


@pytest.mark.parametrize("verb", ["fix", "infer", "inline", "simplify"])
def test_a_body_whose_name_could_be_a_path_is_refused(verb, tmp_path):
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[4] x, bool c) => (float[4] y) {
        y = If <then_branch = t () => (float[4] a) { a = Neg(x) },
                else_branch = e () => (float[4] b) { b = Abs(x) }> (c) }"""
    )
    model.graph.node[0].attribute[1].name = "else/@0/branch"
    onnx.save(model, tmp_path / "slash.onnx")

    with pytest.raises(GraphError, match="'else/@0/branch' holds a graph"):
        getattr(osl, verb)(tmp_path / "slash.onnx")


def test_a_gradient_needs_an_opset_of_onnx():
    foreign = model("g (float[1] x) => (float[1] y) { y = local.f(x) }")
    del foreign.proto.opset_import[0]

    with pytest.raises(EditError, match="imports no opset of ONNX's own domain"):
        osl.gradient(foreign, "y", "x")


def test_a_gradient_sums_when_it_runs_where_the_declared_ranks_contradict():
    contrary = model("g (float[2] x) => (float[2] y) <float[2] b> { y = Add(x, b) }")
    contrary.proto.graph.initializer.add(name="b", data_type=1, dims=[1, 1, 2], raw_data=bytes(8))

    assert osl.gradient(contrary, "y", "x").changed


def test_an_attribution_needs_an_output_and_gradcam_channels():
    flat = model("g (float[3] x) => (float[3] y) { h = Relu(x) y = Neg(h) }")

    with pytest.raises(EditError, match="'h' has no axis of channels"):
        osl.attribution(flat, "gradcam", layer="h")

    flat.proto.graph.ClearField("output")
    with pytest.raises(EditError, match="the model has no output"):
        osl.attribution(flat, "saliency")


def test_a_node_without_outputs_is_rewired():
    silent = model("g (float[1] x) => (float[1] y) { h = Relu(x) y = Neg(h) }")
    silent.proto.graph.node.add(op_type="Print", domain="local", input=["h"])

    assert len(osl.rewire(silent, "h", "x").changes) == 2


@pytest.mark.parametrize(
    "note", ["[" * 100_000, '{"place": 1e400, "data": "", "kind": "", "typed": true}', "[]"]
)
def test_notes_in_metadata_that_mean_nothing_are_left(note):
    noted = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    for holder in (noted.proto, noted.proto.graph.input[0], noted.proto.graph.initializer[0]):
        for key in (inverse.KEY, inverse._RELAXED, merge.WHOLE):
            holder.metadata_props.add(key=key, value=note)

    assert osl.freeze(noted, {"x": 0}).changed
    assert osl.promote(noted, ["w"]).changed
    assert osl.merge(noted, two_nodes(), prefix="b/").changed


@pytest.mark.parametrize("text", ["a = " + "[" * 9000, "a = " + "9" * 5000])
def test_a_recipe_nested_too_deep_is_refused(text, tmp_path):
    (tmp_path / "recipe.toml").write_text(text)

    with pytest.raises(UsageError, match="cannot read .*recipe.toml"):
        read_recipe(tmp_path / "recipe.toml", {})


def test_a_line_of_a_journal_that_is_nested_too_deep_is_left_out(tmp_path):
    (tmp_path / "journal").write_text('{"question": "q"}\n' + "[" * 200_000)

    Journal.at(tmp_path / "journal", "q", resume=True).close()


# tensors and sequences have no mark in a file: their fields tell them apart


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (numpy_helper.from_array(np.ones((2, 3), np.float32), "x"), np.ndarray),
        (numpy_helper.from_array(np.zeros((0, 3), np.float32)), np.ndarray),
        (numpy_helper.from_list([np.ones(2, np.float32)] * 2, "x"), list),
        (SequenceProto(name="x", elem_type=SequenceProto.TENSOR), list),
    ],
    ids=["tensor", "empty tensor", "sequence", "empty sequence"],
)
def test_a_tensor_is_told_from_a_sequence_by_its_fields(message, kind, tmp_path):
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(message.SerializeToString())

    ((name, read),) = (
        (name, stored.read(name)) for stored in [open_references(folder)] for name in stored
    )

    assert isinstance(read, kind), name


def test_a_damaged_tensor_does_not_pass_for_an_empty_sequence(tmp_path):
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(TensorProto(dims=[3], data_type=1).SerializeToString())

    with pytest.raises(SurgeonError, match="is not a serialized tensor"):
        open_references(folder)


def test_a_loaded_model_is_what_protobuf_parses(tmp_path):
    parsed = calling(3, "b = local.f{0}(a)").proto
    onnx.save(parsed, tmp_path / "m.onnx")

    assert load(tmp_path / "m.onnx").materialize() == parsed


def test_entries_of_a_tensor_that_is_not_external_are_kept(tmp_path):
    parsed = parser.parse_model(HEADER + "g (float[400] x) => (float[400] y) { y = Add(x, w) }")
    tensor = numpy_helper.from_array(np.arange(400, dtype=np.float32), "w")
    tensor.external_data.add(key="location", value="elsewhere")
    parsed.graph.initializer.append(tensor)
    onnx.save(parsed, tmp_path / "m.onnx")

    assert load(tmp_path / "m.onnx").materialize() == parsed


def test_a_saved_model_reads_the_place_that_its_last_entry_names(tmp_path):
    numbers = np.arange(800, dtype=np.float32)
    (tmp_path / "m.data").write_bytes(numbers.tobytes())
    parsed = parser.parse_model(HEADER + "g (float[400] x) => (float[400] y) { y = Add(x, w) }")
    tensor = TensorProto(name="w", data_type=1, dims=[400], data_location=TensorProto.EXTERNAL)
    for key, value in (
        ("location", "m.data"), ("offset", "0"), ("length", "1600"), ("offset", "1600"),
    ):  # fmt: skip
        tensor.external_data.add(key=key, value=value)
    parsed.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(parsed.SerializeToString())

    osl.save(load(tmp_path / "m.onnx"), tmp_path / "copy.onnx", external=True)

    saved = onnx.load(tmp_path / "copy.onnx").graph.initializer[0]
    assert numpy_helper.to_array(saved).tolist() == numbers[400:].tolist()


def test_no_more_is_filled_than_a_message_holds():
    with pytest.raises(EditError, match="too many elements"):
        osl.freeze(model("g (float[1073741824] x) => (float[M] y) { y = Relu(x) }"), {"x": 0})


def test_an_attribute_of_no_dtype_is_shown():
    node = helper.make_node("Neg", ["x"], ["y"])
    node.attribute.add(name="value", type=4, t=TensorProto(float_data=[1.0]))

    assert attribute_texts(node) == {"value": "<Tensor>"}


# rules

ADDS = ["t0 = Add(v0, v1)", *(f"t{i} = Add(t{i - 1}, v{i + 1})" for i in range(1, 26))]
ENDLESS_RULES = {
    "alternatives of operators": (
        "\n".join(f"# each O{i}: A, B, C, D, E, F, G, H, I, J" for i in range(9))
        + "\npattern (x) => (y) { y = O1(x) } replacement (x) => (x) {}",
        "means more than 1000 rules",
    ),
    "alternatives of parts": (
        "p0 (x) => (y) { y = Abs(x) }\n"
        + "\n".join(f"p{i} (x) => (y) {{ y = p{i - 1}(x) }}\n" * 2 for i in range(1, 30))
        + "pattern (x) => (y) { y = p29(x) } replacement (x) => (x) {}",
        "means more than 1000 rules",
    ),
    "parts of parts": (
        "p0 (x) => (y) { y = Abs(x) }\n"
        + "\n".join(f"p{i} (x) => (y) {{ y = p{i - 1}(x) }}" for i in range(1, 500))
        + "pattern (x) => (y) { y = p499(x) } replacement (x) => (x) {}",
        "calls parts more than 100 times",
    ),
    "operands that commute": (
        f"# where 1 == 2\npattern ({', '.join(f'v{i}' for i in range(27))}) => (t25) {{ {' '.join(ADDS)} }}"
        "replacement (v0) => (v0) {}",
        "takes too many steps to match",
    ),
    "copies of a large pattern": (
        "\n".join(f"# each O{i}: A, B, C, D, E, F, G, H, I, J" for i in range(3))
        + f"\npattern (x) => (y) {{ {' '.join(f'c{i} = O2(x)' for i in range(9000))} y = O0(x) }}"
        "replacement (x) => (x) {}",
        "has too many nodes with its alternatives",
    ),
    "parts in a large pattern": (
        "p (x) => (y) { y = Abs(x) }\n"
        f"pattern (x) => (y) {{ {' '.join(f'c{i} = p(x)' for i in range(9000))} y = Neg(x) }}"
        "replacement (x) => (x) {}",
        "has too many nodes with its alternatives",
    ),
    "many rules": (
        "pattern (x) => (y) { y = Relu(x) } replacement (x) => (x) {}\n" * 10_000,
        "has too many nodes with its alternatives",
    ),
    "nested terms": (
        f"# where {'-' * 5000}1 == 1\npattern (x) => (y) {{ y = Relu(x) }} replacement (x) => (x) {{}}",
        "is no expression",
    ),
    "a condition that closes its parentheses": (
        "# where a)(b == 1\npattern (x) => (y) { y = Relu(x) } replacement (x) => (x) {}",
        "is no expression",
    ),
    "deep terms": (
        f"# where {'1+' * 150}1 == 1\npattern (x) => (y) {{ y = Relu(x) }} replacement (x) => (x) {{}}",
        "nests deeper than 100",
    ),
    "loops": (
        f"# where [1 {'for i in range(1000) ' * 9}] == 1\n"
        "pattern (x) => (y) { y = Relu(x) } replacement (x) => (x) {}",
        "takes too many steps to match",
    ),
    "long lists": (
        "# where [1] * 9999999999 == 1\npattern (x) => (y) { y = Relu(x) } replacement (x) => (x) {}",
        "takes too many steps to match",
    ),
    "constants alone": (
        "pattern () => (y) { y = Constant<value_float = 1.0>() } replacement () => (y) { y = Abs() }",
        "the pattern of rule 'rule' makes no",
    ),
    "no function": ("# {}\n<ir_version: 1> {}", "is not ONNX text"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ENDLESS_RULES)
def test_a_rule_without_end_is_refused(kind):
    rule, problem = ENDLESS_RULES[kind]
    adds = " ".join(f"a{i + 1} = Add(a{i}, a{i - 1})" for i in range(1, 40))
    graph = f"g (float[4] x) => (float[4] y) {{ a0 = Relu(x) a1 = Add(a0, x) {adds} y = Neg(a40) }}"

    with within(15), pytest.raises(SurgeonError, match=problem):
        osl.rewrite(osl.build(graph), rule)


def of_a_pipe(path):
    """What reads a text or an array that people write."""
    relu = osl.build("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    text = "g (float[2] x) => (float[2] y) { y = Add(x, w) }"
    return {
        "rules": lambda: osl.rewrite(relu, path),
        "text": lambda: osl.build(Path(path)),
        "array": lambda: osl.build(text, initializer={"w": path}),
        "nodes to keep": lambda: osl.convert(relu, to="float16", keep=path),
        "map": lambda: load_map(Path(path)),
        "journal": lambda: Journal.at(Path(path), "q", resume=True),
    }


@pytest.mark.parametrize("kind", of_a_pipe("pipe"))
def test_what_people_write_is_read_from_regular_files_alone(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.json")
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for the pipe"))
    signal.alarm(20)
    try:
        with pytest.raises(SurgeonError, match="regular file|is not a journal"):
            of_a_pipe("pipe.json")[kind]()
    finally:
        signal.alarm(0)


def test_a_journal_is_not_written_through_a_link_out_of_its_folder(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "journal").symlink_to("../empty")

    with pytest.raises(SurgeonError, match="is a link out of its folder"):
        Journal.at(tmp_path / "folder" / "journal", "q", resume=False)
    assert not (tmp_path / "empty").read_text()


@pytest.mark.parametrize(
    ("work", "problem"),
    [
        (lambda given: osl.replace(given, [], [], op_type="Neg"), "nothing is between"),
        (lambda given: osl.replace(given, [], ["w"], op_type="Neg"), "nothing is between|needed"),
        (lambda given: osl.set_shape(given, {}), "no input is given a shape"),
        (lambda given: osl.rewrite(given, "a\0b"), "no rule or file"),
        (lambda given: osl.replace(given, ["x"], ["y"], model="a\0b"), "cannot read"),
        (lambda given: osl.append(given, "bytes"), "cannot read 'bytes' as text"),
    ],
)
def test_words_of_a_recipe_that_make_no_sense_are_refused(work, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\x93")
    given = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")

    with pytest.raises(SurgeonError, match=problem):
        work(given)


def test_a_loop_of_links_is_no_model(tmp_path):
    (tmp_path / "m.onnx").symlink_to("m.onnx")

    with pytest.raises(SurgeonError, match="cannot read .*m.onnx': Symlink loop|symbolic links"):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", '{"exclude": [1]}'])
def test_a_list_of_nodes_to_keep_that_rank_did_not_write_is_refused(text, tmp_path):
    (tmp_path / "deep.json").write_text(text)

    with pytest.raises(UsageError, match="is not what rank wrote"):
        osl.convert(
            osl.build("g (float[2] x) => (float[2] y) { y = Neg(x) }"),
            to="float16",
            keep=str(tmp_path / "deep.json"),
        )


MANY = 200_000
RULE = "pattern (x) => (z) { z = Relu(x) }\nreplacement (x) => (z) { z = Abs(x) }\n"


@pytest.mark.parametrize(
    "work",
    [
        lambda: shown_text('"' + '\\"' * MANY),
        lambda: osl.rewrite(two_nodes(), f"{RULE}# where{' ' * MANY}"),
        lambda: osl.rewrite(two_nodes(), f"{RULE}# each Relu:{' ' * MANY}"),
        lambda: osl.rewrite(two_nodes(), f"{RULE}# each Relu: ,,,"),
        lambda: osl.rewrite(
            two_nodes(), RULE.replace("{ z = Relu", "{ = Constant<value_int: int = 1>() z = Relu")
        ),
        lambda: osl.rewrite(two_nodes(), RULE.replace("{ z = Relu", "{ c = Constant() z = Relu")),
        lambda: osl.rewrite(two_nodes(), RULE.replace("{ z = Abs", "{ = Abs(x) z = Abs")),
        lambda: osl.rewrite(two_nodes(), f'{RULE}"' + '\\"' * MANY),
        lambda: iterations_of("a" + "[1]" * MANY + "!"),
        lambda: osl.inspect(two_nodes("/" + "Fusion" * MANY + "!"), tree=True),
        lambda: alike(" (node" * MANY, Failing(two_nodes(), {}).names),
    ],
    ids=[
        "quotes",
        "where",
        "each",
        "none",
        "unnamed",
        "empty",
        "nothing",
        "strings",
        "iterations",
        "fused",
        "places",
    ],
)
def test_texts_are_read_once_whatever_they_repeat(work):
    began = time.monotonic()

    with contextlib.suppress(SurgeonError):
        work()

    assert time.monotonic() - began < 5


def two_nodes(name="b", trace=""):
    model = osl.build("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    for node in model.proto.graph.node:
        node.name = node.op_type + name
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    return model


@pytest.mark.parametrize("digits", [10, 5000])
def test_numbers_of_any_length_are_text_where_models_hold_them(digits, tmp_path):
    number = "9" * digits
    model = two_nodes(trace=f'File "a.py", line {number}, in forward\n  x')
    text = f"g (float[2] x) => (float[2] y) {{ y = Relu(x) line: {number} }}"
    numbered = osl.build(
        "g (float[2] x) => (float[2] y0, float[2] y1) { y0 = Relu(x) y1 = Neg(x) }"
    )
    for output, node in zip(numbered.proto.graph.output, numbered.proto.graph.node, strict=True):
        output.name = node.output[0] = f"{node.op_type}.{number}"

    osl.inspect(model, tree=True)
    with pytest.raises(SurgeonError):
        osl.build(text)
    with pytest.raises(SurgeonError):
        osl.batch_outputs(numbered, most=5)
    assert iterations_of(f"a[{number}]") == (f"a[{number}]", ())
