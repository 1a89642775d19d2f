"""JSON Schemas of what every `--json` prints, from the types of the results: docs/schemas/*.json.

`python scripts/pages/schemas.py` writes them; tests/report/test_schemas.py holds them against real output.
"""

import dataclasses
import inspect
import json
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

FOLDER = Path(__file__).parent.parent.parent / "docs" / "schemas"
_SCALARS = {str: "string", int: "integer", bool: "boolean", types.NoneType: "null", Path: "string"}
_NUMBER = {
    "description": "A number, or what JSON lacks.",
    "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
}

Schema = dict[str, Any]


def outputs() -> Iterator[tuple[str, str, Any]]:
    """(schema, command, type); a dict stands for an object with these keys."""
    from onnxsurgeon_lite.debug.conversion.float16 import Float16Risks
    from onnxsurgeon_lite.debug.conversion.result import Conversion
    from onnxsurgeon_lite.debug.profiling.fusions import Fusions
    from onnxsurgeon_lite.debug.profiling.placement import Placement
    from onnxsurgeon_lite.debug.profiling.result import Profile, ProfileComparison
    from onnxsurgeon_lite.debug.ranking.bits import BitsPerLayer
    from onnxsurgeon_lite.debug.ranking.leave_one_out import LeaveOneOut
    from onnxsurgeon_lite.debug.ranking.rank import Ranking
    from onnxsurgeon_lite.debug.reduction.folder import Reduction
    from onnxsurgeon_lite.debug.result import BisectResult
    from onnxsurgeon_lite.debug.shares import Blame
    from onnxsurgeon_lite.graph.check import CheckResult
    from onnxsurgeon_lite.graph.modules import Module
    from onnxsurgeon_lite.graph.summary import ModelSummary, NodeSummary, ValueSummary
    from onnxsurgeon_lite.matching.decode import DecodeComparison
    from onnxsurgeon_lite.matching.diff.result import ModelDiff
    from onnxsurgeon_lite.matching.over_samples import SampleComparison
    from onnxsurgeon_lite.matching.sets import SetComparison
    from onnxsurgeon_lite.matching.split import Split
    from onnxsurgeon_lite.matching.stages import PackageSummary
    from onnxsurgeon_lite.matching.suite import SuiteResult
    from onnxsurgeon_lite.matching.values.run_both import MatchResult
    from onnxsurgeon_lite.matching.weights.compare import WeightsResult
    from onnxsurgeon_lite.model.storage import Manifest, StoredTensor
    from onnxsurgeon_lite.report.page.data import Page
    from onnxsurgeon_lite.tensors.statistics import Distribution, Statistics

    kinds = get_type_hints(BisectResult)
    contract = {key: kinds.get(key, dict[str, str]) for key in BisectResult("agrees").contract()}
    yield "inspect", "inspect", ModelSummary | PackageSummary
    yield "inspect-node", "inspect --node", NodeSummary
    yield "inspect-value", "inspect --value", ValueSummary | list[ValueSummary]
    yield "inspect-tree", "inspect --tree", list[Module]
    yield "inspect-histogram", "inspect --histogram", list[Distribution]
    yield "inspect-placement", "inspect --placement", Placement
    yield "inspect-optimized", "inspect --optimized", Fusions
    yield "check", "check", CheckResult
    yield "diff", "diff", ModelDiff
    yield from (
        ("split", "split", Split),
        ("data-ls", "data ls", list[StoredTensor]),
        ("data-manifest", "data manifest", Manifest),
    )
    yield "run", "run", {"feeds": list[str], "values": list[Statistics]}
    yield "compare", "compare", SetComparison | SampleComparison | DecodeComparison
    yield "test", "test", SuiteResult
    yield "profile", "profile", Profile | ProfileComparison
    yield "bisect", "bisect", contract
    yield "reduce", "reduce", Reduction
    yield "rank", "rank", Ranking | Blame | BitsPerLayer | Float16Risks | LeaveOneOut
    yield "convert", "convert", Conversion
    yield "match", "match", MatchResult
    yield "weights", "weights", WeightsResult
    yield "page", "bisect --html", Page


def schemas() -> dict[str, Schema]:
    """Every schema, by the name of its file."""
    return {name: _whole(command, kind) for name, command, kind in outputs()}


def _whole(command: str, kind: Any) -> Schema:
    definitions: dict[str, Schema] = {}
    body = _schema(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"onnxdbg {command}" + " --json" * ("--html" not in command),
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """The schema of a type; those of dataclasses are put into `definitions`."""

    def inner(each: Any) -> Schema:
        return _schema(each, definitions)

    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, dict):
        return _object({name: inner(each) for name, each in kind.items()})
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if kind is float:
        definitions["number"] = _NUMBER
        return {"$ref": "#/$defs/number"}
    if kind is object:
        return {}
    if dataclasses.is_dataclass(kind):
        return _reference(kind, definitions)
    if origin in _KINDS:
        return _KINDS[origin](arguments, inner)
    raise TypeError(f"a result holds {kind}, which JSON does not have")


def _tuple(items: tuple[Any, ...], inner: Callable[[Any], Schema]) -> Schema:
    if items[-1] is Ellipsis:
        return _list(items, inner)
    given = [inner(each) for each in items]
    return {"type": "array", "prefixItems": given, "minItems": len(given), "items": False}


def _list(items: tuple[Any, ...], inner: Callable[[Any], Schema]) -> Schema:
    return {"type": "array", "items": inner(items[0])}


def _dict(items: tuple[Any, ...], inner: Callable[[Any], Schema]) -> Schema:
    return {"type": "object", "additionalProperties": inner(items[-1])}


def _union(options: tuple[Any, ...], inner: Callable[[Any], Schema]) -> Schema:
    return {"anyOf": [inner(each) for each in options]}


_KINDS: dict[Any, Callable[[tuple[Any, ...], Callable[[Any], Schema]], Schema]] = {
    Literal: lambda words, _: {"enum": list(words)},
    Union: _union,
    types.UnionType: _union,
    tuple: _tuple,
    list: _list,
    set: _list,
    Sequence: _list,
    dict: _dict,
    Mapping: _dict,
    Counter: lambda _, inner: _dict((int,), inner),
}


def _reference(kind: Any, definitions: dict[str, Schema]) -> Schema:
    from onnxsurgeon_lite.tensors.comparison import Comparison

    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # a type may hold its own kind
        hints = get_type_hints(kind, localns={"Comparison": Comparison})  # imported late there
        shown = [f.name for f in dataclasses.fields(kind) if f.metadata.get("json", True)]
        fields = {name: _schema(hints[name], definitions) for name in shown}
        about = {"description": inspect.cleandoc(kind.__doc__ or "")}
        definitions[kind.__name__] = {**about, **_object(fields)}
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _object(fields: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


def text(schema: Schema) -> str:
    """A schema as its file holds it."""
    return json.dumps(schema, indent=2) + "\n"


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / f"{name}.json").write_text(text(schema))


if __name__ == "__main__":
    main()
