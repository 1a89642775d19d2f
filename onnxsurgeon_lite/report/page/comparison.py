"""What the page of a comparison shows."""

from dataclasses import replace

from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.report.metrics import tensors
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import against_references, marks_of, table
from onnxsurgeon_lite.report.page.sight import Sight
from onnxsurgeon_lite.tensors.metrics import gap


def page(result: SetComparison, sight: Sight) -> data.Page:
    """Return what the page shows."""
    index = sight.models[0] if sight.models else None
    producer = {} if index is None else index.producer
    wrong = {name: c for name, c in result.compared.items() if not c.match}
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
