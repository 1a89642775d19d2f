"""What is typed: names that a shell or Python would run, completed for bash, and in command lines of the prompt.

A completed word is the name, as bash itself reads the line; nothing in a name is run.
"""

import argparse
import builtins
import contextlib
import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import onnx
import typer
from onnx import helper

from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.cli.completion import answer
from onnxsurgeon_lite.repl.commands import COMMANDS
from onnxsurgeon_lite.repl.completion import complete
from onnxsurgeon_lite.repl.opening import open_session
from onnxsurgeon_lite.repl.script import run_script

if TYPE_CHECKING:
    from __main__ import Attack

_EVIL = '__import__("builtins").ran.append(1)'
_PIECES = (
    "$(touch ran)", "`touch ran`", "${IFS}", ";touch ran", "&&", "|", ">ran", "'", '"', "\\", "!", "!!", "~", "-", "=",
    ":", ",", "@", "*", "[a]", "{a,b}", "#", "^", " ", "a", "bc", "é", "(", ")", "%", "$HOME", "0", ".", "/", "\n",
    "\x1b[0m",
)  # fmt: skip
_PYTHON = (
    _EVIL, f"({_EVIL})", f"[{_EVIL}]", f"{{{_EVIL}}}", f"; {_EVIL}", f" = {_EVIL}", f" if {_EVIL}", f", {_EVIL}",
    f" or {_EVIL}", f'"]; {_EVIL} #', f"'); {_EVIL} #", f"- {_EVIL}", "a", "x", " ", ",", "if", "=", ";", "1", ".",
    "(", ")", "[", "]", "!", "'",
)  # fmt: skip
_BEGINNINGS = ('graph["', "dbg['", 'dbg.read("', "graph.find(name='", "model.rename(x, '")
_BATCH = 250


def _name(draw: Random, pieces: tuple[str, ...]) -> str:
    return "".join(draw.choices(pieces, k=draw.randint(1, 6)))


def _save(names: list[str], inside: list[str]) -> None:
    """Save a model with values of these names, and some in the branches of an If."""
    value = lambda name, kind=1: helper.make_tensor_value_info(name, kind, [1])  # noqa: E731
    nodes = [helper.make_node("Relu", ["in"], [name], f"{name} ") for name in names]
    if inside:
        inner = [helper.make_node("Neg", ["in"], [name], f"{name}  ") for name in inside]
        body = helper.make_graph(inner, "b", [], [value(inside[0])])
        nodes.append(helper.make_node("If", ["flag"], ["out"], then_branch=body, else_branch=body))
    ends = ["out"] if inside else names
    graph = helper.make_graph(nodes, "g", [value("in"), value("flag", 9)], list(map(value, ends)))
    onnx.save(helper.make_model(graph, ir_version=8), "m.onnx")


def _typed(name: str, draw: Random) -> tuple[str, str]:
    """(the beginning of a name as somebody types it, the part of it that bash asks for)."""
    begun = name[: draw.randint(0, len(name))]
    match draw.choice(("", "'", '"')):
        case "'" if "'" not in begun:
            return f"'{begun}", begun
        case '"' if not set(begun) & {*'$`"\\!'}:
            return f'"{begun}', begun
    text = "".join(c if c.isalnum() or c in ":=@," else f"\\{c}" for c in begun)
    start = max(text.rfind(sign) + 1 for sign in ":=")
    return text, text[start:]


def completed(draw: Random, group: object) -> tuple[str, str] | None:
    """(a name, the line that completing it gives); None where it is not offered."""
    name = _name(draw, _PIECES)
    _save([name], [])
    typed, part = _typed(name, draw)
    line = f"onnxdbg edit pad-outputs m.onnx --outputs {typed}"
    os.environ.update(_ONNXDBG_LINE=line, _ONNXDBG_WORD=part)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        answer("bash", group)
    words = said.getvalue().splitlines()
    return (name, line.removesuffix(part) + words[0]) if len(words) == 1 else None


def _run_by_bash(lines: list[tuple[str, str]]) -> Iterator[str]:
    """What is wrong with lines as bash reads them, history and all."""
    text = "".join(f"{line}\n" for _, line in lines)
    Path("lines").write_text(
        f"set -o history -H\nonnxdbg() {{ printf '%s\\0' \"${{@: -1}}\"; }}\n{text}"
    )
    done = subprocess.run(["bash", "lines"], capture_output=True, text=True, check=False)
    read = done.stdout.split("\0")[:-1]
    if len(read) != len(lines):
        yield f"{len(read)} of {len(lines)} lines: {done.stderr[-500:]}"
    for word, (name, line) in zip(read, lines, strict=False):
        if word != name:
            yield f"{line!r} is {word!r}, not {name!r}"
    if Path("ran").exists():
        yield "something ran"


def prompted(draw: Random) -> tuple[int, list[str]]:
    """(how many lines were typed at the prompt of a model, those that ran what a name says)."""
    names = list(dict.fromkeys(_name(draw, _PYTHON) for _ in range(12)))
    _save(names[:6], names[6:])
    wrong, count = list[str](), 0
    with (session := open_session("m.onnx")).dbg:
        for name in names:
            word = draw.choice(
                [
                    w
                    for w in COMMANDS
                    if w not in ("run", "continue", "quit", "why", "onnxdbg", "save", "export")
                ]
            )
            before = draw.choice(("", "", "in, ", "@6/then_branch/"))
            lines = [
                f"{word} {before}{name}{draw.choice(('', ' = 3', '; where', ', in', ' if iteration'))}"
            ]
            beginning = draw.choice((f"{word} {before}", *_BEGINNINGS)) + name[: draw.randint(0, 2)]
            typed, offered = complete(session, beginning) or ("", [])
            lines += [
                beginning.removesuffix(typed) + each + draw.choice(("", '"]', "')"))
                for each in offered
            ]
            for line in lines:
                count += 1
                with (
                    contextlib.redirect_stdout(io.StringIO()),
                    contextlib.redirect_stderr(io.StringIO()),
                ):
                    run_script(session, [line])
                if builtins.ran:
                    builtins.ran.clear()
                    wrong.append(line)
    return count, wrong


def mutants_of(attack: "Attack", _: dict[str, bytes], given: argparse.Namespace) -> Iterator[None]:
    """Complete names for bash, and type them at the prompt, as many of each."""
    os.chdir(attack.folder)
    builtins.ran = []
    group = typer.main.get_command(app)
    lines: list[tuple[str, str]] = []
    for number in range(given.first, given.first + given.mutants):
        draw = Random(f"{given.seed}/{number}")
        attack.counts["names completed"] += 1
        if found := completed(draw, group):
            lines.append(found)
        if attack.counts["lines at the prompt"] < attack.counts["names completed"]:
            count, wrong = prompted(draw)
            attack.counts["lines at the prompt"] += count
            for line in wrong:
                attack.keep(f"prompt-{given.seed}-{number}", b"", f"it ran: {line!r}")
        if len(lines) == _BATCH or number == given.first + given.mutants - 1:
            for problem in _run_by_bash(lines):
                attack.keep(f"completed-{given.seed}-{number}", b"", problem)
            attack.counts["lines read by bash"] += len(lines)
            lines.clear()
        yield
