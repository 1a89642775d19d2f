"""Processor time that processes have used: what waits for it does not depend on how busy the machine is."""

import os
import signal
import threading
import time
from pathlib import Path


def computed(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupt_after(seconds: float, pid: int) -> None:
    """Press Ctrl-C when a process has computed for some more seconds."""
    until = computed(pid) + seconds

    def wait() -> None:
        while computed(pid) < until:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()
