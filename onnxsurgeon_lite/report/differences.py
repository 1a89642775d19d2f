"""A diff for the terminal: a line for each difference."""

from collections.abc import Iterator

from onnxsurgeon_lite.matching.diff.result import Change, Difference, ModelDiff
from onnxsurgeon_lite.names import STANDS_FOR, counted, shown
from onnxsurgeon_lite.report.plain import say, say_all, show_notes

_LONGEST = 80  # characters of a text before or after a change
_OF_AN_EDIT = 8  # lines
_ALIKE = 4  # nodes with changed metadata alone that have a line each; more of them share one


def show_edit(found: ModelDiff | None) -> None:
    """What an edit made of a model, seen from outside: the differences that count, and what does not, some lines."""
    if found is None:
        say("diff: too much of a large graph to be shown; compare both with: onnxdbg diff")
        return
    count = len(found.differences)
    what = counted(count, "difference") if count else "no difference"
    say(shown("; ".join([f"diff: {what}"] + found.notes)))
    lines = list(_lines(found))
    kept = lines if len(lines) <= _OF_AN_EDIT else lines[: _OF_AN_EDIT - 1]
    say_all(f"  {line}" for line in kept)
    if len(kept) < len(lines):
        say(f"  ... and {len(lines) - len(kept)} more")


def show_diff(found: ModelDiff) -> None:
    """Every difference, then how the outputs compare."""
    from onnxsurgeon_lite.report.metrics import explain

    show_notes(found.notes)
    say_all(_lines(found))
    for name, comparison in found.outputs.items():
        agrees = f"output {name!r} agrees: max abs difference {comparison.max_abs:.6g}"
        say_all([agrees] if comparison.match else explain(name, comparison))
    if found.same:
        say("no difference")


def _lines(found: ModelDiff) -> Iterator[str]:
    # nodes whose documentation alone changed would hide the differences that count: many share a line
    annotated = [difference for difference in found.differences if only_texts(difference)]
    hidden = {id(difference) for difference in annotated} if len(annotated) > _ALIKE else set()
    for difference in found.differences:
        if id(difference) not in hidden:
            yield line_of(difference)
    if hidden:
        yield f"changed metadata of {len(hidden)} nodes, such as {annotated[0].subject} (all with --json)"


def line_of(difference: Difference) -> str:
    """Return a difference as one line."""
    place = f", {difference.place}" if difference.place else ""
    what = f"{difference.status} {difference.kind} {difference.subject}{place}"
    changes = change_texts(difference)
    return f"{what}: {'; '.join(changes)}" if changes else what


def change_texts(difference: Difference) -> list[str]:
    """Return each change, `what before -> after`; several texts of metadata are counted."""
    texts = [change for change in difference.changes if _is_text(change)]
    parts = [change for change in difference.changes if len(texts) == 1 or not _is_text(change)]
    counted = [f"{len(texts)} texts of metadata"] if len(texts) > 1 else []
    return list(map(_change_text, parts)) + counted


def only_texts(difference: Difference) -> bool:
    """Return whether nothing but metadata of a node changed."""
    changed = (difference.status, difference.kind) == ("changed", "node")
    return changed and all(map(_is_text, difference.changes))


def _is_text(change: Change) -> bool:
    is_metadata = change.what.startswith("metadata ") and STANDS_FOR not in change.what
    return change.what == "doc string" or is_metadata


def _change_text(change: Change) -> str:
    # `perm [0, 1] -> [1, 0]`, or `axis 1 added`
    before = _short(change.before)
    after = _short(change.after)
    if before and after:
        return f"{change.what} {before} -> {after}"
    ending = "removed" if before else "added" if after else ""
    return " ".join(filter(None, (change.what, before, after, ending)))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
