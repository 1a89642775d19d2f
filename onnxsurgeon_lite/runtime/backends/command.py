"""Any executable as a runtime: it is given a folder, and leaves the values there.

The folder has `model.onnx`, `feeds/` (a reference folder) and `request.json`; the program leaves `values/`, a reference
folder, or `values.npz` or `values.safetensors`. It is started without a shell.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import ModelProto

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.guard import AT_START
from onnxsurgeon_lite.model import by_name
from onnxsurgeon_lite.runtime.options import TARGET
from onnxsurgeon_lite.runtime.protocol import Abilities
from onnxsurgeon_lite.system import IS_POSIX
from onnxsurgeon_lite.tensors.dtypes import RunValues, present
from onnxsurgeon_lite.tensors.references import open_references, save_tensors

_EMBEDDED = 1 << 30  # bytes of weights that a message can surely hold
_ANSWERS = ("values", "values.npz", "values.safetensors")


class Program:
    """A program; settings go to it in `request.json`, but for `inner=no`: it returns no inner values."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        # what is after the ":" of `command:./program`
        name = self._settings.pop(TARGET, "")
        self._program = shutil.which(name)
        if not self._program:
            raise UsageError(
                f"there is no program {name!r}", "write command:./program, and make it executable"
            )
        # what is left of the settings is the program's
        self.abilities = Abilities(inner=self._settings.pop("inner", "yes") != "no")

    def open(self, model: ModelProto, opt: str, threads: int) -> None:
        """Write the model; the program is started by each run."""
        self._folder = Path(tempfile.mkdtemp(prefix="job-"))
        self._asked = {"opt": opt, "threads": threads, "settings": self._settings}
        # protobuf messages hold less than 2 GiB
        large = model.ByteSize() > _EMBEDDED
        if not large:
            model = onnx.shape_inference.infer_shapes(model)
        outputs = model.graph.output
        known = by_name(model.graph.value_info)
        for inner in outputs:  # inner values that are outputs now get their types
            if inner.name in known:
                inner.CopyFrom(known[inner.name])
        # sequences come back as one array, with a row for each element
        self._sequences = {o.name for o in outputs if o.type.HasField("sequence_type")}
        onnx.save(model, self._folder / "model.onnx", save_as_external_data=large)

    def run(self, feeds: RunValues, fetch: Sequence[str]) -> RunValues:
        """Start the program, and return what it leaves of the wanted values."""
        # answers of the run before must not be taken for those of this one
        for old in ("feeds",) + _ANSWERS:
            path = self._folder / old
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        save_tensors(self._folder / "feeds", present(feeds))
        request = json.dumps({"wanted": list(fetch), **self._asked})
        (self._folder / "request.json").write_text(request, encoding="utf-8")
        self._start()
        # the first of the three kinds of answer that is there
        place = next((p for name in _ANSWERS if (p := self._folder / name).exists()), None)
        if place is None:
            return {}
        left = open_references(place)
        values = {name: left.read(name) for name in fetch if name in left}
        rows = self._sequences & values.keys()
        return values | {name: list(values[name]) for name in rows if values[name] is not None}

    def _start(self) -> None:
        """Run the program; die as it does where a signal ends it.

        Raises:
            RuntimeError: it ends with another exit code than 0.
        """
        with tempfile.TemporaryFile() as log:
            done = subprocess.run(
                [str(self._program), str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                preexec_fn=AT_START,
            )
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()[-1:]
        code = done.returncode
        # -9 from the system, 137 from a shell: both mean SIGKILL
        ended_by = -code if code < 0 else code - 128  # a shell adds 128
        if IS_POSIX and ended_by > 0:
            print(*said, file=sys.stderr, flush=True)  # noqa: T201  the log of this process
            # this process dies by the signal of the program, so that the caller sees a crash of the runtime
            number = ended_by if ended_by in set(signal.Signals) else signal.SIGKILL
            # a handler of Python's, such as that of SIGINT, must not swallow it
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if code:
            raise RuntimeError(": ".join([f"the program ended with exit code {code}"] + said))
