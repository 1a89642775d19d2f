"""`mcp`: the commands as tools for an assistant, by the Model Context Protocol.

A tool's arguments are the parameters of its command. A call runs the command in a process of its own. An assistant may
read any model and write in one folder; it runs no program, no Python file and no other Python, and asks no server.
"""

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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
    "update", "python", "in_place", "undo", "journal", "resume", "dry_run", "force",
}  # fmt: skip
"""Parameters that run what is no model, write elsewhere, or over what is there."""
_CODE = re.compile(r"\.py(:|$)|^hf:")
_AWAY = re.compile(r"(optimized(=\w+)?:)?[./]*(?!optimized)[a-z][a-z0-9+.-]+:/")
_SETTINGS = re.compile(r"((^|,)(opt|provider|threads|disabled|else)=[^,\\]*)*")
"""Of `a` and `b`; a provider's own may name a library."""
_MAY_BE_CODE = (
    "model", "actual", "first", "second", "a", "b", "feeds", "reference", "against", "metric", "find", "fails",
    "config", "fill", "text", "noise",
)  # fmt: skip
_KINDS = {"boolean": "boolean", "integer": "integer", "int": "integer", "float": "number"}
_LONGEST = 100_000  # characters of an answer
_SECONDS = 86_400.0
_PROGRAM = (
    "import os; os.environ['XDG_STATE_HOME'] = {!r}; from onnxsurgeon_lite.cli import main; main()"
)
"""What the user did before is unknown there: it replaces no output, and runs no recording again."""


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
        """Tool -> the words of its command, what it does, and its parameters."""
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
            does = str(command.help).partition("\n\n$ ")[0]
            found[re.sub("[ -]", "_", words)] = words, does, command.get_params(context)
        return found

    def parameters(self, tool: str) -> dict[str, Any]:
        """Return the parameters that an assistant may give."""
        words, _, parameters = self.commands[tool]
        # without a folder nothing is written
        withheld = _WITHHELD if self.folder else _WITHHELD | _outputs(words)
        return {
            each.name: each
            for each in parameters  # --ops is a file in most commands, and a flag of inspect
            if each.name not in withheld or (each.name == "ops" and each.type.name == "boolean")
        }

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
            UsageError: there is no such tool or parameter, a value has another type, or it would run or write what it
                may not.
        """
        if tool not in self.commands:
            raise UsageError(f"there is no tool {tool!r}", f"the tools: {', '.join(self.commands)}")
        name, known = self.commands[tool][0], self.parameters(tool)
        flags, arguments = list[str](), list[str]()
        for key in sorted(given.keys() - known.keys()):
            raise UsageError(f"{tool} takes no {key!r}", f"it takes {', '.join(known)}")
        for key, parameter in known.items():
            value = given.get(key)
            many = value if isinstance(value, list) and _is_list(parameter) else [value]
            for text in (self._text(name, parameter, each) for each in many if each is not None):
                if parameter.param_type_name == "argument":
                    arguments.append(text)
                elif isinstance(value, bool):
                    flags += (parameter.opts if value else parameter.secondary_opts)[-1:]
                else:
                    flags.append(f"{next(o for o in parameter.opts if o.startswith('--'))}={text}")
        words: list[str] = name.split()  # what is after `--` is never an option
        return words + flags + ["--"] + arguments

    def _text(self, words: str, parameter: Any, value: object) -> str:
        """Return what is typed for a value."""
        key, text = parameter.name, str(value)
        if type(value) not in ((bool,) if parameter.type.name == "boolean" else (str, int, float)):
            raise UsageError(f"{key} is no {value!r:.80}", "its schema says what it is")
        if key in ("a", "b") and parameter.param_type_name == "option":
            is_code = not _SETTINGS.fullmatch(text)
        else:
            is_code = key in _MAY_BE_CODE and bool(_CODE.search(text))
        if is_code or _AWAY.match(text):
            raise UsageError(
                f"{key} {text!r:.200} is refused: a tool opens files of this machine, and runs no code",
                "give a file",
            )
        if key not in _outputs(words):
            return text
        place = os.path.realpath(os.path.join(str(self.folder), text))
        if self.folder not in Path(place).parents:
            raise UsageError(f"{text!r} is not inside of {str(self.folder)!r}", "write there")
        return place

    def call(self, tool: str, given: Mapping[str, object]) -> tuple[int, str]:
        """Run a tool; return its command's exit code, and what it said."""
        with tempfile.TemporaryDirectory() as scratch:
            from onnxsurgeon_lite.runtime.script import run_to_end

            program = [sys.executable, "-P", "-c", _PROGRAM.format(scratch)]
            try:
                words = self.words(tool, given)
                if self.folder is None and tool == "bisect":  # its reproducer
                    words.insert(1, f"--output={scratch}/reproducer")
                code, output = run_to_end(program + words, _SECONDS, self.folder)
            except (UsageError, OSError, ValueError) as error:  # or no process takes such words
                return FAILED, str(error)
        text = output.decode(errors="replace").rstrip()
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}\n... and {len(text) - _LONGEST} more characters"
        return code, text


def _outputs(words: str) -> set[str]:
    """Return the parameters of a command that say where it writes."""
    return _OUTPUTS | {"weights"} if words == "print" else _OUTPUTS


def _schema(parameter: Any) -> Schema:
    kind = parameter.type
    schema: Schema = {"type": _KINDS.get(kind.name.split()[0], "string")}
    if choices := getattr(kind, "choices", None):
        schema["enum"] = list(choices)
    if _is_list(parameter):
        schema = {"type": "array", "items": schema}
    schema["description"] = getattr(parameter, "help", None) or parameter.name
    return schema


def _is_list(parameter: Any) -> bool:
    return parameter.nargs == -1 or getattr(parameter, "multiple", False)


def _serve(tools: Tools) -> None:
    """Answer an assistant on the standard streams until it hangs up."""
    import anyio.to_thread
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    # what an assistant may know of a tool before it calls it
    async def on_list_tools(_: Any, __: Any) -> Any:
        hints = types.ToolAnnotations(read_only_hint=tools.folder is None, open_world_hint=False)
        listed = [
            types.Tool(
                name=name,
                description=does,
                input_schema=tools.schema(name),
                annotations=hints,
            )
            for name, (_, does, _) in tools.commands.items()
        ]
        return types.ListToolsResult(tools=listed)

    # a call runs in a thread, so that the server still answers
    async def on_call_tool(_: Any, asked: Any) -> Any:
        code, text = await anyio.to_thread.run_sync(tools.call, asked.name, asked.arguments or {})
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
    if write and not write.is_dir():
        raise UsageError(f"there is no folder {str(write)!r}", "make it, or leave out --write")
    tools = Tools(context.find_root().command, write and write.resolve())
    if list_tools:
        for name, (_, does, _) in tools.commands.items():
            plain.out(f"{name}: {does.splitlines()[0]}")
        return
    if find_spec("mcp") is None:
        raise UsageError(
            "mcp needs the package of the protocol", "pip install 'onnxsurgeon-lite[mcp]'"
        )
    _serve(tools)


mcp = options.spelled(_mcp, _mcp, lambda: options.parameters(_mcp))
