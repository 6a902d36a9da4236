"""Arrays as MNIST has them: a magic number that says type and dimensions, the sizes, the bytes."""

import gzip
import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_BYTES = 0x08
"""The type of elements that is read."""

MAX_BYTES = 2**30


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in a file, which may be compressed by gzip.

    Raises:
        ValueError: the file holds something else.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            zero, kind, n_dimensions = struct.unpack(">HBB", file.read(4))
            if zero or kind != _BYTES or not 1 <= n_dimensions <= 4:
                raise ValueError(f"its first bytes say type {kind} and {n_dimensions} dimensions")
            shape = struct.unpack(f">{n_dimensions}I", file.read(4 * n_dimensions))
            if (size := math.prod(shape)) > MAX_BYTES:
                raise ValueError(f"{size} bytes are more than {MAX_BYTES}")
            content = file.read(size + 1)
    except (OSError, EOFError, struct.error, ValueError) as error:
        raise ValueError(f"{path}: expected an idx file of bytes, as MNIST's are, got another: {error}") from error
    if len(content) != size:
        raise ValueError(
            f"{path}: expected {size} bytes of an array {shape}, got {len(content)} or more; fetch it anew"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
