"""The debugger: opening a large graph, looking around in it, running and stepping through a large model."""

from pathlib import Path

from cutting import SESSION_AND_RUN
from measuring import ONNXDBG, PYTHON, Command, Contest, Peer, Row, Target, python
from models import model_folder

_PROMPT, _LOOKING, _TYPIST = (
    Path(__file__).with_name(name) for name in ("prompt.py", "looking.py", "typist.py")
)

# what opening may take: twice onnx.load in a process, and IPython's own start
_ALLOWED = """
import subprocess, sys
python, prompt, model = sys.argv[1:]
for _ in range(2):
    subprocess.run([python, "-c", "import sys, onnx; onnx.load(sys.argv[1])", model], check=True)
subprocess.run([python, prompt, "In [", python, "-m", "IPython", "--no-banner"], check=True)
"""


def opening(root: Path, out: Path) -> list[Contest]:
    """Until the prompt."""
    model = model_folder(root, "chain") / "model.onnx"
    ours = Command("repl-open", [PYTHON, _PROMPT, "onnxdbg>", ONNXDBG, "repl", model])
    peer = Command("2 onnx.load, IPython", python(_ALLOWED, PYTHON, _PROMPT, model))
    return [Contest(ours, (Peer(peer, (Target("time", 1.0),)),))]


def looking(root: Path, out: Path) -> list[Contest]:
    """Judges of their own: they fail when a look or a completion takes long, asked for again or as the first."""
    peer = Peer(Command("nothing", python("pass")), once=True)
    scripts = {"repl-look": _LOOKING, "repl-type": _TYPIST}
    return [Contest(Command(label, [PYTHON, path]), (peer,)) for label, path in scripts.items()]


def running(root: Path, out: Path) -> list[Contest]:
    """To the middle and twenty nodes from the start, the program's own start included."""
    folder = model_folder(root, "gpt2")
    model, feeds = folder / "faulty.onnx", folder / "feeds.npz"
    plain = Command("session, run", python(SESSION_AND_RUN, model, feeds))
    memory = Target("memory", 1.5)

    def contest(label: str, commands: str, time: float) -> Contest:
        argv = [ONNXDBG, "repl", model, "--feeds", feeds, "-c", commands]
        peer = Peer(plain, (Target("time", time), memory))
        return Contest(Command(label, argv), (peer,))

    return [
        contest("repl-middle", "break op:LayerNormalization[12]; run", 1.3 / 2),
        contest("repl-next", "next 20", 1.0),
    ]


ROWS = {
    "repl-open": Row("opening 50 000 nodes at the prompt", ("chain",), 1_000_000, opening),
    "repl-look": Row("looking around in 50 000 nodes", (), 10_000_000, looking),
    "repl-run": Row("running and stepping through GPT-2", ("gpt2",), 1_000_000, running),
}
