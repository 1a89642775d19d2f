"""onnxsurgeon-lite: debug and edit ONNX models.

    import onnxsurgeon_lite as osl

    model = osl.load("in.onnx")                                 # structure only, whatever the weights weigh
    part = osl.Extract(("22",), ("28",)).apply(model).model
    osl.save(part, "part.onnx")

Names resolve on first use, so that importing the package imports nothing else; `__init__.pyi` says where each is.
"""

import ast
from importlib import import_module
from pathlib import Path


def _places() -> dict[str, str]:
    """Public name -> the module that has it."""
    found: dict[str, str] = {}
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body:
        if isinstance(line, ast.ImportFrom):
            module = f"{__name__}.{line.module}"
            names = [alias.name for alias in line.names]
            found |= dict.fromkeys(
                import_module(module).__all__ if names == ["*"] else names, module
            )
    return found


_PLACES = _places()
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: object) -> None:
    """`%load_ext onnxsurgeon_lite`, then `%onnxdbg MODEL --reference REFS`."""
    from onnxsurgeon_lite.cli.prompt import PromptVerbs
    from onnxsurgeon_lite.repl.extension import load

    load(shell, PromptVerbs)
