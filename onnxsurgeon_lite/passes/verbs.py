"""All verbs by name."""

from onnxsurgeon_lite import passes

_OTHERS = {"PASSES", "Pass", "PassResult", "Pipeline", "merge"}

PASSES: dict[str, type[passes.Pass]] = {
    verb.name: verb for verb in (getattr(passes, n) for n in dir(passes) if n not in _OTHERS)
}
