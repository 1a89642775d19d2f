"""Configurations that are found, and recipes, of hostile words: they reach files of their folder and nothing else.

An audit hook of Python sees what is opened, asked for and run; it refuses what is not theirs.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, get_type_hints

import numpy as np
import onnx

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import passes
from onnxsurgeon_lite.cli.discover import look_around
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.matching.suite import read_suite
from onnxsurgeon_lite.matching.values.mapping import load_map
from onnxsurgeon_lite.tensors.references import Samples
from readers import timed
from watch import Watch, reads_below

if TYPE_CHECKING:
    from __main__ import Attack

PLACES = (
    "http://127.0.0.1:9/m", "http://127.0.0.1:9/m.onnx", "https:/127.0.0.1:9/m.npz", "s3://bucket/m.onnx",
    "file:///etc/passwd", "memory://m", "../secret.npy", "../secret.npz", "../secret.onnx", "../secret",
    "link.npy", "link.onnx", "linked/secret.onnx", "linked", "/etc/passwd", "/dev/zero", "pipe", "evil.py",
    "evil.py:edit", "came/../../secret.onnx", "hf:imdb", "command:./program", "torch:evil.py:edit", "a\0b", "~",
    "loop", "", ".", "..", "m.onnx", "a.npy", "a.npz", "recorded", "evil.py:folder", "map.json", "text.txt",
    "rule.onnxtxt", "reading.onnx",
)  # fmt: skip
_NAMES = (
    "x",
    "y",
    "h",
    "w",
    "@0",
    "@1",
    "op:Relu",
    "*",
    "auto",
    "names",
    "none",
    "all",
    "1",
    "float16",
    "Neg",
)
_RULE = "pattern (x) => (y) { y = Relu(x) } replacement (x) => (y) { y = Abs(x) }"


def mutants_of(attack: "Attack", _: dict[str, bytes], given: argparse.Namespace) -> Iterator[None]:
    """Write a configuration and a recipe each time, and read them as the commands do."""
    folder = _prepared(attack.scratch)
    os.chdir(folder)
    watch = Watch(folder, reads_below(folder))
    model = osl.load("m.onnx")
    for number in range(given.first, given.first + given.mutants):
        draw = Random(f"{given.seed}/{number}")
        for kind, text, read in (
            ("configuration", _configuration(draw), _read_configuration),
            ("recipe", _recipe(draw), lambda: osl.apply("recipe.toml", model)),
        ):
            Path("onnxdbg.toml" if kind == "configuration" else "recipe.toml").write_text(text)
            attack.counts[f"{kind}s"] += 1
            wrong = ""
            watch.is_on = True
            try:
                with timed():
                    read()
                attack.counts[f"{kind}s taken"] += 1
            except SurgeonError:
                pass
            except BaseException as error:  # noqa: BLE001  whatever it is, it is not in words
                wrong = f"{type(error).__name__}: {error}"
            watch.is_on = False
            wrong = "; ".join([*watch.reached(), *([wrong] if wrong else [])])
            if wrong:
                attack.keep(f"{kind}-{given.seed}-{number}", text.encode(), wrong)
        yield


def _prepared(scratch: Path) -> Path:
    """Make a folder as somebody may send it, beside files that it must not reach."""
    folder = scratch / "came"
    folder.mkdir()
    model = osl.build(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { h = Add(x, w) y = Relu(h) }"
    )
    for place in (folder, scratch):
        name = "secret" if place is scratch else "m"
        onnx.save(model.proto, place / f"{name}.onnx")
        np.save(place / ("secret.npy" if place is scratch else "a.npy"), np.ones(2, np.float32))
        np.savez(place / ("secret.npz" if place is scratch else "a.npz"), x=np.ones(2, np.float32))
    (scratch / "secret").write_text(_RULE)
    (folder / "recorded").mkdir()
    np.savez(folder / "recorded" / "a.npz", y=np.ones(2, np.float32))
    shutil.copytree(folder / "recorded", folder / "evil.py:folder")
    (folder / "evil.py").write_text(
        "import os\nos.system('id')\ndef edit(graph=None):\n    return [{}]\n"
    )
    (folder / "rule.onnxtxt").write_text(_RULE)
    (folder / "text.txt").write_text("z = Neg(y)")
    (folder / "map.json").write_text('{"format": "onnxsurgeon-map", "version": 1, "pairs": []}')
    for name, target in (
        ("link.npy", "../secret.npy"), ("link.onnx", "../secret.onnx"), ("linked", ".."), ("loop", "loop"),
    ):  # fmt: skip
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe")
    reading = onnx.ModelProto.FromString(model.proto.SerializeToString())
    tensor = reading.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.npy")
    (folder / "reading.onnx").write_bytes(reading.SerializeToString())
    return folder


def _text(draw: Random) -> str:
    """A place, a name, or both together."""
    text = draw.choice(PLACES if draw.random() < 0.7 else _NAMES)
    return text if draw.random() < 0.9 else text + draw.choice(PLACES + _NAMES)


def _configuration(draw: Random) -> str:
    """What `bisect` and `test` find: a table that each may take."""
    lines = []
    if draw.random() < 0.5:
        for key in ("model", draw.choice(("reference", "against", "feeds", "map"))):
            lines.append(f"{key} = {json.dumps(_text(draw))}")
    for number in range(draw.randint(0, 2)):
        lines += ["[[check]]", f'name = "{number}"']
        keys = ["model", "reference", *draw.sample(["feeds", "map", "opt"], draw.randint(0, 2))]
        good = {"model": "m.onnx", "reference": "a.npz", "feeds": "a.npz", "map": "map.json"}
        for key in keys:
            text = good.get(key, "all") if draw.random() < 0.4 else _text(draw)
            lines.append(f"{key} = {json.dumps(text)}")
        if draw.random() < 0.2:
            number_text = draw.choice(("1e-3", "1e400", "-1", "nan"))
            lines.append(f'tolerance = {{ "{draw.choice(_NAMES)}" = {{ rtol = {number_text} }} }}')
    return "\n".join(lines)


def _read_configuration() -> None:
    """Open what `test` and `bisect` open, before they run anything."""
    refused: list[SurgeonError] = []
    with _collected(refused):
        found = look_around(None, want_reference=True)
        osl.load(found.model)
        for place in filter(None, (found.reference, found.against)):
            _open(str(place))
    with _collected(refused):
        for check in read_suite(None):
            osl.load(check.model)
            _open(str(check.reference))
            if check.feeds is not None:
                _open(str(check.feeds))
            if check.map not in (None, "auto", "names"):
                load_map(Path(check.map))
    if len(refused) == 2:
        raise refused[0]


@contextlib.contextmanager
def _collected(refused: list[SurgeonError]) -> Iterator[None]:
    try:
        yield
    except SurgeonError as error:
        refused.append(error)


def _open(place: str) -> None:
    for sample in Samples(place, ["x"], ["y"]):
        for name in sample:
            sample.read(name)


def _recipe(draw: Random) -> str:
    """Steps of any verbs, with values of the types that they take."""
    lines = []
    for _ in range(draw.randint(1, 2)):
        verb = draw.choice(
            [
                *passes.PASSES,
                *["append", "replace", "rewrite", "set-constant", "merge", "restore"] * 4,
            ]
        )
        lines += ["[[step]]", f"verb = {json.dumps(verb)}"]
        kind = passes.PASSES.get(verb, passes.PASSES["append"])
        types_of = get_type_hints(kind)
        for each in dataclasses.fields(kind):
            needed = each.default is each.default_factory is dataclasses.MISSING
            if needed or draw.random() < 0.3:
                lines.append(f"{each.name} = {_value(draw, str(types_of[each.name]))}")
    return "\n".join(lines)


def _value(draw: Random, kind: str) -> str:
    """A value of TOML; its type fits most times."""
    if draw.random() < 0.05:
        kind = draw.choice(("bool", "int", "float", "str", "tuple[str", "Mapping"))
    if "Mapping" in kind or "tuple[tuple" in kind:
        pairs = (f"{json.dumps(_text(draw))} = {json.dumps(_text(draw))}" for _ in range(2))
        return f"{{ {', '.join(pairs)} }}"
    if "tuple[str" in kind:
        return json.dumps([_text(draw) for _ in range(draw.randint(0, 2))])
    if "str" in kind:
        return json.dumps(_text(draw))
    return draw.choice(("true", "false", "1", "-1", "0.5", "[1, 2]", "9" * 30))
