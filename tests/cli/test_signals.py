"""Signals at any moment: the exit code says which, nothing is half written, no traceback is printed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.errors import RuntimeTimeout

ROOT = Path(__file__).parents[2]  # of onnxdbg.py
READY = "import os, onnxdbg; onnxdbg.end_at_once(); os.write(1, b'.'); onnxdbg.main()"
SETUP = (
    "import os, signal, time; from onnxsurgeon_lite.cli import process; process.end_on_signals()\n"
)


def python(code, *words, **how):
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **how,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_leaves_nothing(number, tmp_path):
    shutil.copy(FIXTURES / "linear_func.onnx", tmp_path / "m.onnx")
    chance = random.Random(int(number))
    words = ["edit", "rename", "m.onnx", "x=z", "-o", "out.onnx", "--force"]

    for _ in range(4):
        with python(READY, *words, cwd=tmp_path) as process:
            process.stdout.read(1)
            time.sleep(chance.random())
            process.send_signal(number)
            said = process.communicate(timeout=60)[0].decode()

        assert process.returncode in (0, 2, 128 + number), said
        assert "Traceback" not in said
        assert {*os.listdir(tmp_path)} <= {"m.onnx", "out.onnx"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_package_is_imported_ends_the_command(number, tmp_path):
    before = f"import os, sys, onnxdbg; sys.addaudithook(lambda event, given: os.kill(os.getpid(), {int(number)})"
    code = f"{before} if event == 'import' and given[0] == 'onnxsurgeon_lite' else None); onnxdbg.main()"

    with python(code, "check", "m.onnx", cwd=tmp_path) as process:
        said = process.communicate()[0]

    assert (process.returncode, said) == (128 + number, b"")


def test_a_second_signal_while_the_command_ends_is_not_told():
    twice = "os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGHUP)"
    code = (
        f"{SETUP}signal.pthread_sigmask(signal.SIG_BLOCK, [15, 1]); {twice}\n"
        "try:\n    signal.pthread_sigmask(signal.SIG_UNBLOCK, [15, 1])\nfinally:\n    time.sleep(0.1)"
    )

    with python(code) as process:
        said = process.communicate()[0]

    assert (process.returncode, said) in ((143, b""), (129, b""))


def test_what_a_signal_left_between_two_lines_is_removed(tmp_path):
    shutil.copy(FIXTURES / "linear_func.onnx", tmp_path / "m.onnx")
    code = (
        "import os, signal, sys, tempfile\nfrom onnxsurgeon_lite.cli import main\nmade = tempfile.mkstemp\n"
        "def interrupted(*given):\n    made(*given)\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "tempfile.mkstemp = interrupted\nmain()"
    )

    with python(code, "edit", "rename", "m.onnx", "x=z", "-o", "o.onnx", cwd=tmp_path) as process:
        process.communicate()

    assert process.returncode == 143
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_a_signal_waits_for_the_end_of_an_import(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.1)\nprint('imported', flush=True)\n"
    )

    with python(f"{SETUP}import slow\ntime.sleep(60)", cwd=tmp_path) as process:
        assert process.communicate()[0] == b"imported\n"

    assert process.returncode == 143


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143)])
def test_a_signal_in_a_callback_ends_the_command(number, code):
    callback = (
        f"import ctypes\nctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.{number}))()\n"
    )

    with python(f"{SETUP}{callback}time.sleep(60)") as process:
        process.communicate()

    assert process.returncode == code


def test_a_signal_while_a_lost_exception_is_shown_ends_the_command():
    code = (
        f"{SETUP}import sys\nclass Swallowed:\n    @property\n    def exc_value(self):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.__unraisablehook__ = id\n"
        "try:\n    sys.unraisablehook(Swallowed())\nexcept BaseException:\n    print('raised')\ntime.sleep(9)"
    )

    with python(code) as process:
        said = process.communicate()[0]

    assert (process.returncode, said) == (143, b"")


def test_a_signal_waits_for_the_end_of_a_layout():
    code = (
        f"{SETUP}import threading\nfrom onnxsurgeon_lite.report.page import drawing\n"
        "lines = [(n, min(n + k, 1999)) for n in range(1999) for k in (1, 2, 7)]\ndrawing._igraph()\n"
        "real = drawing._native_layout\n"
        "drawing._native_layout = lambda *given: (real(*given), print('drawn', flush=True))\n"
        "threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGTERM]).start()\n"
        "drawing._layout(2000, lines)\ntime.sleep(9)"
    )

    with python(code) as process:
        said = process.communicate()[0]

    assert (process.returncode, said) == (143, b"drawn\n")


@pytest.mark.parametrize(("number", "told"), [("SIGINT", b"interrupted\n"), ("SIGTERM", b"")])
def test_what_a_signal_breaks_between_two_lines_is_no_bug_of_ours(number, told, tmp_path):
    shutil.copy(FIXTURES / "linear_func.onnx", tmp_path / "m.onnx")
    code = (
        "import os, signal, tempfile, threading\nfrom onnxsurgeon_lite.cli import main\n"
        "tempfile.tempdir, release = '.', threading.Condition._release_save\n"
        f"def interrupted(lock):\n    release(lock)\n    os.kill(os.getpid(), signal.{number})\n"
        "threading.Condition._release_save = interrupted\nmain()"
    )

    with python(code, "inspect", "m.onnx", "--html", "out.html", cwd=tmp_path) as process:
        said = process.communicate()[0]

    assert (process.returncode, said) == (128 + getattr(signal, number), told)
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_a_signal_while_a_folder_for_temporary_files_is_probed_leaves_nothing(tmp_path):
    code = (
        f"{SETUP}import tempfile; os.environ['TMPDIR'] = '.'; opened = tempfile._os.open\n"
        "def interrupted(*given):\n    fd = opened(*given); os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0); return fd\n"
        "tempfile._os.open = interrupted; tempfile.gettempdir(); time.sleep(9)"
    )

    with python(code, cwd=tmp_path) as process:
        process.communicate()

    assert process.returncode == 143
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "start",
    ["native._forked() or os._exit(0)", "native.subprocess.Popen(['true'], preexec_fn=int)"],
)
def test_a_signal_while_a_process_is_started_ends_the_command_without_a_traceback(start):
    code = (
        f"{SETUP}import logging\nfrom onnxsurgeon_lite.graph import native\nacquire = logging._acquireLock\n"
        "def interrupted():\n    os.kill(os.getpid(), signal.SIGTERM); time.sleep(0); acquire()\n"
        "os.register_at_fork(before=interrupted, after_in_parent=logging._releaseLock)\n"
        f"{start}\ntime.sleep(9)"
    )

    with python(code) as process:
        said = process.communicate()[0]

    assert (process.returncode, said) == (143, b"")


def test_a_signal_that_waits_at_the_end_of_the_command_ends_it():
    code = (
        f"{SETUP}process._raise_later(signal.SIGTERM); process.end_at_once()\n"
        "try:\n    time.sleep(9)\nexcept BaseException:\n    print('raised')"
    )

    with python(code) as process:
        said = process.communicate()[0]

    assert (process.returncode, said) == (143, b"")


def test_a_program_that_never_answers_ends_with_all_that_it_started(tmp_path):
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nsleep 300 &\necho $! > "$0.grandchild"\nwait\n')
    program.chmod(0o755)

    with pytest.raises(RuntimeTimeout) as error:
        osl.run(FIXTURES / "linear_func.onnx", runtime=f"command:{program}", timeout=3)

    assert "it was in" not in str(error.value)
    grandchild = int((tmp_path / "program.grandchild").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{grandchild}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{grandchild}").exists()
