"""A page as one HTML file that needs no other and asks for none."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html import escape
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from onnxsurgeon_lite.atomic import Staging, on_disk
from onnxsurgeon_lite.report import results
from onnxsurgeon_lite.report.page.data import GraphPart, Page

_SCRIPTS = [
    "page",
    "numbers",
    "choice",
    "verdict",
    "along",
    "graph",
    "details",
    "tensors",
    "tables",
    "search",
]
"""In their order; what stands at the top level of one is known in those behind it."""


def html(page: Page, live: bool = False) -> bytes:
    """Return the file; a live page asks its server for tensors."""
    nonce = os.urandom(16).hex()
    return b"".join(chain(_opening(nonce, live), _rest(page, nonce, live)))


@contextlib.contextmanager
def page_file(path: Path) -> Iterator[Callable[[Page], None]]:
    """Begin a file, whole or none; yield what writes the page.

    What is the same on every page is on its way to the disk while the rest is found.
    """
    nonce = os.urandom(16).hex()

    def begin() -> None:
        file.writelines(_opening(nonce))
        on_disk(file)

    def finish(page: Page) -> None:
        rest = _rest(page, nonce)
        with opened.pop_all():
            begun.result()
            file.writelines(rest)
        staging.commit()

    with Staging() as staging, contextlib.ExitStack() as opened:
        file = opened.enter_context(staging.open(path))
        begun = opened.enter_context(ThreadPoolExecutor(1)).submit(begin)
        yield finish


def _opening(nonce: str, live: bool = False) -> list[bytes]:
    """Return what is the same on every page but for its nonce."""
    head, _ = _own("page.html").split(b"<!-- plotly -->\n")
    policy = _policy(nonce, live).encode()
    return [head.replace(b"{policy}", policy), *_script(nonce, _plotly())]


def _rest(page: Page, nonce: str, live: bool = False) -> list[bytes]:
    """Return what comes behind that."""
    names = (*_SCRIPTS, *(["live"] if live else []), "start")
    # page.html has two places: `<!-- plotly -->` and `<!-- style -->`
    _, behind = _own("page.html").split(b"<!-- plotly -->\n")
    head, body = behind.split(b"<!-- style -->")
    parts = [head.replace(b"{title}", escape(page.title).encode(errors="replace"))]
    parts += (b"<style>", _own("page.css"), b"</style>", body)
    parts += (b'<script type="application/json" id="data">', _inert(page).encode(), b"</script>")
    for name in names:
        parts += _script(nonce, _own(f"{name}.js"))
    return parts


def _script(nonce: str, text: bytes) -> tuple[bytes, bytes, bytes]:
    return b'<script nonce="%b">' % nonce.encode(), text, b"</script>"


def _own(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


def _plotly() -> bytes:
    """Return plotly's script; the package around it takes longer to import than a page to write."""
    spec = find_spec("plotly")
    (folder,) = (spec and spec.submodule_search_locations) or [""]
    return Path(folder, "package_data", "plotly.min.js").read_bytes()


def _inert(page: Page) -> str:
    """Return the data as JSON that ends no script, whatever the model's names hold."""
    encoder = json.JSONEncoder(
        check_circular=False, separators=(",", ":"), allow_nan=False, default=vars
    )
    try:
        text = _encoded(page, encoder, {})
    except ValueError:  # a number that JSON lacks
        text = encoder.encode(results.data(page))
    # neither `</script>` nor `<!--` can occur then
    return text.replace("<", "\\u003c")


def _encoded(part: Page | GraphPart, encoder: json.JSONEncoder, known: dict[int, str]) -> str:
    """Return a part as JSON; what graphs that are drawn alike have in common is encoded once.

    Args:
        known: what is encoded of graphs, by the identity of the lists.
    """
    members = []
    for name, value in vars(part).items():
        if name == "graphs":
            graphs = (_encoded(graph, encoder, known) for graph in value)
            text = f"[{','.join(graphs)}]"
        elif isinstance(part, Page):
            text = encoder.encode(value)
        # graphs that are drawn alike share their lists: the identity tells
        elif (text := known.get(id(value), "")) == "":
            text = known[id(value)] = encoder.encode(value)
        members.append(f'"{name}":{text}')
    return f"{{{','.join(members)}}}"


def _policy(nonce: str, live: bool) -> str:
    """Return what the browser lets the page do: run the scripts that say this, load what its own server has."""
    parts = [
        "default-src 'none'",
        f"script-src 'nonce-{nonce}'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "connect-src 'self'" if live else "",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(filter(None, parts))
