"""Looking for a planted node."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cutting import SESSION_AND_RUN
from measuring import (
    ONNXDBG,
    POLYGRAPHY,
    PYTHON,
    BenchError,
    Command,
    Contest,
    Peer,
    Row,
    Target,
    python,
)
from models import model_folder

_FULL = {  # memory and time of a full search, against a session and one run
    "dpt": (1.0, 2.0),
    "resnet": (1.0, 1.8),
    "vit": (0.7, 1.4),
    "gpt2": (0.7, 1.3),
}
MARK_ALL = Path(__file__).with_name("mark_all.py")
LEAST = Path(__file__).with_name("least.py")


def bisection(name: str, *targets: Target) -> Callable[[Path, Path], list[Contest]]:
    """The contests of a row that looks for a planted node."""

    def contests(root: Path, out: Path) -> list[Contest]:
        folder, target = model_folder(root, name), out / "ours"
        model, references = folder / "faulty.onnx", folder / "references.npz"
        planted = (folder / "planted.txt").read_text()
        argv = [ONNXDBG, "bisect", model, "--reference", references, "-o", target, "--force"]
        argv += ["--look", "unoptimized", "--quick"]
        ours = Command(f"bisect-{name}", argv, target, exit_code=1)
        script = [PYTHON, MARK_ALL, model, references]
        peer = Peer(Command("mark_all.py", script, exit_code=1), targets)
        return [Contest(ours, (peer,), lambda log: require_named(planted, log))]

    return contests


def triage(name: str) -> Callable[[Path, Path], list[Contest]]:
    """Three ways to look for a planted node, against opening a session and running once."""

    def contests(root: Path, out: Path) -> list[Contest]:
        folder, target = model_folder(root, name), out / "ours"
        model, references = folder / "faulty.onnx", folder / "references.npz"
        planted = (folder / "planted.txt").read_text()
        argv = [ONNXDBG, "bisect", model, "--reference", references, "-o", target, "--force"]
        plain = Command("session, run", python(SESSION_AND_RUN, model, folder / "feeds.npz"))
        least = Command("least.py", [PYTHON, LEAST, model, references], exit_code=1)
        saved = [POLYGRAPHY, "run", model, "--onnxrt", "--onnx-outputs", "mark", "all"]
        saved += ["--data-loader-script", folder / "loader.py"]
        saved += ["--load-outputs", folder / "outputs.json"]
        polygraphy = Peer(
            Command("polygraphy", saved, exit_code=1), (Target("time", 1 / 20),), True
        )

        def contest(how: str, words: list[str], memory: float, time: float, *more: Peer) -> Contest:
            ours = Command(f"{how}-{name}", [*argv, *words], target, exit_code=1)
            targets = (Target("time", time), Target("memory", memory))
            check = (lambda log: None) if how == "optimized" else partial(require_named, planted)
            return Contest(ours, (Peer(plain, targets), *more), check)

        return [
            contest("quick", ["--quick", "--look", "unoptimized"], 1.15, 1.6, polygraphy),
            contest("triage", [], *_FULL[name], Peer(least)),
            contest("optimized", ["--look", "optimized"], 1.5, 5.0),
        ]

    return contests


def require_named(planted: str, log: str) -> None:
    """The report names the value of the planted node."""
    if f" makes {planted!r}: " not in log:
        raise BenchError(
            f"the planted node makes {planted!r}, the report says: {log[:500].strip()}"
        )


ROWS = {
    "bisect-dpt": Row(
        "one wrong node in DPT, references for every value",
        ("dpt",),
        100_000_000,
        bisection("dpt", Target("time", 0.75), Target("memory", 0.4)),
    ),
    "bisect-gpt2": Row(
        "one wrong node in GPT-2, references for every value",
        ("gpt2",),
        100_000_000,
        bisection("gpt2", Target("time", 0.3), Target("memory", 0.4)),
    ),
    **{
        f"triage-{name}": Row(
            f"one wrong node in {name}: quick, in full, optimized",
            (name,),
            100_000_000,
            triage(name),
        )
        for name in ("resnet", "vit", "gpt2", "dpt")
    },
}
