"""What the pages of two sides show: of a comparison, a diff, a match."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, get_args

from onnxsurgeon_lite.matching.diff.result import Difference, Kind, ModelDiff
from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.report.differences import change_texts, line_of, only_texts
from onnxsurgeon_lite.report.matching import matched
from onnxsurgeon_lite.report.metrics import Compared, measured, tensors
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import Sight, against_references, marks_of, table
from onnxsurgeon_lite.report.plain import Columns, Rows
from onnxsurgeon_lite.tensors.comparison import gap, verdict

if TYPE_CHECKING:
    from onnxsurgeon_lite.matching.values.run_both import MatchResult, Unmatched

_ENDS = attrgetter("before"), attrgetter("after")


def diff_page(result: ModelDiff, sight: Sight) -> data.Page:
    """Return what the page of a diff shows."""
    # counted in the order in which kinds are declared
    in_order = sorted(result.differences, key=lambda d: get_args(Kind).index(d.kind))
    kinds = Counter(f"{d.status} {d.kind}" for d in in_order)
    counts = ", ".join(f"{count} {kind}{_plural(kind, count)}" for kind, count in kinds.items())
    wrong = [name for name, c in result.outputs.items() if not c.match]
    headlines = [f"different: {counts}" if counts else "no difference"]
    if result.outputs:
        how = "mismatch" if wrong else "agree"
        headlines.append(f"outputs {how}: {', '.join(map(repr, wrong or result.outputs))}")
    # a difference -> its line; a node that was added has no `before`, one that was removed no `after`
    said = {id(d): line_of(d) for d in result.differences}
    nodes = [d for d in result.differences if d.kind == "node" and not only_texts(d)]
    # marks of both graphs; texts of metadata alone mark nothing
    before, after = ([(at(d), said[id(d)], d.status) for d in nodes] for at in _ENDS)
    outputs: Columns[Compared] = {
        "output": "{0[0]}",
        "verdict": lambda each: verdict(each[1]),
        **measured(itemgetter(1), every_metric=True),
    }
    return data.Page(
        "diff",
        sight.title("and"),
        data.Verdict("agrees" if result.same else "mismatch", headlines),
        sight.graphs(2),
        marks=_marks(before, 0) + _marks(after, 1),
        pairs=result.pairs,
        tables=table(
            Rows("Differences", result.differences, _CHANGED, lambda d: d.before or d.after),
            graph=lambda d: int(not d.before),
        )
        + table(Rows("Outputs on the same feeds", list(result.outputs.items()), outputs)),
        notes=result.notes,
    )


def _plural(kind: str, count: int) -> str:
    return "s" if count > 1 and not kind.endswith("metadata") else ""


def _marks(found: Sequence[tuple[str, str, data.MarkKind]], graph: int) -> list[data.Mark]:
    return [mark for node, text, kind in found for mark in marks_of(kind, [(node, text)], graph)]


def _changes(difference: Difference) -> str:
    changes = change_texts(difference)
    changes += [str(difference.contents)] if difference.contents is not None else []
    return "; ".join(changes)


_CHANGED: Columns[Difference] = {
    "what": "{0.status}",
    "kind": "{0.kind}",
    "which": "{0.subject}",
    "change": _changes,
}


def match_page(result: "MatchResult", sight: Sight) -> data.Page:
    """Return what the page of a match shows; where one side is a set of tensors, of the model alone."""
    # models: a and b, or b alone if a is a set of tensors
    *others, _ = sight.models
    pairs = result.matching.pairs
    rest = [
        f"only in {result.a}: {len(result.only_a)}",
        f"only in {result.b}: {len(result.only_b)}",
    ]
    number = len(others)
    makers = [each.producer for each in sight.models]
    # rows of the table lead to the node of b that makes the value
    ids = {pair.b: f"@{makers[-1][pair.b]}" for pair in pairs if pair.b in makers[-1]}
    marks = _unmatched(result.only_b, makers[-1], number)
    marks += _unmatched(result.only_a, makers[0], 0) if others else []
    found = replace(matched(result), node=lambda pair: ids.get(pair.b, ""))
    known = [(makers[0].get(p.a), makers[-1].get(p.b)) for p in pairs if others]
    return data.Page(
        "match",
        f"{result.a} and {result.b}",
        data.Verdict("facts", [f"{len(pairs)} pairs of values"] + rest),
        sight.graphs(2),
        marks=marks,
        pairs=list(dict.fromkeys((a, b) for a, b in known if a is not None and b is not None)),
        tables=table(found, graph=lambda _: number)
        + table(_left(result.a, result.only_a), _left(result.b, result.only_b)),
    )


def _left(side: str, values: "Sequence[Unmatched]") -> "Rows[Unmatched]":
    return Rows(f"Only in {side}", values, _LEFT)


_LEFT: "Columns[Unmatched]" = {
    "value": "{0.name}",
    "operator": "{0.op_type}",
    "place": "{0.place}",
}


def _unmatched(found: "list[Unmatched]", makers: dict[str, int], graph: int) -> list[data.Mark]:
    names = [each.name for each in found if each.name in makers]
    said = ((makers[name], f"{name!r} has no partner") for name in names)
    return marks_of("unmatched", said, graph)


def comparison_page(result: SetComparison, sight: Sight) -> data.Page:
    """Return what the page shows."""
    index = sight.models[0] if sight.models else None
    producer = {} if index is None else index.producer
    wrong = {name: c for name, c in result.compared.items() if not c.match}
    # rows lead to the node that makes the value; mismatches come first
    ids = {name: f"@{producer[name]}" for name in result.compared if name in producer}
    first = next(iter(wrong), None)
    count = len(result.compared)
    if first is None:
        headlines = [f"{count} compared tensor{'s' * (count != 1)} agree{'s' * (count == 1)}"]
    else:
        headlines = [
            f"{len(wrong)} of {count} compared tensors mismatch",
            f"the first is {first!r}: {gap(wrong[first])}",
        ]
    found = tensors(result, every_metric=True)
    found = replace(
        found,
        items=sorted(found.items, key=lambda item: item[1].match),
        columns={**found.columns, "place": lambda each: result.places.get(each[0], "")},
        node=lambda each: ids.get(each[0], ""),
    )
    marks = marks_of(
        "mismatch", [] if first is None else [(ids.get(first, ""), "the first mismatch")]
    )
    return data.Page(
        "compare",
        sight.title(),
        data.Verdict("agrees" if result.match else "mismatch", headlines),
        sight.graphs(1, marks),
        [against_references(result.compared, index)],
        marks,
        tensors=sight.tensors,
        tables=table(found),
    )
