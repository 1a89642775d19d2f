"""Keep the answers of a search on disk, so that an interrupted search can resume."""

import contextlib
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from onnxsurgeon_lite.atomic import real_place
from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.untrusted import text_of

# A journal is one line `{"question": digest}`, then one line `{"state": [...], "value": name, "good": true}` an answer.
_START = b'{"question": "'  # of every journal

State = Sequence[str]
"""The look and the healed values at the time of an answer; answers hold only for that state."""


@dataclass
class Journal:
    """Answers of a search, one JSON line each; without a file they stay in memory.

    A full disk stops the writing, not the search; `lost` then holds the message.

    Attributes:
        agreeing: values that agree where what they are computed from does, without optimization.
        hint: what goes on with a search that has a file.
    """

    answers: dict[tuple[str, ...], dict[str, bool]] = field(default_factory=dict)
    agreeing: Collection[str] = ()
    lost: str = ""
    hint: str = ""
    _file: TextIO | None = None

    @classmethod
    def at(cls, path: Path, question: str, resume: bool) -> "Journal":
        """Start a journal at a path, or resume the one at that path.

        Args:
            question: digest of the search; a journal of another search is refused.

        Raises:
            UsageError: there is no journal to resume, it belongs to another search, or the file is not a journal.
        """
        journal, said, path = cls(hint="; --resume goes on"), path, real_place(path)
        _require_journal(path, said)
        if resume:
            journal._read(path, question)
        try:
            journal._file = path.open("a" if resume else "w", encoding="utf-8")
            if resume:  # the last line may be incomplete: start a new one
                journal._file.write("\n")
            else:
                journal._write({"question": question})
        except OSError as error:
            journal.lost = f"cannot keep a journal at {str(said)!r}: {error.strerror}"
        return journal

    def _read(self, path: Path, question: str) -> None:
        try:
            lines = text_of(path).splitlines()
        except ReferenceSetError as error:
            raise UsageError(
                f"there is no journal at {str(path)!r} to resume", "start without --resume"
            ) from error
        entries = list(_entries(lines))
        if not entries or entries[0].get("question") != question:
            raise UsageError(
                f"the journal {str(path)!r} belongs to another model, references or options",
                "start again without --resume",
            )
        for entry in entries[1:]:
            # lines of another form are skipped: the file may have been cut off, or edited
            match entry:
                case {"state": list(state), "value": str(name), "good": bool(good)}:
                    self.answers.setdefault(tuple(state), {})[name] = good

    def known(self, state: State, names: Iterable[str]) -> dict[str, bool]:
        """Return the answers known for this state."""
        answers = self.answers.get(tuple(state), {})
        # state[0] is the look
        agreeing = self.agreeing if state[0] == "unoptimized" else ()
        return {n: answers.get(n, True) for n in names if n in answers or n in agreeing}

    def add(self, state: State, name: str, good: bool) -> None:
        self.answers.setdefault(tuple(state), {})[name] = good
        self._write({"state": list(state), "value": name, "good": good})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, entry: dict[str, object]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        except OSError as error:
            self.lost = f"the journal is incomplete ({error.strerror}); the search went on"
            self._file = None


def _require_journal(path: Path, said: Path) -> None:
    """Raise `UsageError` if a file that is there is no journal; `said` is how it was given: it would be overwritten."""
    if path.is_char_device() or not os.path.lexists(path):
        return
    if path.is_file():
        with contextlib.suppress(OSError), path.open("rb") as file:
            # an empty file is overwritten, too
            start = file.read(len(_START))
            if start in (b"", _START):
                return
    raise UsageError(
        f"{str(said)!r} is there already, and is not a journal: nothing was changed",
        "name another file with --journal",
    )


def digest(model: bytes, asked: object, feeds: Feeds) -> str:
    """Return a digest of a search: the model, the options, the feeds."""
    question = hashlib.blake2b(model, digest_size=16)
    question.update(repr(asked).encode())
    for name, value in feeds.items():
        arrays = value if isinstance(value, list) else [value]
        question.update(repr((name, [a.shape for a in arrays])).encode())
        for array in arrays:
            question.update(
                array.astype(str).tobytes() if array.dtype == object else array.tobytes()
            )
    return question.hexdigest()


def _entries(lines: Iterable[str]) -> Iterable[dict[str, object]]:
    """Yield the complete lines."""
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry
