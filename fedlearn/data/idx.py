"""Reads arrays in MNIST's format: a magic number for type and dimensions, the sizes, and the bytes."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlearn.data.exactly import read_array

_BYTES = 0x08
"""The code of the only type of elements that is supported."""


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
            return read_array(file, shape)
    except (OSError, EOFError, struct.error, zlib.error, ValueError) as error:
        raise ValueError(f"{path}: expected an idx file of bytes, as MNIST's are, got another: {error}") from error
