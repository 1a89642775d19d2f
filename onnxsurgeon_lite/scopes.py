"""Where in the source program each node comes from, as its exporter wrote it down.

The dynamo exporter writes metadata: `pkg.torch.onnx.name_scopes` and `pkg.torch.onnx.class_hierarchy`, lists from the
root module to the operator (`namespace` holds both in one text), and `pkg.torch.onnx.stack_trace`. TorchScript's names
are paths of called modules (`/encoder/layer.4/Add`). Where neither is left, a weight's name says whose it is
(`encoder.layer.4.dense.weight`), and else the nodes around say in which module a node must lie.
"""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain, takewhile

from onnx import NodeProto

_PREFIX = "pkg.torch.onnx."
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_LIBRARY = re.compile(r"(^|[/\\])torch[/\\]")
_CALL = re.compile(r"_\d+$")
_VALUE = re.compile(r"/(.*/)?[^/]+_output_\d+$")  # `/encoder/layer.4/Add_output_0`
_FUSION = re.compile(
    r"/\w+Fusion\w*(/.*)?$"
)  # what onnxruntime appends to the name of the node that it fused


@dataclass(frozen=True)
class Origin:
    """The place in the source program.

    Attributes:
        scope: module path, dotted (`encoder.layer.4`); '' is the root, or that nothing is known.
        modules: (path, class) of every enclosing module, the root first, where the exporter says so.
        frames: (file, line), the outermost call first.
        known: whether the node's own metadata, name or weights say the scope; its neighbours say it otherwise.
        stated: whether its own metadata or name do, which are its exporter's words.
    """

    scope: str = ""
    modules: tuple[tuple[str, str], ...] = ()
    frames: tuple[tuple[str, int], ...] = ()
    known: bool = False
    stated: bool = False

    @property
    def class_name(self) -> str:
        """The innermost module's class, without its package."""
        return self.modules[-1][1].rpartition(".")[2] if self.modules else ""

    @property
    def source(self) -> str:
        """`model.py:42`: the innermost line that is not torch's own."""
        own = [frame for frame in self.frames if not _LIBRARY.search(frame[0])] or self.frames
        return f"{_file_name(own[-1][0])}:{own[-1][1]}" if own else ""

    def around(self) -> list[str]:
        """The paths of the modules that hold the node, the root left out, the outermost first."""
        parts = self.scope.split(".") if self.scope else []
        return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]

    def has_class(self, pattern: str) -> bool:
        """Whether a module that holds the node is of a class; a glob, with or without the package."""
        names = (name for _, full in self.modules for name in (full, full.rpartition(".")[2]))
        return any(fnmatchcase(name, pattern) for name in names)

    def __str__(self) -> str:
        """`convs3.1 (Conv2d), model.py:17`, or what is known of it."""
        return place_text(self.scope, self.class_name, self.source)


UNKNOWN = Origin()


def place_text(scope: str, class_name: str, source: str) -> str:
    """`convs3.1 (Conv2d), model.py:17`, without what is empty."""
    module = f"{scope} ({class_name})" if scope and class_name else scope or class_name
    return ", ".join(filter(None, (module, source)))


def origin_of(node: NodeProto) -> Origin:
    """What a node itself says of its origin."""
    modules, frames = _noted(node) if node.metadata_props else ((), ())
    if modules:
        return Origin(modules[-1][0], modules, frames, known=True, stated=True)
    for value in node.output[:]:
        if value.startswith("/") and _VALUE.match(value):
            return _of_path(value.rpartition("/")[0], frames, True)
    name = node.name
    if not name.startswith("/"):
        return Origin(frames=frames) if frames else UNKNOWN
    # tools that fuse and split nodes put something behind the name of one of them
    name = _FUSION.sub("", name) if "Fusion" in name else name
    folder, _, own = name.rpartition("/")
    return _of_path(folder, frames, own == node.op_type or _CALL.sub("", own) == node.op_type)


def _noted(node: NodeProto) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, int], ...]]:
    """The modules and frames that a node's metadata holds."""
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    trace = metadata.get(f"{_PREFIX}stack_trace", "")
    frames = ((found["file"], int(found["line"])) for found in _FRAME.finditer(trace))
    return _modules(metadata), tuple(frames)


@lru_cache
def _of_path(folder: str, frames: tuple[tuple[str, int], ...], stated: bool) -> Origin:
    """The origin that TorchScript's name of a value or a node says; the same for all of a module."""
    return Origin(_path_scope(folder), (), frames, known=stated, stated=stated)


def origins(nodes: Sequence[NodeProto], weights: Collection[str]) -> list[Origin]:
    """Every node's origin: its own words, else its weights' names, else the module that holds its neighbours.

    Args:
        weights: names of the initializers; that of a parameter is its module's path and its own name.
    """
    found = [origin_of(node) for node in nodes]
    classes = {path: name for origin in found for path, name in origin.modules}
    held = [{name for name in node.input[:] if name in weights} for node in nodes]
    uses = Counter(chain.from_iterable(held))
    for position, names in enumerate(held):
        said = found[position]
        if said.modules or not names:
            continue
        # exporters store equal weights once, under one owner's name: what several nodes use is no one's
        owners = {_owner(name) for name in names if uses[name] == 1} - {""}
        scope = owners.pop() if len(owners) == 1 else ""
        # TorchScript numbers the calls of one module: `/fc_1/Gemm` may be the second call of `fc`
        if scope and (not said.known or _CALL.sub("", said.scope) == scope):
            # a fused node has the weights of one of its parts, and the value of another
            is_whole = nodes[position].domain in ("", "ai.onnx")
            found[position] = Origin(scope, _enclosing(scope, classes), (), known=is_whole)
    return _filled(nodes, found, classes)


def fits_scope(pattern: str, scope: str) -> bool:
    """Whether a module path, or that of a module around it, fits a glob; `a.*` is all that lies in `a`."""
    return any(fnmatchcase(path, pattern) for path in (*Origin(scope).around(), f"{scope}."))


def fits_source(pattern: str, origin: Origin) -> bool:
    """Whether a call on the way to the node stands at `model.py:42`, or anywhere in `model.py`."""
    file, _, line = pattern.rpartition(":")
    if not line.isdecimal():
        file, line = pattern, ""
    return any(
        (path == file or path.replace("\\", "/").endswith(f"/{file}"))
        and (not line or int(line) == number)
        for path, number in origin.frames
    )


def _modules(metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(path, class) of the modules, the operator at the end left out."""
    paths = _texts(metadata.get(f"{_PREFIX}name_scopes", ""))[:-1]
    classes = _texts(metadata.get(f"{_PREFIX}class_hierarchy", ""))[:-1]
    if not paths:
        parts = [part.partition(": ") for part in metadata.get("namespace", "").split("/")[:-1]]
        paths, classes = [path for path, *_ in parts], [name for *_, name in parts]
    classes = classes if len(classes) == len(paths) else [""] * len(paths)
    return tuple(zip(paths, classes, strict=True))


def _texts(literal: str) -> list[str]:
    try:
        items = ast.literal_eval(literal) if literal else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(item) for item in items] if isinstance(items, list) else []


def _path_scope(folder: str) -> str:
    """The module path that a TorchScript name has before its last slash.

    A segment is a module's name from its last part that is no number on, so that what lies in a Sequential repeats
    the Sequential's name: `/layer/layer.1/Add` lies in `layer.1`.
    """
    path: list[str] = []
    for segment in filter(None, folder.split("/")):
        if path and _is_numbered(segment, path[-1]):
            path[-1] = segment
        else:
            path.append(segment)
    return ".".join(path)


def _is_numbered(segment: str, parent: str) -> bool:
    rest = segment.removeprefix(f"{parent}.")
    return rest != segment and all(part.isdecimal() for part in rest.split("."))


def _owner(name: str) -> str:
    """The module that a parameter's name says it belongs to."""
    return name.rpartition(".")[0] if ":" not in name and "/" not in name else ""


def _enclosing(scope: str, classes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The modules around and at a path, those whose class is known; nothing unless that of the path is."""
    if scope not in classes:
        return ()
    paths = ["", *Origin(scope).around()]
    return tuple((path, classes[path]) for path in paths if path in classes)


def _filled(
    nodes: Sequence[NodeProto], found: list[Origin], classes: Mapping[str, str]
) -> list[Origin]:
    """Nodes that say nothing lie in the innermost module that holds the nodes before and after them."""
    placed = [origin.known or bool(origin.scope) for origin in found]
    if all(placed) or not any(placed):
        return found
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    before = [[makers[n] for n in node.input if n in makers] for node in nodes]
    after: list[list[int]] = [[] for _ in nodes]
    for position, sources in enumerate(before):
        for source in sources:
            after[source].append(position)
    filled = list(found)
    for position, origin in enumerate(found):
        if placed[position]:
            continue
        sides = [_nearest(position, edges, found) for edges in (before, after)]
        if all(sides):
            scope = _common([*sides[0], *sides[1]])
            filled[position] = Origin(scope, _enclosing(scope, classes), origin.frames)
    return filled


def _nearest(
    position: int, edges: Sequence[Iterable[int]], found: Sequence[Origin], most: int = 64
) -> list[str]:
    """The scopes of the first nodes that know theirs, in one direction."""
    scopes, seen, pending = [], {position}, list(edges[position])
    while pending and len(seen) < most:
        other = pending.pop()
        if other in seen:
            continue
        seen.add(other)
        if found[other].known or found[other].scope:
            scopes.append(found[other].scope)
        else:
            pending += edges[other]
    return scopes


def _common(scopes: Sequence[str]) -> str:
    """The innermost module that holds them all."""
    shared = takewhile(
        lambda parts: len({*parts}) == 1, zip(*(s.split(".") for s in scopes), strict=False)
    )
    return ".".join(parts[0] for parts in shared)


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]
