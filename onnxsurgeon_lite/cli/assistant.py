"""`mcp`: the commands as tools for an assistant, by the Model Context Protocol.

A tool's arguments are the parameters of its command. A call runs the command in a process of its own. An assistant may
read any model and write in one folder; it runs no program, no Python file and no other Python, and asks no server.
"""

import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import FAILED
from onnxsurgeon_lite.cli.options import Typed
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.report import plain

Schema = dict[str, object]

_READING = (
    "inspect", "print", "check", "diff", "run", "compare", "profile", "bisect", "rank", "match",
    "weights", "data ls",
)  # fmt: skip
_WRITING = "extract", "expose", "split", "build", "merge", "convert", "record", "reduce"
_OUTPUTS = {"output", "save", "html", "node_data", "trace", "step_feeds", "repair"}
_WITHHELD = {
    "help", "runtime", "ops", "ops_library", "cluster", "versions", "command", "factory", "allow_scripts",
    "update", "python", "in_place", "undo", "journal", "resume", "dry_run",
}  # fmt: skip
"""Parameters that run what is no model, or write elsewhere."""
_CODE = re.compile(r"\.py(:|$)|(^|[,=])(runtime|python|version)=|^hf:")
_AWAY = re.compile(r"(optimized(=\w+)?:)?(?!optimized)[a-z][a-z0-9+.-]+:/")
_MAY_BE_CODE = (
    "model", "actual", "first", "second", "a", "b", "feeds", "reference", "against", "metric", "find", "fails",
    "config", "fill", "text", "noise",
)  # fmt: skip
_KINDS = {"boolean": "boolean", "integer": "integer", "float": "number"}
_LONGEST = 100_000  # characters of an answer
_SECONDS = 86_400.0
_PROGRAM = "from onnxsurgeon_lite.cli import main; main()"


@dataclass(frozen=True)
class Tools:
    """The tools that a server offers.

    Attributes:
        group: the whole command line.
        folder: where they may write; None for nowhere.
    """

    group: Any
    folder: Path | None = None

    @cached_property
    def commands(self) -> dict[str, Any]:
        """Tool -> the words of its command, and its parameters."""
        edits = (
            f"edit {verb}" for verb in self.group.commands["edit"].commands if verb != "script"
        )
        names = list(_READING)
        if self.folder is not None:
            names += _WRITING
            names += edits
        context = self.group.make_context("onnxdbg", ["inspect"], resilient_parsing=True)
        found = {}
        for words in names:
            command = self.group
            for word in words.split():
                command = command.commands[word]
            found[re.sub("[ -]", "_", words)] = (words, command, command.get_params(context))
        return found

    def parameters(self, tool: str) -> dict[str, Any]:
        """Return the parameters that an assistant may give."""
        words, _, parameters = self.commands[tool]
        withheld = _WITHHELD if self.folder else _WITHHELD | _outputs(words) | {"force"}
        found = {each.name: each for each in parameters}
        # --ops is a file in most commands, and a flag of inspect
        is_flag = "ops" in found and getattr(found["ops"], "is_flag", False)
        return {n: p for n, p in found.items() if n not in withheld or (n == "ops" and is_flag)}

    def description(self, tool: str) -> str:
        """Return what the tool's command does."""
        _, command, _ = self.commands[tool]
        return str(command.help).partition("\n\n$ ")[0]

    def schema(self, tool: str) -> Schema:
        """Return the JSON Schema of the tool's arguments."""
        found = self.parameters(tool)
        return {
            "type": "object",
            "properties": {name: _schema(each) for name, each in found.items()},
            "required": [name for name, each in found.items() if each.required],
            "additionalProperties": False,
        }

    def words(self, tool: str, given: Mapping[str, object]) -> list[str]:
        """Return the command line for a tool's arguments.

        Raises:
            UsageError: there is no such tool or parameter, or it would run or write what it may not.
        """
        if tool not in self.commands:
            raise UsageError(f"there is no tool {tool!r}", f"the tools: {', '.join(self.commands)}")
        name, _, _ = self.commands[tool]
        known = self.parameters(tool)
        flags, arguments = list[str](), list[str]()
        for key in list(known) + sorted(given.keys() - known.keys()):
            if key not in known:
                raise UsageError(f"{tool} takes no {key!r}", f"it takes {', '.join(known)}")
            if (value := given.get(key)) is None:
                continue
            for text in map(str, value if isinstance(value, list) else [value]):
                if _AWAY.match(text) or (key in _MAY_BE_CODE and _CODE.search(text)):
                    raise UsageError(
                        f"{key} {text!r} is refused: a tool opens files of this machine, and runs no code",
                        "give a file",
                    )
                if key in _outputs(name):
                    text = self._inside(text)
                _add(known[key], text, value, flags, arguments)
        words: list[str] = name.split()  # what is after `--` is never an option
        return words + flags + ["--"] + arguments

    def _inside(self, text: str) -> str:
        """Return a place to write at; it must be in the folder."""
        assert self.folder is not None
        place = (self.folder / text).resolve()
        if place == self.folder or not place.is_relative_to(self.folder):
            raise UsageError(f"{text!r} is not inside of {str(self.folder)!r}", "write there")
        return str(place)

    def call(self, tool: str, given: Mapping[str, object]) -> tuple[int, str]:
        """Run a tool; return its command's exit code, and what it said."""
        try:
            words = self.words(tool, given)
        except UsageError as error:
            return FAILED, str(error)
        with tempfile.TemporaryDirectory() as scratch:
            if self.folder is None and tool == "bisect":  # its reproducer
                words.insert(1, f"--output={scratch}/reproducer")
            from onnxsurgeon_lite.runtime.script import run_to_end

            program = [sys.executable, "-c", _PROGRAM] + words
            code, output = run_to_end(program, _SECONDS, self.folder)
        text = output.decode(errors="replace").rstrip()
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}\n... and {len(text) - _LONGEST} more characters"
        return code, text


def _outputs(words: str) -> set[str]:
    """Return the parameters of a command that say where it writes."""
    return _OUTPUTS | {"weights"} if words == "print" else _OUTPUTS


def _add(parameter: Any, text: str, value: object, flags: list[str], arguments: list[str]) -> None:
    """Add what is typed for a value."""
    if parameter.param_type_name == "argument":
        arguments.append(text)
    elif isinstance(value, bool):
        names = parameter.opts if value else parameter.secondary_opts
        flags += names[-1:]
    else:
        flags.append(f"{next(o for o in parameter.opts if o.startswith('--'))}={text}")


def _schema(parameter: Any) -> Schema:
    kind = parameter.type
    choices = getattr(kind, "choices", None)
    name = str(getattr(kind, "name", "text")).split()[0]
    schema: Schema = {"type": _KINDS.get(name, "string")}
    if choices:
        schema["enum"] = list(choices)
    if parameter.nargs == -1 or getattr(parameter, "multiple", False):
        schema = {"type": "array", "items": schema}
    schema["description"] = getattr(parameter, "help", None) or parameter.name
    return schema


def _serve(tools: Tools) -> None:
    """Answer an assistant on the standard streams until it hangs up."""
    import anyio
    import anyio.to_thread
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def on_list_tools(_: Any, __: Any) -> Any:
        hints = types.ToolAnnotations(read_only_hint=tools.folder is None, open_world_hint=False)
        listed = [
            types.Tool(
                name=name,
                description=tools.description(name),
                input_schema=tools.schema(name),
                annotations=hints,
            )
            for name in tools.commands
        ]
        return types.ListToolsResult(tools=listed)

    async def on_call_tool(_: Any, asked: Any) -> Any:
        call = partial(tools.call, asked.name, asked.arguments or {})
        code, text = await anyio.to_thread.run_sync(call)
        said = types.TextContent(type="text", text=f"{text}\nexit code {code}")
        return types.CallToolResult(content=[said], is_error=code not in (0, 1))

    async def run() -> None:
        server: Any = Server("onnxdbg", on_list_tools=on_list_tools, on_call_tool=on_call_tool)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(run)


def _mcp(
    context: typer.Context,
    *,
    write: Path | None = None,
    list_tools: Annotated[bool, Typed(("--list",))] = False,
) -> None:
    """Offer the commands as tools to an assistant, by the Model Context Protocol, on stdin and stdout.

    $ onnxdbg mcp --list
    $ onnxdbg mcp --list --write .

    Args:
        write: Let tools write in this folder, and nowhere else; relative paths are then relative to it.
        list_tools: Print the tools, no more.
    """
    if write is not None and not write.is_dir():
        raise UsageError(f"there is no folder {str(write)!r}", "make it, or leave out --write")
    tools = Tools(context.find_root().command, None if write is None else write.resolve())
    if list_tools:
        for name in tools.commands:
            plain.out(f"{name}: {tools.description(name).splitlines()[0]}")
        return
    if find_spec("mcp") is None:
        raise UsageError(
            "mcp needs the package of the protocol", "pip install 'onnxsurgeon-lite[mcp]'"
        )
    _serve(tools)


mcp = options.spelled(_mcp, _mcp, lambda: options.parameters(_mcp))
