"""The shape of the house: imports point down, third parties stay in their rooms, the front door is light."""

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import onnxsurgeon_lite
from kit import ROOT, choosing
from kit.rooms import ROOMS

TESTS = ROOT / "tests"
PACKAGE = Path(onnxsurgeon_lite.__file__).parent

OWNERS = {
    "onnxruntime": {"runtime"},
    "rich": {"report"},
    "typer": {"cli"},
    "mcp": {"cli"},
    "IPython": {"repl"},
    "onnx_graphsurgeon": {"passes"},
    "torch": {"recording"},
    "fsspec": {"remote"},
    "distributed": {"runtime"},
}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


MODULES = [p for p in PACKAGE.rglob("*.py") if room_of(p) not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down_and_third_parties_stay_in_their_rooms(path):
    room = room_of(path)

    for name in imports_of(path):
        top, *rest = name.split(".")
        if top == "onnxsurgeon_lite" and rest and rest[0] in ROOMS:
            assert ROOMS.index(rest[0]) <= ROOMS.index(room), f"{room} imports {name}"
        assert room in OWNERS.get(top, {room}), f"{room} imports {name}"


def test_the_listing_is_the_order_of_imports():
    files = [p for p in PACKAGE.iterdir() if p.is_dir() or p.suffix == ".py"]
    rooms = {p.name.removesuffix(".py") for p in files if not p.name.startswith("__")}

    assert rooms == set(ROOMS)


def test_no_file_imports_itself_by_way_of_others():
    names = {p: ".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in MODULES}
    modules = {name.removesuffix(".__init__") for name in names.values()}
    imported: dict[str, set[str]] = {}
    for path, name in names.items():
        found = imports_of(path) & modules
        packages = {other.rpartition(".")[0] for other in found}
        imported[name.removesuffix(".__init__")] = (
            found - packages - {name.removesuffix(".__init__")}
        )

    graphlib.TopologicalSorter(imported).prepare()


def test_everything_public_resolves():
    for name in onnxsurgeon_lite.__all__:
        assert getattr(onnxsurgeon_lite, name) is not None


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import onnxsurgeon_lite", set()),
        (
            "import sys; sys.argv = ['onnxdbg', '--help']\n"
            "from onnxsurgeon_lite.cli.app import app\n"
            "try: app()\nexcept SystemExit: pass",
            {"typer", "rich"},
        ),
    ],
)
def test_the_front_door_loads_nothing_heavy(code, allowed):
    heavy = {
        "onnx",
        "numpy",
        "onnxruntime",
        "torch",
        "onnx_graphsurgeon",
        "typer",
        "rich",
        "IPython",
    }
    code += "\nimport sys; print('loaded', *sorted({m.split('.')[0] for m in sys.modules}))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = set(done.stdout.rpartition("loaded")[2].split())
    assert loaded & heavy <= allowed


def test_no_test_file_imports_another():
    files = [p for p in (ROOT / "tests").rglob("*.py") if "plugin" not in p.parts]
    stems = {path.stem for path in files if path.name.startswith("test_")}
    importers = [
        f"{path.relative_to(ROOT)} imports {name}: what both need belongs in tests/kit"
        for path in files
        for name in imports_of(path)
        if name.split(".")[0] in {*stems, "conftest"} or name.split(".")[-1] in stems
    ]
    assert not importers


def test_what_is_listed_as_slow_is_there():
    texts = {str(p.relative_to(TESTS)): p.read_text() for p in TESTS.rglob("test_*.py")}
    names = [name.partition("::") for name in choosing.SLOW_NAMES]

    gone = [f"{f}::{t}" for f, _, t in names if f not in texts or t and f"def {t}(" not in texts[f]]
    assert not gone, f"not in the tests any more, remove them from tests/slow.txt: {gone}"
