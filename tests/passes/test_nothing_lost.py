"""After every verb a semantic diff against the original shows exactly the edit, whatever else the model carries."""

from collections import Counter

import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from kit.rich import UNKNOWN, rich
from kit.verbs import LOSSLESS
from onnxsurgeon_lite import (
    AddConstant,
    Freeze,
    Model,
    Opset,
    Promote,
    RemoveOutput,
    Rewire,
    SetType,
    load,
)
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.matching.diff import Change, ModelDiff, diff, edit_diff, models
from onnxsurgeon_lite.matching.diff.trimming import trim
from onnxsurgeon_lite.model.storage import stripping
from onnxsurgeon_lite.passes import Fold


def shuffled() -> Model:
    model = rich()
    nodes = list(model.proto.graph.node)
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(reversed(nodes))
    return model


def redundant() -> Model:
    """A rich model with nodes that can go."""
    model = rich()
    graph = model.proto.graph
    more = onnx.parser.parse_graph("""more (float[N,4] b) => (float[N,4] r) {
        [const] k = Add(same, same)
        [times] t = Mul(b, k)
        [idle] i = Identity(t)
        [one] j = Neg(i)
        [other] l = Neg(i)
        [sum] r = Add(j, l)
    }""")
    graph.node.extend(more.node)
    graph.output.extend(more.output)
    return model


def opened() -> Model:
    """A rich model with an input that has a default."""
    model = rich()
    kind = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    model.proto.graph.input.add(name="same", type=kind)
    return model


def model_for(verb: str) -> Model:
    if verb in ("fold", "cse", "skip-noops", "infer", "simplify", "unshare"):
        return redundant()
    if verb == "remove-input":
        return opened()
    if verb == "dequantize":
        return quantized()
    if verb == "standardize":
        return gated()
    if verb == "fuse":
        return steep()
    if verb == "drop-layer":
        return layered()
    if verb == "inference":
        return training()
    return shuffled() if verb in ("sort", "fix") else rich()


def quantized() -> Model:
    """The same, with a pair of quantizers before a node."""
    model = rich()
    name = model.proto.graph.node[-1].input[0]
    pair = [("QuantizeLinear", name, "q"), ("DequantizeLinear", "q", "dq")]
    nodes = [helper.make_node(op, [name, "qs", "qz"], [made]) for op, name, made in pair]
    return put_before_last(model, nodes, qs=(TensorProto.FLOAT, 0.5), qz=(TensorProto.INT8, 0))


def gated() -> Model:
    """The same, with an operator of onnxruntime before a node."""
    model = rich()
    model.proto.opset_import.add(domain="com.microsoft", version=1)
    name = model.proto.graph.node[-1].input[0]
    nodes = [helper.make_node("QuickGelu", [name], ["gated"], domain="com.microsoft", name="gate")]
    return put_before_last(model, nodes)


def steep() -> Model:
    """The same, with the parts of an operator of onnxruntime before a node."""
    model = rich()
    name = model.proto.graph.node[-1].input[0]
    nodes = [
        helper.make_node("Mul", [name, "slope"], ["steeper"], name="steep"),
        helper.make_node("Sigmoid", ["steeper"], ["gate"], name="open"),
        helper.make_node("Mul", [name, "gate"], ["gated"], name="gated"),
    ]
    return put_before_last(model, nodes, slope=(TensorProto.FLOAT, 1.5))


def layered() -> Model:
    """The same, with two layers before a node."""
    model = rich()
    values = [model.proto.graph.node[-1].input[0], "p", "q", "r", "t"]
    nodes = [
        helper.make_node(op, [values[n]], [values[n + 1]], name=f"/l.{n // 2}/{op}")
        for n, op in enumerate(["Abs", "Neg"] * 2)
    ]
    return put_before_last(model, nodes)


def training() -> Model:
    """The same, with a Dropout in training mode before a node."""
    model = rich()
    name = model.proto.graph.node[-1].input[0]
    nodes = [helper.make_node("Dropout", [name, "", "train"], ["dropped"])]
    return put_before_last(model, nodes, train=(TensorProto.BOOL, True))


def put_before_last(model: Model, nodes: list[NodeProto], **constants: tuple[int, float]) -> Model:
    """The model with nodes whose last output the last node reads."""
    graph = model.proto.graph
    last = graph.node[-1]
    last.input[0] = nodes[-1].output[0]
    for name, (data_type, number) in constants.items():
        graph.initializer.append(helper.make_tensor(name, data_type, [], [number]))
    kept = [*list(graph.node)[:-1], *nodes, last]
    graph.ClearField("node")
    graph.node.extend(kept)
    return model


STORAGE = ("external_data", "data_location")


def full() -> onnx.ModelProto:
    """A model with a field of nearly every kind."""
    proto = rich().proto
    graph, node = proto.graph, proto.graph.node[0]
    proto.ir_version = 11
    proto.configuration.add(name="two", num_devices=2, device=["a", "b"])
    sharding = node.device_configurations.add(configuration_id="two", pipeline_stage=1)
    spec = sharding.sharding_spec.add(tensor_name=node.output[0], device=[0])
    spec.index_to_device_group_map.add(key=-1, value=[0, 1])
    spec.sharded_dim.add(axis=0).simple_sharding.add(dim_param="N", num_shards=2)
    graph.input[0].type.denotation = "IMAGE"
    graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    declared = graph.value_info.add(name=graph.initializer[0].name, doc_string="of a constant")
    declared.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, [4]))
    listed = helper.make_sequence_type_proto(
        helper.make_tensor_type_proto(TensorProto.FLOAT, ["M"])
    )
    graph.input.add(name="listed", type=listed)
    graph.input.add(name="maybe", type=helper.make_optional_type_proto(listed))
    chosen = helper.make_node("If", ["cond"], ["chosen"], name="if")
    for branch in ("then_branch", "else_branch"):
        body = onnx.parser.parse_graph(
            f"{branch} () => (float[4] r) {{ r = Constant<value = float[4] {{1,2,3,4}}>() }}"
        )
        body.doc_string = f"doc of {branch}"
        chosen.attribute.append(helper.make_attribute(branch, body))
    graph.node.append(chosen)
    graph.input.add(name="cond", type=helper.make_tensor_type_proto(TensorProto.BOOL, []))
    graph.output.add(name="chosen", type=helper.make_tensor_type_proto(TensorProto.FLOAT, [4]))
    return proto


def changed_anywhere(message, path=()):
    """Change each field of a message in turn, in place; yield what was changed, and put it back."""
    for field in message.DESCRIPTOR.fields:
        here = (*path, field.name)
        if field.name in STORAGE:
            continue
        many = (
            field.is_repeated
            if hasattr(field, "is_repeated")
            else field.label == field.LABEL_REPEATED
        )
        if field.message_type is not None and not many:
            if message.HasField(field.name):
                yield from changed_anywhere(getattr(message, field.name), here)
            continue
        before = type(message)()
        before.CopyFrom(message)
        if many:
            values = getattr(message, field.name)
            if field.message_type is not None:
                for place, each in enumerate(values):
                    yield from changed_anywhere(each, (*here, place))
            for place in {0, len(values) - 1} if values else ():
                del values[place]
                yield (*here, place, "removed")
                message.CopyFrom(before)
                values = getattr(message, field.name)
            continue
        value = getattr(message, field.name)
        numbers = {
            float: value + 1.5 if isinstance(value, float) else 0,
            int: 1,
            bytes: b"z",
            str: "z",
        }
        kind = type(value)
        setattr(
            message,
            field.name,
            value + numbers[kind] if kind in (bytes, str, int) else numbers[float],
        )
        yield here
        message.CopyFrom(before)


def test_a_change_of_any_field_is_seen():
    original, proto = Model(full()), full()
    unseen, kinds = [], Counter()
    for path in changed_anywhere(proto):
        kind = tuple(part for part in path if isinstance(part, str))
        kinds[kind] += 1
        if kinds[kind] > 1:
            continue
        try:
            found = diff(original, Model(proto))
        except SurgeonError:
            continue
        if not (found.differences or found.notes or found.renamed):
            unseen.append(path)

    assert len(kinds) > 100
    assert not unseen


def test_what_is_no_text_of_a_type_is_shown():
    texts = [
        f"g (float[{a}] x, float[{b}] z) => (float[4] y) {{ s = Add(x, z) y = Relu(s) }}"
        for a, b in (("N", "N"), ("N", "M"))
    ]
    one, two = (
        Model(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>{t}'))
        for t in texts
    )
    denoted = one.copy()
    denoted.proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "BATCH"

    assert lines(diff(two, one)) != []
    for found in (diff(one, two), diff(two, one), diff(one, denoted)):
        changes = [c for d in found.differences for c in d.changes]
        assert changes
        assert all(c.before != c.after for c in changes)


def lines(found: ModelDiff) -> list[str]:
    """Each difference as `status kind subject: what before -> after`."""
    shown = [
        (f"{d.status} {d.kind} {d.subject}", map(change, d.changes)) for d in found.differences
    ]
    return [f"{what}: {'; '.join(changes)}" for what, changes in shown]


def change(one: Change) -> str:
    return f"{one.what} {one.before} -> {one.after}" if one.before or one.after else one.what


@pytest.mark.parametrize(
    ("step", "expected", "added"), LOSSLESS, ids=lambda value: getattr(value, "name", "")
)
def test_the_difference_is_exactly_the_edit(step, expected, added, monkeypatch):
    model = model_for(step.name)

    result = step.apply(model)
    onnx.checker.check_model(result.model.proto)
    found = lines(diff(model, result.model))

    assert result.changed
    new = [line for line in found if line.startswith("added node")]
    assert sorted(line for line in found if line not in new) == sorted(expected)
    assert len(new) == added


@pytest.mark.parametrize("step", [step for step, *_ in LOSSLESS], ids=lambda step: step.name)
def test_the_difference_of_a_large_model_is_found_around_the_edit(step, monkeypatch):
    model = model_for(step.name)
    del model.proto.training_info[:]
    result = step.apply(model).model
    whole = diff(model, result)

    monkeypatch.setattr(models, "_WHOLE", 0)
    found = edit_diff(model, result)

    assert found is not None
    assert sorted(lines(found)) == sorted(lines(whole))
    assert found.notes == whole.notes


def test_of_the_many_readers_of_a_folded_value_few_are_looked_at():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> '
        "many (float[4] x) => (float[4] y) <float[4] one = {1,1,1,1}> {two = Mul(one, one)}"
    )
    values = ["x", *(f"v{number}" for number in range(3000)), "y"]
    for before, after in zip(values, values[1:], strict=False):
        model.graph.node.append(helper.make_node("Add", [before, "two"], [after]))
    before = Model(model)

    after = Fold().apply(before).model
    found, trimmed = edit_diff(before, after), trim(before, after)
    assert found is not None
    assert lines(found) == lines(diff(before, after))
    assert trimmed is not None
    assert len(trimmed.pairs) < 100


def decorated(text: str) -> Model:
    """A model with a doc, and a field of the future, on every message of its graph."""
    proto = onnx.parser.parse_model(text)
    graph = proto.graph
    for message in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        message.doc_string = f"doc of {message.name}"
        message.MergeFromString(UNKNOWN)
    return Model(proto)


OLD = """<ir_version: 3, opset_import: ["" : 8]>
g (float[2] x, float[2] w) => (float[2] y, float[2] h) <float[2] w = {1,2}> {
    h = Add(x, w) k = Add(w, w) y = Mul(h, k)
}"""


@pytest.mark.parametrize(
    "step",
    [AddConstant((("half", 0.5),)), Freeze((("x", [1, 2]),)), Fold()],
    ids=lambda step: step.name,
)
def test_below_ir_version_4_a_new_initializer_is_an_input_too(step):
    model = decorated(OLD)

    result = step.apply(model).model.proto

    onnx.checker.check_model(result, full_check=True)
    kept = {info.name: info for info in result.graph.input}
    assert all(kept[info.name] == info for info in model.proto.graph.input)


def test_an_output_that_is_removed_keeps_its_declaration():
    model = decorated(OLD)

    result = RemoveOutput(("h",)).apply(model).model.proto

    assert list(result.graph.value_info) == [model.proto.graph.output[1]]


def test_a_weight_that_is_an_input_too_comes_back_as_it_was():
    model = decorated(OLD)

    opened = Promote(("w",)).apply(model).model
    result = Freeze((("w", [1, 2]),)).apply(opened).model.proto

    assert result.graph.initializer[0].doc_string == "doc of w"
    assert UNKNOWN in result.graph.initializer[0].SerializeToString()


def test_another_opset_keeps_fields_of_the_future():
    model = decorated(OLD.replace('"" : 8', '"" : 6').replace("Add(x, w)", "Add(x, x)"))

    result = Opset(7).apply(model).model.proto

    assert all(UNKNOWN in node.SerializeToString() for node in result.graph.node)


def test_stripped_weights_come_back_with_each_field_once(tmp_path):
    model = decorated(OLD)
    stripping.strip(model, tmp_path / "bare.onnx", keep_sources=True)

    stripping.unstrip(load(tmp_path / "bare.onnx"), model, tmp_path / "whole.onnx")

    assert load(tmp_path / "whole.onnx").proto.graph.initializer == model.proto.graph.initializer


def test_a_cast_at_the_border_imports_the_operators_that_no_node_had():
    text = """<ir_version: 10, opset_import: ["ai.onnx.ml" : 5]>
    g (float[2] x) => (float[2] y) { y = ai.onnx.ml.Scaler<offset = [0.0], scale = [2.0]>(x) }"""

    result = SetType({"x": "double"}).apply(Model(onnx.parser.parse_model(text))).model.proto

    onnx.checker.check_model(result, full_check=True)


def test_below_opset_6_a_new_cast_names_its_dtype():
    model = Model(
        onnx.parser.parse_model(OLD.replace('"" : 8', '"" : 1').replace("(x, w)", "(x, x)"))
    )

    result = SetType({"x": "double"}).apply(model).model.proto

    onnx.checker.check_model(result, full_check=True)


def test_an_input_that_was_a_constant_has_the_docs_of_its_declaration():
    header = '<ir_version: 10, opset_import: ["" : 21]>'
    text = f"{header} g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ y = Add(x, w) }}"
    model = Model(onnx.parser.parse_model(text))
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    info = model.proto.graph.value_info.add(name="w", type=kind, doc_string="scale")
    info.metadata_props.add(key="made", value="by hand")

    promoted = Promote(("w",)).apply(model).model
    back = Freeze((("w", None),)).apply(promoted).model

    declared = promoted.proto.graph.input[1]
    assert (declared.doc_string, declared.metadata_props[0].value) == ("scale", "by hand")
    assert back.proto == model.proto


RESIZED = """g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float16[4] s = {1,1,2,2}> {
    c = Cast<to = 1>(s)
    same = Identity(c)
    h = Resize<mode = "nearest">(x, , c)
    y = Relu(h) }"""


@pytest.mark.parametrize("other", ["c", "same"])
def test_readers_of_another_name_of_one_value_keep_declared_sizes_that_inference_cannot_see(
    other, model_of
):
    declared = onnx.parser.parse_graph("d (float[1,1,4,4] h) => (float y) { y = Neg(h) }").input[0]
    model = model_of(RESIZED)
    proto = model.proto
    del proto.graph.value_info[:]
    proto.graph.value_info.append(declared)
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))

    rewired = Rewire("c", other, to=("op:Resize",)).apply(model)

    assert list(rewired.model.proto.graph.value_info) == [declared]
    assert rewired.changed == (other != "c")
