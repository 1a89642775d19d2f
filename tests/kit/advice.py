"""Follow the advice of every error that a test sees: the command exists, takes its options, and leads on.

A command without placeholders other than MODEL is run where the one that failed ran, once for each kind of advice.
"""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import typer
from typer.testing import CliRunner

from kit import COMMAND
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import SurgeonError

_NAMED = re.compile(r"onnxdbg ([a-z][a-z0-9-]*(?: .*)?)")
_ESCAPED = re.compile(r"\$'((?:[^'\\]|\\.)*)'")  # how bash quotes control characters
_ENDS = re.compile(
    r"; | \(or |, (?=[a-z])| (?=(?:shows|declares|computes|repairs|removes|keeps)\b)|`"
)
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_0-9:.]+|\.\.\.|.*=NAME")
_GROUPS = ("edit", "data")
_WRITING = ("edit", "extract", "merge", "expose", "split")
_INVOKE, _RUN = CliRunner.invoke, subprocess.run


@dataclass(frozen=True)
class Advice:
    """A command that an error offers.

    Attributes:
        words: of the command, without `onnxdbg`.
        given: of the command that failed; empty where a function did. folder: where it ran.
    """

    words: tuple[str, ...]
    given: tuple[str, ...]
    folder: str

    @property
    def kind(self) -> tuple[str, ...]:
        """What is equal for the same advice to the same command."""
        options = (word.partition("=")[0] for word in self.words if word.startswith("-"))
        names = (
            words[: 1 + (words[:1] in (("edit",), ("data",)))] for words in (self.given, self.words)
        )
        return ("after", *next(names), "follows", *next(names), *options)

    def problem(self, out: Path) -> str:
        """Say why the advice leads nowhere; '' if it leads on."""
        wrong = self._unknown() or self._followed(out)
        return f"onnxdbg {shlex.join(self.words)}: {wrong}" if wrong else ""

    def _unknown(self) -> str:
        """Say what of the command does not exist."""
        command = typer.main.get_command(app)
        for name in self.words[: 1 + (self.words[0] in _GROUPS)]:
            command = getattr(command, "commands", {}).get(name)
            if command is None:
                return f"there is no command {name!r}"
        known = {
            each for option in command.get_params(typer.Context(command)) for each in option.opts
        }
        options = {word.partition("=")[0] for word in self.words if word.startswith("--")}
        return ", ".join(f"there is no option {option}" for option in sorted(options - known))

    def _followed(self, out: Path) -> str:
        """Run the command, if nothing of it is left to fill in; say how it fails."""
        model = next((word for word in self.given if word.endswith(".onnx")), "")
        words = [model if word == "MODEL" else word for word in self.words]
        is_whole = len(words) > 1 + (words[0] in _GROUPS)
        if not model or not is_whole or any(map(_PLACEHOLDER.fullmatch, words)):
            return ""
        # what it names may be there since the test ran it
        if "-o" in words:
            words[words.index("-o") + 1] = str(out)
        elif words[0] in _WRITING:
            words += ["-o", str(out)]
        out.unlink(missing_ok=True)
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            done = _INVOKE(CliRunner(), app, words)
        finally:
            os.chdir(before)
        return "" if done.exit_code in (0, 1) else f"ends with {done.exit_code}: {done.output}"


def _unescaped(quoted: re.Match[str]) -> str:
    return shlex.quote(quoted[1].encode().decode("unicode_escape"))


def offered(text: str, given: tuple[str, ...] = ()) -> list[Advice]:
    """Return the commands that a hint, or what a failed command printed, offers."""
    found = []
    for named in _NAMED.findall(text):
        try:
            line = _ESCAPED.sub(_unescaped, _ENDS.split(named)[0].rstrip(",.)"))
            words = tuple(shlex.split(line))
        except ValueError:  # the name of something else in quotes
            continue
        found.append(Advice(words, given, os.getcwd()))
    return found


class Listener:
    """Hears the advice of the errors that are made and of the commands that fail."""

    def __init__(self) -> None:
        self._heard: list[Advice] = []
        self._followed: set[tuple[str, ...]] = set()

    def listen(self) -> None:
        """Begin."""
        listener, make = self, SurgeonError.__init__

        def made(error: SurgeonError, message: str, hint: str | None = None) -> None:
            make(error, message, hint)
            listener._heard += offered(hint or "")

        def invoke(
            runner: CliRunner, app: typer.Typer, args: object = None, **how: object
        ) -> object:
            done = _INVOKE(runner, app, args, **how)
            words = tuple(map(str, shlex.split(args) if isinstance(args, str) else args or ()))
            listener._hear(words, done.exit_code, done.output)
            return done

        def run(args: object, *rest: object, **how: object) -> object:
            done = _RUN(args, *rest, **how)
            if isinstance(args, list) and args[: len(COMMAND)] == COMMAND and "cwd" not in how:
                text = done.stderr or ""
                text = text.decode(errors="replace") if isinstance(text, bytes) else text
                listener._hear(tuple(map(str, args[len(COMMAND) :])), done.returncode, text)
            return done

        SurgeonError.__init__ = made
        CliRunner.invoke = invoke
        subprocess.run = run

    def _hear(self, words: tuple[str, ...], code: int, text: str) -> None:
        hints = [line for line in text.splitlines() if line.startswith("  ")]
        self._heard += (each for line in hints for each in offered(line, words) if code == 2)

    def problems(self, out: Path) -> list[str]:
        """Follow what was heard since the last time; say what leads nowhere."""
        heard, self._heard = self._heard, []
        found = []
        for each in heard:
            if each.kind not in self._followed and Path(each.folder).is_dir():
                self._followed.add(each.kind)
                found += filter(None, [each.problem(out)])
        self._heard.clear()  # what following it made
        return found
