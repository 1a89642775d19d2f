"""Run a command in a terminal until it prompts, then leave: ``prompt.py TEXT COMMAND...``."""

import os
import pty
import sys


def main(awaited: bytes, command: list[str]) -> None:
    """End the command once the awaited text was seen."""
    child, terminal = pty.fork()
    if not child:
        os.execvp(command[0], command)
    seen = b""
    while awaited not in seen:
        seen += os.read(terminal, 1 << 16)
    os.close(terminal)
    os.kill(child, 9)
    os.waitpid(child, 0)


main(sys.argv[1].encode(), sys.argv[2:])
