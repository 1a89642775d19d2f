"""The commands of a session: word -> what it does with the rest of its line."""

import ast
import builtins
import re
import shlex
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from pprint import pformat

from onnxsurgeon_lite.debug.stepping import Readings
from onnxsurgeon_lite.debug.stepping.breakpoints import free_names
from onnxsurgeon_lite.errors import OutputExistsError, UnknownNameError, UsageError
from onnxsurgeon_lite.model import save
from onnxsurgeon_lite.passes.recipe_writing import write_recipe, write_script
from onnxsurgeon_lite.repl import helping
from onnxsurgeon_lite.repl.session import Command, Session
from onnxsurgeon_lite.report import plain

_ASSIGNED = re.compile(r"(?P<name>.+?)\s*=\s*(?P<value>.+)", re.DOTALL)
_TIMES = re.compile(r"0*[1-9]\d*|")


def words(session: Session) -> Collection[str]:
    """The words that begin a command: those of the prompt, then the verbs of `onnxdbg`."""
    return {**COMMANDS, **ALIASES, **session.verbs.names}


def command_named(word: str) -> Command | None:
    """The prompt's own command of a word or its short form."""
    return COMMANDS.get(ALIASES.get(word, word))


def do(session: Session, word: str, rest: str) -> None:
    """Run a command and show its result.

    Raises:
        SurgeonError: the command cannot be done, or does not exist.
        SyntaxError: a condition or value is not Python.
    """
    command = _known(session, word)
    if rest and not command.usage:
        raise UsageError(f"{word} takes nothing after it, and was given {rest!r}", f"write {word}")
    try:
        result = command.run(session, rest)
    finally:
        session.tell_made()
    if result is not None:
        session.show(result)


def _known(session: Session, word: str) -> Command:
    command = command_named(word)
    if command is None and word in session.verbs.names:
        return Command("...", session.verbs.names[word], lambda s, rest: _verb(s, f"{word} {rest}"))
    if command is None:
        raise UnknownNameError(word, "the session", words(session), kind="command")
    return command


def _verb(session: Session, line: str) -> None:
    """Run a verb of `onnxdbg` on the session's model."""
    try:
        given = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"cannot read {line!r}: {error}", "close the quotes") from error
    session.mismatch |= session.verbs.run(given)


def _break(session: Session, rest: str, temporary: bool = False) -> object:
    if not rest:
        return session.dbg.breakpoints
    named, condition_word, condition = f" {rest} ".partition(" if ")
    named = _needed(named.strip(), "break NODE if isnan(out)")
    if condition_word and not condition.strip():
        raise UsageError(f"break {rest!r} has no condition", "write break NODE if isnan(out)")
    index = session.dbg.index
    one = named in index or named in index.named
    for selector in [named] if one else re.split(r",?\s+", named):
        plain.out(str(session.dbg.break_(selector, condition.strip() or None, temporary)))
    return None


def _delete(session: Session, rest: str) -> None:
    numbers = rest.replace(",", " ").split()
    for number in numbers:
        if not number.isdecimal():
            raise UsageError(
                f"no breakpoint has the number {number!r}", "write delete 1, or delete for all"
            )
    session.dbg.delete(*map(int, numbers))


def _repeated(move: Callable[[Session], object]) -> Callable[[Session, str], object]:
    def repeat(session: Session, rest: str) -> object:
        if not _TIMES.fullmatch(rest):
            raise UsageError(f"{rest!r} is not a number of times", "write a number, such as 20")
        stop: object = None
        for _ in range(int(rest or 1)):
            stop = move(session)
        return stop

    return repeat


def _until(session: Session, rest: str) -> object:
    return session.dbg.until(rest or None)


def _list(session: Session, rest: str) -> object:
    """List around the position, then what follows; from there again once it moved."""
    frame = session.dbg.chosen
    place = (id(frame), frame.place)
    goes_on = not rest and session.listed[0] == place
    around = None if rest in ("", ".") else rest
    listing = session.dbg.list_(around, session.listed[1] if goes_on else None)
    session.listed = place, listing.end
    return listing


def _display(session: Session, rest: str) -> None:
    watched = session.dbg.watch(rest) if rest else session.dbg.watched
    plain.out(f"display {', '.join(map(repr, watched))}" if watched else "display nothing")


def _undisplay(session: Session, rest: str) -> None:
    for name in [rest] if rest else list(session.dbg.watched):
        session.dbg.unwatch(name)


def _print(session: Session, rest: str) -> object:
    text = _values(session, rest, "print VALUE")
    frames = session.dbg.frames
    known = {**vars(builtins), **session.namespace}
    used = _expression(text) if not any(text in frame.index for frame in frames) else None
    held = [name for name in used or () if any(name in frame.index for frame in frames)]
    if used is None or not all(name in held or name in known for name in used):
        return session.dbg.read(text)
    return eval(text, {**session.namespace, **{name: session.dbg[name] for name in held}})


def _expression(text: str) -> list[str] | None:
    """The names that a Python expression uses, None for other text, numbers and lists of them."""
    try:
        tree = ast.parse(text, "<input>", "eval")
    except (SyntaxError, ValueError):
        return None
    return None if isinstance(tree.body, (ast.Constant, ast.Tuple)) else free_names(tree)


def _pretty(session: Session, rest: str) -> None:
    result = _print(session, rest)
    if isinstance(result, Readings):
        session.show(result)
    else:
        plain.out(pformat(result))


def _compare(session: Session, rest: str) -> object:
    readings = session.dbg.compare(_values(session, rest, "compare VALUE"))
    session.mismatch |= not all(reading.match for reading in readings)
    return readings


def _set(session: Session, rest: str) -> object:
    name, value = _assigned(session, rest, "set VALUE = ARRAY")
    return session.dbg.set(name, value)


def _feed(session: Session, rest: str) -> None:
    name, value = _assigned(session, rest, "feed INPUT = ARRAY")
    session.dbg.feed(name, value)
    session.fed = True


def _heal(session: Session, rest: str) -> object:
    return session.dbg.heal(_needed(rest, "heal VALUE"))


def _seed(session: Session, rest: str) -> None:
    if not rest.isdecimal():
        raise UsageError(f"{rest!r} is not a seed", "write seed 0")
    session.dbg.seed(int(rest))
    session.given["seed"] = int(rest)


def _undo(session: Session, _: str) -> None:
    plain.out(f"undone: {session.model.undo()}")


def _redo(session: Session, _: str) -> None:
    plain.out(f"done again: {session.model.redo()}")


def _diff(session: Session, rest: str) -> None:
    from onnxsurgeon_lite.matching import diff
    from onnxsurgeon_lite.report import differences

    if rest:
        _verb(session, f"diff {rest}")
    else:
        differences.show_diff(diff.diff(session.source, session.model.current, None))


def _history(session: Session, _: str) -> None:
    for number, step in enumerate(session.model.history.steps, 1):
        plain.out(f"{number}: {step}")
    if not session.model.history.steps:
        plain.out("no edits")


def _save(session: Session, rest: str) -> None:
    target = Path(_needed(rest, "save FILE.onnx"))
    source = session.source.path
    if source is not None and target.exists() and target.samefile(source):
        raise OutputExistsError(
            f"the session reads {str(target)!r}", "save the model under another name"
        )
    written = save(session.model.current, target)
    session.target = target
    plain.show_written(written.path, written.data_files)


def _export(session: Session, rest: str) -> None:
    path = Path(_needed(rest, "export session.py, or export recipe.toml"))
    steps = session.model.history.steps
    if path.suffix == ".toml":
        write_recipe(steps, path)
    elif path.suffix == ".py":
        source = session.source.path or Path("model.onnx")
        target = session.target or Path(f"{source.stem}.edited.onnx")
        write_script(steps, path, str(source), str(target))
    else:
        raise UsageError(f"{rest!r} is neither a script nor a recipe", "end it in .py or .toml")
    plain.show_written(path)


def _help(session: Session, rest: str) -> None:
    first = rest.partition(" ")[0]
    if not rest:
        helping.show_all(GROUPS, ALIASES, session.verbs.names)
    elif rest.partition(".")[0] in helping.OBJECTS:
        helping.show_object(session.namespace, rest)
    elif (command := command_named(rest)) is not None:
        helping.show_command(ALIASES.get(rest, rest), command, ALIASES)
    else:
        _known(session, first)
        _verb(session, f"{rest} --help")


def _quit(session: Session, _: str) -> None:
    session.leave()


def _needed(rest: str, usage: str) -> str:
    if not rest:
        raise UsageError(f"{usage.partition(' ')[0]} of what", f"write {usage}")
    return rest


def _values(session: Session, rest: str, usage: str) -> str:
    """A list of values without the spaces behind its commas, which are no part of a name."""
    _needed(rest, usage)
    return rest if rest in session.dbg.index else re.sub(r",\s+", ",", rest)


def _assigned(session: Session, rest: str, usage: str) -> "tuple[str, object]":
    found = _ASSIGNED.fullmatch(rest)
    if found is None:
        raise UsageError(f"{usage.partition(' ')[0]} {rest!r} has no value", f"write {usage}")
    return found["name"], eval(found["value"], session.namespace)


GROUPS: dict[str, dict[str, Command]] = {
    "Run": {
        "break": Command("[NODE... [if COND]]", "stop after nodes; list all", _break, "node"),
        "tbreak": Command(
            "NODE... [if COND]", "stop there once", partial(_break, temporary=True), "node"
        ),
        "delete": Command("[NUMBER...]", "remove breakpoints", _delete),
        "run": Command("", "from the start to a breakpoint", lambda s, _: s.dbg.run()),
        "continue": Command("", "on to the next breakpoint", lambda s, _: s.dbg.continue_()),
        "next": Command("[TIMES]", "compute the next node", _repeated(lambda s: s.dbg.next())),
        "step": Command(
            "[TIMES]",
            "the same, into bodies and functions",
            _repeated(lambda s: s.dbg.step()),
        ),
        "out": Command("", "run the body to its end", lambda s, _: s.dbg.out()),
        "until": Command("[NODE]", "on to a node; past a loop", _until, "node"),
        "restart": Command("", "forget what was run and set", lambda s, _: s.dbg.restart()),
        "feed": Command("INPUT = ARRAY", "give an input", _feed, "value"),
        "seed": Command("NUMBER", "make the inputs that are not given", _seed),
        "quit": Command("", "leave", _quit),
    },
    "Look": {
        "print": Command("VALUE|EXPRESSION", "a value's numbers; or Python", _print, "value"),
        "pp": Command("VALUE|EXPRESSION", "the same, over several lines", _pretty, "value"),
        "display": Command("[VALUE]", "show a value at every stop", _display, "value"),
        "undisplay": Command("[VALUE]", "show it no longer", _undisplay, "value"),
        "compare": Command("VALUE", "a value against its reference", _compare, "value"),
        "where": Command("", "the frames, and the source line", lambda s, _: s.dbg.where()),
        "up": Command(
            "[TIMES]", "resolve names in the frame around", _repeated(lambda s: s.dbg.up())
        ),
        "down": Command(
            "[TIMES]", "resolve names in the frame inside", _repeated(lambda s: s.dbg.down())
        ),
        "list": Command("[NODE]", "the nodes around; again: those that follow", _list, "node"),
        "ll": Command("", "the whole graph or body", lambda s, _: s.dbg.list_(whole=True)),
        "onnxdbg": Command("COMMAND ...", "a command of onnxdbg: onnxdbg run", _verb, "verb"),
        "help": Command("[WORD]", "this", _help, "help"),
    },
    "Edit": {
        "set": Command("VALUE = ARRAY", "go on with other numbers", _set, "value"),
        "heal": Command("VALUE", "go on with the reference", _heal, "value"),
        "undo": Command("", "take the last edit back", _undo),
        "redo": Command("", "do it again", _redo),
        "history": Command("", "the edits", _history),
        "diff": Command("[FILE]", "what the edits changed, or a file has else", _diff, "verb"),
        "save": Command("FILE.onnx", "write the model", _save, "file"),
        "export": Command(
            "FILE.py|FILE.toml", "write the edits as script or recipe", _export, "file"
        ),
    },
}
COMMANDS = {word: command for group in GROUPS.values() for word, command in group.items()}
ALIASES = {
    **{"b": "break", "cl": "delete", "clear": "delete", "c": "continue", "cont": "continue"},
    **{"n": "next", "s": "step", "r": "out", "unt": "until", "q": "quit", "exit": "quit"},
    **{"p": "print", "watch": "display", "w": "where", "bt": "where", "u": "up", "d": "down"},
    **{"l": "list", "h": "help"},
}
"""Short forms as pdb has them, and other words for the same."""
