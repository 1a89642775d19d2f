"""Run commands in processes of their own that have imported the library already: forks of one that waits."""

import atexit
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# what a shell would read otherwise
_OF_SHELLS = re.compile(r"[|&;<>()$`*?~!#{}\n]")
# Numpy and the modules of most commands are imported; others take a command as long as ever.
_SERVER = """
import json, os, sys, traceback
import onnxdbg, onnxsurgeon_lite.cli.app
from onnxsurgeon_lite.api import bisecting, edit, look, run
from onnxsurgeon_lite.matching import suite
from onnxsurgeon_lite.report import plain
for line in sys.stdin:
    words, folder, said = json.loads(line)
    process = os.fork()
    if process:
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        continue
    try:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
        os.dup2(1, 2)
        sys.argv = words
        onnxdbg.main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)
"""


def simple(line: str) -> list[str]:
    """Return the words of a line that a shell would only split; none of another one."""
    words = [] if _OF_SHELLS.search(line) else shlex.split(line)
    return words if words[:1] == ["onnxdbg"] else []


class Commands:
    """A process that runs `onnxdbg` again and again, with the variables that it was started with."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._server.communicate)

    def run(self, words: Sequence[str], folder: Path) -> str:
        """Return what a command prints, errors too."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.NamedTemporaryFile() as said:
            self._server.stdin.write(json.dumps([words, str(folder), said.name]) + "\n")
            self._server.stdin.flush()
            assert self._server.stdout.readline()
            return Path(said.name).read_text()
