"""A page as one HTML file that needs no other and asks for none."""

import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from importlib.resources import files

from onnxsurgeon_lite.report.json import plain
from onnxsurgeon_lite.report.page.data import Page

_SCRIPTS = (
    *("page", "numbers", "choice", "verdict", "along", "graph", "details"),
    *("tensors", "tables", "search"),
)
"""In their order; what stands at the top level of one is known in those behind it."""


def html(page: Page, live: bool = False) -> str:
    """Return the file's text; a live page asks its server for tensors."""
    from plotly.offline import get_plotlyjs

    names = (*_SCRIPTS, *(["live"] if live else []), "start")
    scripts = [get_plotlyjs(), *(_own(f"{name}.js") for name in names)]
    parts = _own("page.html").split("<!-- here -->")
    head, body = parts
    return "".join(
        [
            head.replace("{policy}", _policy(scripts, live)).replace("{title}", escape(page.title)),
            f"<style>{_own('page.css')}</style>",
            body,
            f'<script type="application/json" id="data">{_inert(page)}</script>',
            *(f"<script>{script}</script>" for script in scripts),
        ]
    )


def _own(name: str) -> str:
    return (files(__package__) / name).read_text()


def _inert(page: Page) -> str:
    """Return the data as JSON that ends no script, whatever the model's names hold."""
    text = json.dumps(plain(page), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _policy(scripts: list[str], live: bool) -> str:
    """Return what the browser lets the page do: run these scripts, load nothing but what its own server has."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(_hashes(scripts))}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hashes(scripts: list[str]) -> Iterator[str]:
    for script in scripts:
        yield f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
