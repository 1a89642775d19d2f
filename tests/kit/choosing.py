"""Which tests run: what a file needs beyond the extra `quick`, and which tests are slow.

`python tests/kit/choosing.py PATH...` prints the extra that the tests of these files and folders need.
"""

import functools
import re
import sys
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).parents[1]
SLOW = TESTS / "slow.txt"
# FOLDER/test_FILE.py, or a test of it: ...py::test_NAME
SLOW_NAMES = frozenset(SLOW.read_text().split())
FAST_SECONDS = 130  # of processor time, in all: 90 s on two cores, with the start of two processes

# What the extra `test` has and `quick` lacks; a module of the kit stands for what it imports.
LARGE = {
    "torch": ["torch"],
    "transformers": ["transformers"],
    "onnxscript": ["onnxscript"],
    "onnx_ir": ["onnxscript"],
    "captum": ["captum"],
    "mcp": ["mcp"],
    "plotly": ["plotly", "igraph"],
    "playwright": ["playwright"],
    "fsspec": ["aiohttp", "s3fs"],
    "openvino": ["openvino"],
    "distributed": ["distributed"],
    "onnxsurgeon_lite.recording.torch_recorder": ["torch"],
    "onnxruntime_genai": ["torch", "transformers", "onnxruntime_genai"],
    "kit.faults": ["torch", "transformers"],
    "kit.browsing": ["playwright", "plotly", "igraph"],
}
# What a file runs in other processes, or imports late, shows in no import at its top: each process imports all files.
RUN = {
    "test_assistant.py": ["mcp"],
    "test_fixtures.py": ["torch", "onnxscript", "transformers"],
    "test_pages.py": ["torch", "onnxscript", "transformers", "plotly", "igraph", "distributed"],
    "test_page.py": ["plotly", "igraph"],
    "test_attribution.py": ["torch", "captum"],
}
# The longest files that need more than the extra `quick`.
LONG = {"test_pages.py", "test_shape_exports.py", "test_faults.py", "test_trust.py"}
IMPORTED = rf"(?:import|from) ({'|'.join(map(re.escape, LARGE))})\b"
SKIPPED = rf'importorskip\("({"|".join(map(re.escape, LARGE))})\b'


@functools.cache
def needed(path: Path, inside: bool = False) -> set[str]:
    """Return the packages without which no test of a file runs; `inside`: those of single tests, too."""
    start, skipped = (r"^\s*", SKIPPED) if inside else ("^", rf"^(?:\w+ = )?pytest\.{SKIPPED}")
    found = re.findall(f"{start}{IMPORTED}|{skipped}", path.read_text(), re.MULTILINE)
    names = {name for match in found for name in match if name}
    return {*RUN.get(path.name, ())}.union(*(LARGE[name] for name in names))


def left_out() -> list[Path]:
    """Return the test files that need what is not installed."""
    files = sorted(TESTS.rglob("test_*.py"))
    return [path for path in files if not all(map(find_spec, needed(path)))]


def named(nodeid: str) -> str:
    """Return a test without its parameters, from the folder of all tests."""
    return nodeid.partition("[")[0].removeprefix("tests/")


def is_slow(path: Path, nodeid: str = "") -> bool:
    """Return whether a file, or one test of it, is slow or needs more than the extra `quick`."""
    file = str(path.relative_to(TESTS))
    return not SLOW_NAMES.isdisjoint((file, named(nodeid))) or bool(needed(path))


def write_slow(timed: Iterable[tuple[str, float]]) -> None:
    """Write which tests are slow: all but the quickest, as many as run in `FAST_SECONDS` together."""
    seconds: Counter[str] = Counter()
    for nodeid, own in timed:
        name = named(nodeid)
        if not needed(TESTS / name.partition("::")[0]):
            seconds[name] += own

    total, names = 0.0, []
    for name, own in sorted(seconds.items(), key=lambda item: item[1]):
        total += own
        if total > FAST_SECONDS:
            names.append(name)
    SLOW.write_text("".join(f"{name}\n" for name in sorted(names)))


def extra(paths: Iterable[Path]) -> str:
    """Return the extra of pyproject.toml that the tests of files and folders need."""
    files = [
        file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    ]
    return "test" if any(needed(file, inside=True) for file in files) else "quick"


if __name__ == "__main__":
    print(extra(Path(name.partition("::")[0]) for name in sys.argv[1:]))  # noqa: T201
