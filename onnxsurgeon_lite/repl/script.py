"""A session without a prompt: commands and Python from the command line or standard input, stopping at an error."""

import ast
import codeop
import sys
import traceback
from collections.abc import Collection, Iterable

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.repl.commands import do, words
from onnxsurgeon_lite.repl.session import PromptSession
from onnxsurgeon_lite.repl.words import closest, command_of, split
from onnxsurgeon_lite.report import plain


def run_script(session: PromptSession, source: Iterable[str]) -> bool:
    """Run lines; return whether all went well. An error ends it, and is shown with the user's line."""
    pending = ""
    for line in source:
        if session.left:
            return True
        text = line.rstrip("\n")
        # lines are gathered until they are a command, or complete Python
        pending = f"{pending}\n{text}" if pending else text
        if pending.strip() and _is_complete(session, pending):
            if not _run(session, pending):
                return False
            pending = ""
    return not pending.strip() or _run(session, pending)


def _is_complete(session: PromptSession, text: str) -> bool:
    if "\n" not in text and _commands(session, text) is not None:
        return True
    try:
        # a block of several lines ends with an empty one, as at Python's prompt
        return codeop.compile_command(text.removeprefix("!"), symbol="exec") is not None and (
            "\n" not in text or text.endswith("\n")
        )
    except (SyntaxError, ValueError, OverflowError):
        return True


def _commands(session: PromptSession, line: str) -> list[str] | None:
    """Return the parts of a line, None if none is a command."""
    known = words(session)
    names = session.names.every
    parts = split(line, names)
    return parts if any(command_of(part, known, names) for part in parts) else None


def _run(session: PromptSession, text: str) -> bool:
    parts = None if "\n" in text.strip() else _commands(session, text.strip())
    for part in parts or [text.strip("\n")]:
        if session.left:
            break
        try:
            _run_one(session, part, alone=parts is not None)
        except Exception as error:  # noqa: BLE001  the user's own code
            show_problem(error, words(session))
            return False
    return True


def _run_one(session: PromptSession, text: str, alone: bool) -> None:
    command = command_of(text, words(session), session.names.every) if alone else None
    if command is not None:
        do(session, *command)
        return
    tree = ast.parse(text.removeprefix("!"), "<input>")
    # the value of the last expression is shown, as at Python's prompt
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<input>", "exec"), session.namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<input>", "eval"), session.namespace)
        session.tell_made()
        session.show(value)


def show_problem(error: BaseException, known: Collection[str] = ()) -> None:
    """Show an error of this library in its words, another from the user's line down."""
    match error:
        case SurgeonError():
            plain.show_error(error)
        case KeyboardInterrupt():
            plain.show_interrupted(error)
        case _:
            advise(error, known)
            trace = error.__traceback__
            # begin at the user's line
            while trace is not None and trace.tb_frame.f_code.co_filename != "<input>":
                trace = trace.tb_next
            sys.stderr.writelines(traceback.format_exception(type(error), error, trace))


def advise(error: BaseException, known: Collection[str]) -> None:
    """Say which command a word that Python does not know may mean."""
    meant = closest(error.name, known) if isinstance(error, NameError) and error.name else []
    if meant:
        error.add_note(f"closest commands: {', '.join(map(repr, meant))}")
