"""Change: `onnxdbg edit VERB MODEL`. The options of a verb are the fields of its pass that its help names.

A verb's function declares what does not follow from a field, and may return further fields; what all edits share is
added.
"""

from collections.abc import Iterable, Mapping, Sequence
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onnxsurgeon_lite.api.call import byte_size
from onnxsurgeon_lite.cli import completion
from onnxsurgeon_lite.cli.edit_shared import Edits, Keep, command
from onnxsurgeon_lite.cli.options import Typed, Value, Values, attributes, named, pairs
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import is_count, key_value, split

if TYPE_CHECKING:
    from onnxsurgeon_lite.passes import Pass
    from onnxsurgeon_lite.surgery import Numbers

Fields = Mapping[str, object]


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """(input, sizes) of `x=N,3,H,W`."""
    name, shape = key_value(text)
    sizes = [size.strip() for size in (shape or "").strip("[]").split(",")]
    if not all(sizes):
        raise UsageError(f"{text!r} gives no input and shape", "write x=N,3,H,W")
    return name, tuple(map(_size, sizes))


def _size(text: str) -> int | str:
    return int(text) if is_count(text) else text


def _groups(_: str, texts: Iterable[str]) -> Fields:
    """Return name -> outputs of every `boxes=OUTPUT,OUTPUT`."""
    found = {}
    for text in texts:
        name, outputs = key_value(text)
        if not name or not outputs:
            raise UsageError(f"{text!r} gives no group", "write boxes=OUTPUT,OUTPUT")
        found[name] = tuple(split([outputs]))
    return found


def _fills(option: str, texts: Iterable[str]) -> Fields:
    """Return name -> number of every `NAME=NUMBER`."""
    found = {}
    for text in texts:
        name, number = key_value(text)
        try:
            found[name] = float(number or "")
        except ValueError as error:
            hint = f"write {option} labels=-1"
            raise UsageError(f"{option} {text!r} gives no number", hint) from error
    return found


def _constants(option: str, texts: Iterable[str]) -> "tuple[tuple[str, Numbers], ...]":
    """(name, numbers) of every `NAME=NUMBERS`."""
    from onnxsurgeon_lite.surgery import read_numbers

    return tuple((name, read_numbers(text)) for name, text in pairs(option, texts))


def _frozen(_: str, texts: Iterable[str]) -> "tuple[tuple[str, Numbers | None], ...]":
    """(name, numbers) of every `NAME=NUMBERS`; None where there are none."""
    from onnxsurgeon_lite.surgery import read_numbers

    found = map(key_value, texts)
    return tuple((name, None if n is None else read_numbers(n)) for name, n in found)


def _deviation(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _split(_: str, texts: Iterable[str]) -> Sequence[str]:
    return list(split(texts))


_Attributes = Annotated[Sequence[str], Typed(("--attr",), metavar="NAME=VALUE", reads=attributes)]
_Borders = Annotated[Sequence[str], Typed((), completion.of_border, "NAME=DTYPE...", reads=named)]
_Fill = Annotated[
    Sequence[str], Typed(completes=completion.of_outputs, metavar="NAME=NUMBER", reads=_fills)
]
_Limit = Annotated[str, Typed(("--fold-limit",), metavar="<str>", parser=byte_size)]
_Most = Annotated[int, Typed(("--max",), least=1)]
_Name = Annotated[str, Typed(("--name",))]


def rename(
    names: Annotated[Sequence[str], Typed((), completion.nodes, "OLD=NEW...", reads=pairs)],
    *,
    nodes: Annotated[bool, Typed(("--node",))] = False,
) -> None:
    """Rename values (inputs and outputs included) or nodes, all at once: names can be swapped.

    $ onnxdbg edit rename model.onnx 23=features 31=out --verify
    $ onnxdbg edit rename model.onnx 'Conv_*=layer*' --node -o layers.onnx

    Args:
        names: Old and new name; '*=left/*' is a prefix.
        nodes: Rename nodes, not values.
    """


def remove() -> None:
    """Remove nodes; what read their output reads the input of the same type.

    $ onnxdbg edit remove model.onnx Conv_10
    $ onnxdbg edit remove model.onnx Add_7 --bridge 25 --dry-run

    Args:
        nodes: Nodes: names, ids, op:Conv[2], globs.
        bridge: The input that takes the output's place.
    """


def drop_layer(layer: Annotated[int, Typed(least=0)]) -> None:
    """Remove a layer of a language model with its cache; later ones get lower numbers.

    $ onnxdbg edit drop-layer decoder.onnx 1
    $ onnxdbg edit drop-layer decoder.onnx 0 --stack model.layers --dry-run

    Args:
        layer: Its number, from 0.
        stack: The module that has the layers, where several modules have some.
    """


def insert(
    *,
    attributes: _Attributes = (),
    inputs: Annotated[Sequence[str], Typed(("--input",), completion.values)] = (),
    node_name: _Name = "",
    new_value: Annotated[str | None, Typed(("--value",))] = None,
) -> Fields:
    """Insert a node on an edge: after a value, or before it; for all its readers, or one.

    $ onnxdbg edit insert model.onnx 23 Relu --to Conv_3
    $ onnxdbg edit insert model.onnx 23 Mul --input 23,2.0 --dry-run

    Args:
        value: The value after which the node goes.
        op_type: The operator.
        attributes: An attribute.
        inputs: All inputs in order, VALUE among them, or numbers after it; '' is an omitted one.
        to: Only where this node reads the value; can be repeated.
        before: Before the value, which keeps its name.
        domain: The operator's domain.
        new_value: Name of the new value.
        node_name: Name of the new node.
    """
    return {"output": new_value}


def rewire(*, slot: Annotated[int | None, Typed(least=0)] = None) -> None:
    """Make what reads one value read another.

    $ onnxdbg edit rewire model.onnx 24 23
    $ onnxdbg edit rewire model.onnx 25 27 --to Add_7 --slot 0 --dry-run

    Args:
        old: The value that is read now.
        new: The value to read instead.
        to: Only where this node reads the value; can be repeated.
        slot: Only this input of a node, counted from 0.
    """


def replace(
    *,
    inputs: object,
    outputs: object,
    op_type: Annotated[str, Typed(("--op",))] = "",
    attributes: _Attributes = (),
    node_name: _Name = "",
    by: Annotated[str | None, Typed(("--model",))] = None,
) -> Fields:
    """Replace what lies between values by one node, or by another model.

    $ onnxdbg edit replace model.onnx --inputs 23 --outputs 25 --op Identity
    $ onnxdbg edit replace model.onnx --inputs 23 --outputs 25 --op Relu --dry-run

    Args:
        inputs: Values where the region begins.
        outputs: Values that it computes.
        op_type: The operator to have instead.
        attributes: An attribute.
        domain: The operator's domain.
        node_name: Name of the new node.
        by: A model to have instead; its inputs in order.
    """
    return {} if by is None else {"model": by}


def rewrite() -> None:
    """Replace every match of a pattern, in bodies too; --dry-run lists the matches.

    $ onnxdbg edit rewrite model.onnx conv-batch-norm
    $ onnxdbg edit rewrite model.onnx gelu-erf layer-norm --dry-run

    Args:
        rules: Files with functions pattern and replacement, or rules that come with onnxdbg.
        reverse: Find the replacement, put the pattern in its place.
    """


def set_op() -> None:
    """Give nodes another operator: `set-op model.onnx Add_7 Sub`.

    $ onnxdbg edit set-op model.onnx Add_7 Sub
    $ onnxdbg edit set-op model.onnx op:Add Mul --dry-run

    Args:
        nodes: Nodes: names, ids, op:Conv[2], globs.
        op_type: The operator to have instead.
        domain: Its domain; the node's own by default.
    """


def set_attr(
    nodes: Annotated[str, Typed((), completion.nodes, "node")],
    attributes: Annotated[
        Sequence[str], Typed((), completion.attributes, "NAME=VALUE...", reads=attributes)
    ] = (),
) -> None:
    """Set attributes of nodes to numbers, text or lists; or remove some.

    $ onnxdbg edit set-attr model.onnx Conv_6 'dilations=[2,2]' 'pads=[2,2,2,2]'
    $ onnxdbg edit set-attr model.onnx Conv_6 --remove dilations --dry-run

    Args:
        nodes: Nodes: name, id, op:Conv[2], glob.
        attributes: Attributes to set: pads=[1,1,1,1].
        remove: An attribute to remove.
    """


def set_constant() -> None:
    """Give a constant other numbers; with --to, one node gets a copy of it.

    $ onnxdbg edit set-constant model.onnx convs1.0.bias 0
    $ onnxdbg edit set-constant model.onnx convs1.0.bias '[0.1,0.2,0.3]' --dry-run

    Args:
        value: An initializer, or the output of a Constant.
        numbers: 0.5, [1,2] or a file that holds them.
        to: Only where this node reads the value; can be repeated.
    """


def promote() -> None:
    """Make constants inputs of the graph.

    $ onnxdbg edit promote model.onnx convs1.0.bias
    $ onnxdbg edit promote model.onnx convs1.0.bias,convs1.1.bias --default --dry-run

    Args:
        values: Initializers, or outputs of Constant nodes.
        default: Keep the constant as the input's default.
    """


def freeze(
    values: Annotated[
        Sequence[str], Typed((), completion.values, "NAME[=NUMBERS]...", reads=_frozen)
    ],
    *,
    limit: _Limit = "1MB",
    unroll: Annotated[int, Typed(least=0)] = 0,
) -> None:
    """Make inputs constants.

    $ onnxdbg edit freeze model.promote.onnx 'convs1.0.bias=[0.1,0.2,0.3]'
    $ onnxdbg edit freeze block.onnx hidden_states=hidden.npy --fold --dry-run

    Args:
        values: Input and its numbers (0.5, [1,2], a file); without numbers its default.
        fold: Compute now what depends on nothing else; an If becomes the branch that runs.
        limit: Fold nothing that is larger than this.
        unroll: With --fold, a Loop that runs at most so often becomes its iterations.
    """


def prepend(
    *,
    links: Annotated[
        Sequence[str], Typed(("--map",), completion.of_inputs, "RESULT=INPUT", reads=pairs)
    ] = (),
) -> None:
    """Compute the inputs of a model from others: normalize, resize, transpose.

    $ onnxdbg edit prepend model.onnx 'x = (image - 0.5) / 0.25' --map x=input.1
    $ onnxdbg edit prepend model.onnx 'x = Cast(image, to=FLOAT)' --map x=input.1 --dry-run

    Args:
        what: Assignments, a graph in ONNX text, or a file with one of them; a model.
        links: A result, and the input that it feeds; equal names by default.
        share: An input of both that becomes one.
    """


def append(
    *,
    links: Annotated[
        Sequence[str], Typed(("--map",), completion.values, "VALUE=INPUT", reads=pairs)
    ] = (),
) -> None:
    """Compute further values from those of a model: Softmax, TopK, NonMaxSuppression.

    $ onnxdbg edit append model.onnx 'best = ArgMax(scores, axis=1)' --map 31=scores
    $ onnxdbg edit append model.onnx 'top, at = TopK(scores, [2], axis=1)' --map 31=scores --dry-run

    Args:
        what: Assignments, a graph in ONNX text, or a file with one of them; a model.
        links: A value of the model, and the name by which the text reads it.
        share: An input of both that becomes one.
        prefix: Before every name that is added.
        keep: An output that the text reads and that stays one.
    """


def sort() -> None:
    """Put nodes in topological order, moving as few as possible.

    $ onnxdbg edit sort model.onnx
    $ onnxdbg edit sort model.onnx --dry-run
    """


def clean() -> None:
    """Remove nodes, initializers and functions that no output needs.

    $ onnxdbg edit clean model.onnx
    $ onnxdbg edit clean model.extract.onnx --dry-run
    """


def fix() -> None:
    """Put right what other tools leave: names with two owners, unsorted nodes, stale types, missing imports.

    $ onnxdbg edit fix model.onnx
    $ onnxdbg edit fix model.onnx --dry-run

    Args:
        join: Read the value with the closest spelling where one is missing, if that is only one.
    """


def dedupe() -> None:
    """Keep one of several equal initializers; only those that may be equal are read.

    $ onnxdbg edit dedupe model.onnx
    $ onnxdbg edit dedupe model.onnx --dry-run
    """


def unshare(initializers: Values = ()) -> None:
    """Give each node that reads an initializer one of its own, as weights --update may need it.

    $ onnxdbg edit unshare model.onnx
    $ onnxdbg edit unshare model.onnx 'convs1.*' --dry-run

    Args:
        initializers: Initializers or globs, comma-separated; all that several nodes read by default.
    """


def inference() -> None:
    """Let every BatchNormalization and Dropout compute as in inference, in bodies and functions too.

    $ onnxdbg edit inference model.onnx
    $ onnxdbg edit inference model.onnx --dry-run
    """


def inline(functions: Annotated[Sequence[str], Typed(completes=completion.functions)] = ()) -> None:
    """Replace calls of model-local functions by their nodes.

    $ onnxdbg edit inline outlined.onnx
    $ onnxdbg edit inline outlined.onnx --dry-run

    Args:
        functions: Functions: domain::name; all by default.
    """


def outline() -> None:
    """Make the nodes of a module a function; or of all equal modules of a class one function.

    $ onnxdbg edit outline dynamo.onnx convs1 -o outlined.onnx
    $ onnxdbg edit outline dynamo.onnx class:Conv2d --dry-run

    Args:
        scope: A module path (encoder.layer.4), several (encoder.layer.*), or class:BertLayer.
        domain: The function's domain.
    """


def opset() -> None:
    """Convert to another opset version of ONNX's own operators; what an older one lacks is taken apart, and proved.

    $ onnxdbg edit opset model.onnx 21
    $ onnxdbg edit opset model.onnx 21 --verify --dry-run

    Args:
        version: The version to convert to.
    """


def set_shape(
    shapes: Annotated[Sequence[str], Typed(completes=completion.of_inputs)],
    *,
    two_exports: bool = False,
) -> Fields:
    """Give inputs other shapes, all the way through: numbers fix dimensions, names open them. Proved by running.

    $ onnxdbg edit set-shape model.onnx input.1=1,3,H,W
    $ onnxdbg edit set-shape model.onnx input.1=1,3,32,32 --dry-run

    Args:
        shapes: Shapes of inputs: x=N,3,H,W; with --two-exports the second export before them.
        two_exports: Learn what follows from an export at another size.
    """
    given, second = (shapes[1:], shapes[0]) if two_exports else (shapes, None)
    return {"shapes": dict(map(_shape, given)), "second": second}


def rebatch(
    second: Annotated[Path | None, Typed(metavar="other")] = None,
    *,
    to: Annotated[str, Typed(metavar="<str>", parser=_size)] = "N",
    axis: Annotated[int, Typed(least=0)] = 0,
    two_exports: bool = False,
) -> Fields:
    """Give the batch another size, or open it, all the way through. Proved by running, sample by sample.

    $ onnxdbg edit rebatch fixed.onnx
    $ onnxdbg edit rebatch fixed.onnx --to 4 --dry-run

    Args:
        second: With --two-exports: the second export.
        to: A number for a fixed size, a name for an open one.
        inputs: Inputs that have the batch, comma-separated; all.
        axis: Which dimension of the inputs it is.
        two_exports: Learn what follows from an export at another size.
    """
    if two_exports != (second is not None):
        raise UsageError(
            "--two-exports takes two models, other uses one",
            "write edit rebatch MODEL --to SIZE, or edit rebatch --two-exports MODEL OTHER",
        )
    return {"second": None if second is None else str(second)}


def pad_outputs(*, most: _Most, fill: _Fill = ()) -> None:
    """Pad the ragged outputs of one image to a fixed length: boxes of n x 4 to 100 x 4.

    $ onnxdbg edit pad-outputs detector.onnx --max 4 --outputs boxes,labels,scores
    $ onnxdbg edit pad-outputs detector.onnx --max 4 --outputs boxes --dry-run

    Args:
        most: Detections to hold of an image.
        outputs: Outputs to pad, comma-separated; the ragged ones.
        fill: What an output is padded with; 0.
        count: Output that says how many count.
    """


def batch_outputs(
    groups: Annotated[Sequence[str], Typed(completes=completion.to_outputs, reads=_groups)] = (),
    *,
    most: _Most,
    fill: _Fill = (),
) -> None:
    """Stack the ragged outputs of several images, padded: boxes of n x 4 and m x 4 to 2 x 100 x 4.

    $ onnxdbg edit batch-outputs named.onnx --max 4
    $ onnxdbg edit batch-outputs named.onnx --max 4 --fill labels=-1 --dry-run

    Args:
        groups: boxes=OUTPUT,OUTPUT for each group; those numbered boxes.0, boxes.1 by default.
        most: Detections to hold of an image.
        fill: What an output is padded with; 0.
        count: Output that says how many count.
    """


def name_outputs(names: Annotated[Sequence[str], Typed(reads=_split)]) -> None:
    """Name the outputs in their order: boxes,labels,scores gives boxes.0, labels.0, scores.0, boxes.1.

    $ onnxdbg edit name-outputs detector.onnx boxes,labels,scores -o named.onnx
    $ onnxdbg edit name-outputs detector.onnx boxes,labels,scores --dry-run

    Args:
        names: Names of one image's outputs, comma-separated; numbered where there are more images.
    """


def set_type(types: _Borders) -> None:
    """Give inputs and outputs another dtype, by a Cast at the border: what is computed stays the same.

    $ onnxdbg edit set-type model.onnx input.1=uint8
    $ onnxdbg edit set-type model.onnx input.1=float16 31=float16 --inward --dry-run

    Args:
        types: Input or output and its dtype: uint8, int32, float16.
        inward: Move the Cast inside, as far as operators take the new dtype.
    """


def set_layout(
    layouts: Annotated[
        Sequence[str], Typed((), completion.of_border, "NAME=LAYOUT...", reads=named)
    ],
) -> None:
    """Give inputs and outputs another layout, by a Transpose at the border.

    $ onnxdbg edit set-layout model.onnx input.1=NHWC
    $ onnxdbg edit set-layout model.onnx input.1=NHWC 31=NHWC --dry-run

    Args:
        layouts: Input or output and its layout: NHWC; NCHW->NWHC says the present one too.
    """


def remove_input() -> None:
    """Remove inputs that nothing reads; one with a default becomes a constant.

    $ onnxdbg edit promote model.onnx convs1.0.bias --default -o open.onnx
    $ onnxdbg edit remove-input open.onnx convs1.0.bias

    Args:
        inputs: Inputs or globs, comma-separated.
    """


def remove_output() -> None:
    """Remove outputs; edit clean removes what only they needed.

    $ onnxdbg edit remove-output detector.onnx scores
    $ onnxdbg edit remove-output detector.onnx boxes,labels --dry-run

    Args:
        outputs: Outputs or globs, comma-separated.
    """


def reorder() -> None:
    """Put inputs and outputs in another order.

    $ onnxdbg edit reorder detector.onnx --outputs scores,boxes
    $ onnxdbg edit reorder open.onnx --inputs convs1.0.bias --dry-run

    Args:
        inputs: Inputs in their new order, comma-separated; others follow.
        outputs: Outputs in their new order, comma-separated; others follow.
    """


def add_constant(
    constants: Annotated[Sequence[str], Typed(metavar="NAME=NUMBERS...", reads=_constants)],
) -> None:
    """Add constants, for insert and rewire to use.

    $ onnxdbg edit add-constant model.onnx 'scale=[0.5,0.25]'
    $ onnxdbg edit add-constant model.onnx eye=a.npy --dry-run

    Args:
        constants: Name and numbers: 0.5, [1,2] or a file that holds them.
        dtype: Their dtype; an array's own, float and int64 for others by default.
    """


def set(  # noqa: A001 the verb's name
    fields: Annotated[Sequence[str], Typed((), completion.nodes, "[TARGET] FIELD=VALUE...")],
) -> Fields:
    """Set fields of the header by ONNX's own names, of the model, a node or a function.

    $ onnxdbg edit set model.onnx producer_name=me metadata.author=Ada opset_import.com.microsoft=1
    $ onnxdbg edit set model.onnx @3 doc_string= metadata.reviewed=yes --dry-run

    Args:
        fields: Fields: doc_string=TEXT, metadata.KEY=TEXT, graph.name=...; a node or fn:domain::name before them.
    """
    # a first word without `=` is what the fields belong to
    target = fields[0] if fields and "=" not in fields[0] else ""
    given = fields[bool(target) :]
    if not given:
        raise UsageError("no field is given", "write producer_name=me")
    return {"fields": pairs("set", given), "target": target}


def annotate(
    target: Annotated[str, Typed((), completion.nodes, "nodes")],
    entries: Annotated[Sequence[str], Typed(metavar="KEY=TEXT...", reads=pairs)],
) -> None:
    """Give nodes entries of metadata: onnxruntime places nodes by layer_ann.

    $ onnxdbg edit annotate model.onnx Conv_6,Conv_8 layer_ann=tail
    $ onnxdbg edit annotate model.onnx op:Conv layer_ann=heavy reviewed=yes --dry-run

    Args:
        target: Nodes: name, id, op:Conv, scope:encoder.*; or a function: fn:domain::name.
        entries: Entries: KEY=TEXT; KEY= removes one.
    """


def simplify(
    *,
    limit: _Limit = "1MB",
    without: Annotated[Sequence[str], Typed(metavar="STEP", reads=_split)] = (),
) -> None:
    """Fold, skip no-ops, merge equal nodes, fuse and clean until nothing changes; then infer. Proved by running.

    $ onnxdbg edit simplify detector.onnx
    $ onnxdbg edit simplify block.onnx --without cse --dry-run

    Args:
        limit: Fold nothing that is larger than this.
        without: A step to leave out: fold, skip-noops, cse, rewrite, clean, infer; can be repeated.
    """


def fold(*, limit: _Limit = "1MB") -> None:
    """Compute now what depends on constants alone, or on shapes that are declared.

    $ onnxdbg edit fold detector.onnx
    $ onnxdbg edit fold detector.onnx --fold-limit 64MB --verify --dry-run

    Args:
        limit: Fold nothing that is larger than this.
    """


def cse() -> None:
    """Keep one of several nodes that compute the same of the same inputs.

    $ onnxdbg edit cse block.onnx
    $ onnxdbg edit cse block.onnx --verify --dry-run
    """


def skip_noops() -> None:
    """Remove nodes that return their input: a Cast to its own type, a Reshape to its own shape.

    $ onnxdbg edit skip-noops block.onnx
    $ onnxdbg edit skip-noops block.onnx --verify --dry-run
    """


def infer() -> None:
    """Declare the type of every value, with sizes in the symbols of the inputs: batch, 4*seq.

    $ onnxdbg edit infer detector.onnx
    $ onnxdbg edit infer detector.onnx --dry-run
    """


def dequantize() -> None:
    """Turn a quantized model back into a float model: weights folded, quantizers removed, clipping kept as Clip.

    $ onnxdbg edit dequantize quantized.onnx
    $ onnxdbg edit dequantize quantized.onnx --dry-run
    """


def standardize() -> None:
    """Replace onnxruntime's operators by ONNX's own: attention over a cache, norms, activations, int4 products.

    $ onnxdbg edit standardize package.onnx
    $ onnxdbg edit standardize package.onnx --verify --dry-run
    """


def fuse() -> None:
    """Replace parts by onnxruntime's operators: norms, activations, attention; standardize undoes it.

    $ onnxdbg edit fuse block.onnx
    $ onnxdbg edit fuse block.onnx --verify --dry-run
    """


def gradient(*, of: object, to: Values = ()) -> None:
    """Add the gradient of a value by others as ordinary nodes: outputs d(OF)/d(TO).

    $ onnxdbg edit gradient model.onnx --of 31 --to input.1
    $ onnxdbg edit gradient model.onnx --of 31 --wrt-weights --dry-run

    Args:
        of: The value to differentiate: the sum of its elements.
        to: The values to differentiate by, comma-separated.
        wrt_weights: By all float initializers it depends on, too.
        vector: Name of an input to add: the weight of each element of --of.
    """


def attribution(
    *,
    method: Literal[
        "saliency", "input-x-gradient", "integrated-gradients", "smoothgrad", "gradcam"
    ],
    target: Annotated[str | None, Typed(metavar="<str>", parser=_size)] = None,
    to: Value | None = None,
    steps: Annotated[int | None, Typed(least=1)] = None,
    noise: Annotated[str, Typed(metavar="<str>", parser=_deviation)] = "1.0",
) -> None:
    """Add an output heatmap: how much each element of an input counts for a class, as Captum computes it.

    $ onnxdbg edit attribution model.onnx --method saliency -o heatmap.onnx
    $ onnxdbg edit attribution block.onnx --method integrated-gradients --dry-run

    Args:
        method: How the map is made.
        target: The class: a number, or input for one per sample.
        of: The output; the first by default.
        to: The input; the first of floats by default.
        steps: Points of integrated-gradients, samples of smoothgrad.
        noise: Deviation of smoothgrad; or name of an input to add.
        layer: The value that gradcam looks at; the last with images.
    """


def apply(recipe: Path, *, allow_scripts: bool = False) -> "Pass":
    """Apply a recipe: several verbs, all or nothing.

    $ onnxdbg edit apply recipe.toml model.onnx
    $ onnxdbg edit apply recipe.toml model.onnx --dry-run

    Args:
        recipe: A TOML file: [[step]], verb = ..., its options.
        allow_scripts: Let it run Python, and read URLs and files outside its folder.
    """
    from onnxsurgeon_lite.passes import PASSES
    from onnxsurgeon_lite.passes.recipe import read_recipe

    return read_recipe(recipe, PASSES, allow_scripts)


def script(edit: Annotated[Path, Typed(metavar="patch")]) -> Fields:
    """Call a function of yours on the graph as onnx-graphsurgeon has it.

    $ onnxdbg edit script patch.py model.onnx
    $ onnxdbg edit script patch.py model.onnx --verify --dry-run

    Args:
        edit: A Python file with def edit(graph): ...
    """
    return {"edit": str(edit)}


_own = (f for f in list(globals().values()) if isfunction(f) and f.__module__ == __name__)
_VERBS = [function for function in _own if not function.__name__.startswith("_")]
"""The functions above, in their order."""


def verbs(keep: Keep | None = None) -> typer.Typer:
    """The verbs as commands that write a file, or give the result to `keep`."""
    group = typer.Typer(
        help="Edit a model: one verb, or a recipe of several.", no_args_is_help=True, cls=Edits
    )
    for verb in _VERBS:
        group.command(verb.__name__.replace("_", "-"))(command(verb, keep))
    return group
