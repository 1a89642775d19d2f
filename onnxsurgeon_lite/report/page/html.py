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
    *("tensors", "tables", "search", "start"),
)
"""In their order; what stands at the top level of one is known in those behind it."""


def html(page: Page) -> str:
    """Return the file's text."""
    from plotly.offline import get_plotlyjs

    scripts = [get_plotlyjs(), *(_own(f"{name}.js") for name in _SCRIPTS)]
    parts = _own("page.html").split("<!-- here -->")
    head, body = parts
    return "".join(
        [
            head.replace("{policy}", _policy(scripts)).replace("{title}", escape(page.title)),
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


def _policy(scripts: list[str]) -> str:
    """Return what the browser lets the page do: run these scripts, load nothing."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(_hashes(scripts))}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hashes(scripts: list[str]) -> Iterator[str]:
    for script in scripts:
        yield f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
