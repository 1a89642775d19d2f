"""onnxsurgeon-lite: debug and edit ONNX models.

    import onnxsurgeon_lite as osl

    model = osl.load("in.onnx")                                 # structure only, whatever the weights weigh
    part = osl.Extract(("22",), ("28",)).apply(model).model
    osl.save(part, "part.onnx")

Names resolve on first use, so that importing the package imports nothing else; `__init__.pyi` says where each is.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def load_ipython_extension(shell: object) -> None:
    """`%load_ext onnxsurgeon_lite`, then `%onnxdbg MODEL --reference REFS`."""
    from onnxsurgeon_lite.cli.prompt import PromptVerbs
    from onnxsurgeon_lite.repl.extension import load

    load(shell, PromptVerbs)
