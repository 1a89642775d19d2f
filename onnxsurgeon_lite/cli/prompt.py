"""The commands of `onnxdbg` at the prompt: the same functions, on the session's model and inputs."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import cast

import typer

from onnxsurgeon_lite.cli import commands, edit, options
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.cli.completion import completions
from onnxsurgeon_lite.cli.data import data
from onnxsurgeon_lite.cli.help import HelpedCommand
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.repl.session import PromptSession, Verbs
from onnxsurgeon_lite.system import TemporaryFolder

_ITS = ("model", "models", "first", "actual", "b")  # what the session's model is to a command
_SOURCES = ("against", "a", "b", "find", "fp16_risk")  # a search takes one of them, or references
_SHARED = ("feeds", "seed", "dim", "fill", "runtime", "provider", "timeout", "ops_library", "ops")
# where references are taken
_COMPARED = (*_SHARED, "reference", "map", "rtol", "atol", "ulp", "allow")
_REFUSED = cast(type[Exception], typer.BadParameter.__mro__[1])  # a command line with errors


class PromptVerbs(Verbs):
    """The commands of `onnxdbg`; each takes the session's model and, by default, its options and inputs."""

    def __init__(self, session: PromptSession) -> None:
        self._session = session
        self._built: tuple[str, object] = "", None
        functions = list(chain.from_iterable(commands.PANELS.values()))
        lines = {commands.name_of(f): (f.__doc__ or "").splitlines()[0] for f in functions}
        others = {
            "data": str(data.info.help),
            "edit": "Edit the session's model: edit rename 31=y.",
        }
        self.names: Mapping[str, str] = {**lines, **others}

    def run(self, given: Sequence[str]) -> bool:
        try:
            with self._group().make_context("", list(given) or ["--help"]) as context:
                context.command.invoke(context)
        except typer.Exit as end:
            return end.exit_code == MISMATCH
        except _REFUSED as error:
            if not str(error):  # `edit` alone shows its help
                return False
            asked = vars(error)["ctx"].command_path.strip()  # as far as it is a command
            raise UsageError(str(error), f"help {asked} shows its options") from error
        return False

    def complete(self, given: Sequence[str], typed: str) -> list[str]:
        found = completions(self._group(), list(given), typed, obj=self._session.names)
        return [word for word, _ in found]

    def _group(self) -> "typer.core.TyperGroup":
        """The commands with the defaults that the session has now."""
        # building all commands takes a while: again only when the defaults have changed
        key = repr(self._session.given)
        if self._built[0] != key:
            self._built = key, typer.main.get_command(self._app())
        return cast("typer.core.TyperGroup", self._built[1])

    def _app(self) -> typer.Typer:
        app = typer.Typer(no_args_is_help=True, add_completion=False)
        for panel, functions in commands.PANELS.items():
            for function in functions:
                name = commands.name_of(function)
                app.command(name, rich_help_panel=panel, cls=HelpedCommand)(self._bound(function))
        for name, group in (("data", data), ("edit", edit.verbs(self._session.model.take))):
            inner = typer.Typer(no_args_is_help=True, help=group.info.help)
            for command in group.registered_commands:
                assert command.callback is not None
                inner.command(command.name, cls=HelpedCommand)(self._bound(command.callback))
            app.add_typer(inner, name=name)
        return app

    def _bound(self, function: Callable[..., None]) -> Callable[..., None]:
        """A command without the model among its parameters, and with the session's defaults."""
        parameters = inspect.signature(options.whole(function)).parameters
        shared = _COMPARED if "reference" in parameters else _SHARED
        usual = {n: v for n, v in self._session.given.items() if n in shared}
        # the parameter that the session's model takes the place of
        its = next((name for name in _ITS if name in parameters), None)

        def run(**given: object) -> None:
            if its is not None:
                from onnxsurgeon_lite.model.loading import HeldPath

                # under its file's name, or that of its edited copy
                source = self._session.source.path or Path("model.onnx")
                if self._session.model.history.steps:
                    source = source.with_name(f"{source.stem}.edited{source.suffix}")
                here = HeldPath(source)
                here.model = replace(self._session.model.current, path=source)
                guests = cast("list[Path]", given.get("models", []))
                given[its] = [here] + guests if its == "models" else here
            with self._inputs(given):
                options.whole(function)(**given)

        own = {
            name: p.replace(default=usual.get(name, p.default))
            for name, p in parameters.items()
            if name != its or its == "models"
        }
        return options.spelled(function, run, lambda: own)

    @contextmanager
    def _inputs(self, given: dict[str, object]) -> Iterator[None]:
        """Leave out the session's references where others are asked for, and give its inputs where no file has them."""
        session = self._session
        usual = session.given.get("reference")
        if str(given.get("reference")) == str(usual) and any(given.get(name) for name in _SOURCES):
            given |= {"reference": None} if "reference" in given else {}
        own = session.fed or (usual and not given.get("reference"))
        if "feeds" not in given or given["feeds"] != session.given.get("feeds") or not own:
            yield
            return
        from onnxsurgeon_lite.tensors.references import save_tensors

        with TemporaryFolder() as folder:
            given["feeds"] = str(Path(folder, "feeds"))
            save_tensors(Path(folder, "feeds"), session.dbg.feeds)
            yield
