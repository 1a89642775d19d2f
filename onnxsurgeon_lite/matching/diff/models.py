"""Diff two models: graphs, functions, opsets, metadata."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from onnx import FunctionProto, ModelProto, TrainingInfoProto

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.diff.graphs import DiffContext, GraphDiff
from onnxsurgeon_lite.matching.diff.protos import entry_changes, text_changes
from onnxsurgeon_lite.matching.diff.result import Change, Difference, ModelDiff, Status
from onnxsurgeon_lite.matching.diff.trimming import Trimmed, trim
from onnxsurgeon_lite.matching.nodes import NamedGraph, same_nodes
from onnxsurgeon_lite.model import Model, function_key
from onnxsurgeon_lite.model.calls import check_functions
from onnxsurgeon_lite.model.messages import entries
from onnxsurgeon_lite.names import counted, few, joined

if TYPE_CHECKING:
    from onnxsurgeon_lite.tensors.comparison import Tolerance

K = TypeVar("K")
V = TypeVar("V")
_WHOLE = 2000  # nodes up to which an edit is diffed in full


def diff(
    first: Model,
    second: Model,
    tolerance: "Tolerance | None" = None,
    known: Iterable[tuple[int, int]] = (),
) -> ModelDiff:
    """Diff two models by structure; names and node order do not count.

    Tensor contents are read only for paired tensors with one dtype and shape in different files or ranges.

    Args:
        tolerance: for initializers and other constants; None compares bytes.
        known: pairs of positions to treat as the same node.

    Raises:
        GraphError: a graph has a cycle, a value has two producers, or a function calls itself.
        SourceChangedError: a file changed after its model was loaded.
    """
    models = (first, second)
    pairs = list(known)
    graphs = None
    # known pairs are positions in the whole graph, so they exclude trimming
    if not pairs and _is_large(models):
        for model in models:
            GraphIndex.of(model).require_sound()
        graphs = trim(first, second)
    graphs = graphs or Trimmed((NamedGraph.of(first), NamedGraph.of(second)), pairs)
    found = _diff(DiffContext(models, tolerance), graphs)
    if pairs or not _puzzles(found) or _is_large(models):
        return found
    # nodes that exchanged an input are each like the other one: by their names they are what they were
    a, b = (scope.index for scope in graphs.scopes)
    by_name = same_nodes(a, b, ((name, name) for name in a.producer if name in b.producer))
    named = _diff(DiffContext(models, tolerance), Trimmed(graphs.scopes, by_name))
    # but not where that makes the diff much longer
    if _puzzles(named) or len(named.differences) > 2 * len(found.differences):
        return found
    return named


def _puzzles(found: ModelDiff) -> bool:
    """Return whether a difference says `x -> x`, of two values of one name."""
    changes = chain.from_iterable(each.changes for each in found.differences)
    return any(change.before and change.before == change.after for change in changes)


def edit_diff(before: Model, after: Model) -> ModelDiff | None:
    """Diff an edit; None when it changed too much of a large graph for a quick answer."""
    models = before, after
    if not _is_large(models):
        return diff(before, after)
    trimmed = trim(before, after)
    return None if trimmed is None else _diff(DiffContext(models, None), trimmed)


def _is_large(models: tuple[Model, Model]) -> bool:
    """Return whether models are so large that only what surrounds differences is looked at."""
    protos = [model.proto for model in models]
    if any(proto.training_info for proto in protos):  # they read values of the main graph
        return False
    return max(len(proto.graph.node) for proto in protos) > _WHOLE


def _diff(context: DiffContext, graphs: Trimmed) -> ModelDiff:
    for model in context.models:
        check_functions(model.proto)
    differences = list(_model_differences(context, graphs))
    for name, other in context.dims.forth.items():
        context.rename("dimensions", name, other)
    notes = _notes(context)
    pairs = sorted(context.pairs.items())
    return ModelDiff(not differences, differences, context.renamed, notes, pairs=pairs)


def _model_differences(context: DiffContext, graphs: Trimmed) -> Iterator[Difference]:
    first, second = (model.proto for model in context.models)
    for domain, versions in _pairs(_opsets(first), _opsets(second)):
        if versions[0] != versions[1]:
            change = Change("version", *(version or "" for version in versions))
            yield Difference(_status(*versions), "opset", domain, changes=(change,))
    for change in text_changes(first, second):
        yield Difference("changed", "metadata", "model", changes=(change,))
    main = GraphDiff(context, graphs.scopes, known=graphs.pairs)
    # the main graph first: bindings of training graphs refer to its pairs
    context.pairs = main.alignment.nodes
    # initializers that trimming found equal are pairs, whether paired nodes read them or not
    main.wiring.constants.update(((name, name), None) for name in sorted(graphs.constants))
    yield from main.differences()
    yield from _functions(context)
    yield from _training(context, main)
    for status, names in context.typed.items():
        subject = f"types of {counted(len(names), 'value')}: {few(sorted(names))}"
        yield Difference(status, "metadata", subject)


def _functions(context: DiffContext) -> Iterator[Difference]:
    mine, theirs = ({function_key(f): f for f in m.proto.functions} for m in context.models)
    for key, (one, two) in _pairs(mine, theirs):
        name = repr("::".join(filter(None, key)))
        if one is None or two is None:
            yield Difference(_status(one, two), "function", name)
            continue
        changes = tuple(_function_changes(one, two))
        if changes:
            yield Difference("changed", "function", name, changes=changes)
        first, second = context.models
        scopes = NamedGraph.of_function(first, one), NamedGraph.of_function(second, two)
        yield from GraphDiff(context, scopes).differences()


def _function_changes(one: FunctionProto, two: FunctionProto) -> Iterator[Change]:
    for domain, versions in _pairs(_opsets(one), _opsets(two)):
        if versions[0] != versions[1]:
            yield Change(f"opset {domain}", *(v or "" for v in versions))
    declared = [
        dict.fromkeys(f.attribute, "") | {a.name: str(a) for a in f.attribute_proto}
        for f in (one, two)
    ]
    yield from entry_changes("attribute", *declared)
    yield from text_changes(one, two)


def _training(context: DiffContext, main: GraphDiff) -> Iterator[Difference]:
    first, second = (model.proto.training_info for model in context.models)
    if len(first) != len(second):
        change = Change("steps", str(len(first)), str(len(second)))
        yield Difference("changed", "model", "training info", changes=(change,))
    for number, (one, two) in enumerate(zip(first, second, strict=False)):
        for part in ("initialization", "algorithm"):
            mine, theirs = (
                NamedGraph.of_body(model, getattr(info, part), f"training:{number}/{part}")
                for model, info in zip(context.models, (one, two), strict=True)
            )
            yield from GraphDiff(context, (mine, theirs), main.wiring).differences()
        for part in ("initialization_binding", "update_binding"):
            changes = tuple(entry_changes(part.replace("_", " "), *_bindings(main, one, two, part)))
            if changes:
                yield Difference("changed", "model", "training info", changes=changes)


def _bindings(
    main: GraphDiff, one: TrainingInfoProto, two: TrainingInfoProto, part: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the bindings of initializers to training values, in the second model's names."""
    mine, theirs = (entries(getattr(info, part)) for info in (one, two))
    # name in the first model -> name in the second
    names = main.wiring.counterparts(chain(mine, mine.values()))
    return {names.get(key, key): names.get(value, value) for key, value in mine.items()}, theirs


def _notes(context: DiffContext) -> list[str]:
    """List what does not count as a difference: names, and data that is missing."""
    notes = []
    if context.renamed:
        counts = (
            f"{len(names)} {kind[:-1] if len(names) == 1 else kind}"
            for kind, names in context.renamed.items()
        )
        notes.append(f"named differently: {', '.join(counts)}")
    if context.missing:
        shown = joined(sorted(context.missing)[:6])
        notes.append(
            f"not compared, the data of {len(context.missing)} tensors is missing: {shown}"
        )
    return notes


def _status(one: object, two: object) -> Status:
    return "added" if one is None else "removed" if two is None else "changed"


def _opsets(holder: ModelProto | FunctionProto) -> dict[str, str]:
    return {opset.domain or "ai.onnx": str(opset.version) for opset in holder.opset_import}


def _pairs(
    mine: Mapping[K, V], theirs: Mapping[K, V]
) -> Iterator[tuple[K, tuple[V | None, V | None]]]:
    for key in dict.fromkeys(chain(mine, theirs)):
        yield key, (mine.get(key), theirs.get(key))
