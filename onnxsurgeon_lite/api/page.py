"""The page of a result: what is looked at for it, and where it is written."""

from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from onnxsurgeon_lite.errors import RuntimeFailure, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.matching.sets import See
    from onnxsurgeon_lite.report.page import Page, Sight
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.runtime.observe import Observer
    from onnxsurgeon_lite.runtime.session import Runtime
    from onnxsurgeon_lite.shown import Shown
    from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance
    from onnxsurgeon_lite.tensors.dtypes import Stored
    from onnxsurgeon_lite.tensors.references import ReferenceSet

Place = str | PathLike[str] | None

_PAGE = b"<!doctype html>"
_TENSORS = 24  # mismatching values that are shown


def require_page(html: Place, node_data: Place, force: bool) -> None:
    """Refuse a page, or numbers of nodes, that cannot be written, before the work.

    Raises:
        OutputExistsError: the file exists.
        UsageError: plotly or igraph is missing.
    """
    if html is not None:
        require_libraries()
    places = [Path(place) for place in (html, node_data) if place is not None]
    if places:
        from onnxsurgeon_lite.atomic import require_free
        from onnxsurgeon_lite.model import require_replaceable

        # an existing page may be replaced by --force alone; another file might be a model's data
        for place in places:
            if _is_page(place):
                require_free(place, force)
            else:
                require_replaceable(place, force)


def _is_page(place: Path) -> bool:
    """Return whether a file is a page already: that is no model's data, so no model near it need be asked."""
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(len(_PAGE)).lower() == _PAGE


def require_libraries() -> None:
    """Raise `UsageError` without the libraries that draw."""
    missing = [name for name in ("plotly", "igraph") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a page needs {' and '.join(missing)}",
            "install it: pip install 'onnxsurgeon-lite[html]'",
        )


def begun(models: "list[GraphIndex]") -> "Sight":
    """Return what is seen of models, whose drawings take shape while the command works."""
    from onnxsurgeon_lite.report.page import Sight

    sight = Sight(models)
    # in processes of their own: the drawings are ready when the result is
    sight.begin(len(models))
    return sight


def begun_file(html: "str | PathLike[str]") -> "AbstractContextManager[Callable[[Page], None]]":
    """Begin the file of a page; enter what writes it."""
    from onnxsurgeon_lite.report.page.html import page_file

    return page_file(Path(html))


def write_page(
    html: Place,
    node_data: Place,
    result: "Shown",
    models: "list[GraphIndex]",
    sight: "Sight | None",
    begun: "Callable[[Page], None] | None",
) -> None:
    """Write a result's page, and its numbers of nodes, where they are wanted.

    Args:
        begun: writes the page to a file that is begun.
    """
    if html is None and node_data is None:
        return
    from onnxsurgeon_lite.report import page
    from onnxsurgeon_lite.report.page.html import page_file

    seen = sight or page.Sight()
    seen.models = models
    seen.is_drawn = html is not None
    # a page whose file was begun is finished; otherwise it is written now
    made = page.page_of(result, seen)
    if begun is not None:
        begun(made)
    elif html is not None:
        with page_file(Path(html)) as write:
            write(made)
    if node_data is not None:
        from onnxsurgeon_lite.report.page.node_data import write_node_data

        write_node_data(Path(node_data), models[0], made.measures)


def watched(index: "GraphIndex | None") -> "tuple[Sight, See]":
    """Return what is seen of compared tensors, and what looks at them: pictures of the first that mismatch."""
    from onnxsurgeon_lite.report.page import Sight
    from onnxsurgeon_lite.report.page.tensors import tensor_part

    sight = Sight()
    producer = {} if index is None else index.producer

    def see(
        name: str,
        actual: "Stored | None",
        reference: "Stored | None",
        compared: "Mapping[str, Comparison]",
    ) -> None:
        wrong = next((each for each in compared.values() if not each.match), None)
        is_output = index is not None and name in index.outputs
        if len(sight.tensors) < _TENSORS and (wrong is not None or is_output):
            said = wrong or next(iter(compared.values()), None)
            part = tensor_part(0, producer.get(name, -1), name, actual, reference, said)
            sight.tensors += [part] if part is not None else []

    return sight, see


def look_along(
    index: "GraphIndex",
    references: "ReferenceSet | None",
    feeds: "Feeds",
    runtime: "Runtime",
    tolerance: "Tolerance | None",
    find: str | None,
) -> "Sight":
    """Look at every value: how far it is from its reference, with pictures of some.

    Args:
        references: None where there are none.
        find: what is looked for without references, such as `nan`.
    """
    from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues
    from onnxsurgeon_lite.report.page import Sight
    from onnxsurgeon_lite.runtime.observe import BUDGET, Observer

    sight = Sight([index])
    observer = Observer(index, runtime, budget=BUDGET)
    observer.feed(feeds)
    try:
        # three kinds of measures: magnitudes, noise of quantized values, errors
        if references is None:
            _measure(sight, observer, find or "")
        elif (values := FloatValues.of(index, references, feeds)) is not None:
            _compare_quantized(sight, observer, values.behind_quantizers())
        else:
            _compare(sight, observer, references, tolerance)
    except RuntimeFailure as error:
        sight.notes.append(f"the model does not run to its end: {error.message}")
    finally:
        observer.forget(list(observer.kept))
    return sight


def _compare(
    sight: "Sight",
    observer: "Observer",
    references: "ReferenceSet",
    tolerance: "Tolerance | None",
) -> None:
    """Compare values; draw the first that mismatch, and the outputs."""
    from onnxsurgeon_lite.debug.judge import AgainstReferences
    from onnxsurgeon_lite.report.page.measures import against_references
    from onnxsurgeon_lite.report.page.tensors import tensor_part

    index = observer.index
    judge = AgainstReferences.of(index, tolerance)
    judge.references = references
    # a rule may need another value than the compared one
    judge.read = lambda name: observer.fetch([name])[name]
    compared = filter(judge.can_judge, index.producer)
    for name, value in observer.sweep(compared, prepare=judge.prepare):
        reference = references.read(name)
        # without metrics first, as they take time; with them for what is shown
        found = judge.compared(name, value, reference, ())
        sight.compared[name] = found
        is_shown = not found.match and len(sight.tensors) < _TENSORS
        if is_shown or name in index.outputs:
            said = judge.compared(name, value, reference)
            part = tensor_part(0, index.producer[name], name, value, reference, said)
            sight.tensors += [part] if part is not None else []
    sight.measures.append(against_references(sight.compared, index))


def _compare_quantized(sight: "Sight", observer: "Observer", values: "FloatValues") -> None:
    """Measure the noise of values after their quantizers, as `rank` does."""
    from onnxsurgeon_lite.debug.ranking.rank import measured, sqnr
    from onnxsurgeon_lite.report.page.measures import NodeNumber, of_nodes

    places = measured(values)
    made = observer.sweep(places, prepare=values.hold)
    found = ((name, sqnr(value, values.read(name))) for name, value in made)
    points = [
        NodeNumber(f"@{places[name]}", name, noise, noise == float("-inf")) for name, noise in found
    ]
    title = "Signal against quantization noise"
    sight.measures.append(of_nodes(title, "dB", points, combine="min"))


def _measure(sight: "Sight", observer: "Observer", find: str) -> None:
    """Take the largest magnitude of each value, as far as it is finite."""
    from onnxsurgeon_lite.debug.judge import Finds
    from onnxsurgeon_lite.report.page.measures import largest
    from onnxsurgeon_lite.tensors.statistics import magnitude

    wanted = Finds.of(find)
    sizes = {
        name: (magnitude(value), wanted.good(name, value))
        for name, value in observer.sweep(observer.index.producer)
    }
    sight.measures.append(largest(observer.index, sizes, wanted.largest))
