"""Record a PyTorch module with the torch of another interpreter: `torch_recorder` runs there, alone."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import ModelLike, loaded
from onnxsurgeon_lite.names import command, split
from onnxsurgeon_lite.recording.from_model import Recording
from onnxsurgeon_lite.runtime.script import run_to_end

_SCRIPT = Path(__file__).with_name("torch_recorder.py")
_DONE = re.compile(r"^recorded (\d+) values in ", re.MULTILINE)
_SECONDS = 86_400.0


def record_with(
    python: str,
    factory: str,
    folder: Path,
    model: ModelLike | None,
    scopes: Sequence[str],
    operators: bool,
    program: bool,
    timeout: float | None,
) -> Recording:
    """Record what `FILE.py:factory` returns; see `from_torch.record_factory`.

    Raises:
        UsageError: there is no such interpreter, or it has no torch.
        ReferenceSetError: the module cannot be recorded, or not in time.
    """
    if shutil.which(python) is None:
        raise UsageError(f"there is no interpreter {python!r}", "write --python VENV/bin/python")
    inputs = GraphIndex.of(loaded(model)).required_inputs if model is not None else []
    options = [f"--scope={scope}" for scope in split(scopes)]
    options += [f"--input-name={name}" for name in inputs]
    options += ["--operators"] if operators else []
    options += [] if program else ["--no-program"]
    # what comes after "--" is no option, even if it begins with a dash
    words = [python, str(_SCRIPT), f"--output={folder}"] + options + ["--", factory]
    try:
        code, output = run_to_end(words, timeout or _SECONDS)
    except TimeoutError as error:
        raise ReferenceSetError(f"{python}: {error}", "allow more time with --timeout") from error
    text = output.decode(errors="replace")
    done = _DONE.search(text)
    # the recorder's notes, a line each
    if code == 0 and done is not None:
        notes = [line[6:] for line in text.splitlines() if line.startswith("note: ")]
        return Recording(int(done[1]), folder, notes)
    if "No module named 'torch'" in text:
        raise UsageError(f"{python} has no torch", command(python, "-m", "pip", "install", "torch"))
    # what torch itself prints comes before the error
    message, *hint = text.rpartition("error: ")[2].strip().splitlines() or [f"exit code {code}"]
    raise ReferenceSetError(f"{python}: {message}", "\n".join(hint) or None)
