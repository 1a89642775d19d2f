"""One file per verb, imported on first use. A new verb is a name in `_NAMES`; `__init__.pyi` says where each is."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from onnxsurgeon_lite import plugins
from onnxsurgeon_lite.plugins import brought

_NAMES = (
    "annotate", "append", "add-constant", "attribution", "batch-outputs", "clean", "cse", "dedupe", "dequantize",
    "drop-layer", "expose", "extract", "fix", "fold", "freeze", "fuse", "gradient", "infer", "inference", "inline",
    "insert", "name-outputs", "opset", "outline", "pad-outputs", "prepend", "promote", "rebatch", "remove",
    "remove-input", "remove-output", "rename", "reorder", "replace", "rewire", "rewrite", "script", "set",
    "set-attr", "set-constant", "set-layout", "set-op", "set-shape", "set-type", "simplify", "skip-noops", "sort",
    "standardize", "unshare",
)  # fmt: skip
VERBS = {verb: "".join(map(str.capitalize, verb.split("-"))) for verb in _NAMES}
"""Verb -> its pass, which is in the file of the verb's name; `PASSES` has the classes themselves."""
_OTHERS = dict.fromkeys(("Pass", "PassResult", "Pipeline"), "protocol")
_FILES = {kind: verb.replace("-", "_") for verb, kind in VERBS.items()} | _OTHERS

__all__ = ["PASSES", *_FILES]


class _Passes(Mapping[str, type]):
    """Verb -> class, imported when it is asked for; then those that other packages bring."""

    def __getitem__(self, verb: str) -> type:
        # a plugin cannot replace a verb of this package
        if verb in VERBS:
            return __getattr__(VERBS[verb])
        return brought(plugins.PASSES)[0][verb]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*VERBS, *brought(plugins.PASSES)[0]]))

    def __len__(self) -> int:
        return len(set(self))


PASSES = _Passes()


# `from onnxsurgeon_lite.passes import Clean` imports that one file
def __getattr__(name: str) -> object:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
