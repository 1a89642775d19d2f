"""Copy bytes from file to file, in the kernel if possible."""

import contextlib
import errno
import os
from collections.abc import Iterable
from typing import BinaryIO

from onnxsurgeon_lite.atomic import ByteCounter
from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.wire import Piece, Span

_NO_KERNEL_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
_CHUNK = 1 << 30


def write_pieces(out: BinaryIO, pieces: Iterable[Piece], files: dict[str, DataFile]) -> None:
    """Write bytes and spans of other files, one after the other."""
    for piece in pieces:
        if isinstance(piece, Span):
            copy_span(out, files[piece.key], piece.offset, piece.length)
        else:
            out.write(piece)


def copy_span(out: BinaryIO, file: DataFile, offset: int, length: int) -> None:
    """Append `length` bytes of another file, in the kernel if possible; holes stay holes."""
    file.verify()  # even for a hole: the file must be what was loaded
    if isinstance(out, ByteCounter):  # a dry run counts bytes only
        out.count += length
        return
    for start, stop, is_hole in file.extents(offset, offset + length):
        if is_hole:
            out.flush()  # a hole: no bytes are written, the file only gets longer
            out.truncate(out.tell() + stop - start)
            out.seek(0, os.SEEK_END)
        else:
            _copy_data(out, file, start, stop - start)


def _copy_data(out: BinaryIO, file: DataFile, offset: int, length: int) -> None:
    out.flush()  # what Python has buffered comes before what the kernel copies
    copy = getattr(os, "copy_file_range", None)  # of Linux
    # a remote or computed file has no bytes to copy in the kernel
    with contextlib.nullcontext() if not file.is_verbatim else file.path.open("rb") as source:
        while length and source is not None and copy is not None:
            try:
                done = copy(source.fileno(), out.fileno(), min(length, _CHUNK), offset)
            except OSError as error:
                # another file system, or one that cannot: copy by reading
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                break
            if not done:  # the file ends early: reading says so
                break
            offset, length = offset + done, length - done
    out.seek(0, os.SEEK_END)  # the kernel moved the end, not Python's position
    if length:
        out.writelines(file.blocks(offset, length))


def same_contents(one: DataFile, other: DataFile) -> bool:
    """Return whether two files hold the same bytes."""
    if one.size != other.size:
        return False
    blocks = zip(one.blocks(0, one.size), other.blocks(0, one.size), strict=True)
    return all(mine == theirs for mine, theirs in blocks)
