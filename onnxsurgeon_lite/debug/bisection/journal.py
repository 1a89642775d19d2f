"""What a search was told so far, on disk: a search that was cut short goes on from there."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.feeds import Feeds

_START = b'{"question": "'  # of every journal

State = Sequence[str]
"""The look, and the values that were healed when an answer was given; answers hold for that state alone."""


@dataclass
class Journal:
    """Answers, each a line of JSON, written as they come; without a file they are only remembered.

    A disk that fills up ends the writing, never the search: `lost` says so.
    """

    answers: dict[tuple[str, ...], dict[str, bool]] = field(default_factory=dict)
    lost: str = ""
    _file: TextIO | None = None

    @classmethod
    def at(cls, path: Path, question: str, resume: bool) -> "Journal":
        """Begin a journal at a path, or go on with the one that is there.

        Args:
            question: what the answers are about; a journal of another question is refused.

        Raises:
            UsageError: there is nothing to resume, or it belongs to another question; the file is not a journal.
        """
        journal = cls()
        _require_journal(path)
        if resume:
            journal._read(path, question)
        try:
            journal._file = path.open("a" if resume else "w", encoding="utf-8")
            # a line that was cut short by the end of the process must not swallow the next one
            journal._file.write("\n") if resume else journal._write({"question": question})
        except OSError as error:
            journal.lost = f"no journal is kept at {str(path)!r}: {error.strerror}"
        return journal

    def _read(self, path: Path, question: str) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
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
            match entry:
                case {"state": list(state), "value": str(name), "good": bool(good)}:
                    self.answers.setdefault(tuple(state), {})[name] = good

    def known(self, state: State, names: Iterable[str]) -> dict[str, bool]:
        """The answers there are already."""
        answers = self.answers.get(tuple(state), {})
        return {name: answers[name] for name in names if name in answers}

    def add(self, state: State, name: str, good: bool) -> None:
        """Remember an answer."""
        self.answers.setdefault(tuple(state), {})[name] = good
        self._write({"state": list(state), "value": name, "good": good})

    def close(self) -> None:
        """Nothing more is written."""
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
            self.lost = f"the journal ends early, the search does not: {error.strerror}"
            self._file = None


def _require_journal(path: Path) -> None:
    """Raise `UsageError` if a file that is there is not a journal: it would be overwritten."""
    if path.is_char_device() or not os.path.lexists(path):
        return
    if path.is_file():
        with contextlib.suppress(OSError), path.open("rb") as file:
            start = file.read(len(_START))
            if start in (b"", _START):
                return
    raise UsageError(
        f"{str(path)!r} is there already, and is not a journal: nothing was changed",
        "name another file with --journal",
    )


def digest(model: bytes, asked: object, feeds: Feeds) -> str:
    """What a search is about: the model's fingerprint, what else was asked, the numbers it is fed with."""
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
    """The lines that are whole."""
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry
