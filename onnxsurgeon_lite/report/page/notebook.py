"""What a notebook shows: of a result, a debugger, a graph."""

from base64 import b64encode
from html import escape

from onnxsurgeon_lite.debug.stepping.breakpoints import Breakpoints
from onnxsurgeon_lite.debug.stepping.results import Listing, Reading, Readings, Stack, Stop
from onnxsurgeon_lite.graph.selecting.browse import Graph, Node, Nodes, Value
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.report import results
from onnxsurgeon_lite.report.debugging import text_of
from onnxsurgeon_lite.report.page.picture import picture
from onnxsurgeon_lite.report.page.svg import graph_svg, pictures
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
    text, first = f"<pre>{escape(results.text(result))}</pre>", pictures(result)
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
