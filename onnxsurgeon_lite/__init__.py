"""onnxsurgeon-lite: debug and edit ONNX models.

    import onnxsurgeon_lite as osl

    part = osl.extract("in.onnx", inputs="22", outputs="28")    # structure only, whatever the weights weigh
    part.save("part.onnx")
    print(osl.bisect("in.onnx", "references"))                  # what the command prints

Every command of `onnxdbg` is a function of the same name. Names resolve on first use, so that importing the package
imports nothing else; `__init__.pyi` says where each is.
"""

import ast
from importlib import import_module
from inspect import isfunction
from pathlib import Path

from onnxsurgeon_lite import passes, shown

_STARS = {"passes": passes.__all__, "api.verbs": [v.replace("-", "_") for v in passes.VERBS]}


def _places() -> dict[str, str]:
    """Return public name -> the module that has it."""
    found = dict[str, str]()
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body:
        if isinstance(line, ast.ImportFrom) and line.module is not None:
            names = [alias.name for alias in line.names]
            names = _STARS[line.module] if names == ["*"] else names
            found |= dict.fromkeys(names, f"{__name__}.{line.module}")
    return found


_PLACES = _places()
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    if name in _PLACES:
        found = getattr(import_module(_PLACES[name]), name)
        if isfunction(found) and not hasattr(found, "__signature__"):
            found = import_module(f"{__name__}.api.spelling").spelled(found)
            found.__module__ = __name__  # where pickle finds it
        globals()[name] = found
        return found
    if not name.startswith("_") and name.replace("_", "-") in passes.PASSES:  # another package's
        return import_module(f"{__name__}.api.edit").verb(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def _report() -> shown.Renderer:
    from onnxsurgeon_lite.report import results

    return results


def _drawn(result: shown.Shown) -> str:
    from onnxsurgeon_lite.report.page.notebook import html

    return html(result)


shown.render_by(_report, _drawn)


def load_ipython_extension(shell: object) -> None:
    """`%load_ext onnxsurgeon_lite`, then `%onnxdbg MODEL --reference REFS`."""
    from onnxsurgeon_lite.cli.prompt import PromptVerbs
    from onnxsurgeon_lite.repl.extension import load

    load(shell, PromptVerbs)
