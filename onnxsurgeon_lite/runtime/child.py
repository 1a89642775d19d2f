"""Talk to the child process: requests, replies, time limits, crashes.

A model can crash or hang the runtime; then the child dies, but never the caller.
"""

import contextlib
import functools
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from onnxsurgeon_lite.errors import RuntimeCrash, RuntimeFailure, RuntimeTimeout, UsageError
from onnxsurgeon_lite.guard import AT_START, guarded
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.system import Meeting, TemporaryFolder, end_with_descendants, ending, read_at

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Reply = dict[str, object]

_SCRIPTS = Path(__file__).parent
_PATIENCE = 1.0  # seconds
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(onnxruntime|numpy)'")
_INSTALL = (
    "pip install 'onnxsurgeon-lite[cpu]', or one of onnxruntime-gpu, -directml, -openvino, -qnn"
)
WORKER = "worker.py"
_IDLE, _TALKING, _WAITING = range(3)  # the stage of a request: what is expected on the connection


class Child:
    """A worker process that starts at once, while the caller goes on; a context manager.

    Attributes:
        lock: held by a thread for a request and what follows from it.
        settings: the arguments that it was started with.

    Args:
        memory_limit: bytes that the process may allocate; 0 for no limit.
        script: the script to run, in the folder of this file. arguments: what it is given, and then has a folder for
            temporary files that ends with it. python: another interpreter that runs it.
    """

    def __init__(
        self,
        memory_limit: int = 0,
        script: str = WORKER,
        arguments: tuple[str, ...] = (),
        python: str = "",
    ) -> None:
        self.settings = memory_limit, script, arguments, python
        # a fork has a copy of this object, but not the process
        self._owner = os.getpid()
        self._variables, self._from = dict(os.environ), 0
        self._files = TemporaryFolder() if arguments else None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  it is open as long as the child runs
        # an inherited socket, or a port of this machine
        with Meeting() as meeting:
            words = (str(_SCRIPTS / script),) + arguments
            start = functools.partial(
                subprocess.Popen,
                guarded(*words, memory_limit=memory_limit, python=python, place=meeting.place),
                env={**os.environ, "TMPDIR": self._files.name} if self._files else None,
                pass_fds=meeting.inherited,
                # where a child cannot be tied to its parent by the system, the end of its standard input ends
                # it
                stdin=subprocess.DEVNULL if AT_START else subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            # the system ends a child with its thread: that lasts as long as this process
            lasts = threading.current_thread() is threading.main_thread()
            self._process = start() if lasts else _starter(os.getpid()).submit(start).result()
            self._socket = meeting.connected(self._process)
        self._stream = self._socket.makefile("rwb")
        # waits for a reply with a time limit
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._socket, selectors.EVENT_READ)
        self.lock = threading.RLock()
        self._stage = _IDLE  # the last: what is complete is closed

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def rests(self) -> bool:
        """Let the process drop all that it holds; return whether it waits, as good as a new one."""
        # what it has from its parent was given at its start: a new one would have other variables
        if self.closed or self.interrupted or self._variables != os.environ:
            return False
        # a fork does not have it, another thread may still use it
        if self._owner != os.getpid() or not self.lock.acquire(blocking=False):
            return False
        try:
            # the log of the runtime before is of no use to the next
            self._from = self._written()
            return bool(self.ask("rest", timeout=_PATIENCE)["rests"])
        except RuntimeFailure:
            return False
        finally:
            self.lock.release()

    def passed_on(self) -> "Child":
        """Return the process as a new object; a thread that still holds this one cannot use it."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        vars(self).clear()
        return other

    def close(self) -> None:
        """End the process at once; in a fork of the one that started it, let go of it."""
        if self.closed:
            return
        mine = self._owner == os.getpid()
        if mine:
            # with what it has started itself
            end_with_descendants(self._process)
            self._process.wait()
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            # a thread that waits for a reply sees the end and lets go; closing what it waits on would leave it there
            mine = self.lock.acquire(timeout=_PATIENCE)
        else:
            os.close(self._socket.detach())  # first, so that no rest of a request is sent twice
            self._process.returncode = 0  # it is not waited for
        with contextlib.suppress(OSError):
            self._stream.close()
        self._ready.close()
        self._socket.close()
        self._log.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._files is not None:
            self._files.remove()
        if mine:
            self.lock.release()

    def __del__(self) -> None:
        if hasattr(self, "_stage"):
            self.close()

    def ask(
        self,
        action: str,
        payloads: Iterable[bytes | memoryview] = (),
        timeout: float | None = None,
        **arguments: object,
    ) -> Reply:
        """Send a request and the raw bytes that follow it, and wait for the reply."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.lock, self._watched():
            self._stage = _TALKING
            self._stream.write(json.dumps({"do": action, **arguments}).encode() + b"\n")
            self._stream.writelines(payloads)
            self._stream.flush()
            self._stage = _WAITING
            # writing the payload has taken part of the time
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._ready.select(left):
                end_with_descendants(self._process)
                raise RuntimeTimeout(
                    # what it computes is of no use: the process is ended, not only the request
                    f"the runtime did not finish within {timeout:g} seconds",
                    "allow more time with --timeout",
                )
            self._stage = _TALKING
            # an end without a reply: it died
            line = self._stream.readline()
            if not line:
                raise EOFError
            self._stage = _IDLE
        reply: Reply = json.loads(line)
        if "error" in reply:
            # its own hint, such as that of a backend's error
            hint = reply.get("hint")
            raise RuntimeFailure(str(reply["error"]), str(hint) if hint else None)
        return reply

    def receive(self, size: int) -> memoryview:
        """Receive the next `size` raw bytes of the last reply."""
        payload = _buffer(size)
        with self._watched():
            self._stage = _TALKING
            if self._stream.readinto(payload) != size:
                raise EOFError
            self._stage = _IDLE
        return payload

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    @property
    def interrupted(self) -> bool:
        """True while a request was sent whose reply no one has read."""
        return self._stage != _IDLE

    def stop(self, patience: float) -> bool:
        """Cancel the interrupted request; return whether the process stopped in time and can go on."""
        # only a running request can be cancelled; half a message cannot
        if self._stage == _WAITING and hasattr(signal, "SIGUSR1"):
            with contextlib.suppress(RuntimeCrash), self._watched():
                self._process.send_signal(signal.SIGUSR1)
                if self._ready.select(patience) and "error" in json.loads(self._stream.readline()):
                    self._stage = _IDLE
        return self._stage == _IDLE

    def read(self, address: int, size: int) -> memoryview | None:
        """Read bytes of the process's memory; return None if the system does not allow it."""
        payload = _buffer(size)
        return payload if self.fill(address, payload) else None

    def fill(self, address: int, target: memoryview) -> bool:
        """Fill a buffer with bytes of the process's memory; return False if the system does not allow it."""
        from onnxsurgeon_lite.runtime.memory import read_memory

        return read_memory(self._process.pid, address, target)

    def log(self) -> str:
        """Return the output of the process since it was started, or rested."""
        # no seek where it can be avoided: the process shares the file position and writes there
        size = self._written() - self._from
        return read_at(self._log, size, self._from).decode(errors="replace")

    def _written(self) -> int:
        return os.fstat(self._log.fileno()).st_size

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        # sharing the connection with another process would mix their messages
        if self._owner != os.getpid():
            text = "the runtime's process belongs to the process that this one was forked from"
            raise UsageError(text, "start a runtime in each process")
        try:
            yield
        except (EOFError, OSError) as error:
            # the log says what the broken connection does not
            cause = self._cause()
            missing = _MISSING.search(cause)
            if missing:
                # of another interpreter, or of this one
                python = self.settings[-1]
                hint = command(python, "-m", "pip", "install", missing[1]) if python else _INSTALL
                raise UsageError(f"{python or 'this Python'} has no {missing[1]}", hint) from error
            raise RuntimeCrash(
                f"the runtime's process died: {cause}",
                "try --opt none; to find the node, cut the model in two with onnxdbg extract",
            ) from error

    def _cause(self) -> str:
        # the exit code comes a moment after the connection has gone
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        code = self._process.returncode
        # the last line is where a traceback or an assertion says what happened
        last = self.log().strip().splitlines()[-1:]
        if code is None:
            return "it closed its connection"
        if code == -9:  # SIGKILL
            return "killed, most likely because memory ran out"
        return ": ".join([ending(code)] + last)


@functools.cache
def _starter(_process: int) -> "ThreadPoolExecutor":
    """Return the thread of this process that starts others for threads that end; a fork of it does not have it."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "onnxsurgeon-starter")


def _buffer(size: int) -> memoryview:
    import numpy as np  # imported late: every command starts a child, few read from one

    return np.empty(size, np.uint8).data  # not zeroed, because it is overwritten
