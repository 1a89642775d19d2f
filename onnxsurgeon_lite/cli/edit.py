"""Change: `onnxdbg edit VERB MODEL`. A verb's function makes the pass; what all edits share is added to each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.cli import completion, options, shape
from onnxsurgeon_lite.cli.edit_shared import Keep, command
from onnxsurgeon_lite.names import key_value

if TYPE_CHECKING:
    from onnxsurgeon_lite.passes import Pass

Nodes = Annotated[
    list[str],
    typer.Argument(help="Nodes: names, ids, op:Conv[2], globs.", autocompletion=completion.nodes),
]
To = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        help="Only where this node reads the value; can be repeated.",
        autocompletion=completion.nodes,
    ),
]


def rename(
    pairs: Annotated[
        list[str],
        typer.Argument(
            help="Old and new name; '*=left/*' is a prefix.",
            metavar="OLD=NEW...",
            autocompletion=completion.nodes,
        ),
    ],
    node: Annotated[bool, typer.Option("--node", help="Rename nodes, not values.")] = False,
) -> "Pass":
    """Rename values (inputs and outputs included) or nodes, all at once: names can be swapped."""
    from onnxsurgeon_lite.passes import Rename

    return Rename(tuple(options.pairs("rename", pairs)), node)


def remove(
    nodes: Nodes,
    bridge: Annotated[
        str | None,
        typer.Option(
            "--bridge",
            help="The input that takes the output's place.",
            autocompletion=completion.values,
        ),
    ] = None,
) -> "Pass":
    """Remove nodes; what read their output reads the input of the same type."""
    from onnxsurgeon_lite.passes import Remove

    return Remove(tuple(nodes), bridge)


def insert(
    value: Annotated[
        str,
        typer.Argument(
            help="The value behind which the node goes.", autocompletion=completion.values
        ),
    ],
    op_type: Annotated[str, typer.Argument(help="The operator.")],
    attr: Annotated[
        list[str] | None, typer.Option("--attr", help="An attribute.", metavar="NAME=VALUE")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="All inputs in order, VALUE among them; '' is an omitted one.",
            autocompletion=completion.values,
        ),
    ] = None,
    to: To = None,
    before: Annotated[
        bool, typer.Option("--before", help="In front of the value, which keeps its name.")
    ] = False,
    domain: Annotated[str, typer.Option("--domain", help="The operator's domain.")] = "",
    new_value: Annotated[str | None, typer.Option("--value", help="Name of the new value.")] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the new node.")] = "",
) -> "Pass":
    """Insert a node on an edge: after a value, or before it; for all its readers, or one."""
    from onnxsurgeon_lite.passes import Insert

    attributes = options.attributes(attr)
    return Insert(
        value,
        op_type,
        tuple(inputs or ()),
        attributes,
        domain,
        tuple(to or ()),
        before,
        new_value,
        name,
    )


def rewire(
    old: Annotated[
        str, typer.Argument(help="The value that is read now.", autocompletion=completion.values)
    ],
    new: Annotated[
        str, typer.Argument(help="The value to read instead.", autocompletion=completion.values)
    ],
    to: To = None,
    slot: Annotated[
        int | None, typer.Option("--slot", min=0, help="Only this input of a node, counted from 0.")
    ] = None,
) -> "Pass":
    """Make what reads one value read another."""
    from onnxsurgeon_lite.passes import Rewire

    return Rewire(old, new, tuple(to or ()), slot)


def replace(
    inputs: Annotated[
        list[str],
        typer.Option(
            "--inputs", help="Values where the region begins.", autocompletion=completion.values
        ),
    ],
    outputs: Annotated[
        list[str],
        typer.Option(
            "--outputs", help="Values that it computes.", autocompletion=completion.values
        ),
    ],
    op: Annotated[str, typer.Option("--op", help="The operator to have instead.")] = "",
    attr: Annotated[
        list[str] | None, typer.Option("--attr", help="An attribute.", metavar="NAME=VALUE")
    ] = None,
    domain: Annotated[str, typer.Option("--domain", help="The operator's domain.")] = "",
    name: Annotated[str, typer.Option("--name", help="Name of the new node.")] = "",
    by: Annotated[
        str | None, typer.Option("--model", help="A model to have instead; its inputs in order.")
    ] = None,
) -> "Pass":
    """Replace what lies between values by one node, or by another model."""
    from onnxsurgeon_lite.passes import Replace

    attributes = options.attributes(attr)
    return Replace(tuple(inputs), tuple(outputs), op, attributes, domain, name, by)


def set_op(
    nodes: Nodes,
    op_type: Annotated[str, typer.Argument(help="The operator to have instead.")],
    domain: Annotated[
        str | None, typer.Option("--domain", help="Its domain; the node's own by default.")
    ] = None,
) -> "Pass":
    """Give nodes another operator: `set-op model.onnx Add_7 Sub`."""
    from onnxsurgeon_lite.passes import SetOp

    return SetOp(tuple(nodes), op_type, domain)


def set_attr(
    node: Annotated[
        str,
        typer.Argument(help="Nodes: name, id, op:Conv[2], glob.", autocompletion=completion.nodes),
    ],
    attributes: Annotated[
        list[str] | None,
        typer.Argument(help="Attributes to set: pads=[1,1,1,1].", metavar="NAME=VALUE..."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="An attribute to remove.")
    ] = None,
) -> "Pass":
    """Set attributes of nodes to numbers, text or lists; or remove some."""
    from onnxsurgeon_lite.passes import SetAttr

    return SetAttr((node,), options.attributes(attributes), tuple(remove or ()))


def set_constant(
    value: Annotated[
        str,
        typer.Argument(
            help="An initializer, or the output of a Constant.", autocompletion=completion.values
        ),
    ],
    numbers: Annotated[str, typer.Argument(help="0.5, [1,2] or a file that holds them.")],
    to: To = None,
) -> "Pass":
    """Give a constant other numbers; with --to, one node gets a copy of it."""
    from onnxsurgeon_lite.passes import SetConstant
    from onnxsurgeon_lite.surgery.constants import read_numbers

    return SetConstant(value, read_numbers(numbers), tuple(to or ()))


def promote(
    values: Annotated[
        list[str],
        typer.Argument(
            help="Initializers, or outputs of Constant nodes.", autocompletion=completion.values
        ),
    ],
    default: Annotated[
        bool, typer.Option("--default", help="Keep the constant as the input's default.")
    ] = False,
) -> "Pass":
    """Make constants inputs of the graph."""
    from onnxsurgeon_lite.passes import Promote

    return Promote(tuple(values), default)


def freeze(
    values: Annotated[
        list[str],
        typer.Argument(
            help="Input and its numbers (0.5, [1,2], a file); without numbers its default.",
            metavar="NAME[=NUMBERS]...",
            autocompletion=completion.values,
        ),
    ],
    fold: Annotated[
        bool, typer.Option("--fold", help="Compute now what depends on nothing else.")
    ] = False,
    limit: Annotated[
        str, typer.Option("--fold-limit", help="Fold nothing that is larger than this.")
    ] = "1MB",
) -> "Pass":
    """Make inputs constants."""
    from onnxsurgeon_lite.api.call import byte_size
    from onnxsurgeon_lite.passes import Freeze
    from onnxsurgeon_lite.surgery.constants import read_numbers

    pairs = map(key_value, values)
    frozen = tuple((name, None if n is None else read_numbers(n)) for name, n in pairs)
    return Freeze(frozen, fold, byte_size(limit))


def sort() -> "Pass":
    """Put nodes in topological order, moving as few as possible."""
    from onnxsurgeon_lite.passes import Sort

    return Sort()


def clean() -> "Pass":
    """Remove nodes, initializers and functions that no output needs."""
    from onnxsurgeon_lite.passes import Clean

    return Clean()


def fix() -> "Pass":
    """Put right what other tools leave: values with two producers, unsorted nodes, stale types."""
    from onnxsurgeon_lite.passes import Fix

    return Fix()


def dedupe() -> "Pass":
    """Keep one of several equal initializers; only those that may be equal are read."""
    from onnxsurgeon_lite.passes import Dedupe

    return Dedupe()


def inline(
    functions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Functions: domain::name; all by default.", autocompletion=completion.functions
        ),
    ] = None,
) -> "Pass":
    """Replace calls of model-local functions by their nodes."""
    from onnxsurgeon_lite.passes import Inline

    return Inline(tuple(functions or ()))


def outline(
    scope: Annotated[
        str,
        typer.Argument(help="A module path: encoder.layer.4.", autocompletion=completion.scopes),
    ],
    domain: Annotated[str, typer.Option("--domain", help="The function's domain.")] = "local",
) -> "Pass":
    """Make the nodes of a module a function."""
    from onnxsurgeon_lite.passes import Outline

    return Outline(scope, domain)


def opset(version: Annotated[int, typer.Argument(help="The version to convert to.")]) -> "Pass":
    """Convert to another opset version of ONNX's own operators."""
    from onnxsurgeon_lite.passes import Opset

    return Opset(version)


def apply(
    recipe: Annotated[Path, typer.Argument(help="A TOML file: [[step]], verb = ..., its options.")],
) -> "Pass":
    """Apply a recipe: several verbs, all or nothing."""
    from onnxsurgeon_lite.passes import PASSES
    from onnxsurgeon_lite.passes.recipe import read_recipe

    return read_recipe(recipe, PASSES)


def script(
    patch: Annotated[Path, typer.Argument(help="A Python file with def edit(graph): ...")],
) -> "Pass":
    """Call a function of yours on the graph as onnx-graphsurgeon has it."""
    from onnxsurgeon_lite.passes import Script

    return Script(str(patch))


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
