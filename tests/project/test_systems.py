"""The simulated systems: what they lack is hidden from the package, and it works all the same."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from kit import FIXTURES, ROOT

SYSTEMS = ROOT / "scripts" / "systems"


def seen(system: str, *words: str, **how) -> subprocess.Popen:
    given = {**os.environ, "SIMULATED_SYSTEM": system, "PYTHONPATH": str(SYSTEMS)}
    return subprocess.Popen(
        [sys.executable, *words], env=given, stdout=subprocess.PIPE, text=True, **how
    )


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_the_package_sees_the_simulated_system_and_tests_the_real_one(system):
    code = (
        "import os, sys, onnxsurgeon_lite.system as ours\n"
        "print(hasattr(os, 'fork'), ours.HAS_FORK, ours.IS_POSIX, sys.platform, ours.sys.platform)"
    )

    said = seen(system, "-c", code).communicate()[0].split()

    assert said[0] == "True"
    assert said[1:3] == ["False", str(system == "macos")]
    assert said[3:] == ["linux", {"macos": "darwin", "windows": "win32"}[system]]


@pytest.mark.parametrize("system", ["macos", "windows"])
@pytest.mark.parametrize(
    ("words", "says"),
    [(["check", "detector.onnx"], "is valid"), (["run", "detector.onnx"], "boxes")],
    ids=["ONNX's own code", "a runtime"],
)
def test_a_command_answers(system, words, says):
    process = seen(system, "-m", "onnxsurgeon_lite", *words, cwd=FIXTURES)

    assert says in process.communicate()[0]
    assert process.returncode == 0


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_a_model_at_a_path_of_more_than_260_characters_is_edited_in_place(system, tmp_path):
    folder = tmp_path / ("long " * 25) / ("paths " * 25)
    folder.mkdir(parents=True)
    model = shutil.copy(FIXTURES / "external.onnx", folder)
    shutil.copy(FIXTURES / "external.data", folder)

    words = ("edit", "set", model, "doc_string=edited", "--in-place", "--verify")
    process = seen(system, "-m", "onnxsurgeon_lite", *words)

    assert "wrote" in process.communicate()[0]
    assert process.returncode == 0


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_the_worker_of_a_killed_command_ends(system):
    code = (
        "from onnxsurgeon_lite.runtime.session import Runtime\n"
        "import time\n"
        "with Runtime() as runtime:\n"
        "    runtime.about()\n"
        "    print(runtime._child._process.pid, flush=True)\n"
        "    time.sleep(60)"
    )
    parent = seen(system, "-c", code)
    worker = int(parent.stdout.readline())

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()

    until = time.monotonic() + 10
    while _runs(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(worker)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
