"""Change: `onnxdbg edit VERB MODEL`. A verb's function makes the pass; what all edits share is added to each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.cli import completion, gradient, interface, options, shape, simplify
from onnxsurgeon_lite.cli.edit_plugins import Edits
from onnxsurgeon_lite.cli.edit_shared import Keep, command
from onnxsurgeon_lite.cli.options import Inputs, Node, Nodes, Typed, Value, Values
from onnxsurgeon_lite.names import key_value

_Attributes = Annotated[Sequence[str], Typed(metavar="NAME=VALUE")]


def rename(
    pairs: Annotated[Sequence[str], Typed(completes=completion.nodes, metavar="OLD=NEW...")],
    *,
    node: bool = False,
) -> "passes.Pass":
    """Rename values (inputs and outputs included) or nodes, all at once: names can be swapped.

    $ onnxdbg edit rename model.onnx 23=features 31=out --verify
    $ onnxdbg edit rename model.onnx 'Conv_*=layer*' --node -o layers.onnx

    Args:
        pairs: Old and new name; '*=left/*' is a prefix.
        node: Rename nodes, not values.
    """
    return passes.Rename(tuple(options.pairs("rename", pairs)), node)


def remove(nodes: Nodes, *, bridge: Value | None = None) -> "passes.Pass":
    """Remove nodes; what read their output reads the input of the same type.

    $ onnxdbg edit remove model.onnx Conv_10
    $ onnxdbg edit remove model.onnx Add_7 --bridge 25 --dry-run

    Args:
        nodes: Nodes: names, ids, op:Conv[2], globs.
        bridge: The input that takes the output's place.
    """
    return passes.Remove(tuple(nodes), bridge)


def insert(
    value: Value,
    op_type: str,
    *,
    attr: _Attributes = (),
    inputs: Annotated[Sequence[str], Typed(("--input",), completion.values)] = (),
    to: Nodes = (),
    before: bool = False,
    domain: str = "",
    new_value: Annotated[str | None, Typed(("--value",))] = None,
    name: str = "",
) -> "passes.Pass":
    """Insert a node on an edge: after a value, or before it; for all its readers, or one.

    $ onnxdbg edit insert model.onnx 23 Relu --to Conv_3
    $ onnxdbg edit insert model.onnx 23 Mul --input 23,2.0 --dry-run

    Args:
        value: The value behind which the node goes.
        op_type: The operator.
        attr: An attribute.
        inputs: All inputs in order, VALUE among them, or numbers behind it; '' is an omitted one.
        to: Only where this node reads the value; can be repeated.
        before: In front of the value, which keeps its name.
        domain: The operator's domain.
        new_value: Name of the new value.
        name: Name of the new node.
    """
    given = tuple(inputs), options.attributes(attr), domain, tuple(to), before, new_value, name
    return passes.Insert(value, op_type, *given)


def rewire(
    old: Value, new: Value, *, to: Nodes = (), slot: Annotated[int | None, Typed(least=0)] = None
) -> "passes.Pass":
    """Make what reads one value read another.

    $ onnxdbg edit rewire model.onnx 24 23
    $ onnxdbg edit rewire model.onnx 25 27 --to Add_7 --slot 0 --dry-run

    Args:
        old: The value that is read now.
        new: The value to read instead.
        to: Only where this node reads the value; can be repeated.
        slot: Only this input of a node, counted from 0.
    """
    return passes.Rewire(old, new, tuple(to), slot)


def replace(
    *,
    inputs: Values,
    outputs: Values,
    op: str = "",
    attr: _Attributes = (),
    domain: str = "",
    name: str = "",
    by: Annotated[str | None, Typed(("--model",))] = None,
) -> "passes.Pass":
    """Replace what lies between values by one node, or by another model.

    $ onnxdbg edit replace model.onnx --inputs 23 --outputs 25 --op Identity
    $ onnxdbg edit replace model.onnx --inputs 23 --outputs 25 --op Relu --dry-run

    Args:
        inputs: Values where the region begins.
        outputs: Values that it computes.
        op: The operator to have instead.
        attr: An attribute.
        domain: The operator's domain.
        name: Name of the new node.
        by: A model to have instead; its inputs in order.
    """
    attributes = options.attributes(attr)
    return passes.Replace(tuple(inputs), tuple(outputs), op, attributes, domain, name, by)


def rewrite(
    rules: Annotated[Sequence[str], Typed(completes=completion.rules)], *, reverse: bool = False
) -> "passes.Pass":
    """Replace every match of a pattern, in bodies too; --dry-run lists the matches.

    $ onnxdbg edit rewrite model.onnx conv-batch-norm
    $ onnxdbg edit rewrite model.onnx gelu-erf layer-norm --dry-run

    Args:
        rules: Files with functions pattern and replacement, or rules that come with onnxdbg.
        reverse: Find the replacement, put the pattern in its place.
    """
    return passes.Rewrite(tuple(rules), reverse)


def set_op(nodes: Nodes, op_type: str, *, domain: str | None = None) -> "passes.Pass":
    """Give nodes another operator: `set-op model.onnx Add_7 Sub`.

    $ onnxdbg edit set-op model.onnx Add_7 Sub
    $ onnxdbg edit set-op model.onnx op:Add Mul --dry-run

    Args:
        nodes: Nodes: names, ids, op:Conv[2], globs.
        op_type: The operator to have instead.
        domain: Its domain; the node's own by default.
    """
    return passes.SetOp(tuple(nodes), op_type, domain)


def set_attr(
    node: Node,
    attributes: Annotated[Sequence[str], Typed(metavar="NAME=VALUE...")] = (),
    *,
    remove: Sequence[str] = (),
) -> "passes.Pass":
    """Set attributes of nodes to numbers, text or lists; or remove some.

    $ onnxdbg edit set-attr model.onnx Conv_6 'dilations=[2,2]' 'pads=[2,2,2,2]'
    $ onnxdbg edit set-attr model.onnx Conv_6 --remove dilations --dry-run

    Args:
        node: Nodes: name, id, op:Conv[2], glob.
        attributes: Attributes to set: pads=[1,1,1,1].
        remove: An attribute to remove.
    """
    return passes.SetAttr((node,), options.attributes(attributes), tuple(remove))


def set_constant(value: Value, numbers: str, *, to: Nodes = ()) -> "passes.Pass":
    """Give a constant other numbers; with --to, one node gets a copy of it.

    $ onnxdbg edit set-constant model.onnx convs1.0.bias 0
    $ onnxdbg edit set-constant model.onnx convs1.0.bias '[0.1,0.2,0.3]' --dry-run

    Args:
        value: An initializer, or the output of a Constant.
        numbers: 0.5, [1,2] or a file that holds them.
        to: Only where this node reads the value; can be repeated.
    """
    from onnxsurgeon_lite.surgery.constants import read_numbers

    return passes.SetConstant(value, read_numbers(numbers), tuple(to))


def promote(values: Values, *, default: bool = False) -> "passes.Pass":
    """Make constants inputs of the graph.

    $ onnxdbg edit promote model.onnx convs1.0.bias
    $ onnxdbg edit promote model.onnx convs1.0.bias,convs1.1.bias --default --dry-run

    Args:
        values: Initializers, or outputs of Constant nodes.
        default: Keep the constant as the input's default.
    """
    return passes.Promote(tuple(values), default)


def freeze(
    values: Annotated[Sequence[str], Typed((), completion.values, "NAME[=NUMBERS]...")],
    *,
    fold: bool = False,
    limit: Annotated[str, Typed(("--fold-limit",))] = "1MB",
    unroll: Annotated[int, Typed(least=0)] = 0,
) -> "passes.Pass":
    """Make inputs constants.

    $ onnxdbg edit freeze model.promote.onnx 'convs1.0.bias=[0.1,0.2,0.3]'
    $ onnxdbg edit freeze block.onnx hidden_states=hidden.npy --fold --dry-run

    Args:
        values: Input and its numbers (0.5, [1,2], a file); without numbers its default.
        fold: Compute now what depends on nothing else; an If becomes the branch that runs.
        limit: Fold nothing that is larger than this.
        unroll: With --fold, a Loop that runs at most so often becomes its iterations.
    """
    from onnxsurgeon_lite.api.call import byte_size
    from onnxsurgeon_lite.surgery.constants import read_numbers

    pairs = map(key_value, values)
    frozen = tuple((name, None if n is None else read_numbers(n)) for name, n in pairs)
    return passes.Freeze(frozen, fold, byte_size(limit), unroll)


def prepend(
    what: str,
    *,
    links: Annotated[Sequence[str], Typed(("--map",), completion.of_inputs, "RESULT=INPUT")] = (),
    share: Inputs = (),
) -> "passes.Pass":
    """Compute the inputs of a model from others: normalize, resize, transpose.

    $ onnxdbg edit prepend model.onnx 'x = (image - 0.5) / 0.25' --map x=input.1
    $ onnxdbg edit prepend model.onnx 'x = Cast(image, to=FLOAT)' --map x=input.1 --dry-run

    Args:
        what: Assignments, a graph in ONNX text, or a file with one of them; a model.
        links: A result, and the input that it feeds; equal names by default.
        share: An input of both that becomes one.
    """
    return passes.Prepend(what, tuple(options.pairs("--map", links)), tuple(share))


def append(
    what: str,
    *,
    links: Annotated[Sequence[str], Typed(("--map",), completion.values, "VALUE=INPUT")] = (),
    share: Inputs = (),
    prefix: str = "",
    keep: Values = (),
) -> "passes.Pass":
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
    pairs = tuple(options.pairs("--map", links))
    return passes.Append(what, pairs, tuple(share), prefix, tuple(keep))


def sort() -> "passes.Pass":
    """Put nodes in topological order, moving as few as possible.

    $ onnxdbg edit sort model.onnx
    $ onnxdbg edit sort model.onnx --dry-run
    """
    return passes.Sort()


def clean() -> "passes.Pass":
    """Remove nodes, initializers and functions that no output needs.

    $ onnxdbg edit clean model.onnx
    $ onnxdbg edit clean model.extract.onnx --dry-run
    """
    return passes.Clean()


def fix(*, join: bool = False) -> "passes.Pass":
    """Put right what other tools leave: names with two owners, unsorted nodes, stale types, missing imports.

    $ onnxdbg edit fix model.onnx
    $ onnxdbg edit fix model.onnx --dry-run

    Args:
        join: Read the value with the closest spelling where one is missing, if that is only one.
    """
    return passes.Fix(join)


def dedupe() -> "passes.Pass":
    """Keep one of several equal initializers; only those that may be equal are read.

    $ onnxdbg edit dedupe model.onnx
    $ onnxdbg edit dedupe model.onnx --dry-run
    """
    return passes.Dedupe()


def unshare(initializers: options.Values = ()) -> "passes.Pass":
    """Give each node that reads an initializer one of its own, as weights --update may need it.

    $ onnxdbg edit unshare model.onnx
    $ onnxdbg edit unshare model.onnx 'convs1.*' --dry-run

    Args:
        initializers: Initializers or globs, comma-separated; all that several nodes read by default.
    """
    return passes.Unshare(tuple(initializers))


def inference() -> "passes.Pass":
    """Let every BatchNormalization and Dropout compute as in inference, in bodies and functions too.

    $ onnxdbg edit inference model.onnx
    $ onnxdbg edit inference model.onnx --dry-run
    """
    return passes.Inference()


def inline(
    functions: Annotated[Sequence[str], Typed(completes=completion.functions)] = (),
) -> "passes.Pass":
    """Replace calls of model-local functions by their nodes.

    $ onnxdbg edit inline outlined.onnx
    $ onnxdbg edit inline outlined.onnx --dry-run

    Args:
        functions: Functions: domain::name; all by default.
    """
    return passes.Inline(tuple(functions))


def outline(
    scope: Annotated[str, Typed(completes=completion.scopes)], *, domain: str = "local"
) -> "passes.Pass":
    """Make the nodes of a module a function; or of all equal modules of a class one function.

    $ onnxdbg edit outline dynamo.onnx convs1 -o outlined.onnx
    $ onnxdbg edit outline dynamo.onnx class:Conv2d --dry-run

    Args:
        scope: A module path (encoder.layer.4), several (encoder.layer.*), or class:BertLayer.
        domain: The function's domain.
    """
    return passes.Outline(scope, domain)


def opset(version: int) -> "passes.Pass":
    """Convert to another opset version of ONNX's own operators; what an older one lacks is taken apart, and proved.

    $ onnxdbg edit opset model.onnx 21
    $ onnxdbg edit opset model.onnx 21 --verify --dry-run

    Args:
        version: The version to convert to.
    """
    return passes.Opset(version)


def apply(recipe: Path, *, allow_scripts: bool = False) -> "passes.Pass":
    """Apply a recipe: several verbs, all or nothing.

    $ onnxdbg edit apply recipe.toml model.onnx
    $ onnxdbg edit apply recipe.toml model.onnx --dry-run

    Args:
        recipe: A TOML file: [[step]], verb = ..., its options.
        allow_scripts: Let it run Python, and read URLs and files outside its folder.
    """
    from onnxsurgeon_lite.passes.recipe import read_recipe

    return read_recipe(recipe, passes.PASSES, allow_scripts)


def script(patch: Path) -> "passes.Pass":
    """Call a function of yours on the graph as onnx-graphsurgeon has it.

    $ onnxdbg edit script patch.py model.onnx
    $ onnxdbg edit script patch.py model.onnx --verify --dry-run

    Args:
        patch: A Python file with def edit(graph): ...
    """
    return passes.Script(str(patch))


_VERBS = (
    rename, remove, insert, replace, rewire, rewrite, set_op, set_attr, set_constant, promote, freeze,
    shape.set_shape, shape.rebatch, shape.pad_outputs, shape.name_outputs, shape.batch_outputs,
    *interface.VERBS, prepend, append, sort, clean, fix, dedupe, unshare, *simplify.VERBS, outline, inline,
    inference, opset,
    gradient.gradient, gradient.attribution,
    apply, script,
)  # fmt: skip
_PROVED = (*shape.PROVED, *simplify.PROVED)


def verbs(keep: Keep | None = None) -> typer.Typer:
    """The verbs as commands that write a file, or give the result to `keep`."""
    group = typer.Typer(
        help="Edit a model: one verb, or a recipe of several.", no_args_is_help=True, cls=Edits
    )
    for verb in _VERBS:
        made = command(
            verb,
            of_a_file=verb in (apply, script),
            proved=verb in _PROVED,
            listed=verb in (apply, opset),
            keep=keep,
        )
        group.command(verb.__name__.replace("_", "-"))(made)
    return group
