"""Packages of onnxruntime-genai's own builder, of random weights: `python -m kit.builder FOLDER` makes them all."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# family, precision, settings of its config.json
PACKAGES: Mapping[str, tuple[str, str, Mapping[str, object]]] = {
    "Llama fp32": ("Llama", "fp32", {}),
    "Llama int4": ("Llama", "int4", {}),
    "Qwen2 fp32": ("Qwen2", "fp32", {}),
    "Qwen2 int4": ("Qwen2", "int4", {}),
    "Mistral fp16": ("Mistral", "fp16", {}),
    "Mistral with a window": ("Mistral", "fp32", {"sliding_window": 4}),
    "Gemma2 fp32": ("Gemma2", "fp32", {}),
    "Gemma2 int4": ("Gemma2", "int4", {}),
    "Qwen3 fp32": ("Qwen3", "fp32", {}),  # norms of queries and keys: projections are not packed
    "Phi3 fp32": ("Phi3", "fp32", {}),
    "Phi3 int4": ("Phi3", "int4", {}),
}


def built(folder: Path) -> None:
    """Make the packages in another process: what the builder imports takes longer than what it does."""
    command = [sys.executable, "-m", "kit.builder", folder]
    subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, check=True)


def _main(folder: Path) -> None:
    sys.path.append(str(Path(__file__).parents[2] / "scripts" / "packages"))
    from subjects import package

    for name, (family, precision, settings) in PACKAGES.items():
        package(family, precision, folder / name, **settings)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    _main(Path(sys.argv[1]))
