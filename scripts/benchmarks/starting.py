"""What every command waits for."""

from pathlib import Path

from measuring import ONNXDBG, PYTHON, Command, Contest, Peer, Row, Target

_TWO_COMMANDS = '''
import typer

app = typer.Typer()


@app.command()
def one() -> None:
    """The first."""


@app.command()
def two() -> None:
    """The second."""


app()
'''


def help_page(root: Path, out: Path) -> list[Contest]:
    """What every command waits for."""
    smallest = out / "two_commands.py"
    smallest.write_text(_TWO_COMMANDS)
    ours = Command("help", [ONNXDBG, "--help"])
    peer = Command("typer, two commands", [PYTHON, smallest, "--help"])
    return [Contest(ours, (Peer(peer, (Target("time", 1.3),)),), rounds_factor=4)]


ROWS = {"help": Row("the help page", (), 1_000_000, help_page)}
