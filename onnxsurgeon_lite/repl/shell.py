"""The prompt: an IPython shell that knows the commands. The only importer of IPython."""

import re
import sys
from collections.abc import Callable, Collection
from types import TracebackType

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.interactiveshell import InteractiveShell
from IPython.lib.pretty import RepresentationPrinter
from IPython.terminal.interactiveshell import TerminalInteractiveShell
from IPython.terminal.prompts import Prompts
from pygments.token import Token
from traitlets.config import Config

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.repl.commands import do, words
from onnxsurgeon_lite.repl.completion import beginning, complete
from onnxsurgeon_lite.repl.preparing import Preparation, start
from onnxsurgeon_lite.repl.script import advise, show_problem
from onnxsurgeon_lite.repl.session import PromptSession, print_result
from onnxsurgeon_lite.repl.words import command_of, split
from onnxsurgeon_lite.report import plain as lines
from onnxsurgeon_lite.report.debugging import text_of
from onnxsurgeon_lite.report.page import notebook

_DO = "__onnxdbg__"
_SESSION = "__onnxdbg_session__"
_PATIENCE = 0.5  # seconds until the prompt is there
_PYTHON = re.compile(r"!\s*(\w+)")


def run_shell(session: PromptSession) -> None:
    """Read, do, show, until the user leaves."""
    config = Config()
    config.TerminalInteractiveShell.confirm_exit = False
    config.TerminalInteractiveShell.banner1 = ""
    config.TerminalInteractiveShell.term_title = False
    config.Completer.use_jedi = False  # a second of imports; the objects know more
    shell = TerminalInteractiveShell.instance(config=config, user_ns=session.namespace)
    shell.prompts = _PlacePrompt(shell, session)
    install(shell, session).begin(_PATIENCE)
    start(lambda: session.verbs.complete([], ""), _PATIENCE)  # the first one takes a moment
    session.leave = shell.ask_exit
    lines.out(f"{session.model!r}\nhelp lists the commands; quit leaves")
    shell.mainloop()
    shell.atexit_operations()


def install(shell: InteractiveShell, session: PromptSession) -> Preparation:
    """Make a shell read the commands of a session, complete them and show their results.

    A session that the shell had before loses them.
    """
    # a shell has one session; the hooks below look it up by this name
    before = shell.user_ns.get(_SESSION)
    names = session.namespace | {_DO: _doer(session), _SESSION: session}
    shell.push(names, interactive=False)
    session.namespace = session.dbg.names = shell.user_ns
    session.show = _shower(shell)
    preparation = Preparation(lambda: (_current(shell).graph, _current(shell).names))
    # a second `%onnxdbg` in a notebook: all is installed already
    if isinstance(before, PromptSession):
        before.dbg.runtime.__exit__()
        return preparation
    # before IPython's own transformers: a line of ours is no Python yet
    shell.input_transformers_cleanup.insert(
        0, lambda cell: transformed(cell, words(_current(shell)), _current(shell).names.every)
    )
    shell.Completer.custom_matchers.append(_matcher(shell))
    shell.set_custom_exc((SurgeonError, KeyboardInterrupt, NameError), _show_error)
    shell.events.register("post_run_cell", lambda _: preparation.begin())
    for kind in notebook.KINDS:
        _format(shell, kind)
    return preparation


def _current(shell: InteractiveShell) -> PromptSession:
    """The session that was opened last."""
    session = shell.user_ns[_SESSION]
    assert isinstance(session, PromptSession)
    return session


def transformed(cell: list[str], known: Collection[str], names: Collection[str] = ()) -> list[str]:
    """Turn a cell of one line that is a command into the Python that runs it; leave any other.

    Args:
        names: those of the model.
    """
    text = "".join(cell).strip()
    if "\n" in text:
        return cell
    python = _PYTHON.match(text)
    # `!next(x)`: Python although `next` is a command
    if python and python[1] in known:
        return [f"{text[1:].strip()}\n"]
    parts = [(part, command_of(part, known, names)) for part in split(text, names)]
    if not any(command for _, command in parts):
        return cell
    # `next; x = 1` -> `__onnxdbg__('next'); x = 1`
    calls = (f"{_DO}({text!r})" if command else text for text, command in parts)
    return ["; ".join(calls) + "\n"]


def _doer(session: PromptSession) -> Callable[[str], None]:
    """Return the function that runs the line of a command; it shows errors itself."""

    def run(text: str) -> None:
        command = command_of(text, words(session), session.names.every)
        try:
            if command is not None:
                do(session, *command)
        except Exception as error:  # noqa: BLE001  the user's own code, or an error with its own words
            show_problem(error, words(session))

    return run


def _shower(shell: InteractiveShell) -> Callable[[object], None]:
    """Return the function that shows a result: as HTML in a notebook, else as text."""

    def show(result: object) -> None:
        # only the shell of a notebook has a kernel
        if shell.display_formatter is not None and hasattr(shell, "kernel"):
            from IPython.display import display

            display(result)
        else:
            print_result(result)

    return show


def _matcher(shell: InteractiveShell) -> object:
    """Return the function that completes names and commands, as IPython calls it."""

    def onnxdbg_matcher(context: CompletionContext) -> object:
        text = context.line_with_cursor[: context.cursor_position]
        found = complete(_current(shell), text) if "\n" not in context.full_text else None
        if found is None:
            # the first word of the cell may become a command; Python completes as well
            begun = beginning(_current(shell), text) if context.cursor_line == 0 else []
            return {"completions": [SimpleCompletion(word) for word in begun]}
        typed, names = found
        return {
            "completions": [SimpleCompletion(name, type="name") for name in names],
            "matched_fragment": typed,
            "suppress": True,
        }

    return context_matcher()(onnxdbg_matcher)


def _show_error(
    shell: InteractiveShell,
    kind: type,
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    """Show an error without a traceback; for a name unknown to Python, IPython's with the closest commands."""
    if isinstance(error, NameError):
        advise(error, words(_current(shell)))
        traceback = shell.InteractiveTB
        said = traceback.structured_traceback(kind, error, trace, tb_offset)
        sys.stderr.write(f"{traceback.stb2text(said)}\n")
    else:
        show_problem(error)


def _format(shell: InteractiveShell, kind: type) -> None:
    """Make a shell show results of a class as our text and HTML."""
    if shell.display_formatter is None:
        return

    def plain(result: object, printer: RepresentationPrinter, cycle: bool) -> None:
        text = text_of(result)
        printer.text(text if text is not None else repr(result))

    formatters = shell.display_formatter.formatters
    formatters["text/plain"].for_type(kind, plain)
    formatters["text/html"].for_type(kind, notebook.html_of)


class _PlacePrompt(Prompts):
    """The prompt with the place of the debugger: `onnxdbg @6> `."""

    def __init__(self, shell: TerminalInteractiveShell, session: PromptSession) -> None:
        super().__init__(shell)
        self.session = session

    def in_prompt_tokens(self) -> list[tuple[object, str]]:
        place = shown(self.session.dbg.place)
        return [(Token.Prompt, f"onnxdbg {place}> " if place else "onnxdbg> ")]

    def out_prompt_tokens(self) -> list[tuple[object, str]]:
        return []
