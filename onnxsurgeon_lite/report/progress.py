"""A line on the terminal while work goes on for more than a second; nothing where no one looks."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from onnxsurgeon_lite.atomic import WATCHED, Staging
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import show_notes, size_text

LARGE = 10**9  # bytes: writing more is announced

_PATIENCE = 1.0  # seconds
_BAR = 24  # characters


@contextlib.contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Show `doing`, or what the yielded function was told last, once the work takes long."""
    # nobody looks at a file
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


@contextlib.contextmanager
def writing(target: Path, size: int) -> Iterator[None]:
    """Show that a file is written; of many bytes before it begins, and how far it is."""
    # a watcher asks now and then how far the staged files are
    large = announce("writing", target, size)
    staged = list[Staging]()
    token = WATCHED.set(staged)
    done = threading.Event()
    with progress(f"writing {target}") as tell:

        def follow() -> None:
            while not done.wait(_PATIENCE / 4):
                tell(f"writing {target} {bar(sum(s.written() for s in staged), size)}")

        watcher = threading.Thread(target=follow, daemon=True)
        try:
            if large:
                watcher.start()
            yield
        finally:
            done.set()
            WATCHED.reset(token)


def announce(what: str, target: Path, size: int) -> bool:
    """Say that many bytes are written, and return whether they are many."""
    if size > LARGE:
        show_notes([f"{what} {size_text(size)} to {str(target)!r}"])
    return size > LARGE


def bar(done: int, total: int) -> str:
    """Return a share as a bar and in numbers."""
    share = min(1.0, done / total)
    filled = "━" * round(share * _BAR)
    return f"{filled:<{_BAR}} {100 * share:.0f}% of {size_text(total)}"


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
        from rich.live import Live
        from rich.spinner import Spinner

        with self._lock:
            if self._stopped:
                return
            line = Spinner("dots", _safe(self.text), style="status.spinner")
            # what is printed meanwhile stands above the line; elsewhere it is not redirected
            above = sys.stdout.isatty()
            live = Live(line, console=Console(stderr=True), transient=True, redirect_stdout=above)
            live.start()
            self._show = lambda text: line.update(text=_safe(text))
            self._hide = live.stop

    def tell(self, text: str) -> None:
        self.text = text
        self._show(text)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._hide()
