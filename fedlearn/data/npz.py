"""Arrays of bytes in an archive of NumPy's, as MNIST is spread beside its idx files. Nothing of it is unpickled."""

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

MAX_BYTES = 2**30
"""The most bytes of one array."""


def read_npz(path: Path, names: Sequence[str]) -> list[NDArray[np.uint8]]:
    """The arrays of these names.

    Raises:
        ValueError: one of them is missing, or something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = []
            for name in names:
                with archive.open(f"{name}.npy") as file:
                    found.append(_array(file, name))
            return found
    except KeyError as error:
        raise ValueError(f"{path}: expected arrays named {', '.join(names)}, one is not there") from error
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: expected an npz file with arrays of bytes, got another: {error}") from error


def _array(file: IO[bytes], name: str) -> NDArray[np.uint8]:
    version = npy.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"{name} has version {version} of the format")
    shape, is_fortran, dtype = npy.read_array_header_1_0(file)
    if dtype != np.uint8 or is_fortran:
        raise ValueError(f"{name} is of {dtype}; save it as uint8, in C order")
    if (size := math.prod(shape)) > MAX_BYTES:
        raise ValueError(f"{size} bytes of {name} are more than {MAX_BYTES}")
    content = file.read(size + 1)
    if len(content) != size:
        raise ValueError(f"{name}: {size} bytes of an array {shape} were to come, and {len(content)} or more came")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
