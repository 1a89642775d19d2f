"""The examples of the README and of docs/, run in a folder that holds the fixtures, and the pages written anew.

A page's blocks run in order and share the folder:

- `console`: each line `$ command` is run by bash; what follows it is what it prints.
- `python`: run in one session a page; a `text` block behind it is what it prints, and what its last line gives.
- `ipython`: the same, as cells of a notebook.
- `repl`: typed in a terminal, key by key.
- any block with `title="FILE"` is written to that file.

In an output, `...` stands for anything, and a number for every number that rounding cannot tell from it.
"""

import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kit import warm

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(
    r'^```(?P<kind>\w+)(?: title="(?P<file>[^"]+)")?\n(?P<body>.*?)^```$'
    r"(?P<gap>\n+^```text\n)?(?(gap)(?P<said>.*?)^```$)",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PROMPTED = re.compile(r"^(\$|onnxdbg[^>\n]*>) (.*)\n((?:(?!onnxdbg[^>\n]*> ).*\n)*)", re.MULTILINE)
FLOAT = re.compile(r"(-?\d+\.\d+(?:e[-+]\d+)?|-?\d+e[-+]\d+|(?<![\w.%-])0(?![\w.%]))")
NOISE, CLOSE = 1e-5, 1e-3  # smaller numbers are rounding; the others have three digits in common

SCRIPT = """
import ast, contextlib, io, json, sys, traceback
space = {"__name__": "__main__"}
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            code, show = json.loads(line)
            body = ast.parse(code).body
            last = body.pop() if show and isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), "<cell>", "exec"), space)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), space)
                if value is not None:
                    print(repr(value))
        except Exception:
            traceback.print_exc(file=said)
    print(json.dumps(said.getvalue()), flush=True)
"""

NOTEBOOK = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.run_line_magic("colors", "nocolor")
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        shell.run_cell(json.loads(line)[0])
    print(json.dumps(said.getvalue()), flush=True)
"""
SESSIONS = {"python": SCRIPT, "ipython": NOTEBOOK}


@functools.cache
def commands(variables: tuple[tuple[str, str], ...]) -> warm.Commands:
    """What runs the commands of all pages."""
    return warm.Commands(dict(variables))


class Reader:
    """Someone who works through a page, in a folder of their own."""

    def __init__(self, folder: Path, anew: bool = False) -> None:
        self.folder, self.anew = folder, anew
        here = str(Path(sys.executable).parent)
        self.environment = {
            **os.environ,
            "PATH": here + os.pathsep + os.environ["PATH"],
            "COLUMNS": "80",
        }
        self.sessions: dict[str, subprocess.Popen[str]] = {}

    def close(self) -> None:
        for session in self.sessions.values():
            session.communicate()

    def page(self, text: str) -> str:
        """The page with the output that its examples have now; as it was where that says the same."""
        return BLOCK.sub(self._block, text)

    def _block(self, block: re.Match[str]) -> str:
        kind, body = block["kind"], block["body"]
        whole = block.group()
        if block["file"]:
            (self.folder / block["file"]).write_text(body)
        elif kind == "console":
            return whole.replace(body, COMMAND.sub(self._command, body))
        elif kind in SESSIONS:
            said = self._cell(kind, body, show=bool(block["gap"]))
            if block["gap"]:
                return (
                    whole.removesuffix(block["said"] + "```")
                    + shown(block["said"], said, self.anew)
                    + "```"
                )
            if said.strip():
                return whole + "\n\n```text\n" + shown("", said) + "```"
        elif kind == "repl":
            return whole.replace(body, "".join(self._session(body)))
        return whole

    def _command(self, command: re.Match[str]) -> str:
        said = self._run(command[1])
        return f"$ {command[1]}\n{shown(command[2], self._said(said), self.anew)}"

    def _run(self, line: str) -> str:
        """What a line prints: run by a shell, or without one where that is the same."""
        if words := warm.simple(line):
            return commands(tuple(self.environment.items())).run(words, self.folder)
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    def _said(self, text: str) -> str:
        """With a folder that is always the same."""
        return text.replace(str(self.folder), "/models")

    def _cell(self, kind: str, code: str, show: bool) -> str:
        if kind not in self.sessions:
            self.sessions[kind] = subprocess.Popen(
                [sys.executable, "-c", SESSIONS[kind]],
                cwd=self.folder,
                env={**self.environment, "IPYTHONDIR": str(self.folder / "ipython")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        session = self.sessions[kind]
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(json.dumps([code, show]) + "\n")
        session.stdin.flush()
        return str(json.loads(session.stdout.readline()))

    def _session(self, body: str) -> Iterator[str]:
        from kit.terminal import Terminal

        (_, command, said), *lines = PROMPTED.findall(body)
        yield f"$ {command}\n{said}"
        words = command.removeprefix("onnxdbg repl ").split()
        terminal = Terminal(*words, folder=self.folder, columns=100)
        for _, line, said in lines:
            prompt = terminal.prompt
            if line == "exit":
                terminal.leave()
                yield f"{prompt} {line}\n"
            else:
                answer = terminal.type(line).strip("\n")
                yield f"{prompt} {line}\n{shown(said, answer, self.anew)}"


def shown(expected: str, actual: str, anew: bool = False) -> str:
    """The output as the page has it where that says the same; line by line where not, and when it is made anew."""
    known = expected.splitlines()
    skips = any(line.strip() == "..." for line in known)
    if same(expected, actual) and (skips or not anew):
        return expected
    lines = []
    for line in (line.rstrip() for line in actual.splitlines()):
        old = next((k for k in known if k.strip() != "..." and same(k, line)), None)
        lines.append(line if old is None or squeezed(old) == squeezed(line) else old)
        if old is not None:
            known.remove(old)
    return "".join(f"{line}\n" for line in lines)


def same(expected: str, actual: str) -> bool:
    """Whether an output is what a page says."""
    found = re.fullmatch(pattern(expected), squeezed(actual))
    if found is None:
        return False
    free = -1  # where on a line what is allowed beside an error follows, once that is rounding: at any element
    text = squeezed(expected)
    for number, other in zip(FLOAT.finditer(text), found.groups(), strict=True):
        a, b = float(number[0]), float(other)
        beside = free >= 0 and "\n" not in text[free : number.start()]
        if not (beside or abs(a - b) <= max(NOISE, CLOSE * abs(b))):
            return False
        free = number.end() if a != b and max(abs(a), abs(b)) <= NOISE and not beside else -1
    return True


def squeezed(text: str) -> str:
    """Without the padding of tables and their rules."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line and not set(line) <= {"─"})


def pattern(expected: str) -> str:
    """`...` stands for anything, a number for any number."""
    parts = FLOAT.split(squeezed(expected))
    return "".join(
        FLOAT.pattern if number else re.escape(part).replace(r"\.\.\.", r"[\s\S]*?")
        for part, number in zip(parts, itertools.cycle((False, True)))
    )


def run_page(page: Path, folder: Path, anew: bool = False) -> str:
    """The page with the output that its examples have in a folder of fixtures."""
    shutil.copytree(ROOT / "fixtures", folder, dirs_exist_ok=True)
    reader = Reader(folder, anew)
    try:
        return reader.page(page.read_text())
    finally:
        reader.close()


def main() -> None:
    """Write the pages that are named, or all, with the output that their examples have now."""
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            text = run_page(page, Path(folder), anew=True)
        changed = text != page.read_text()
        page.write_text(text)
        print(f"{'updated' if changed else 'same   '} {page.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    main()
