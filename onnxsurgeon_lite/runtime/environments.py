"""Other versions of onnxruntime, each in an environment that pip makes when it is asked for, and that is kept."""

import os
import re
import sys
from pathlib import Path

from onnxsurgeon_lite.atomic import rename_folder, temporary_folder
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.script import run_to_end

_SECONDS = 900.0  # for pip
_VERSION = re.compile(r"\d+(\.\d+)*")
_NUMPY_2 = (1, 19)
"""The first version that was built for numpy 2."""
_EXAMPLE = "write --versions 1.20.1..1.22.0, or 1.20.1,1.21.0,1.22.0"


def interpreter_of(version: str) -> str:
    """Return the Python of an environment that has a version of onnxruntime; pip makes it if there is none.

    Raises:
        UsageError: it is no version, or pip cannot install it for this Python.
    """
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{version!r} is no version of onnxruntime", "write version=1.20.1")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(base).resolve() / "onnxdbg" / f"onnxruntime-{version}-python{python}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = temporary_folder(folder)
        _run(version, sys.executable, "-m", "venv", str(made))
        numpy = "numpy" if _numbers(version) >= _NUMPY_2 else "numpy<2"
        _run(version, _python(made), "-m", "pip", "install", f"onnxruntime=={version}", numpy)
        rename_folder(made, folder)
    return _python(folder)


def versions_between(text: str) -> list[str]:
    """Return the versions that `FIRST..LAST`, or a list with commas, means; pip knows those between two.

    Raises:
        UsageError: there are less than two, or what is written is no version.
    """
    first, dots, last = text.partition("..")
    ends = [first, last] if dots else text.split(",")
    if len(ends) < 2 or not all(map(_VERSION.fullmatch, ends)):
        raise UsageError(f"{text!r} does not name versions of onnxruntime", _EXAMPLE)
    if not dots:
        return ends
    said = _run(text, sys.executable, "-m", "pip", "index", "versions", "onnxruntime")
    listed = re.search(r"Available versions: (.*)", said)
    known = sorted(re.split(r",\s*", listed[1].strip()) if listed else [], key=_numbers)
    low, high = sorted(map(_numbers, ends))
    found = [version for version in known if low <= _numbers(version)[: len(low)]]
    found = [version for version in found if _numbers(version)[: len(high)] <= high]
    if len(found) < 2:
        raise UsageError(f"pip knows less than two versions of onnxruntime in {text}", _EXAMPLE)
    return found if _numbers(first) <= _numbers(last) else found[::-1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _python(folder: Path) -> str:
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def _run(version: str, *words: str) -> str:
    """Run Python; return what it says."""
    try:
        code, said = run_to_end(words, _SECONDS)
    except TimeoutError as error:
        raise UsageError(f"{version}: {error}", "see whether pip reaches an index") from error
    text = said.decode(errors="replace")
    if code:
        why = next((line for line in text.splitlines() if line.startswith("ERROR")), text[-200:])
        raise UsageError(
            f"pip cannot install onnxruntime {version} for this Python: {why.strip()}",
            "choose other versions, or give an environment: --a runtime=ort:python=VENV/bin/python",
        )
    return text
