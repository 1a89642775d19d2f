"""How long a quick typist waits at the prompt of a session on 50 000 nodes; 1 when that is long.

Each line is the first thing that a new session is asked, in a real terminal: its keys begin as soon as the prompt is
there, twelve a second. What is timed is each key until it is shown, and the last, Enter or Tab, until the answer is.
"""

import os
import pty
import select
import statistics
import sys
import tempfile
import time
from pathlib import Path

from looking import INSTANT, make

RATE = 12  # keys a second
PROMPT = "onnxdbg> "
LINES = {  # and what is awaited, which the line itself does not hold
    "graph['v250']\r": "float",
    "graph['v25'].consumers\r": "Op_25",
    "graph.around('v250')\r": "Op_249",
    "graph.path('v2', 'v9')\r": "Op_8",
    "graph.find(scope='layers.25')\r": "Op_259",
    "where\r": "main graph",
    "break op:Mul\r": "breakpoint",
    "print v123\t": "v12305",
    "break scope:layers.25\t": "layers.2500",
}


class Terminal:
    """A session in a terminal."""

    def __init__(self, model: Path) -> None:
        child, self.end = pty.fork()
        if not child:
            command = [sys.executable, "-m", "onnxsurgeon_lite", "repl", str(model)]
            os.execve(sys.executable, command, {**os.environ, "TERM": "xterm-256color"})
        self.child = child

    def wait(self, awaited: str) -> float:
        """The seconds until a text is shown, any text where it is empty."""
        start, seen = time.perf_counter(), b""
        while not seen or awaited.encode() not in seen:
            if not select.select([self.end], [], [], 20)[0]:
                raise TimeoutError(f"{awaited!r} was not shown: {seen!r}")
            shown = os.read(self.end, 1 << 16)
            if b"\x1b[6n" in shown:  # where is the cursor?
                os.write(self.end, b"\x1b[1;1R")
            seen += shown
        return time.perf_counter() - start

    def type(self, key: str, awaited: str = "") -> float:
        """The seconds until a key's answer is shown."""
        os.write(self.end, key.encode())
        return self.wait(awaited)

    def quiet(self) -> None:
        """Read on until nothing more comes."""
        while select.select([self.end], [], [], 0.05)[0]:
            os.read(self.end, 1 << 16)

    def close(self) -> None:
        os.kill(self.child, 9)
        os.waitpid(self.child, 0)
        os.close(self.end)


def waits(model: Path, line: str, awaited: str) -> tuple[float, float]:
    """(seconds that a key took at most, seconds that the last took)."""
    terminal = Terminal(model)
    try:
        terminal.wait(PROMPT)
        keys = list[float]()
        for key in line[:-1]:
            keys.append(terminal.type(key))
            time.sleep(max(0, 1 / RATE - keys[-1]))
        terminal.quiet()
        return max(keys), terminal.type(line[-1], awaited)
    finally:
        terminal.close()


def main() -> int:
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        make(50_000, model)
        for line, awaited in LINES.items():
            taken = [waits(model, line, awaited) for _ in range(3)]
            key, last = map(statistics.median, zip(*taken, strict=True))
            slow = max(key, last) > INSTANT
            missed |= slow
            what = "Tab" if line[-1] == "\t" else "Enter"
            figures = f"a key {1000 * key:4.0f} ms, {what} {1000 * last:4.0f} ms"
            print(f"{line.strip():<30} {figures} {'MISSED' if slow else ''}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
