"""What mkdocs asks while it builds: the generated parts of the reference; that the site loads nothing from elsewhere.

A line that ends in a comment stands where a generated part goes: `<!-- options edit rename -->`, `<!-- recipes -->`.
What is before the comment says where to read that in a page that is not built.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generated
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

MARK = generated.MARK
LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//"""
    r"""|<link[^>]+rel=["']?(?:stylesheet|preconnect|icon)[^>]+href=["']?(?:https?:)?//"""
    r"""|@import\s+["'(]*(?:https?:)?//|url\(["']?(?:https?:)?//"""
)
_options_shown: set[str] = set()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its generated parts."""

    def part(mark: re.Match[str]) -> str:
        kind, argument = mark.groups()
        if kind == "options":
            _options_shown.add(argument)
        return MARK.sub(part, generated.PARTS[kind](argument, markdown))

    return MARK.sub(part, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a command without a reference, and a site that loads anything from elsewhere."""
    if missing := sorted(generated.commands().keys() - _options_shown):
        raise PluginError(f"no page has the options of: {', '.join(missing)}")
    for path in Path(config.site_dir).rglob("*"):
        if path.suffix in (".html", ".css") and (found := LOADED.search(path.read_text())):
            raise PluginError(f"{path} loads {found.group()!r}")
