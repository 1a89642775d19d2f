"""Run: run, record, compare."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Unpack

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import Comparing, OptLevel, RunOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Typed, Values
from onnxsurgeon_lite.report.progress import progress


@options.command
def run(
    model: Path,
    *,
    feeds: str | None = None,
    fetch: Values = (),
    save: options.Save = None,
    opt: OptLevel = "all",
    force: bool = False,
    json: bool = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Run a model in a process of its own and show shape, dtype and range of what comes out.

    $ onnxdbg run model.onnx
    $ onnxdbg run block.onnx --dim batch=2 --fetch output -o out.npz

    Args:
        fetch: Values to return instead of the outputs, comma-separated.
        save: Store what was returned: .npz, .safetensors or a folder.
    """
    with progress(f"running {model}"):
        result = osl.run(model, feeds, fetch, opt=opt, **how)
    options.store(result, save, force, json)


@options.command
def record(
    model: Path,
    *,
    output: Annotated[Path, Typed(("--output", "-o"))],
    feeds: str | None = None,
    value: Values = (),
    inner: bool = False,
    wide: Annotated[bool, Typed(("--float64",))] = False,
    scope: Sequence[str] = (),
    operators: bool = False,
    names_of: Annotated[Path | None, Typed(("--model",))] = None,
    force: bool = False,
    **how: Unpack[RunOnFeeds],
) -> None:
    """Record reference tensors: the feeds and every value, as this runtime or PyTorch computes them.

    $ onnxdbg record model.onnx -o refs
    $ onnxdbg record model.py:factory -o torch_refs

    Args:
        model: Model to read, or FILE.py:function that returns a PyTorch module, or (module, args).
        output: Where to store: a folder, .npz or .safetensors.
        value: Values to record, comma-separated; all by default.
        inner: Values inside branches, loops and functions as well.
        wide: Compute an ONNX model in float64, node by node.
        scope: PyTorch: only what lies in this module, such as layer.4.*.
        operators: PyTorch: every operator's output, by torch.export.
        names_of: PyTorch: store inputs under this model's names.
    """
    with progress(f"recording {model}") as how["progress"]:
        done = osl.record(
            model,
            output,
            feeds,
            value,
            inner,
            wide,
            scope,
            operators,
            names_of,
            force,
            **how,
        )
    options.show(done)


@options.command
def compare(
    actual: Path,
    reference: Path,
    *,
    feeds: str | None = None,
    mapping: str | None = None,
    every: Annotated[bool, Typed(("--all",))] = False,
    opt: OptLevel = "all",
    metrics: options.Metrics = "usual",
    json: bool = False,
    **how: Unpack[Comparing],
) -> None:
    """Compare two sets of tensors, or a model's outputs with a set: shape, dtype, then values.

    $ onnxdbg compare faulty.onnx refs
    $ onnxdbg compare model.onnx torch_refs --all

    Args:
        actual: A model, or a set of tensors.
        reference: The set of tensors to compare with.
        every: Of a model every value that has a reference, in order, with optimization off.
    """
    result = osl.compare_sets(actual, reference, feeds, mapping, every, opt=opt, **how)
    options.show(result, json, metrics)
    options.require(result.match)
