"""Look: inspect, print, check, diff."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.boundary import MISMATCH

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import Model as Loaded
    from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe
    from onnxsurgeon_lite.runtime.session import RuntimeOptions


def inspect(
    model: options.Model,
    node: Annotated[
        str | None,
        typer.Option(
            "--node",
            help="Show this node: name, id or op:Conv[2].",
            show_default=False,
            autocompletion=completion.nodes,
        ),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            "--value", help="Show this value.", show_default=False, autocompletion=completion.values
        ),
    ] = None,
    ops: Annotated[bool, typer.Option("--ops", help="Count every operator.")] = False,
    tree: Annotated[
        bool, typer.Option("--tree", help="Show the modules of the source program.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what a model is: inputs, outputs, opsets, parameters, operators. No weight is read."""
    from onnxsurgeon_lite.graph import summary as inspecting
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.graph.select import select_node, select_values
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.report import json as data
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.report import summary as look

    loaded = load(model)
    if node is not None:
        index = GraphIndex.of(loaded)
        summary = inspecting.summarize_node(index, select_node(index, node))
        (data.show_json if json else look.show_node)(summary)
    elif value is not None:
        index = GraphIndex.of(loaded)
        selected = select_values(index, [value], inner=True)
        plain.show_notes(selected.notes)
        summaries = [inspecting.summarize_value(index, name) for name in selected.names]
        if json:
            data.show_json(summaries[0] if len(summaries) == 1 else summaries)
        else:
            look.show_values(summaries)
    elif tree:
        from onnxsurgeon_lite.graph.modules import module_tree

        modules = module_tree(GraphIndex.of(loaded))
        (data.show_json if json else look.show_tree)(modules)
    else:
        whole = inspecting.summarize(loaded)
        (data.show_json if json else look.show_ops if ops else look.show_summary)(whole)


def print_model(model: options.Model) -> None:
    """Print a model in ONNX text syntax, weights elided."""
    from onnxsurgeon_lite.graph.summary import model_text
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.report import plain

    plain.out(model_text(load(model)))


def check(
    model: options.Model,
    full: Annotated[
        bool, typer.Option("--full", help="Strict type and shape inference, too.")
    ] = False,
    timeout: options.Timeout = None,
    json: options.Json = False,
) -> None:
    """Check a model against the ONNX specification, and find what is suspicious, without materialising weights."""
    from onnxsurgeon_lite.graph import check as checking
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.report import json as data
    from onnxsurgeon_lite.report import plain

    result = checking.check(load(model), full, timeout)
    if json:
        data.show_json(result)
    else:
        plain.show_verdict(model, result)
    if not result.valid:
        raise typer.Exit(MISMATCH)


def diff(
    first: options.Model,
    second: Annotated[Path, typer.Argument(help="Model to compare it with.", show_default=False)],
    run: Annotated[bool, typer.Option("--run", help="Run both on the same feeds, too.")] = False,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="auto|FILE",
            help="Take nodes for the same whose values are: as `onnxdbg match` finds, or its file says.",
            show_default=False,
        ),
    ] = None,
    feeds: options.Feeds = None,
    seed: options.Seed = 0,
    dim: options.Dims = None,
    fill: options.Fills = None,
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    opt: options.Opt = "all",
    timeout: options.Timeout = None,
    ops_library: options.OpsLibraries = None,
    json: options.Json = False,
) -> None:
    """Compare two models by structure, whatever their values and nodes are called and however they are ordered."""
    from onnxsurgeon_lite.matching import diff as differing
    from onnxsurgeon_lite.model import load
    from onnxsurgeon_lite.report import differences
    from onnxsurgeon_lite.report import json as data
    from onnxsurgeon_lite.report.progress import progress

    allowed = options.tolerance(rtol, atol)
    models = load(first), load(second)
    recipe = options.recipe(seed, dim, fill)
    given = _feeds(models[0], feeds, recipe) if run or mapping == "auto" else {}
    how = options.runtime_options(opt, timeout=timeout, ops_libraries=ops_library, lean=True)
    with progress(f"comparing {first} with {second}") as tell:
        known = _same_nodes(models, mapping, given, options.unoptimized(how), tell)
        found = differing.diff(*models, allowed, known)
    if run:
        from onnxsurgeon_lite.runtime.session import Runtime

        with Runtime(how) as runtime:
            found = differing.with_outputs(models, found, given, runtime, allowed)
    (data.show_json if json else differences.show_diff)(found)
    if not found.same:
        raise typer.Exit(MISMATCH)


def _feeds(model: "Loaded", feeds: str | None, recipe: "Recipe") -> "Feeds":
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.report import plain
    from onnxsurgeon_lite.runtime.feeds import given_or_made

    given, made = given_or_made(GraphIndex.of(model), feeds, recipe)
    plain.show_notes(f"made {line}" for line in made)
    return given


def _same_nodes(
    models: "tuple[Loaded, Loaded]",
    mapping: str | None,
    feeds: "Feeds",
    how: "RuntimeOptions",
    tell: Callable[[str], None],
) -> list[tuple[int, int]]:
    if mapping is None:
        return []
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.matching.values import load_map, same_nodes
    from onnxsurgeon_lite.matching.values.run_both import match_models
    from onnxsurgeon_lite.runtime.session import Runtime

    a, b = map(GraphIndex.of, models)
    if mapping != "auto":
        return same_nodes(a, b, load_map(Path(mapping)))
    with Runtime(how) as runtime:
        return same_nodes(a, b, match_models(a, b, feeds, runtime, tell).matching.pairs)
