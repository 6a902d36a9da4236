"""Reads the bytes of an array without trust in the length that a file claims."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 2**28
"""The most bytes that one file's arrays have together: five times MNIST's."""

_PIECE_BYTES = 2**20


class Reads(Protocol):
    """Something that bytes come from: a file, packed or not, or a web server."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""


def read_array(file: Reads, shape: Sequence[int], *, max_bytes: int = MAX_BYTES) -> NDArray[np.uint8]:
    """The array of this shape that the rest of a file is; memory grows with what comes, never with what was announced.

    Raises:
        ValueError: the shape is none, has more elements than `max_bytes`, or others came.
    """
    if any(length < 0 for length in shape):
        raise ValueError(f"{tuple(shape)} is no shape")
    if (size := math.prod(shape)) > max_bytes:
        raise ValueError(f"{size} bytes are more than {max_bytes}")
    content = bytearray()
    while len(content) <= size and (piece := file.read(min(_PIECE_BYTES, size + 1 - len(content)))):
        content += piece
    if len(content) != size:
        raise ValueError(f"{size} bytes of an array {tuple(shape)} were to come, and {len(content)} or more came")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
