"""An `onnxdbg repl` in a pseudo-terminal, typed at line by line."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pexpect

from kit.busy import computed

PROMPT = r"onnxdbg( @\S+)?> "
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """An `onnxdbg repl` that is typed at."""

    def __init__(self, *arguments: str, folder: Path, columns: int = 300) -> None:
        environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "TERM": "dumb"}
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "onnxsurgeon_lite", "repl", *arguments],
            cwd=str(folder),
            env=environment,
            encoding="utf-8",
            timeout=20,
            dimensions=(40, columns),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # maybe ignored here
        )
        self.child.delaybeforesend = 0.25  # the prompt is there before its keys are read
        self.wait()

    def wait(self) -> str:
        """What is said before the next prompt; the prompt is left in `prompt`."""
        self.child.expect(PROMPT)
        self.prompt = self.child.after.strip()
        return ESCAPES.sub("", self.child.before)

    def computes(self, seconds: float = 1.0) -> None:
        """Wait until the runtime has computed for some more seconds of processor time."""
        started, deadline = self._computed(), time.monotonic() + 60
        while self._computed() < started + seconds and time.monotonic() < deadline:
            time.sleep(0.02)

    def _computed(self) -> float:
        listed = Path(f"/proc/{self.child.pid}/task").glob("*/children")
        return sum(computed(int(child)) for each in listed for child in each.read_text().split())

    def type(self, line: str) -> str:
        """What a line gives."""
        self.child.sendline(line)
        said = self.wait()
        return said[said.index("\n") + 1 :].replace("\r", "")

    def leave(self) -> None:
        self.child.sendline("exit")
        self.child.expect(pexpect.EOF)
        self.child.close()
        assert self.child.exitstatus == 0
