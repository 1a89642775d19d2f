"""Change: build and merge, which edit no model but make one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Unpack

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.options import Inputs, Typed, Values
from onnxsurgeon_lite.cli.outputs import Target, Writing
from onnxsurgeon_lite.report import plain


@options.command
def build(
    text: Path,
    *,
    initializer: Annotated[Sequence[str], Typed(metavar="NAME=FILE.npy")] = (),
    weights: Path | None = None,
    timeout: float | None = None,
    memory_limit: str = "0",
    **how: Unpack[Writing],
) -> None:
    """Build a model from ONNX text syntax, and check it.

    $ onnxdbg build linear.txt
    $ onnxdbg build linear.txt --initializer a=a.npy -o scaled.onnx

    Args:
        text: File in ONNX text syntax; a graph alone will do.
        initializer: Array for a name.
        weights: What print --weights wrote: the model comes back as it was.
    """
    model = osl.build(
        text,
        dict(options.pairs("--initializer", initializer)),
        weights,
        timeout=timeout,
        memory_limit=memory_limit,
    )
    target = Target(text, "build", **how)
    if target.dry_run:
        plain.show_graph(f"graph {model.proto.graph.name!r}", model.proto.graph)
    options.save(model, target)


@options.command
def merge(
    models: Sequence[Path],
    *,
    links: Annotated[Sequence[str], Typed(("--map",), completion.links, "VALUE=INPUT")] = (),
    share: Inputs = (),
    prefix: Sequence[str] = (),
    by_name: bool = False,
    keep: Values = (),
    timeout: float | None = None,
    memory_limit: str = "0",
    **how: Unpack[Writing],
) -> None:
    """Merge models into one: outputs of one feed inputs of the next, inputs are shared.

    $ onnxdbg merge model.onnx model.onnx --map 31=input.1 --prefix second/
    $ onnxdbg merge model.onnx faulty.onnx --share input.1 --prefix faulty/ -o both.onnx

    Args:
        models: Models to merge, two or more.
        links: A value so far, and the input that it feeds in further models.
        share: An input of several, as one.
        prefix: Before every name of the next model; can be repeated.
        by_name: Link outputs and inputs of one name, share inputs and constants of one name: undoes split.
        keep: An output that stays one though it feeds an input.
    """
    from onnxsurgeon_lite.model import movable

    result = osl.merge(
        *models,
        map=options.pairs("--map", links),
        share=share,
        prefix=prefix,
        by_name=by_name,
        keep=keep,
        timeout=timeout,
        memory_limit=memory_limit,
    )
    options.show(result)
    options.save(result.model, Target(models[0], "merge", **how), movable(result.model))
