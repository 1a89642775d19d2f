"""Other versions of onnxruntime: pip installs each in an environment of its own, which is kept."""

import os
import re
import sys
from pathlib import Path

from onnxsurgeon_lite.atomic import NewFolder
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.script import run_to_end
from onnxsurgeon_lite.system import user_folder

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
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    cache = user_folder("XDG_CACHE_HOME", ".cache").resolve()
    folder = cache / f"onnxruntime-{version}-python{python}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # older versions were built for numpy 1
        numpy = "numpy" if _numbers(version) >= _NUMPY_2 else "numpy<2"
        # a folder that is there is complete: it gets its name at the end
        with NewFolder(folder, ".*") as new:
            _run(version, sys.executable, "-m", "venv", str(new.path))
            _run(
                version, _python(new.path), "-m", "pip", "install", f"onnxruntime=={version}", numpy
            )
            new.commit()
    return _python(folder)


def versions_between(text: str) -> list[str]:
    """Return the versions of a list with commas, or those that pip knows from `FIRST..LAST`.

    Raises:
        UsageError: there are fewer than two, or one is no version.
    """
    first, dots, last = text.partition("..")
    # "1.20.1..1.22.0", or a list
    ends = [first, last] if dots else text.split(",")
    if len(ends) < 2 or not all(map(_VERSION.fullmatch, ends)):
        raise UsageError(f"{text!r} does not name versions of onnxruntime", _EXAMPLE)
    if not dots:
        return ends
    said = _run(text, sys.executable, "-m", "pip", "index", "versions", "onnxruntime")
    # "Available versions: 1.22.0, 1.21.1, ..."
    every = re.split(r"[,\s]+", "".join(re.findall(r"Available versions: (.*)", said)))
    known = sorted(filter(_VERSION.fullmatch, every), key=_numbers)
    # ends may be shorter: 1.20 means all of 1.20.x
    low, high = sorted(map(_numbers, ends))
    found = [
        v for v in known if low <= _numbers(v)[: len(low)] and _numbers(v)[: len(high)] <= high
    ]
    if len(found) < 2:
        raise UsageError(f"pip knows fewer than two versions of onnxruntime in {text}", _EXAMPLE)
    # in the direction that was asked for
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
        # the line that pip writes last is often a notice about itself
        why = next((line for line in text.splitlines() if line.startswith("ERROR")), text[-200:])
        raise UsageError(
            f"pip fails for onnxruntime {version} and this Python: {why.strip()}",
            "choose other versions, or give an environment: --a runtime=ort:python=VENV/bin/python",
        )
    return text
