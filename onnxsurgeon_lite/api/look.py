"""Look at models: inspect, text, check, diff."""

from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from onnxsurgeon_lite.api.call import (
    Call,
    ComparingOnFeeds,
    Limiting,
    OptLevel,
    Placing,
    RunOnFeeds,
    indexed,
)
from onnxsurgeon_lite.api.page import require_libraries, require_page
from onnxsurgeon_lite.api.spelling import spelled
from onnxsurgeon_lite.errors import GraphError, UnknownNameError, UsageError
from onnxsurgeon_lite.model import Model, ModelLike, by_name, loaded, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnxsurgeon_lite.debug.profiling.fusions import Fusions
    from onnxsurgeon_lite.debug.profiling.placement import Placement
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.graph.check import CheckResult
    from onnxsurgeon_lite.graph.config import Agreement
    from onnxsurgeon_lite.graph.modules import ModuleTree
    from onnxsurgeon_lite.graph.summary import ModelSummary, NodeSummary, ValueSummaries
    from onnxsurgeon_lite.matching.diff import ModelDiff
    from onnxsurgeon_lite.matching.stages import PackageSummary
    from onnxsurgeon_lite.report.page.view import View
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.tensors.dtypes import RunValue
    from onnxsurgeon_lite.tensors.references import Tensors
    from onnxsurgeon_lite.tensors.statistics import Distributions


@spelled
def inspect(
    model: "ModelLike | Tensors",
    node: str | None = None,
    value: str | None = None,
    ops: bool = False,
    tree: bool = False,
    histogram: bool = False,
    html: "str | PathLike[str] | None" = None,
    force: bool = False,
    *,
    depth: int | None = None,
    placement: bool = False,
    optimized: bool = False,
    opt: OptLevel = "all",
    **how: Unpack[Placing],
) -> "ModelSummary | NodeSummary | ValueSummaries | ModuleTree | Distributions | Placement | Fusions | PackageSummary":
    """Show what a model is: inputs, outputs, opsets, parameters, operators. No weight is read.

    Args:
        model: A model, or the folder of several that belong together; with `histogram` also tensors: a path,
            name -> array, a `ReferenceSet`.
        node: Show this node instead: a name, an id (`@3`, `@3/then_branch/@0`) or `op:Conv[2]`.
        value: Show these values instead: a name, an id, a glob, `op:Conv`.
        ops: Count every operator.
        tree: Show the modules of the PyTorch program that the model was exported from.
        histogram: Read the numbers of tensors, or of a model's initializers, and show how they are distributed;
            `value` names some of them.
        depth: With `tree`: how many modules deep.
        placement: Show which execution provider runs each node; onnxruntime before 1.24 runs the model for that.
        optimized: Show what onnxruntime fuses, and what keeps it from fusing more; nothing runs.
        html: Where to write the result as a page for a browser. force: Replace files that exist.

    Returns:
        A summary: `print` shows it, its fields hold the facts.

    Raises:
        ModelFileError: The file cannot be read as a model.
        UnknownNameError: The model has no such node or value.
        ReferenceSetError: The tensors cannot be read.

    Example:
        >>> osl.inspect("whole_model.onnx").ops
        {'Conv': 10, 'Add': 1}
        >>> print(osl.inspect("whole_model.onnx", value="28"))
        value      28
        type       float [1, 3, 20, 20]
        kind       produced
        producer   Add 'Add_7' (@7)
        consumers  Conv 'Conv_8' (@8)
        >>> osl.inspect({"x": np.array([0, 1, np.nan])}, histogram=True)[0].zeros
        1
    """
    with Call(opt=opt, html=html, force=force, **how) as call:
        # the first of these that was asked for: histogram, placement, node, value, tree, ops, else a summary
        if histogram:
            return call.done(_distributions(model, value))
        from onnxsurgeon_lite.graph import enter
        from onnxsurgeon_lite.graph import summary as inspecting
        from onnxsurgeon_lite.graph.selecting.select import select_node, select_values

        # of several models in a folder, what they do for each other
        asked = node or value or ops or tree or html or placement or optimized
        if isinstance(model, str | PathLike) and not asked:
            from onnxsurgeon_lite.matching.stages import read_stages, summarize_stages

            stages = read_stages(Path(model))
            if len(stages) > 1:
                indexes = [call.index(stage.model) for stage in stages]
                return call.done(summarize_stages(stages, indexes))
        # a page is drawn while the facts are found
        known = loaded(cast("ModelLike", model))
        call.draw(known)
        if placement:
            return call.done(_placement(indexed(known), call))
        if optimized:
            from onnxsurgeon_lite.debug.profiling.fusions import fusions

            index = indexed(known)
            return call.done(fusions(index, indexed(_optimized(index, call, weights=False))))
        if node is not None:
            index, name = enter(indexed(known), node)
            return call.done(inspecting.summarize_node(index, select_node(index, name)))
        if value is not None:
            index = indexed(known)
            selected = select_values(index, [value], inner=True)
            index.learn_types(name for name in selected.names if name in index)  # all at once
            found = (inspecting.summarize_value(index, name) for name in selected.names)
            call.notes += selected.notes
            return call.done(inspecting.ValueSummaries(found))
        if tree:
            from onnxsurgeon_lite.graph.modules import module_tree

            return call.done(module_tree(indexed(known), depth))
        summary = inspecting.summarize(known)
        return call.done(inspecting.OperatorCounts(**vars(summary)) if ops else summary)


def _placement(index: "GraphIndex", call: Call) -> "Placement":
    """Ask the runtime where it places the nodes, or see it in a run."""
    from onnxsurgeon_lite.debug.profiling.placement import RECORD, placement, placement_of
    from onnxsurgeon_lite.debug.profiling.profile import profile
    from onnxsurgeon_lite.runtime.options import require_ort

    index.require_sound()
    options = call.options()
    require_ort("inspect --placement", options, any_python=True)
    # from 1.24 on onnxruntime says where it places nodes; before, one profiled run shows it
    runtime = call.runtime_of(replace(options, settings=options.settings + (RECORD,)))
    if (found := placement(index, runtime)) is not None:
        return found
    return placement_of(index, profile(index, call.feeds(index, None), runtime, 1))


@contextmanager
def optimized(model: "ModelLike", opt: OptLevel = "all") -> "Iterator[Model]":
    """Enter what onnxruntime makes of a model before it runs it on the CPU; its weights are files until the end.

    The metadata of a node that the runtime made say for which nodes of the model it stands, those of the model which
    optimizers changed it.

    Args:
        model: A path, bytes, a `ModelProto` or a `Model`.
        opt: Graph optimization level of the runtime.

    Raises:
        RuntimeFailure: The runtime refuses the model.

    Example:
        >>> with osl.optimized("transformer_block.onnx", opt="extended") as model:
        ...     print([n.op_type for n in model.graph.node if n.domain])
        ['FusedMatMul', 'BiasGelu']
    """
    with Call(opt=opt) as call:
        yield _optimized(call.index(model), call)


def _optimized(index: "GraphIndex", call: Call, weights: bool = True) -> "Model":
    """Return the model as the runtime optimizes it; each fused node lists the nodes that it replaces."""
    from onnxsurgeon_lite.runtime.optimized import OPTIMIZERS, optimized_model

    runtime = call.runtime_of(call.options(lean=False))
    index.require_sound()
    # its weights are files in a folder that is removed when the call ends
    made = call.stack.enter_context(optimized_model(index, runtime, weights))
    _note_origins(index, made)
    changed = ", ".join(runtime.optimizers())
    made.proto.metadata_props.add(key=OPTIMIZERS, value=changed or "none")
    path = index.model.path
    if path is not None:
        made.path = path.with_name(f"{path.stem}.optimized{path.suffix}")
    return made


def _note_origins(index: "GraphIndex", made: "Model") -> None:
    """Write into the metadata of each node that the runtime made which nodes of the model it replaces."""
    from onnxsurgeon_lite.debug.profiling.parts import parts
    from onnxsurgeon_lite.names import STANDS_FOR

    nodes = by_name(made.graph.node)
    for part in parts(index, made.graph.node):
        covered = " ".join(map(index.node_id, part.positions))
        for node in filter(None, map(nodes.get, part.kernels)):
            # a node that replaces one of its own operator needs no note
            if [node.op_type] != [index.nodes[p].op_type for p in part.positions]:
                node.metadata_props.add(key=STANDS_FOR, value=covered)


def _distributions(source: "ModelLike | Tensors", wanted: str | None) -> "Distributions":
    """Read one tensor after another."""
    from fnmatch import fnmatchcase
    from functools import partial

    from onnxsurgeon_lite.api.run import is_model
    from onnxsurgeon_lite.tensors.statistics import Distributions, distributions

    tensors: list[tuple[str, Callable[[], RunValue]]]
    # (name, what reads it): one tensor is in memory at a time
    if is_model(source):
        model = loaded(cast("ModelLike", source))
        place = str(model.path or "the model")
        tensors = [(t.name, partial(model.array, t)) for t in walk.initializers(model.proto)]
    else:
        from onnxsurgeon_lite.tensors.references import open_references

        stored = open_references(cast("Tensors", source))
        place = stored.place
        tensors = [(name, partial(stored.read, name)) for name in stored]
    if wanted is not None:
        known = [name for name, _ in tensors]
        # a name may look like a glob
        tensors = [t for t in tensors if t[0] == wanted or fnmatchcase(t[0], wanted)]
        if not tensors:
            raise UnknownNameError(wanted, repr(place), known, "tensor")
    return Distributions(part for name, read in tensors for part in distributions(name, read()))


@spelled
def text(
    model: "ModelLike", weights: "str | PathLike[str] | None" = None, **how: Unpack[Limiting]
) -> str:
    """Return a model in ONNX text syntax, weights elided.

    Args:
        weights: A `.safetensors` file to write: `build` makes the same model of the text and this file.

    Raises:
        ModelFileError: The file cannot be read as a model.

    Example:
        >>> print(osl.text("linear_func.onnx").splitlines()[-1])
        }
    """
    from onnxsurgeon_lite.graph.summary import model_text

    with Call(**how):
        if weights is None:
            return model_text(loaded(model))
        from onnxsurgeon_lite.passes.round_trip import print_with_weights

        return print_with_weights(loaded(model), Path(weights))


@spelled
def check(
    model: "ModelLike",
    full: bool = False,
    run: bool = False,
    config: "str | PathLike[str] | None" = None,
    **how: Unpack[RunOnFeeds],
) -> "CheckResult":
    """Check a model against the ONNX specification, and find what is suspicious.

    Args:
        full: Include strict type and shape inference.
        run: Run it once; if the runtime refuses it, give the runtime each node alone, to name those that it refuses.
        config: The config.json of the language model that it was made of: each field that a graph can tell is compared.

    Returns:
        Whether it is valid, the checker's message, and findings that the checker does not mind.

    Raises:
        RuntimeCrash: The checker died of the model.
        RuntimeTimeout: The checker took too long.

    Example:
        >>> osl.check("linear_func.onnx").valid
        True
    """
    from onnxsurgeon_lite.graph import check as checking

    with Call(**how) as call:
        try:
            known = loaded(model)
        except GraphError as error:  # its functions call themselves
            return checking.refused(error, "the model" if isinstance(model, bytes) else str(model))
        found = checking.check(known, full)
        is_folder = isinstance(model, str | PathLike) and Path(model).is_dir()
        if is_folder or config is not None:
            folder = Path(str(model)) if is_folder else None
            found = replace(found, config=_agreements(indexed(known), folder, config))
        return call.done(_with_refused(found, known, call) if run else found)


def _agreements(
    index: "GraphIndex", folder: Path | None, config: "str | PathLike[str] | None"
) -> "tuple[Agreement, ...]":
    """Return how a model agrees with the configuration of its package's folder, and with that of its source."""
    from onnxsurgeon_lite.graph.config import agreements, agreements_of_package
    from onnxsurgeon_lite.model.loading import PACKAGE
    from onnxsurgeon_lite.untrusted import json_of

    found = agreements_of_package(index, json_of(folder / PACKAGE, folder)) if folder else ()
    if config is None:
        return found
    path = Path(config, "config.json") if Path(config).is_dir() else Path(config)
    fields = agreements(index, json_of(path))
    # what both lack proves nothing
    if all(field.agrees is None or (field.agrees and field.wanted == "0") for field in fields):
        raise UsageError(
            f"nothing of {str(path)!r} can be compared with the graph",
            "give the config.json of a language model that transformers wrote",
        )
    return found + fields


def _with_refused(found: "CheckResult", model: "Model", call: Call) -> "CheckResult":
    """Add the nodes that the runtime refuses, where the graph can be indexed."""
    from onnxsurgeon_lite.debug.refused import refused

    try:
        index = indexed(model)
        index.require_sound()
    except GraphError:
        return found
    runtime = call.started()
    more = refused(index, runtime, lambda: call.feeds(index, None))
    problem = found.problem or (f"{runtime.title}: {more[0].message}" if more else "")
    return replace(found, valid=not problem, problem=problem, findings=tuple(more) + found.findings)


@spelled
def diff(
    first: "ModelLike",
    second: "ModelLike",
    run: bool = False,
    map: "str | PathLike[str] | None" = None,
    feeds: "Tensors | None" = None,
    html: "str | PathLike[str] | None" = None,
    force: bool = False,
    opt: OptLevel = "all",
    **how: Unpack[ComparingOnFeeds],
) -> "ModelDiff":
    """Compare two models by structure, whatever their values and nodes are called and however they are ordered.

    Args:
        first: A path, bytes, a `ModelProto` or a `Model`.
        second: The same, for the model to compare it with.
        run: Run both on the same feeds, too.
        map: `auto` or a file of `match`: nodes are the same where their values are.
        html: Where to write the result as a page for a browser. force: Replace files that exist.

    Returns:
        The differences; `same` when there is none.

    Raises:
        ModelFileError: A file cannot be read as a model.
        RuntimeFailure: The runtime refuses a model.

    Example:
        >>> found = osl.diff("whole_model.onnx", "faulty_attribute.onnx")
        >>> found.same, found.differences[0].subject
        (False, "Conv 'Conv_6' (@6)")
    """
    with Call(opt=opt, html=html, force=force, **how) as call:
        from onnxsurgeon_lite.matching import diff as differing
        from onnxsurgeon_lite.matching.verify import known_feeds

        models = loaded(first), loaded(second)
        call.draw(*models)
        allowed = call.allowed()
        # feeds are needed to run, and to match values by their numbers
        given: Feeds = {}
        if run:
            indexes = indexed(models[0]), indexed(models[1])
            runtime = call.started()
            trials = call.trials(indexes[0], feeds, runtime, known_feeds(*indexes))
            given = trials[0].feeds
        elif map == "auto":
            given = call.feeds(indexed(models[0]), feeds)
        known = _same_nodes(models, None if map is None else str(map), given, call)
        found = differing.diff(*models, allowed, known)
        if run:
            from onnxsurgeon_lite.matching.diff.outputs import with_outputs

            found = with_outputs(indexes, found, trials, runtime, allowed)
        return call.done(found)


def _same_nodes(
    models: "tuple[Model, Model]", map: str | None, feeds: "Feeds", call: Call
) -> list[tuple[int, int]]:
    if map is None:
        return []
    from onnxsurgeon_lite.matching.nodes import same_nodes
    from onnxsurgeon_lite.matching.values import load_map
    from onnxsurgeon_lite.matching.values.run_both import match_models

    a, b = indexed(models[0]), indexed(models[1])
    if map == "auto":
        matched = match_models(a, b, feeds, call.started(opt="none"), call.progress)
        pairs = matched.matching.pairs
    else:
        pairs = load_map(Path(map))
    return same_nodes(a, b, ((pair.a, pair.b) for pair in pairs if not pair.blocked))


_LARGEST = 50_000_000  # bytes of a page that a browser should open from a file


@spelled
def view(
    model: "ModelLike",
    result: "str | PathLike[str] | None" = None,
    reference: "Tensors | None" = None,
    feeds: "Tensors | None" = None,
    output: "str | PathLike[str] | None" = None,
    serve: bool = False,
    open: bool = True,
    force: bool = False,
    **how: Unpack[ComparingOnFeeds],
) -> "View":
    """Open a model in the browser: its graph, what a result says of it, and any tensor.

    The page is a file, or comes from a server for this machine alone: then the tensors of the chosen node are
    computed as they are looked at. That is so with `serve`, `reference` or `feeds`, and for pages above 50 MB.

    Args:
        result: A file with what a command printed with `--json`, of the same model: its culprits are marked, its
            numbers color the nodes.
        reference: Tensors that those of the model are compared with.
        feeds: Tensors for the inputs; those of the references, or made ones, by default.
        output: Where the page is written; by default a temporary file.
        serve: Serve it, whatever its size.
        open: Open it in the browser.
        force: Write over what stands at `output`.

    Returns:
        `address` is what to open; a context manager, which ends the server.

    Raises:
        UsageError: plotly or igraph is missing, or the result is no JSON of a command.
        OutputExistsError: Something stands at `output`.

    Example:
        >>> osl.view("whole_model.onnx", open=False).address.startswith("file://")
        True
    """
    from onnxsurgeon_lite.report.page.html import html
    from onnxsurgeon_lite.report.page.view import page_of_model, served, view_of_file

    place = None if output is None else Path(output)
    require_page(place, None, force)
    require_libraries()
    with Call(opt="none", **how) as call:
        index = call.index(model)
        page = page_of_model(index, None if result is None else Path(result))
        text = html(page)
        if serve or reference is not None or feeds is not None or len(text) > _LARGEST:
            found = served(
                index.model,
                html(page, live=True),
                call.options(),
                (feeds, reference, call.recipe(), call.allowed()),
            )
        else:
            found = view_of_file(text, place, page.title)
    if open:
        found.open()
    return found
