"""Edits of a model's interface, constants and header: set-type, set-layout, reorder, remove-input, set and others."""

from collections.abc import Sequence
from typing import Annotated

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.options import Inputs, Typed
from onnxsurgeon_lite.errors import UsageError

_Outputs = Annotated[Sequence[str], Typed(completes=completion.outputs)]


def set_type(
    types: Annotated[Sequence[str], Typed((), completion.of_border, "NAME=DTYPE...")],
    *,
    inward: bool = False,
) -> "passes.Pass":
    """Give inputs and outputs another dtype, by a Cast at the border: what is computed stays the same.

    $ onnxdbg edit set-type model.onnx input.1=uint8
    $ onnxdbg edit set-type model.onnx input.1=float16 31=float16 --inward --dry-run

    Args:
        types: Input or output and its dtype: uint8, int32, float16.
        inward: Move the Cast inside, as far as operators take the new dtype.
    """
    return passes.SetType(dict(options.pairs("set-type", types)), inward)


def set_layout(
    layouts: Annotated[Sequence[str], Typed((), completion.of_border, "NAME=LAYOUT...")],
) -> "passes.Pass":
    """Give inputs and outputs another layout, by a Transpose at the border.

    $ onnxdbg edit set-layout model.onnx input.1=NHWC
    $ onnxdbg edit set-layout model.onnx input.1=NHWC 31=NHWC --dry-run

    Args:
        layouts: Input or output and its layout: NHWC; NCHW->NWHC says the present one too.
    """
    return passes.SetLayout(dict(options.pairs("set-layout", layouts)))


def remove_input(inputs: Inputs) -> "passes.Pass":
    """Remove inputs that nothing reads; one with a default becomes a constant.

    $ onnxdbg edit promote model.onnx convs1.0.bias --default -o open.onnx
    $ onnxdbg edit remove-input open.onnx convs1.0.bias

    Args:
        inputs: Inputs or globs, comma-separated.
    """
    return passes.RemoveInput(tuple(inputs))


def remove_output(outputs: _Outputs) -> "passes.Pass":
    """Remove outputs; edit clean removes what only they needed.

    $ onnxdbg edit remove-output detector.onnx scores
    $ onnxdbg edit remove-output detector.onnx boxes,labels --dry-run

    Args:
        outputs: Outputs or globs, comma-separated.
    """
    return passes.RemoveOutput(tuple(outputs))


def reorder(*, inputs: Inputs = (), outputs: _Outputs = ()) -> "passes.Pass":
    """Put inputs and outputs in another order.

    $ onnxdbg edit reorder detector.onnx --outputs scores,boxes
    $ onnxdbg edit reorder open.onnx --inputs convs1.0.bias --dry-run

    Args:
        inputs: Inputs in their new order, comma-separated; others follow.
        outputs: Outputs in their new order, comma-separated; others follow.
    """
    return passes.Reorder(tuple(inputs), tuple(outputs))


def add_constant(
    constants: Annotated[Sequence[str], Typed(metavar="NAME=NUMBERS...")], *, dtype: str = ""
) -> "passes.Pass":
    """Add constants, for insert and rewire to use.

    $ onnxdbg edit add-constant model.onnx 'scale=[0.5,0.25]'
    $ onnxdbg edit add-constant model.onnx eye=a.npy --dry-run

    Args:
        constants: Name and numbers: 0.5, [1,2] or a file that holds them.
        dtype: Their dtype; an array's own, float and int64 for others by default.
    """
    from onnxsurgeon_lite.surgery.constants import read_numbers

    pairs = options.pairs("add-constant", constants)
    return passes.AddConstant(tuple((name, read_numbers(text)) for name, text in pairs), dtype)


def set(  # noqa: A001 the verb's name
    fields: Annotated[Sequence[str], Typed((), completion.nodes, "[TARGET] FIELD=VALUE...")],
) -> "passes.Pass":
    """Set fields of the header by ONNX's own names, of the model, a node or a function.

    $ onnxdbg edit set model.onnx producer_name=me metadata.author=Ada opset_import.com.microsoft=1
    $ onnxdbg edit set model.onnx @3 doc_string= metadata.reviewed=yes --dry-run

    Args:
        fields: Fields: doc_string=TEXT, metadata.KEY=TEXT, graph.name=...; a node or fn:domain::name before them.
    """
    target = fields[0] if fields and "=" not in fields[0] else ""
    given = fields[bool(target) :]
    if not given:
        raise UsageError("no field is given", "write producer_name=me")
    return passes.Set(tuple(options.pairs("set", given)), target)


VERBS = (set_type, set_layout, remove_input, remove_output, reorder, add_constant, set)
