"""The commands of a session: word -> what it does with the rest of its line."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from onnxsurgeon_lite.errors import OutputExistsError, UnknownNameError, UsageError
from onnxsurgeon_lite.model import save
from onnxsurgeon_lite.names import is_count
from onnxsurgeon_lite.passes.recipe_writing import write_recipe, write_script
from onnxsurgeon_lite.repl.session import Session
from onnxsurgeon_lite.report import plain

_ASSIGNED = re.compile(r"(?P<name>.+?)\s*=\s*(?P<value>.+)", re.DOTALL)
_TIMES = re.compile(r"0*[1-9]\d*|")


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        usage: what follows the word.
        help: a line.
        run: what it does; a result is shown.
        completes: what its line is completed with: `value`, `node`, `file` or nothing.
    """

    usage: str
    help: str
    run: Callable[[Session, str], object]
    completes: str = ""


def do(session: Session, word: str, rest: str) -> None:
    """Run a command and show what it gives.

    Raises:
        SurgeonError: it cannot be done, or there is no such command.
        SyntaxError: a condition or value is no Python.
    """
    command = _known(word)
    if rest and not command.usage:
        raise UsageError(f"{word} takes nothing after it, and was given {rest!r}", f"write {word}")
    try:
        result = command.run(session, rest)
    finally:
        session.tell_made()
    if result is not None:
        session.show(result)


def _known(word: str) -> Command:
    if word not in COMMANDS:
        raise UnknownNameError(word, "the session", COMMANDS, kind="command")
    return COMMANDS[word]


def _break(session: Session, rest: str) -> object:
    if not rest:
        return session.dbg.breakpoints
    selector, condition_word, condition = f" {rest} ".partition(" if ")
    selector = _needed(selector.strip(), "break NODE if isnan(out)")
    if condition_word and not condition.strip():
        raise UsageError(f"break {rest!r} has no condition", "write break NODE if isnan(out)")
    point = session.dbg.break_(selector, condition.strip() or None)
    plain.out(str(point))
    return None


def _delete(session: Session, rest: str) -> None:
    numbers = rest.replace(",", " ").split()
    if not all(is_count(number) for number in numbers):
        raise UsageError(f"{rest!r} is no breakpoint's number", "write delete 1, or delete for all")
    session.dbg.delete(*map(int, numbers))


def _repeated(move: Callable[[Session], object]) -> Callable[[Session, str], object]:
    def repeat(session: Session, rest: str) -> object:
        if not _TIMES.fullmatch(rest):
            raise UsageError(f"{rest!r} is no number of times", "write next 20, or next")
        stop: object = None
        for _ in range(int(rest or 1)):
            stop = move(session)
        return stop

    return repeat


def _until(session: Session, rest: str) -> object:
    return session.dbg.until(rest or None)


def _watch(session: Session, rest: str) -> object:
    watched = session.dbg.watch(rest) if rest else session.dbg.watched
    plain.out(f"watching {', '.join(map(repr, watched))}" if watched else "watching nothing")
    return None


def _print(session: Session, rest: str) -> object:
    return session.dbg.read(_needed(rest, "print VALUE"))


def _compare(session: Session, rest: str) -> object:
    readings = session.dbg.compare(_needed(rest, "compare VALUE"))
    session.mismatch |= not all(reading.match for reading in readings)
    return readings


def _set(session: Session, rest: str) -> object:
    name, value = _assigned(session, rest, "set VALUE = ARRAY")
    return session.dbg.set(name, value)


def _feed(session: Session, rest: str) -> None:
    name, value = _assigned(session, rest, "feed INPUT = ARRAY")
    session.dbg.feed(name, value)


def _heal(session: Session, rest: str) -> object:
    return session.dbg.heal(_needed(rest, "heal VALUE"))


def _seed(session: Session, rest: str) -> None:
    if not is_count(rest):
        raise UsageError(f"{rest!r} is no seed", "write seed 0")
    session.dbg.seed(int(rest))


def _undo(session: Session, _: str) -> None:
    plain.out(f"undone: {session.model.undo()}")


def _redo(session: Session, _: str) -> None:
    plain.out(f"done again: {session.model.redo()}")


def _diff(session: Session, _: str) -> None:
    from onnxsurgeon_lite.matching import diff
    from onnxsurgeon_lite.report import differences

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
            f"{str(target)!r} is what the session reads", "save under another name"
        )
    _require_own(session, target)
    written = save(session.model.current, target)
    session.target = target
    session.written.add(target.absolute())
    plain.show_written(written.path, written.data_files)


def _export(session: Session, rest: str) -> None:
    path = Path(_needed(rest, "export session.py, or export recipe.toml"))
    steps = session.model.history.steps
    _require_own(session, path)
    if path.suffix == ".toml":
        write_recipe(steps, path)
    elif path.suffix == ".py":
        source = session.source.path or Path("model.onnx")
        target = session.target or Path(f"{source.stem}.edited.onnx")
        write_script(steps, path, str(source), str(target))
    else:
        raise UsageError(f"{rest!r} is neither a script nor a recipe", "end it in .py or .toml")
    session.written.add(path.absolute())
    plain.show_written(path)


def _require_own(session: Session, target: Path) -> None:
    """Raise `OutputExistsError` if a file that the session did not write would be overwritten."""
    if (target.is_file() or target.is_symlink()) and target.absolute() not in session.written:
        raise OutputExistsError(f"{str(target)!r} is there already", "choose another name")


def _help(session: Session, rest: str) -> None:
    for word, command in {rest: _known(rest)}.items() if rest else COMMANDS.items():
        plain.out(f"{word + ' ' + command.usage:<26} {command.help}")
    if not rest:
        plain.out("anything else is Python; ! in front makes it that: model, graph, dbg, np")


def _needed(rest: str, usage: str) -> str:
    if not rest:
        raise UsageError(f"{usage.partition(' ')[0]} of what", f"write {usage}")
    return rest


def _assigned(session: Session, rest: str, usage: str) -> "tuple[str, object]":
    found = _ASSIGNED.fullmatch(rest)
    if found is None:
        raise UsageError(f"{usage.partition(' ')[0]} {rest!r} has no value", f"write {usage}")
    return found["name"], eval(found["value"], session.namespace)


COMMANDS: dict[str, Command] = {
    "break": Command("[NODE [if COND]]", "stop after nodes; all breakpoints", _break, "node"),
    "delete": Command("[NUMBER...]", "remove breakpoints", _delete),
    "run": Command("", "from the start to a breakpoint", lambda s, _: s.dbg.run()),
    "continue": Command("", "on to the next breakpoint", lambda s, _: s.dbg.continue_()),
    "next": Command("[TIMES]", "compute the next node", _repeated(lambda s: s.dbg.next())),
    "step": Command(
        "[TIMES]",
        "the same, into bodies and functions of the model",
        _repeated(lambda s: s.dbg.step()),
    ),
    "out": Command("", "run the body to its end", lambda s, _: s.dbg.out()),
    "until": Command("[NODE]", "on to a node; past a loop", _until, "node"),
    "where": Command("", "the frames, and the source line", lambda s, _: s.dbg.where()),
    "watch": Command("[VALUE]", "show a value at every stop", _watch, "value"),
    "print": Command("VALUE", "statistics and numbers of a value", _print, "value"),
    "compare": Command("VALUE", "a value against its reference", _compare, "value"),
    "set": Command("VALUE = ARRAY", "go on with other numbers", _set, "value"),
    "heal": Command("VALUE", "go on with the reference", _heal, "value"),
    "restart": Command("", "forget what was run and set", lambda s, _: s.dbg.restart()),
    "feed": Command("INPUT = ARRAY", "give an input", _feed, "value"),
    "seed": Command("NUMBER", "make the inputs not given", _seed),
    "undo": Command("", "take the last edit back", _undo),
    "redo": Command("", "do it again", _redo),
    "diff": Command("", "what the edits changed", _diff),
    "history": Command("", "the edits", _history),
    "save": Command("FILE.onnx", "write the model", _save, "file"),
    "export": Command("FILE.py|FILE.toml", "write the edits as script or recipe", _export, "file"),
    "help": Command("[COMMAND]", "this", _help),
}
