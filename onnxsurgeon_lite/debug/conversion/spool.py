"""What each sample gave, in a temporary file: memory does not grow with their number."""

import pickle
import tempfile
import weakref
from collections.abc import Iterable, Iterator

from onnxsurgeon_lite.matching.judge import Values


class Spooled:
    """Values of samples that can be read again and again, one sample at a time."""

    def __init__(self, samples: Iterable[Values]) -> None:
        """Store all."""
        self._file, self._starts = tempfile.TemporaryFile(), list[int]()  # noqa: SIM115
        # the file is deleted when it is closed
        weakref.finalize(self, self._file.close)
        for values in samples:
            self._starts.append(self._file.tell())
            pickle.dump(values, self._file)

    def __iter__(self) -> Iterator[Values]:
        for start in self._starts:
            self._file.seek(start)
            yield pickle.load(self._file)
