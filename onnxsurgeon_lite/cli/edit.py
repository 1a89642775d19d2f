"""Change: `onnxdbg edit VERB MODEL`. A verb's function makes the pass; what all edits share is added to each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.cli import completion, options, shape
from onnxsurgeon_lite.cli.edit_shared import Keep, command
from onnxsurgeon_lite.cli.options import Node, Nodes, Typed, Value, Values
from onnxsurgeon_lite.names import key_value

_Attributes = Annotated[Sequence[str], Typed(metavar="NAME=VALUE")]


def rename(
    pairs: Annotated[Sequence[str], Typed(completes=completion.nodes, metavar="OLD=NEW...")],
    *,
    node: bool = False,
) -> "passes.Pass":
    """Rename values (inputs and outputs included) or nodes, all at once: names can be swapped.

    Args:
        pairs: Old and new name; '*=left/*' is a prefix.
        node: Rename nodes, not values.
    """
    return passes.Rename(tuple(options.pairs("rename", pairs)), node)


def remove(nodes: Nodes, *, bridge: Value | None = None) -> "passes.Pass":
    """Remove nodes; what read their output reads the input of the same type.

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
    constant: Annotated[Sequence[str], Typed(metavar="NAME=NUMBERS")] = (),
) -> "passes.Pass":
    """Insert a node on an edge: after a value, or before it; for all its readers, or one.

    Args:
        value: The value behind which the node goes.
        op_type: The operator.
        attr: An attribute.
        inputs: All inputs in order, VALUE among them; '' is an omitted one.
        to: Only where this node reads the value; can be repeated.
        before: In front of the value, which keeps its name.
        domain: The operator's domain.
        new_value: Name of the new value.
        name: Name of the new node.
        constant: A new constant that the node reads: numbers or a file; can be repeated.
    """
    attributes, constants = options.attributes(attr), options.constants(constant)
    given = tuple(inputs), attributes, domain, tuple(to), before, new_value, name, constants
    return passes.Insert(value, op_type, *given)


def rewire(
    old: Value,
    new: Value,
    *,
    to: Nodes = (),
    slot: Annotated[int | None, Typed(least=0)] = None,
) -> "passes.Pass":
    """Make what reads one value read another.

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


def set_op(nodes: Nodes, op_type: str, *, domain: str | None = None) -> "passes.Pass":
    """Give nodes another operator: `set-op model.onnx Add_7 Sub`.

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

    Args:
        node: Nodes: name, id, op:Conv[2], glob.
        attributes: Attributes to set: pads=[1,1,1,1].
        remove: An attribute to remove.
    """
    return passes.SetAttr((node,), options.attributes(attributes), tuple(remove))


def set_constant(value: Value, numbers: str, *, to: Nodes = ()) -> "passes.Pass":
    """Give a constant other numbers; with --to, one node gets a copy of it.

    Args:
        value: An initializer, or the output of a Constant.
        numbers: 0.5, [1,2] or a file that holds them.
        to: Only where this node reads the value; can be repeated.
    """
    from onnxsurgeon_lite.surgery.constants import read_numbers

    return passes.SetConstant(value, read_numbers(numbers), tuple(to))


def promote(values: Values, *, default: bool = False) -> "passes.Pass":
    """Make constants inputs of the graph.

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
) -> "passes.Pass":
    """Make inputs constants.

    Args:
        values: Input and its numbers (0.5, [1,2], a file); without numbers its default.
        fold: Compute now what depends on nothing else.
        limit: Fold nothing that is larger than this.
    """
    from onnxsurgeon_lite.api.call import byte_size
    from onnxsurgeon_lite.surgery.constants import read_numbers

    pairs = map(key_value, values)
    frozen = tuple((name, None if n is None else read_numbers(n)) for name, n in pairs)
    return passes.Freeze(frozen, fold, byte_size(limit))


def sort() -> "passes.Pass":
    """Put nodes in topological order, moving as few as possible."""
    return passes.Sort()


def clean() -> "passes.Pass":
    """Remove nodes, initializers and functions that no output needs."""
    return passes.Clean()


def fix() -> "passes.Pass":
    """Put right what other tools leave: values with two producers, unsorted nodes, stale types."""
    return passes.Fix()


def dedupe() -> "passes.Pass":
    """Keep one of several equal initializers; only those that may be equal are read."""
    return passes.Dedupe()


def inline(
    functions: Annotated[Sequence[str], Typed(completes=completion.functions)] = (),
) -> "passes.Pass":
    """Replace calls of model-local functions by their nodes.

    Args:
        functions: Functions: domain::name; all by default.
    """
    return passes.Inline(tuple(functions))


def outline(
    scope: Annotated[str, Typed(completes=completion.scopes)], *, domain: str = "local"
) -> "passes.Pass":
    """Make the nodes of a module a function.

    Args:
        scope: A module path: encoder.layer.4.
        domain: The function's domain.
    """
    return passes.Outline(scope, domain)


def opset(version: int) -> "passes.Pass":
    """Convert to another opset version of ONNX's own operators.

    Args:
        version: The version to convert to.
    """
    return passes.Opset(version)


def apply(recipe: Path) -> "passes.Pass":
    """Apply a recipe: several verbs, all or nothing.

    Args:
        recipe: A TOML file: [[step]], verb = ..., its options.
    """
    from onnxsurgeon_lite.passes.recipe import read_recipe

    return read_recipe(recipe, passes.PASSES)


def script(patch: Path) -> "passes.Pass":
    """Call a function of yours on the graph as onnx-graphsurgeon has it.

    Args:
        patch: A Python file with def edit(graph): ...
    """
    return passes.Script(str(patch))


_VERBS = (
    rename, remove, insert, replace, rewire, set_op, set_attr, set_constant, promote, freeze,
    shape.set_shape, shape.rebatch, shape.pad_outputs, shape.batch_outputs, shape.name_outputs,
    sort, clean, fix, dedupe, inline, outline, opset,
    apply, script,
)  # fmt: skip


def verbs(keep: Keep | None = None) -> typer.Typer:
    """The verbs as commands that write a file, or give the result to `keep`."""
    group = typer.Typer(
        help="Edit a model: one verb, or a recipe of several.", no_args_is_help=True
    )
    for verb in _VERBS:
        made = command(
            verb,
            of_a_file=verb in (apply, script),
            proved=verb in shape.PROVED,
            listed=verb is apply,
            keep=keep,
        )
        group.command(verb.__name__.replace("_", "-"))(made)
    return group
