"""The models of a folder that run one after another: what `[[stage]]` or a package's configuration says of them."""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.samples import carried_by
from onnxsurgeon_lite.matching.suite import CONFIG, found_path
from onnxsurgeon_lite.model.loading import PACKAGE
from onnxsurgeon_lite.passes.recipe import read_toml
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.untrusted import inner, json_of

ONCE, PROMPT, TOKEN, STEP = "once", "prompt", "token", "step"
_STAGE = '[[stage]] with model = "encoder.onnx" and feeds = { OUTPUT = "INPUT" }'
_SECTIONS = {"vision": ONCE, "speech": ONCE, "encoder": ONCE, "embedding": STEP, "decoder": STEP}
"""Part of a package's configuration -> when its model runs."""


@dataclass(frozen=True)
class Stage:
    """A model of a folder.

    Attributes:
        runs: `once`; or at the `prompt`, at each `token` after it, at each `step`, which is both.
        feeds: its output, or what the user feeds -> input of a later stage.
        cache: output -> input of the next step, of whatever stages.
    """

    model: Path
    runs: str
    feeds: Mapping[str, str]
    cache: dict[str, str]


@dataclass
class StageSummary:
    """A model of a folder.

    Attributes:
        runs: `once`; or at the `prompt`, at each `token` after it, at each `step`, which is both.
        inputs: name -> where its value comes from.
    """

    file: str
    runs: str
    inputs: dict[str, str]


@dataclass
class PackageSummary(Shown):
    """The models of a folder, in the order in which they run."""

    stages: list[StageSummary]


def read_stages(folder: Path) -> list[Stage]:
    """Read the stages of a folder: those of its `onnxdbg.toml`, else those of its `genai_config.json`.

    Raises:
        UsageError: a file cannot be read, a stage is not understood, or it is a file outside of the folder.
    """
    path = folder / CONFIG
    # anybody may have written it: a number is the name of a file that is not found
    tables: Any = read_toml(path, folder).get("stage", ()) if path.is_file() else ()
    try:
        # the last one decodes, where it does not say when it runs
        usual = zip([ONCE] * (len(tables) - 1) + [STEP], tables, strict=False)
        found = [_stage(folder, **{"runs": runs, **table}) for runs, table in usual]
    except (TypeError, AttributeError) as error:  # another key, or no table
        raise UsageError(f"a stage of {str(path)!r} is not understood", _STAGE) from error
    if not found and (folder / PACKAGE).is_file():
        found = list(_of_package(folder, inner(json_of(folder / PACKAGE, folder), "model")))
    return found


def _stage(folder: Path, model: object, runs: str, feeds: Any = None, cache: Any = None) -> Stage:  # fmt: skip
    if runs not in (ONCE, PROMPT, TOKEN, STEP):
        raise TypeError
    # both may be left out
    links = [
        {source: str(name) for source, name in (each or {}).items()} for each in (feeds, cache)
    ]
    return Stage(found_path(str(model), "put the model there", folder), runs, *links)


def _of_package(folder: Path, config: Mapping[str, object]) -> Iterator[Stage]:
    """Yield the stages that a package's configuration names."""
    parts = {kind: inner(config, kind) for kind in _SECTIONS}
    later = {kind: inner(part, "inputs") for kind, part in parts.items()}
    for kind, part in parts.items():
        outputs, own = inner(part, "outputs"), later.pop(kind)
        # what this part gives to itself, and to whichever come later; of several, to the first
        cache, feeds = _links(outputs, own), _links(outputs, ChainMap(*later.values()))
        pipeline = part.get("pipeline")
        items = pipeline if isinstance(pipeline, list) else []
        # an item of a pipeline is an object under its name
        pieces = [inner(item, name) for item in items if isinstance(item, dict) for name in item]
        for piece in pieces or [part]:
            if not isinstance(name := piece.get("filename"), str):
                continue
            # a piece runs at each step unless a setting keeps it from one kind of step
            is_for = TOKEN if piece.get("run_on_prompt") is False else _SECTIONS[kind]
            runs = PROMPT if piece.get("run_on_token_gen") is False else is_for
            yield _stage(folder, name, runs, feeds | inner(piece, "output_names_forwarder"), cache)


def _links(outputs: Mapping[str, object], inputs: Mapping[str, object]) -> dict[str, str]:
    """Return output -> input, of the fields that belong together; `%d` is the number of a layer."""
    found = {}
    for name, output in outputs.items():
        # present_key_names -> past_key_names
        into = inputs.get(name.replace("present", "past"))
        if isinstance(output, str) and isinstance(into, str):
            found[output.replace("%d", "*", 1)] = into.replace("%d", "*", 1)
    return found


def links_of(
    stage: Stage, index: GraphIndex, later: Iterable[GraphIndex], given: Iterable[str]
) -> dict[str, str]:
    """Return input of a later model -> the output of a stage, or what is given, that it gets.

    An output that has the name of a later input needs no link.

    Raises:
        UnknownNameError: the stage passes on what there is not, or to an input that there is not.
    """
    # whichever of the later models reads it
    inputs = list(chain.from_iterable(each.inputs for each in later))
    named = {name: name for name in index.outputs if name in inputs}
    return named | carried_by(inputs, [*given, *index.outputs], stage.feeds)


def cache_of(stages: Iterable[Stage]) -> dict[str, str]:
    """Return output -> input of the next step, of all stages."""
    return dict(chain.from_iterable(stage.cache.items() for stage in stages))


def carried_in(indexes: Sequence[GraphIndex], sequence: Mapping[str, str]) -> dict[str, str]:
    """Return input -> the output that it gets at the next step; see `carried_by`."""
    inputs = list(chain.from_iterable(index.inputs for index in indexes))
    outputs = list(chain.from_iterable(index.outputs for index in indexes))
    return carried_by(inputs, outputs, sequence)


def summarize_stages(stages: Sequence[Stage], indexes: Sequence[GraphIndex]) -> PackageSummary:
    """Return which file runs when, and where each of its inputs comes from."""
    cached = carried_in(indexes, cache_of(stages))
    sources = {name: f"cache: {output!r} of the step before" for name, output in cached.items()}
    found = []
    # in their order: a stage gets what those before it give
    for number, (stage, index) in enumerate(zip(stages, indexes, strict=True), 1):
        inputs = {name: sources.get(name, "feeds") for name in index.required_inputs}
        found.append(StageSummary(stage.model.name, stage.runs, inputs))
        links = links_of(stage, index, indexes[number:], stage.feeds)
        for name in links.keys() - cached:
            whose = stage.model.name if links[name] in index.outputs else "the feeds"
            # a model for the prompt and one for tokens make the same value
            before = f"{sources[name]} or " if name in sources else ""
            sources[name] = f"{before}{links[name]!r} of {whose}"
    return PackageSummary(found)
