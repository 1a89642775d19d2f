"""Pair the initializers that no paired node reads."""

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set

from onnx import TensorProto

from onnxsurgeon_lite.matching.diff.subjects import tensor_kind
from onnxsurgeon_lite.matching.nodes import NamedGraph


def left_over(
    scopes: tuple[NamedGraph, NamedGraph], paired: dict[tuple[str, str], None]
) -> Iterator[tuple[str, str]]:
    """Yield pairs: equal names first, then unread initializers of one kind, equal contents first."""
    first, second = (scope.index.initializers for scope in scopes)
    free = first.keys() - {a for a, _ in paired}
    others = second.keys() - {b for _, b in paired}
    common = free & others
    yield from ((name, name) for name in first if name in common)
    candidates = _by_kind(scopes[1], others - common)
    for kind, names in _by_kind(scopes[0], free - common).items():
        yield from _alike(scopes, names, candidates.get(kind, []))


def _by_kind(scope: NamedGraph, names: Set[str]) -> dict[str, list[str]]:
    """Map dtype and shape to the unread initializers, in file order."""
    found = defaultdict[str, list[str]](list)
    for name, tensor in scope.index.initializers.items():
        if name in names and name not in scope.uses:
            found[tensor_kind(tensor)].append(name)
    return found


def _alike(
    scopes: tuple[NamedGraph, NamedGraph], names: Sequence[str], others: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs with equal bytes, then the rest in order."""
    left, rest = list(names), dict.fromkeys(others)
    if rest and len(names) + len(others) > 2:
        holding = defaultdict[str, list[str]](list)
        for other in others:
            holding[_digest(scopes[1], other)].append(other)
        left = []
        for name in names:
            same = holding[_digest(scopes[0], name)]
            if same:
                del rest[same[0]]
                yield name, same.pop(0)
            else:
                left.append(name)
    yield from zip(left, rest, strict=False)


def _digest(scope: NamedGraph, name: str) -> str:
    """Return a digest of the contents; '' for strings and sparse tensors, which pair in order."""
    tensor = scope.index.initializers[name]
    if not isinstance(tensor, TensorProto) or tensor.data_type == TensorProto.STRING:
        return ""
    from onnxsurgeon_lite.model.storage.listing import fingerprint  # few diffs need it

    return fingerprint(scope.model, tensor)
