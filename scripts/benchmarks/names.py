"""Names across exports: matching two models, recording from PyTorch."""

import shlex
from pathlib import Path

from cutting import SESSION_AND_RUN
from measuring import MB, ONNXDBG, BenchError, Command, Contest, Peer, Row, Target, python
from models import model_folder

_FORWARD = """
import sys
import torch
sys.path.insert(0, sys.argv[1])
from factory import factory
module, args = factory()
with torch.no_grad():
    module.eval()(*args)
block = bytes(1 << 20)
left = int(sys.argv[2])
with open(sys.argv[3], "wb") as file:
    while left > 0:
        left -= file.write(block[:left])
"""


def matching(root: Path, out: Path) -> list[Contest]:
    """Two models of one content and other names, against one plain run of each."""
    folder = model_folder(root, "twins")
    models = [folder / "a.onnx", folder / "b.onnx"]
    argv = [ONNXDBG, "match", *models, "--feeds", folder / "feeds.npz"]
    ours = Command("match", [*argv, "--save", out / "map.json", "--force"])
    runs = (python(SESSION_AND_RUN, model, folder / "feeds.npz") for model in models)
    plain = Command(
        "run each", ["/bin/sh", "-c", " && ".join(shlex.join(map(str, r)) for r in runs)]
    )
    peer = Peer(plain, (Target("time", 3.0), Target("memory", 1.2)))
    return [Contest(ours, (peer,), _require_all_matched)]


def recording(root: Path, out: Path) -> list[Contest]:
    """What GPT-2's modules return, against its forward pass and a file of as many bytes."""
    folder = model_folder(root, "gpt2-module")
    size = (folder / "size.txt").read_text()
    argv = [ONNXDBG, "record", f"{folder / 'factory.py'}:factory", "-o", out / "refs"]
    ours = Command("record", argv, out / "refs")
    plain = Command("forward, write", python(_FORWARD, folder, size, out / "bytes"))
    return [Contest(ours, (Peer(plain, (Target("time", 1.3), Target("memory", 1.2))),))]


def _require_all_matched(log: str) -> None:
    if "a has 3000 computed values, 0 unmatched; b has 3000, 0 unmatched" not in log:
        raise BenchError(f"not everything is matched: {log[-500:].strip()}")


ROWS = {
    "match": Row("match two models of 3000 nodes", ("twins",), int(MB), matching),
    "record": Row("record GPT-2's modules by hooks", ("gpt2-module",), int(1000 * MB), recording),
}
