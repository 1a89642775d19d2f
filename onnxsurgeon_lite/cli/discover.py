"""What `bisect` takes without arguments: `onnxdbg.toml`, or one model with one reference set in this folder."""

import os
from dataclasses import dataclass
from pathlib import Path

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.matching.suite import CONFIG, found_path
from onnxsurgeon_lite.passes.recipe import read_toml

_KEYS = {"model", "reference", "against"}
_TELL = "say which: onnxdbg bisect MODEL --reference REFERENCES"


@dataclass(frozen=True)
class Discovered:
    """A model and its references, and how they were found."""

    model: Path
    reference: str | None
    against: Path | None
    said: str


def look_around(model: Path | None, want_reference: bool) -> Discovered:
    """What this folder offers for the arguments that were left out.

    Raises:
        UsageError: nothing, or more than one thing, fits.
    """
    config = read_toml(CONFIG, Path()) if os.path.lexists(CONFIG) else {}
    for other in ("check", "stage"):  # of `test`, and of `compare --decode`
        config.pop(other, None)
    if config:
        return _configured(config, model, want_reference)
    models = [model] if model else sorted(p for p in Path().glob("*.onnx"))
    chosen = _only("model", models)
    if not want_reference:
        return Discovered(chosen, None, None, f"took {str(chosen)!r}")
    reference = str(_only("reference set", _reference_sets()))
    return Discovered(
        chosen, reference, None, f"took {str(chosen)!r} and the references {reference!r}"
    )


def _configured(config: dict[str, object], model: Path | None, want_reference: bool) -> Discovered:
    told = {key: value for key, value in config.items() if isinstance(value, str)}
    if config.keys() != told.keys() or "model" not in told or told.keys() - _KEYS:
        raise UsageError(
            f"{str(CONFIG)!r} does not say what to bisect",
            'it holds model = "...", and reference = "..." or against = "..."',
        )
    own = {key: found_path(text, _TELL) for key, text in told.items()}
    chosen = model or own["model"]
    reference = told.get("reference") if want_reference else None
    against = own.get("against") if want_reference else None
    return Discovered(chosen, reference, against, f"took {str(chosen)!r} as {str(CONFIG)!r} says")


def _only(what: str, found: list[Path]) -> Path:
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"there is no {what} in this folder", _TELL)
    shown = ", ".join(repr(str(path)) for path in found[:5])
    raise UsageError(f"there are {len(found)} of them, a {what} was looked for: {shown}", _TELL)


def _reference_sets() -> list[Path]:
    samples = sorted(Path().glob("test_data_set_*"))
    # several test_data_set_N are the samples of one set: the folder
    if samples:
        return [Path()] if len(samples) > 1 else samples
    found = [*Path().glob("*.npz"), *Path().glob("*.safetensors")]
    found += [index.parent for index in Path().glob("*/index.json")]
    return sorted(found)
