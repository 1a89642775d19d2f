"""`reduce` for the terminal."""

from onnxsurgeon_lite.debug.reduction.folder import Reduction
from onnxsurgeon_lite.names import command, counted
from onnxsurgeon_lite.report.plain import out, say, say_all

_PROOF = {True: "it fails", False: "it does not fail there", None: "not run"}


def show_reduction(found: Reduction) -> None:
    """Show why the model fails, how much is left of it, and what shows the failure."""
    say_all([f"{found.reason} ({found.failed} of {found.runs} times)"])
    asked = f"asked {counted(found.calls, 'time')}; question {found.found} found the fewest nodes"
    say(f"  {found.before} -> {found.after}; {asked}")
    out(found.text)
    if not found.complete:
        why = "the time is over" if found.late else "interrupted"
        say(f"  {why}: more may be possible, with --resume")
    if found.folder:
        out(f"  folder: {found.folder!r}, with a README.md to paste into an issue")
    if found.command:
        out(
            f"  reproduce: {command(*found.command)} (in a process of its own: {_PROOF[found.proved]})"
        )
