"""Every edit as a function: `rename(model, {"23": "features"})`. The passes give their fields and documentation."""

from onnxsurgeon_lite.passes import VERBS

__all__ = [verb.replace("-", "_") for verb in VERBS]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onnxsurgeon_lite.api.edit import verb

    return verb(name)
