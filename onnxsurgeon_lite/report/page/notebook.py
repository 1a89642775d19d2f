"""What a notebook shows: of a result, a debugger, a graph."""

import math
from base64 import b64decode, b64encode
from collections.abc import Iterator
from html import escape
from importlib.util import find_spec
from itertools import chain

import numpy as np

from onnxsurgeon_lite.debug.stepping.breakpoints import Breakpoints
from onnxsurgeon_lite.debug.stepping.looking import Listing, Reading, Readings, Stack, Stop
from onnxsurgeon_lite.graph.selecting.browse import Graph, Node, Nodes, Value
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.report import results
from onnxsurgeon_lite.report.debugging import text_of
from onnxsurgeon_lite.report.page import Sight, page_of
from onnxsurgeon_lite.report.page.data import Layout, Measure, TensorPart
from onnxsurgeon_lite.report.page.drawing import Draftsman, Numbers, sketched
from onnxsurgeon_lite.report.page.picture import picture, png
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors.dtypes import RunValue, arrays_in

KINDS = (
    Stop,
    Reading,
    Readings,
    Stack,
    Listing,
    Breakpoints,
    PassResult,
    Graph,
    Node,
    Nodes,
    Value,
)
"""What `html_of` has more for than text."""


def html(result: Shown) -> str:
    """Return what the result's page shows first, and the text, folded; of a result without a page the text."""
    text = f"<pre>{escape(results.text(result))}</pre>"
    first = pictures(result)
    return f"{first}<details><summary>text</summary>{text}</details>" if first else text


def html_of(result: object) -> str:
    """A result as HTML: its text, with pictures of tensors, a table for a node, and a drawing of several."""
    if isinstance(result, Node):
        return _node(result)
    drawing = graph_svg(result) if isinstance(result, Nodes) else ""
    text = text_of(result)
    whole = f"<pre>{escape(text if text is not None else repr(result))}</pre>"
    readings = result if isinstance(result, Readings) else [result]
    return drawing + whole + "".join(_pictures(r.value) for r in readings if isinstance(r, Reading))


def _pictures(value: RunValue) -> str:
    found = filter(None, map(picture, arrays_in(value)))
    style = "image-rendering: pixelated; min-width: 200px"
    sources = (f"data:image/png;base64,{b64encode(png).decode()}" for png in found)
    return "".join(f'<img style="{style}" src="{source}">' for source in sources)


def _node(node: Node) -> str:
    rows = [("input", value) for value in node.inputs] + [("output", v) for v in node.outputs]
    cells = "".join(
        f"<tr><td>{kind}</td><td>{escape(value.name)}</td><td>{escape(value.type)}</td></tr>"
        for kind, value in rows
    )
    facts = [f"{name}={text}" for name, text in node.attributes.items()]
    below = ", ".join(filter(None, facts + [node.scope]))
    return f"<b>{escape(node.title)}</b> {escape(below)}<table>{cells}</table>"


_PICTURED = {
    "BisectResult", "SetComparison", "Profile", "Ranking", "Blame", "Float16Risks", "LeaveOneOut",
}  # fmt: skip
"""Results whose page has numbers or tensors without the model."""
_MOST = 40  # nodes that are drawn
_BOX = (150, 34)
_COLUMN = 170
_ROW = 74
_CHART = (640, 160)
_CUT = 22  # characters of a name
_GOOD = "#31688e"
_BAD = "#c0392b"
_STYLE = 'style="max-width: 100%" font-family="sans-serif" font-size="11"'


def pictures(result: Shown) -> str:
    """Return what the page of a result shows first: the verdict, numbers along the model, a tensor."""
    if type(result).__name__ not in _PICTURED:
        return ""
    page = page_of(result, Sight(is_drawn=False))
    verdict = page.verdict
    said = [(str(verdict.state), line) for line in verdict.headlines]
    said += [(step.what, step.command) for step in verdict.steps]
    rows = (f"<tr><th>{escape(what)}</th><td>{escape(line)}</td></tr>" for what, line in said)
    charts = (chart for measure in page.measures if (chart := _chart(measure)))
    return (
        f"<table>{''.join(rows)}</table>"
        + next(charts, "")
        + "".join(map(_tensor, page.tensors[:1]))
    )


def _tensor(tensor: TensorPart) -> str:
    figures = []
    for name in ("actual", "reference", "difference"):
        picture = getattr(tensor, name)
        if picture is not None:
            pixels = np.frombuffer(b64decode(picture.pixels), np.uint8)
            source = b64encode(png(pixels.reshape(picture.height, picture.width))).decode()
            said = escape(f"{name} of {tensor.name}, {picture.low:.4g} to {picture.high:.4g}")
            image = f'<img width="200" style="image-rendering: pixelated" alt="{said}"'
            figures.append(f'<td>{said}<br>{image} src="data:image/png;base64,{source}"></td>')
    return f"<table><tr>{''.join(figures)}</tr></table>"


def _chart(measure: Measure) -> str:
    """Draw numbers in their order; what is over its limit is a red cross."""
    width, height = _CHART
    # a number that is not finite has no place on the axis: its mark is at the top
    numbers = [_scaled(measure, number) for number in measure.numbers]
    known = [number for number in numbers if number is not None]
    if not known:
        return ""
    # linear charts begin at 0
    low = min(known) if measure.log else min(0.0, *known)
    span = (max(known) - low) or 1.0
    step = width / len(numbers)
    points = []
    for place, number in enumerate(numbers):
        x = (place + 0.5) * step
        y = 10.0 if number is None else height - 6 - (height - 20) * (number - low) / span
        said = escape(f"{measure.names[place]}: {measure.numbers[place]}")
        if measure.bad[place]:
            mark = f'<path d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6" stroke="{_BAD}" stroke-width="2">'
            points.append(f"{mark}<title>{said}</title></path>")
        elif number is not None:
            mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{_GOOD}">'
            points.append(f"{mark}<title>{said}</title></circle>")
    finite = [number for number in measure.numbers if number is not None]
    ends = f"{min(finite):.3g} to {max(finite):.3g}{', logarithmic' if measure.log else ''}"
    title = escape(f"{measure.title}: {measure.unit}, {ends}")
    return (
        f'<div>{title}</div><svg viewBox="0 0 {width} {height}" width="{width}" {_STYLE} role="img"'
        f' aria-label="{title}"><path d="M0 {height - 1}H{width}" stroke="#888"/>{"".join(points)}</svg>'
    )


def _scaled(measure: Measure, number: float | None) -> float | None:
    if number is None or not measure.log:
        return number
    return math.log10(max(number, 1e-12))


def graph_svg(nodes: Nodes) -> str:
    """Draw nodes with the values between them; '' for none, too many, or without igraph."""
    if not 0 < len(nodes) <= _MOST or find_spec("igraph") is None:
        return ""
    values = Numbers[str]()
    # values between the nodes are lines; others enter or leave as boxes of their own
    reads = {
        node.position: [values[v.name] for v in node.inputs if v.kind != "initializer"]
        for node in nodes
    }
    makes = {node.position: [values[v.name] for v in node.outputs] for node in nodes}
    draftsman = Draftsman()
    drawing = draftsman.draw(sketched(reads, makes))
    names = list(values)
    titles = {node.position: (node.op_type, node.name, node.title) for node in nodes}
    labels = [
        titles[number] if kind == "node" else (names[number], "", names[number])
        for kind, number in drawing.boxes
    ]
    said = {number: f"{name} {nodes[0].graph.type_text(name)}" for name, number in values.items()}
    ends = [(start, end, [said[v] for v in through]) for start, end, through in drawing.lines]
    return _drawn(draftsman.layouts[0], labels, ends)


def _drawn(
    layout: Layout, labels: list[tuple[str, str, str]], lines: list[tuple[int, int, list[str]]]
) -> str:
    left = min(layout.x, default=0.0)
    places = [_placed(x - left, y) for x, y in zip(layout.x, layout.y, strict=True)]
    drawn = [
        *_lines(layout, lines, places, left),
        *(_box(*place, *label) for place, label in zip(places, labels, strict=True)),
    ]
    bends = [x for each in layout.bends for x, _ in each]
    width = (max(chain(layout.x, bends), default=0.0) - left) * _COLUMN + _BOX[0] + 16
    height = max(layout.y, default=0.0) * _ROW + _BOX[1] + 16
    head = f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" {_STYLE} role="img">'
    return f"{head}{''.join(drawn)}</svg>"


def _lines(
    layout: Layout,
    lines: list[tuple[int, int, list[str]]],
    places: list[tuple[float, float]],
    left: float,
) -> Iterator[str]:
    for (start, end, values), bends in zip(lines, layout.bends, strict=True):
        # the name of the first value is written beside the last piece of its line
        corners = [places[start]] + [_placed(x - left, y) for x, y in bends] + [places[end]]
        points = " ".join(f"{x:.0f},{y:.0f}" for x, y in corners)
        (x, y), (x1, y1) = corners[-2:]
        title = escape("\n".join(map(shown, values)))
        yield f'<polyline points="{points}" fill="none" stroke="#888"><title>{title}</title></polyline>'
        text = escape(shown(values[0])[: _CUT + 8])
        middle = f'x="{(x + x1) / 2:.0f}" y="{(y + y1) / 2 + 4:.0f}"'
        yield f'<text {middle} text-anchor="middle" font-size="9" fill="#888">{text}</text>'


def _placed(x: float, y: float) -> tuple[float, float]:
    """Return the pixels of a place in columns and rows."""
    return x * _COLUMN + _BOX[0] / 2 + 8, y * _ROW + _BOX[1] / 2 + 8


def _box(x: float, y: float, first: str, second: str, title: str) -> str:
    """A node has two lines of text, a value that enters or leaves one, and no frame."""
    width, height = _BOX
    frame = (
        f'<rect x="{x - width / 2:.0f}" y="{y - height / 2:.0f}" width="{width}" height="{height}"'
    )
    lines = [escape(shown(text)[:_CUT]) for text in (first, second) if text]
    texts = [
        f'<text x="{x:.0f}" y="{y + 4 + 13 * (n - (len(lines) - 1) / 2):.0f}" text-anchor="middle"'
        f' fill="#111">{line}</text>'
        for n, line in enumerate(lines)
    ]
    stroke = f'rx="6" fill="{"#e8f0f6" if second or "(@" in title else "#fff"}" stroke="{_GOOD}"/>'
    return f"<g><title>{escape(shown(title))}</title>{frame} {stroke}{''.join(texts)}</g>"
