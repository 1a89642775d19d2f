"""The functions of the Python API as they run: options are spelled out and verbs are made when they are imported."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import griffe

import onnxsurgeon_lite

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}


class LiveFunctions(griffe.Extension):
    """Signatures and docstrings of public functions are read from the functions themselves."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _with_examples(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        for name in onnxsurgeon_lite.__all__:
            live = getattr(onnxsurgeon_lite, name)
            if inspect.isfunction(live):
                function = griffe.Function(name, parent=pkg)
                pkg.set_member(name, function)
                _bring_to_life(function, live, loader)
            elif inspect.isclass(live):
                home = live.__module__.removeprefix("onnxsurgeon_lite.")
                pkg.set_member(name, griffe.Alias(name, pkg[f"{home}.{live.__name__}"]))
            elif isinstance(live, Mapping):
                about = griffe.Docstring("Verb -> its pass.")
                pkg.set_member(name, griffe.Attribute(name, docstring=about, parent=pkg))


def _bring_to_life(found: griffe.Function, live: Any, loader: griffe.GriffeLoader) -> None:
    signature = inspect.signature(live)
    found.returns = _annotation(signature.return_annotation)
    found.parameters = griffe.Parameters(*map(_parameter, signature.parameters.values()))
    found.docstring = griffe.Docstring(
        _with_examples(inspect.getdoc(live) or ""),
        parent=found,
        parser=loader.docstring_parser,
        parser_options=loader.docstring_options,
    )


def _with_examples(text: str) -> str:
    """One example is shown as several are."""
    return re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)


def _parameter(given: inspect.Parameter) -> griffe.Parameter:
    default = None if given.default is given.empty else _default(given.default)
    return griffe.Parameter(
        given.name,
        annotation=_annotation(given.annotation),
        kind=_KINDS[given.kind],
        default=default,
    )


def _default(value: object) -> str:
    return getattr(value, "__name__", None) or repr(value)


def _annotation(annotation: object) -> str | None:
    if annotation is inspect.Parameter.empty:
        return None
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)  # without modules
