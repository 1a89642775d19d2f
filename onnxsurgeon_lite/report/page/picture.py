"""A tensor as a PNG picture: an image as it is, the channels of a feature map side by side."""

import struct
import zlib
from typing import cast

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import Array

_SMALLEST, _LARGEST = 4, 4096  # of a side
_TILES = 64  # channels that are shown

Pixels = NDArray[np.uint8]


def picture(array: Array) -> bytes | None:
    """The PNG file, None where the tensor looks like no image or feature map."""
    if array.dtype.kind in "OUSc" or array.ndim not in (2, 3, 4):
        return None
    sides = array.shape[-2:]
    if min(sides) < _SMALLEST or max(sides) > _LARGEST:
        return None
    # of a batch the first
    planes = array[0] if array.ndim == 4 and len(array) else array
    if planes.ndim not in (2, 3) or not planes.size:
        return None
    planes = np.asarray(planes, np.float64).reshape(-1, *sides)
    # the smallest finite number is black, the largest white
    finite = planes[np.isfinite(planes)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    grey = (planes - low) * (255.0 / max(high - low, np.finfo(np.float64).tiny))
    pixels = cast(
        Pixels, np.nan_to_num(grey, posinf=255.0, neginf=0.0).clip(0, 255).astype(np.uint8)
    )
    # three channels are an image in color
    return png(np.moveaxis(pixels, 0, -1) if len(pixels) == 3 else _tiled(pixels[:_TILES]))


def _tiled(planes: Pixels) -> Pixels:
    """Planes in rows, with a line of black between."""
    across = int(np.ceil(np.sqrt(len(planes))))
    # fill up to whole rows, each plane with a black line at its right and below
    padded = np.pad(planes, ((0, -len(planes) % across), (0, 1), (0, 1)))
    rows = [np.concatenate(list(row), 1) for row in padded.reshape(-1, across, *padded.shape[1:])]
    return cast(Pixels, np.concatenate(rows, 0)[:-1, :-1])


def png(pixels: Pixels) -> bytes:
    """Return the PNG file of pixels: grey, or red, green and blue."""
    height, width = pixels.shape[:2]
    # PNG: header, compressed lines, end; each chunk is (length, kind, data, checksum)
    color = 2 if pixels.ndim == 3 else 0
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # a line begins with its filter
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
