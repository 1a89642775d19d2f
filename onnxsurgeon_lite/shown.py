"""How every result shows itself: the text of the command, one line, JSON, HTML.

Results live in rooms below `report`, which renders them. The package's front door says so with `render_by`; nothing is
imported before a result is shown.
"""

import sys
from collections.abc import Callable, Sized
from dataclasses import field, fields, is_dataclass
from typing import Protocol, Self, TypeVar

Progress = Callable[[str], None]
"""Gets a sentence when the work goes on."""

HIDDEN = {"json": False}
"""Metadata of a field that is left out of JSON."""

_Default = TypeVar("_Default")
_LONGEST = 160  # characters of a `repr`
_DEPENDENCIES = ("onnx", "onnxruntime", "numpy")


def hidden(default: _Default) -> _Default:
    """Return a field of a dataclass that is left out of JSON."""
    # for type checkers it is what such a field holds
    return field(default=default, metadata=HIDDEN)


def quiet(_: str) -> None:
    """Say nothing."""


class Renderer(Protocol):
    """Functions that render a result of any kind."""

    def text(self, result: "Shown") -> str:
        """Return what the command prints."""
        ...

    def data(self, result: object) -> object:
        """Return what `--json` prints, as plain objects."""
        ...


_renderers: list[tuple[Callable[[], Renderer], Callable[["Shown"], str]]] = []


def render_by(find: Callable[[], Renderer], draw: Callable[["Shown"], str]) -> None:
    """Render results by what `find` returns, and by `draw` for a notebook; both are called when one is shown."""
    _renderers[:] = [(find, draw)]


class Shown:
    """A result: `str` is what the command prints, `repr` one short line.

    Attributes:
        told: what the call had to say besides, such as how feeds were made; the command prints it to stderr.
    """

    told: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        # a dataclass writes no `__repr__` of its own over one that the class has
        cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]

    def with_told(self, notes: list[str]) -> Self:
        """Add what the call had to say."""
        object.__setattr__(self, "told", tuple(notes) + self.told)  # results are frozen dataclasses
        return self

    def contract(self) -> object:
        """Return what JSON holds of the result."""
        return self

    def to_json(self) -> object:
        """Return what `--json` prints, as dicts, lists, strings and numbers."""
        return _renderers[0][0]().data(self.contract())

    def __str__(self) -> str:
        return _renderers[0][0]().text(self)

    def __repr__(self) -> str:
        name = type(self).__name__
        parts = list[str]()
        if is_dataclass(self):
            parts = [f"{f.name}={_short(getattr(self, f.name))}" for f in fields(self) if f.repr]
        elif isinstance(self, Sized):
            parts = [f"{len(self)} of them" if len(self) != 1 else "one"]
        line = f"{name}({', '.join(parts)}"
        return line[: _LONGEST - 4] + "...)" if len(line) >= _LONGEST else line + ")"

    def _repr_html_(self) -> str:
        return _renderers[0][1](self)


def _short(value: object) -> str:
    """A scalar as it is, of others how many there are."""
    if isinstance(value, Sized) and not isinstance(value, str | bytes):
        return f"<{len(value)}>"
    text = f"<{type(value).__name__}>" if is_dataclass(value) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def made_with() -> str:
    """Return the versions as text."""
    return ", ".join(f"{name} {version}" for name, version in versions().items())


def versions() -> dict[str, str]:
    """Return the versions of this package and of its dependencies that are installed."""
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    found = {"onnxsurgeon-lite": version("onnxsurgeon-lite")}
    for name in _DEPENDENCIES:
        try:
            # a module that is loaded says its version without reading metadata
            found[name] = getattr(sys.modules.get(name), "__version__", "") or version(name)
        except PackageNotFoundError:
            # another package may bring it, such as onnxruntime-gpu; with another runtime none needs to
            for package in packages_distributions().get(name, ()):
                found[package] = version(package)
    return found
