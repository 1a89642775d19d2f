"""What is shipped: the wheel alone runs, and the versions that are promised are those that are tested."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_wheel_alone_runs_the_demo(tmp_path):
    """Its dependencies are those of this environment; `scripts/wheel` installs them anew."""
    source, wheels, empty = tmp_path / "source", tmp_path / "wheels", tmp_path / "empty"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "onnxsurgeon_lite", source / "onnxsurgeon_lite")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index"]

    subprocess.run(
        [*pip, "wheel", *alone, "--no-build-isolation", "-w", wheels, source], check=True
    )
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", *alone, "--target", empty, wheel], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "onnxsurgeon_lite", "demo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(empty)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "wrong node: Conv (@6) makes '27'" in done.stdout
    assert not (empty / "tests").exists()
    assert {p.name for p in (empty / "onnxsurgeon_lite").glob("*.pyi")} == {"__init__.pyi"}


def test_the_oldest_versions_are_the_least_that_are_allowed():
    promised = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cpu"]]
    least = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(promised), re.MULTILINE))
    tested = dict(
        re.findall(
            r"^([\w-]+)==([\d.]+)",
            "\n".join(PROJECT["optional-dependencies"]["oldest"]),
            re.MULTILINE,
        )
    )

    assert least.keys() == tested.keys() == {re.split(r"[<>=]", d)[0] for d in promised}
    assert all(
        f"{tested[name]}.".removesuffix(".0.").startswith(version.removesuffix(".0"))
        for name, version in least.items()
    )


def test_the_version_has_an_entry_in_the_changelog():
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()
