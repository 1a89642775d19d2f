"""The commands of the debugger's prompt (`onnxdbg repl`), in tables (`GROUPS`) at the end of this file.

The function of a command gets the session and the rest of the line after its word.
"""

import ast
import builtins
import inspect
import re
import shlex
from collections.abc import Callable, Collection
from functools import partial
from itertools import chain
from pathlib import Path
from textwrap import shorten

from onnxsurgeon_lite.debug.stepping.breakpoints import free_names
from onnxsurgeon_lite.errors import OutputExistsError, UnknownNameError, UsageError
from onnxsurgeon_lite.model import save
from onnxsurgeon_lite.names import command, is_count
from onnxsurgeon_lite.passes import Pass, Pipeline
from onnxsurgeon_lite.passes.recipe_writing import as_command, write_recipe, write_script
from onnxsurgeon_lite.repl.session import PromptCommand, PromptSession
from onnxsurgeon_lite.repl.words import outside
from onnxsurgeon_lite.report import plain

_WORD = re.compile(r"[\w.]+")
_TIMES = re.compile(r"0*[1-9]\d*|")
_OBJECTS = {
    "graph": 'graph["22"], graph.find(op="Conv"), graph.path("22", "28")',
    "model": 'model.rename({"31": "out"}): every edit verb is a method',
    "dbg": 'dbg["25"]: the numbers of a value; every command is a method',
}


def words(session: PromptSession) -> Collection[str]:
    """Return the words that begin a command: those of the prompt, then the verbs of `onnxdbg`."""
    return {**COMMANDS, **ALIASES, **session.verbs.names}


def command_named(word: str) -> PromptCommand | None:
    """Return the prompt's own command of a word or its short form."""
    return COMMANDS.get(ALIASES.get(word, word))


def do(session: PromptSession, word: str, rest: str) -> None:
    """Run a command and show its result.

    Raises:
        SurgeonError: the command cannot be done, or does not exist.
        SyntaxError: a condition or value is not Python.
    """
    command = _known(session, word)
    # the usage says whether a rest is wanted: "" none, "[...]" perhaps, else needed
    if rest and not command.usage:
        raise UsageError(f"{word} takes nothing after it, and was given {rest!r}", f"write {word}")
    if not rest and command.usage and not command.usage.startswith("["):
        raise UsageError(f"{word} of what", f"write {word} {command.usage}")
    try:
        # inputs may be made by any command that runs: say so, also when it fails
        result = command.run(session, rest)
    finally:
        session.tell_made()
    if result is not None:
        session.show(result)


def _known(session: PromptSession, word: str) -> PromptCommand:
    command = command_named(word)
    if command is None and word in session.verbs.names:
        return PromptCommand(
            "[...]", session.verbs.names[word], lambda s, rest: _verb(s, f"{word} {rest}")
        )
    if command is None:
        raise UnknownNameError(word, "the session", words(session), kind="command")
    return command


def _verb(session: PromptSession, line: str) -> None:
    """Run a verb of `onnxdbg` on the session's model."""
    try:
        given = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"cannot read {line!r}: {error}", "close the quotes") from error
    session.mismatch |= session.verbs.run(given)


def _break(session: PromptSession, rest: str, once: bool = False) -> object:
    """Set breakpoints at nodes, with a condition if there is an ` if `; return all breakpoints without any text."""
    if not rest:
        return session.dbg.breakpoints
    nodes, condition = _split_condition(session, rest)
    if not nodes or condition == "":
        lacks = "condition" if nodes else "node"
        raise UsageError(f"break {rest!r} has no {lacks}", "write break NODE if isnan(out)")
    index = session.dbg.index
    # a name may have spaces or commas: it is one node then
    is_name = nodes in index or nodes in index.named
    for selector in [nodes] if is_name else re.split(r",?\s+", nodes):
        plain.out(str(session.dbg.break_(selector, condition, once)))
    return None


def _split_condition(session: PromptSession, rest: str) -> tuple[str, str | None]:
    """Split `NODES if CONDITION`; the condition is None if there is no `if`."""
    # spaces around, so that ` if ` may be at the start or the end
    text = f" {rest} "
    # names of the model may contain ` if `, too
    for place in outside(text, "if", session.names.every):
        if text[place - 1 : place + 3] == " if ":
            return text[:place].strip(), text[place + 3 :].strip()
    return rest.strip(), None


_break_once = partial(_break, once=True)


def _delete(session: PromptSession, rest: str) -> None:
    numbers = rest.replace(",", " ").split()
    wrong = next((number for number in numbers if not is_count(number)), None)
    if wrong is not None:
        raise UsageError(f"no breakpoint has the number {wrong!r}", "break lists them")
    session.dbg.delete(*map(int, numbers))


def _repeated(move: str) -> Callable[[PromptSession, str], object]:
    """Return a command that calls a method of the debugger, as often as the number after its word says."""

    def repeat(session: PromptSession, rest: str) -> object:
        if not _TIMES.fullmatch(rest):
            raise UsageError(f"{rest!r} is not a number of times", "write next 20, or next")
        stop: object = None
        for _ in range(int(rest or 1)):
            stop = getattr(session.dbg, move)()
        return stop

    return repeat


def _list(session: PromptSession, rest: str) -> object:
    """List around the position; then what follows, until the position changes."""
    frame = session.dbg.frames[-1]
    place = (id(frame), frame.place)
    # `list` again at the same place goes on; `list .` begins anew
    start = session.listed[1] if not rest and session.listed[0] == place else None
    listing = session.dbg.list_(None if rest in ("", ".") else rest, start)
    session.listed = place, listing.end
    return listing


def _display(session: PromptSession, rest: str) -> None:
    watched = session.dbg.watch(rest) if rest else session.dbg.watched
    plain.out(f"display {', '.join(map(repr, watched))}" if watched else "display nothing")


def _undisplay(session: PromptSession, rest: str) -> None:
    for name in [rest] if rest else list(session.dbg.watched):
        if name not in session.dbg.watched:
            raise UnknownNameError(name, "the session", session.dbg.watched, kind="display")
        session.dbg.watch(name)


def _evaluate(session: PromptSession, rest: str) -> object:
    """Return the numbers of a value, or the result of a Python expression; a value in it is its numbers.

    A text is Python if it uses only names that Python or the current frames know.
    """
    text = _values(session, rest)
    every = session.names.every
    frames = session.dbg.frames
    known = vars(builtins) | session.namespace
    # names that are no identifiers (`conv/1`, `op:Conv`) are never Python
    named = text in every or any(n in text for n in every if not _WORD.fullmatch(n))
    used = None if named else _expression(text)
    held = [name for name in used or () if any(name in frame.index for frame in frames)]
    # a word that neither the frames nor Python know: let the debugger say so
    if used is None or not all(name in held or name in known for name in used):
        return session.dbg.read(text)
    # names of values stand for their numbers
    return eval(text, session.namespace | {name: session.dbg[name] for name in held})


def _expression(text: str) -> list[str] | None:
    """Return the names that a Python expression uses; None for other text, and for a number or a tuple."""
    try:
        tree = ast.parse(text, "<input>", "eval")
    except (SyntaxError, ValueError):
        return None
    return None if isinstance(tree.body, (ast.Constant, ast.Tuple)) else free_names(tree)


def _compare(session: PromptSession, rest: str) -> object:
    readings = session.dbg.compare(_values(session, rest))
    session.mismatch |= not all(reading.match for reading in readings)
    return readings


def _why(session: PromptSession, _: str) -> object:
    """Bisect the session's model, and say what is wrong."""
    from onnxsurgeon_lite.api.debug import bisect

    dbg = session.dbg
    session.found = bisect(dbg.index.model, dbg.required_references(), feeds=dbg.feeds)
    session.mismatch |= session.found.verdict != "agrees"
    return session.found


def _repair(session: PromptSession, _: str) -> None:
    """Make the edits that repair what `why` found."""
    from onnxsurgeon_lite.debug.causes.repairing import repairs

    steps = () if session.found is None else repairs(session.found)
    if not steps:
        raise UsageError("there is nothing to repair", "write why: it searches the causes")
    session.show(session.model.apply(Pipeline(steps)))  # one undo takes all of them back
    session.found = None


def _feed(session: PromptSession, rest: str) -> None:
    session.dbg.feed(*_assigned(session, rest, "feed INPUT = ARRAY"))
    session.fed = True
    _tell_inputs(session)


def _seed(session: PromptSession, rest: str) -> None:
    if not is_count(rest):
        raise UsageError(f"{rest!r} is not a seed", "write seed 0")
    session.dbg.seed(int(rest))
    session.given["seed"] = int(rest)
    _tell_inputs(session)


def _tell_inputs(session: PromptSession) -> None:
    """Tell the user if the references belong to other inputs."""
    if other := session.dbg.other_inputs:
        plain.show_notes(
            [f"values are not compared, the references belong to other inputs: {other}"]
        )


def _diff(session: PromptSession, rest: str) -> None:
    from onnxsurgeon_lite.matching import diff
    from onnxsurgeon_lite.report import differences

    if rest:
        _verb(session, f"diff {rest}")
    else:
        differences.show_diff(diff.diff(session.source, session.model.current, None))


def _parts(step: Pass) -> tuple[Pass, ...]:
    """Return the edits that a step consists of."""
    return step.passes if isinstance(step, Pipeline) else (step,)


def _tell(session: PromptSession, what: str, step: Pass) -> None:
    """Show the commands that make the edits of a step, a line each; an edit without a command as Python."""
    for part in _parts(step):
        words = as_command((part,), session.source.path)
        plain.out(f"{what}: {command(*words) if words else part}")


def _history(session: PromptSession, _: str) -> None:
    for number, step in enumerate(session.model.history.steps, 1):
        _tell(session, str(number), step)
    if not session.model.history.steps:
        plain.out("no edits")


def _save(session: PromptSession, rest: str) -> None:
    target = Path(rest)
    source = session.source.path
    # weights are read from this file while it would be written
    if source is not None and target.exists() and target.samefile(source):
        raise OutputExistsError(f"the session reads {rest!r}", "save the model under another name")
    _require_own(session, target)
    written = save(session.model.current, target)
    session.target = target
    session.written.add(target.absolute())
    plain.show_written(written.path, written.data_files)


def _export(session: PromptSession, rest: str) -> None:
    path = Path(rest)
    steps = list(chain.from_iterable(map(_parts, session.model.history.steps)))
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


def _require_own(session: PromptSession, target: Path) -> None:
    """Raise `OutputExistsError` if a file that the session did not write would be overwritten."""
    if (target.is_file() or target.is_symlink()) and target.absolute() not in session.written:
        raise OutputExistsError(f"{str(target)!r} is there already", "choose another name")


def _help(session: PromptSession, rest: str) -> None:
    if not rest:
        _show_all(session)
    elif rest in _OBJECTS:
        plain.out(str(inspect.getdoc(type(session.namespace[rest]).__mro__[-2])))
    elif (command := command_named(rest)) is not None:
        plain.out(_line(ALIASES.get(rest, rest), command))
    else:
        # which says that there is no such command; else the command's own help
        _known(session, rest.partition(" ")[0])
        _verb(session, f"{rest} --help")


def _show_all(session: PromptSession) -> None:
    """Show a line for everything that can be typed."""
    for title, commands in GROUPS.items():
        plain.out("\n".join([title] + [_line(*each) for each in commands.items()]))
    verbs = {verb: text for verb, text in session.verbs.names.items() if verb not in COMMANDS}
    others = {"Commands of onnxdbg, on this model": verbs, "Python objects": _OBJECTS}
    for title, texts in others.items():
        plain.out(title)
        for word, text in texts.items():
            plain.out(shorten(text, 79, initial_indent=f"  {word:<9}", placeholder=" ..."))
    plain.out("! in front makes a line Python; help WORD says more: bisect, edit rename, graph")


def _line(word: str, command: PromptCommand) -> str:
    named = ", ".join([word] + [short for short, long in ALIASES.items() if long == word])
    return f"  {named + ' ' + command.usage:<30} {command.help}"


def _quit(session: PromptSession, _: str) -> None:
    session.left = True
    session.leave()


def _values(session: PromptSession, rest: str) -> str:
    """Remove the spaces behind the commas of a list."""
    return rest if rest in session.dbg.index else re.sub(r",\s+", ",", rest)


def _assigned(session: PromptSession, rest: str, usage: str) -> "tuple[str, object]":
    """Split `NAME = EXPRESSION`; return the name and what the Python expression gives.

    In `set 27 = 27 * 2` the user means the value 27, while Python would read the number 27. So that is refused.
    """
    places = outside(rest, "=", session.names.every) or [len(rest)]
    name = rest[: places[0]].strip()
    value = rest[places[0] + 1 :].strip()
    if not (name and value):
        raise UsageError(f"{usage.partition(' ')[0]} {rest!r} has no value", f"write {usage}")
    nodes = list(ast.walk(ast.parse(value, mode="eval").body))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    # without names of Python: every number or term that is written in it
    words = names - session.namespace.keys() if names else set(map(ast.unparse, nodes))
    if value != name in words:
        raise UsageError(
            f"{value!r} does not read the value {name!r}",
            f"write {usage.partition(' ')[0]} {name} = dbg[{name!r}] ...",
        )
    return name, eval(value, session.namespace)


GROUPS: dict[str, dict[str, PromptCommand]] = {
    "Run": {
        "break": PromptCommand("[NODE... [if COND]]", "stop after nodes; list all", _break, "node"),
        "tbreak": PromptCommand("NODE... [if COND]", "stop there once", _break_once, "node"),
        "delete": PromptCommand("[NUMBER...]", "remove breakpoints", _delete),
        "run": PromptCommand("", "from the start to a breakpoint", _repeated("run")),
        "continue": PromptCommand("", "on to the next breakpoint", _repeated("continue_")),
        "next": PromptCommand("[TIMES]", "compute the next node", _repeated("next")),
        "step": PromptCommand("[TIMES]", "the same, into bodies and functions", _repeated("step")),
        "out": PromptCommand("", "run the body to its end", _repeated("out")),
        "until": PromptCommand(
            "[NODE]", "to a node; or past a loop", lambda s, r: s.dbg.until(r or None), "node"
        ),
        "restart": PromptCommand("", "forget what was run and set", _repeated("restart")),
        "feed": PromptCommand("INPUT = ARRAY", "give an input", _feed, "value"),
        "seed": PromptCommand("NUMBER", "make the inputs that are not given", _seed),
        "quit": PromptCommand("", "leave", _quit),
    },
    "Look": {
        "print": PromptCommand(
            "VALUE", "a value's numbers", lambda s, r: s.dbg.read(_values(s, r)), "value"
        ),
        "p": PromptCommand(
            "VALUE|PYTHON", "the same; or what Python makes of it", _evaluate, "value"
        ),
        "display": PromptCommand(
            "[VALUE]", "show it at every stop; again: no longer", _display, "value"
        ),
        "undisplay": PromptCommand("[VALUE]", "show it no longer; or none", _undisplay, "value"),
        "compare": PromptCommand("VALUE", "a value against its reference", _compare, "value"),
        "why": PromptCommand("", "what is wrong, by the references", _why),
        "where": PromptCommand("", "the frames, and the source line", _repeated("where")),
        "up": PromptCommand("[TIMES]", "resolve names in the frame around", _repeated("up")),
        "down": PromptCommand("", "resolve names in the frame inside", lambda s, _: s.dbg.up(-1)),
        "list": PromptCommand(
            "[NODE]", "the nodes around; again: those that follow", _list, "node"
        ),
        "ll": PromptCommand("", "the whole graph or body", lambda s, _: s.dbg.list_(whole=True)),
        "onnxdbg": PromptCommand("COMMAND ...", "a command of onnxdbg: onnxdbg run", _verb, "verb"),
        "help": PromptCommand("[WORD]", "this", _help, "help"),
    },
    "Edit": {
        "set": PromptCommand(
            "VALUE = ARRAY",
            "go on with other numbers",
            lambda s, r: s.dbg.set(*_assigned(s, r, "set VALUE = ARRAY")),
            "value",
        ),
        "heal": PromptCommand(
            "VALUE", "go on with its reference", lambda s, r: s.dbg.heal(r), "value"
        ),
        "repair": PromptCommand("", "make the edits that why found", _repair),
        "undo": PromptCommand(
            "", "take the last edit back", lambda s, _: _tell(s, "undone", s.model.undo())
        ),
        "redo": PromptCommand(
            "", "do it again", lambda s, _: _tell(s, "done again", s.model.redo())
        ),
        "history": PromptCommand("", "the edits", _history),
        "diff": PromptCommand(
            "[FILE]", "what the edits changed, or a file has else", _diff, "verb"
        ),
        "save": PromptCommand("FILE.onnx", "write the model", _save, "file"),
        "export": PromptCommand(
            "FILE.py|FILE.toml", "write the edits, to run again", _export, "file"
        ),
    },
}
COMMANDS = dict(chain.from_iterable(map(dict.items, GROUPS.values())))
ALIASES = {
    short: word
    for word, forms in (
        {"break": "b", "delete": "cl clear", "continue": "c cont", "next": "n", "step": "s"}
        | {"out": "r", "until": "unt", "quit": "q exit", "p": "pp", "display": "watch"}
        | {"where": "w bt", "up": "u", "down": "d", "list": "l", "help": "h"}
    ).items()
    for short in forms.split()
}
"""Short forms as pdb has them, and other words for the same."""
