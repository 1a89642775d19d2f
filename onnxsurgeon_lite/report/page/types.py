"""The types of values as a page shows them; they are inferred while the graph is drawn."""

import contextlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, begin_beside, type_text

Texts = Mapping[str, str]
"""Value -> its type, '' for what ONNX's inference does not know."""

_MADE_UP = re.compile(r"\bunk__\d+")  # ONNX's inference names what it does not know


def learn_types(index: GraphIndex) -> None:
    """Infer the types of a graph's values, as far as ONNX can: a page without types is a page."""
    with contextlib.suppress(SurgeonError):
        index.learn_types(index.producer)


def texts(index: GraphIndex) -> Texts:
    """Return the types that are known."""
    names = dict.fromkeys(chain(index.inputs, index.producer, index.outputs))
    found = {name: index.types.get(name) for name in names}
    kinds = {id(kind): kind for kind in found.values()}  # many values have one type
    said = {key: kind and _MADE_UP.sub("?", type_text(kind)) or "" for key, kind in kinds.items()}
    return {name: said[id(kind)] for name, kind in found.items()}


def has_bodies(index: GraphIndex) -> bool:
    """Return whether nodes may have bodies."""
    return bool(index.bodied or index.model.proto.functions)


def begin_types(index: GraphIndex) -> Callable[[], Texts]:
    """Start to infer types; return what waits for them.

    That is done in a process of its own, unless bodies need the types of what is around them in this one.
    """

    here = partial(inferred, index)
    if has_bodies(index):
        return here
    size = index.model.proto.ByteSize()
    return begin_beside("type inference", here, size, otherwise=lambda: texts(index))


def inferred(index: GraphIndex) -> Texts:
    """Infer types, and return them."""
    learn_types(index)
    return texts(index)
