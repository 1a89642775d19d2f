"""Read another process's memory: values arrive in one copy, a socket needs two and both processes."""

import ctypes
import functools
import sys
from collections.abc import Callable


class _IoVec(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def read_memory(process: int, address: int, target: memoryview) -> bool:
    """Fill a writable buffer from a child's memory; return False if the system does not allow it."""
    read = _reader()
    if read is None:
        return False
    size = target.nbytes
    done = 0
    here = ctypes.addressof(ctypes.c_char.from_buffer(target)) if size else 0
    while done < size:  # the kernel copies at most 2 GiB at a time
        # one buffer here, one there
        local, remote = _IoVec(here + done, size - done), _IoVec(address + done, size - done)
        copied = read(process, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if copied <= 0:
            return False
        done += copied
    return True


@functools.cache
def _reader() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    read = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if read is not None:
        read.restype = ctypes.c_ssize_t
    return read
