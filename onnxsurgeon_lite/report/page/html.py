"""A page as one HTML file that needs no other and asks for none."""

import json
import os
from html import escape
from importlib.util import find_spec
from pathlib import Path

from onnxsurgeon_lite.report.json import plain
from onnxsurgeon_lite.report.page.data import Page

_SCRIPTS = (
    *("page", "numbers", "choice", "verdict", "along", "graph", "details"),
    *("tensors", "tables", "search"),
)
"""In their order; what stands at the top level of one is known in those behind it."""


def html(page: Page, live: bool = False) -> bytes:
    """Return the file; a live page asks its server for tensors."""
    return b"".join(parts(page, live))


def parts(page: Page, live: bool = False) -> list[bytes]:
    """Return the parts of the file."""
    names = (*_SCRIPTS, *(["live"] if live else []), "start")
    scripts = [_plotly(), *(_own(f"{name}.js") for name in names)]
    head, body = _own("page.html").split(b"<!-- here -->")
    title = escape(page.title).encode(errors="replace")
    nonce = os.urandom(16).hex()
    start = b'<script nonce="%b">' % nonce.encode()
    return [
        head.replace(b"{policy}", _policy(nonce, live).encode()).replace(b"{title}", title),
        *(b"<style>", _own("page.css"), b"</style>", body),
        *(b'<script type="application/json" id="data">', _inert(page).encode(), b"</script>"),
        *(part for script in scripts for part in (start, script, b"</script>")),
    ]


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
        text = encoder.encode(page)
    except ValueError:  # a number that JSON lacks
        text = encoder.encode(plain(page))
    return text.replace("<", "\\u003c")


def _policy(nonce: str, live: bool) -> str:
    """Return what the browser lets the page do: run the scripts that say this, load what its own server has."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'nonce-{nonce}'",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
