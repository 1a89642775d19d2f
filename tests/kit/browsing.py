"""Pages in a real browser: what they ask for, and what they complain of."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

SYSTEM = ("chromium", "chromium-browser", "google-chrome")
LIMIT = 60_000  # milliseconds that anything may take


@contextmanager
def started() -> Iterator[Browser]:
    """A Chromium without a window: that of `scripts/test`, of the system, or Playwright's own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_found(playwright), timeout=LIMIT)
        yield browser
        browser.close()


def _found(playwright: Playwright) -> str:
    own = playwright.chromium.executable_path
    for path in (os.environ.get("TEST_BROWSER"), *map(shutil.which, SYSTEM), own):
        if path and Path(path).exists():
            return path
    pytest.fail("no browser: scripts/test installs one, and so does: playwright install chromium")


class Visit:
    """A look at pages with the network off.

    Args:
        browser: where they are opened.
        server: what alone may be asked for besides files, such as `http://127.0.0.1:8000/`.

    Attributes:
        complaints: errors of the page, messages of its console, dialogs, and requests for anything else than files.
    """

    def __init__(self, browser: Browser, server: str = "") -> None:
        self.server = server
        self.complaints: list[str] = []
        self.context = browser.new_context(offline=not server)
        self.context.set_default_timeout(LIMIT)
        self.context.on("request", lambda request: self._asked(request.url))
        self.context.on("console", lambda message: self._said(message.type, message.text))
        self.context.on("weberror", lambda error: self._said("error", str(error.error)))
        self.context.on(
            "dialog", lambda dialog: (self._said("dialog", dialog.message), dialog.dismiss())
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def open(self, page: Path | str, fragment: str = "") -> Page:
        """Open a file, or an address of `server`."""
        opened = self.context.new_page()
        address = page.resolve().as_uri() if isinstance(page, Path) else page
        opened.goto(address + (f"#{fragment}" if fragment else ""))
        return opened

    def _asked(self, url: str) -> None:
        own = url.startswith(("file:", "data:", "blob:"))
        if not own and not (self.server and url.startswith(self.server)):
            self._said("request", url)

    def _said(self, kind: str, text: str) -> None:
        self.complaints.append(f"{kind}: {text}")
