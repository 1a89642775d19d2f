"""The place in the source program that a node comes from, as its exporter recorded it.

The dynamo exporter writes metadata: `pkg.torch.onnx.name_scopes` and `pkg.torch.onnx.class_hierarchy`, lists from the
root module to the operator (`namespace` holds both as text), and `pkg.torch.onnx.stack_trace`. TorchScript's node names
are paths of called modules (`/encoder/layer.4/Add`).
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from onnx import NodeProto

from onnxsurgeon_lite.model import entries
from onnxsurgeon_lite.names import is_count

Frames = tuple[tuple[str, int], ...]
"""File and line of each call, the outermost first."""
_PREFIX = "pkg.torch.onnx."
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9})')
_LIBRARY = re.compile(r"(^|[/\\])torch[/\\]")
CALL = re.compile(r"_\d+$")  # TorchScript numbers the calls of one module
_VALUE = re.compile(r"/(.*/)?[^/]+_output_\d+$")  # `/encoder/layer.4/Add_output_0`
# the suffix that onnxruntime appends to the name of a fused node
_FUSION = re.compile(r"(?s:/(?=\w+Fusion)\w+(/.*)?\Z)")


@dataclass(frozen=True)
class Provenance:
    """A place in the source program.

    Attributes:
        scope: module path, dotted (`encoder.layer.4`); '' is the root, or unknown.
        modules: (path, class) of every enclosing module, the root first, if the exporter recorded them.
        frames: (file, line), the outermost call first.
        known: the node's own metadata, name or weights give the scope; otherwise its neighbors do.
        stated: the node's own metadata or name give the scope, in its exporter's words.
    """

    scope: str = ""
    modules: tuple[tuple[str, str], ...] = ()
    frames: Frames = ()
    known: bool = False
    stated: bool = False

    @property
    def class_name(self) -> str:
        """The innermost module's class, without its package."""
        return self.modules[-1][1].rpartition(".")[2] if self.modules else ""

    @property
    def source(self) -> str:
        """`model.py:42`: the innermost line outside of torch."""
        return _innermost(self.frames) if self.frames else ""

    def around(self) -> list[str]:
        """The paths of the modules that contain the node, without the root, the outermost first."""
        parts = self.scope.split(".") if self.scope else []
        # "a.b.c" -> ["a", "a.b", "a.b.c"]
        return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]

    def __str__(self) -> str:
        """Return `convs3.1 (Conv2d), model.py:17`, or the known part of it."""
        return place_text(self.scope, self.class_name, self.source)


UNKNOWN = Provenance()


def place_text(scope: str, class_name: str, source: str) -> str:
    """Return `convs3.1 (Conv2d), model.py:17`, without empty parts."""
    module = f"{scope} ({class_name})" if scope and class_name else scope or class_name
    return ", ".join(filter(None, (module, source)))


def origin_of(node: NodeProto) -> Provenance:
    """Return the origin that a node itself states."""
    frames: Frames = ()
    if node.metadata_props:
        metadata = entries(node.metadata_props)
        modules = _modules(metadata)
        frames = _frames(metadata.get(f"{_PREFIX}stack_trace", ""))
        if modules:
            return Provenance(modules[-1][0], modules, frames, known=True, stated=True)
    for value in node.output[:]:  # the name of a value says it best, because fusions keep values
        if value.startswith("/") and _VALUE.match(value):
            return _in_folder(value.rpartition("/")[0], True, frames)
    name = node.name
    if not name.startswith("/"):
        return Provenance(frames=frames) if frames else UNKNOWN
    # tools that fuse and split nodes append a suffix to the name of one of them
    if "Fusion" in name:
        name = _FUSION.sub("", name)
    folder, _, last = name.rpartition("/")
    op_type = node.op_type
    # the operator itself is the last part: `/layer/Add_1`
    stated = last.startswith(op_type) and CALL.sub("", last) == op_type
    return _in_folder(folder, stated, frames)


def fits_scope(pattern: str, scope: str) -> bool:
    """Return whether a module path, or that of an enclosing module, matches a glob; `a.*` is everything in `a`."""
    # with a dot behind, `a.*` fits the module `a` itself
    return any(fnmatchcase(path, pattern) for path in (*Provenance(scope).around(), f"{scope}."))


def fits_class(pattern: str, name: str) -> bool:
    """Return whether a class matches a glob, with or without its package."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[2], pattern)


def fits_source(pattern: str, path: str, number: int) -> bool:
    """Return whether a line of a file matches `model.py:42`, or any line `model.py`."""
    file, _, line = pattern.rpartition(":")
    if not is_count(line):
        file = pattern
        line = ""
    is_file = path == file or path.replace("\\", "/").endswith(f"/{file}")
    return is_file and (not line or int(line) == number)


def _modules(metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return (path, class) of the modules, without the operator at the end."""
    paths = texts(metadata.get(f"{_PREFIX}name_scopes", ""))[:-1]
    classes = texts(metadata.get(f"{_PREFIX}class_hierarchy", ""))[:-1]
    if not paths:  # older exporters: `namespace` holds both
        parts = [part.partition(": ") for part in metadata.get("namespace", "").split("/")[:-1]]
        paths, classes = [path for path, *_ in parts], [name for *_, name in parts]
    classes = classes if len(classes) == len(paths) else [""] * len(paths)
    return tuple(zip(paths, classes, strict=True))


@lru_cache(1 << 12)
def _frames(trace: str) -> Frames:
    """Return (file, line) of each line of a stack trace; cached, because the nodes of one call share it."""
    return tuple((found["file"], int(found["line"])) for found in _FRAME.finditer(trace))


@lru_cache(1 << 12)
def _innermost(frames: Frames) -> str:
    """Return `model.py:42`; cached, because the nodes of one call share it."""
    # the innermost frame outside of torch
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    *_, name = re.split(r"[/\\]", own[-1][0])
    return f"{name}:{own[-1][1]}"


def texts(literal: str) -> list[str]:
    """Return the items of a list that an exporter wrote as Python does; none where it is not one."""
    try:
        items = ast.literal_eval(literal) if literal else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(item) for item in items] if isinstance(items, list) else []


@lru_cache(1 << 14)
def _in_folder(folder: str, stated: bool, frames: Frames) -> Provenance:
    """Return the origin in a TorchScript name before its last slash; the nodes of one module share it."""
    return Provenance(_folder_scope(folder), (), frames, known=stated, stated=stated)


def _folder_scope(folder: str) -> str:
    """Return the module path of the part before the last slash.

    A segment is a module's name from its last non-numeric part on, so that a module in a Sequential repeats the
    Sequential's name: `/layer/layer.1/Add` is in `layer.1`.
    """
    path = list[str]()
    for segment in filter(None, folder.split("/")):
        # `layer/layer.1`: one module in the Sequential `layer`
        if path and "." in segment and _is_numbered(segment, path[-1]):
            path[-1] = segment
        else:
            path.append(segment)
    return ".".join(path)


def _is_numbered(segment: str, parent: str) -> bool:
    rest = segment.removeprefix(f"{parent}.")
    return rest != segment and all(part.isdecimal() for part in rest.split("."))
