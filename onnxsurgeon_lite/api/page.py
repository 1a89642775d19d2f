"""Write the page of a result (`--html`) and its numbers of nodes (`--node-data`).

What a page shows besides the result is collected in a `Sight`: drawings of the models, pictures of tensors, measures
of all values. Drawing needs libraries that not everybody has, so everything is imported only for a page.
"""

from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from onnxsurgeon_lite.errors import RuntimeFailure, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues
    from onnxsurgeon_lite.graph import GraphIndex
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
    """Check before the work that the page and the numbers of nodes can be written.

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
    """Return whether a file is an HTML page, which cannot be the data of a model."""
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(len(_PAGE)).lower() == _PAGE


def require_libraries() -> None:
    """Raise `UsageError` if a library that draws is not installed."""
    missing = [name for name in ("plotly", "igraph") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a page needs {' and '.join(missing)}",
            "install it: pip install 'onnxsurgeon-lite[html]'",
        )


def begin_drawing(models: "list[GraphIndex]") -> "Sight":
    """Begin to draw models in other processes, so that the drawings are ready when the result is."""
    from onnxsurgeon_lite.report.page import Sight

    sight = Sight(models)
    sight.begin(len(models))
    return sight


def begin_file(html: "str | PathLike[str]") -> "AbstractContextManager[Callable[[Page], None]]":
    """Begin the file of a page; the context is a function that writes the page to it."""
    from onnxsurgeon_lite.report.page.html import page_file

    return page_file(Path(html))


def write_page(
    html: Place,
    node_data: Place,
    result: "Shown",
    models: "list[GraphIndex]",
    sight: "Sight | None",
    write_begun: "Callable[[Page], None] | None",
) -> None:
    """Write a result's page, and its numbers of nodes, where they are wanted.

    Args:
        sight: see `begin_drawing`; None if nothing was begun.
        write_begun: writes the page to the file that `begin_file` began; None if it did not.
    """
    if html is None and node_data is None:
        return
    # a page is made only where it is wanted
    from onnxsurgeon_lite.report import page
    from onnxsurgeon_lite.report.page.html import page_file

    seen = sight or page.Sight()
    seen.models = models
    seen.is_drawn = html is not None
    made = page.page_of(result, seen)
    # into the file that waits for it, or a new one
    if write_begun is not None:
        write_begun(made)
    elif html is not None:
        with page_file(Path(html)) as write:
            write(made)
    if node_data is not None:
        from onnxsurgeon_lite.report.page.node_data import write_node_data

        write_node_data(Path(node_data), models[0], made.measures)


def sight_of_compared(index: "GraphIndex | None") -> "tuple[Sight, See]":
    """Return an empty `Sight`, and a function that adds pictures to it: of the outputs, and of some that mismatch.

    Args:
        index: of the model that computes the compared tensors, if there is one.
    """
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
            # an output without a mismatch shows its first comparison
            comparison = wrong or next(iter(compared.values()), None)
            part = tensor_part(producer.get(name, -1), name, actual, reference, comparison)
            # None of a value that cannot be drawn
            if part is not None:
                sight.tensors.append(part)

    return sight, see


def look_along(
    index: "GraphIndex",
    references: "ReferenceSet | None",
    feeds: "Feeds",
    runtime: "Runtime",
    tolerance: "Tolerance | None",
    find: str | None,
) -> "Sight":
    """Run a model and measure each value: its distance from the reference, with pictures of some.

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
        observer.forget()
    return sight


def _compare(
    sight: "Sight",
    observer: "Observer",
    references: "ReferenceSet",
    tolerance: "Tolerance | None",
) -> None:
    """Compare values with their references; add pictures of the outputs, and of the first that mismatch."""
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
        # metrics take time: only a value that is shown gets them
        found = judge.compared(name, value, reference, ())
        sight.compared[name] = found
        is_shown = not found.match and len(sight.tensors) < _TENSORS
        if is_shown or name in index.outputs:
            with_metrics = judge.compared(name, value, reference)
            part = tensor_part(index.producer[name], name, value, reference, with_metrics)
            # None of a value that cannot be drawn
            if part is not None:
                sight.tensors.append(part)
    sight.measures.append(against_references(sight.compared, index))


def _compare_quantized(sight: "Sight", observer: "Observer", values: "FloatValues") -> None:
    """Add the signal to noise ratio of each quantized value, as `rank` measures it."""
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
    """Add the largest finite magnitude of each value."""
    from onnxsurgeon_lite.debug.judge import Finds
    from onnxsurgeon_lite.report.page.measures import NodeNumber, of_nodes
    from onnxsurgeon_lite.tensors.statistics import magnitude

    wanted = Finds.of(find)
    producer = observer.index.producer
    points = [
        NodeNumber(producer[name], name, magnitude(value), not wanted.good(name, value))
        for name, value in observer.sweep(producer)
    ]
    title, limit = "Largest magnitude along the model", ("allowed", wanted.largest)
    sight.measures.append(of_nodes(title, "max |x|", points, limit=limit, log=True))
