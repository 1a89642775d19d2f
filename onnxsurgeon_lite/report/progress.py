"""A line on the terminal while work goes on for more than a second; nothing where no one looks."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

from onnxsurgeon_lite.names import shown

_PATIENCE = 1.0  # seconds


@contextlib.contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Show `doing`, or what the yielded function was told last, once the work takes long."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    line = _Line(doing)
    timer = threading.Timer(_PATIENCE, line.start)
    timer.daemon = True
    timer.start()
    try:
        yield line.tell
    finally:
        timer.cancel()
        line.stop()


def _safe(text: str) -> str:
    from rich.markup import escape

    return escape(shown(text))


class _Line:
    def __init__(self, text: str) -> None:
        self.text = text
        self._lock = threading.Lock()
        self._stopped = False
        self._show: Callable[[str], None] = lambda _: None
        self._hide: Callable[[], None] = lambda: None

    def start(self) -> None:
        from rich.console import Console

        with self._lock:
            if self._stopped:
                return
            status = Console(stderr=True).status(_safe(self.text))
            status.start()
            self._show = lambda text: status.update(_safe(text))
            self._hide = status.stop

    def tell(self, text: str) -> None:
        self.text = text
        self._show(text)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._hide()
