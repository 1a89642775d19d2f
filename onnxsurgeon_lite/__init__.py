"""onnxsurgeon-lite: debug and edit ONNX models.

    import onnxsurgeon_lite as osl

    part = osl.extract("in.onnx", inputs="22", outputs="28")    # structure only, whatever the weights weigh
    part.save("part.onnx")
    print(osl.bisect("in.onnx", "references"))                  # what the command prints

Every command of `onnxdbg` is a function of the same name. Names resolve on first use, so that importing the package
imports nothing else; `__init__.pyi` says where each is.
"""

import lazy_loader

from onnxsurgeon_lite import shown

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _report() -> shown.Renderer:
    from onnxsurgeon_lite.report import results

    return results


shown.render_by(_report)


def load_ipython_extension(shell: object) -> None:
    """`%load_ext onnxsurgeon_lite`, then `%onnxdbg MODEL --reference REFS`."""
    from onnxsurgeon_lite.repl.extension import load

    load(shell)
