"""Arrays of whole numbers in an archive of NumPy's, as MNIST is spread beside its idx files; nothing is unpickled."""

import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from fedlearn.data.exactly import MAX_BYTES, read_array

_UNREADABLE = (
    *(OSError, EOFError, ValueError, TypeError, RuntimeError, MemoryError, SyntaxError, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
"""What reading a damaged or foreign archive may raise; a header that is nested too deeply ends Python's parser with a
MemoryError."""


def read_npz(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """The arrays of these names.

    Raises:
        ValueError: one of them is missing, or something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found, left_bytes = list[NDArray[Any]](), MAX_BYTES
            for name in names:
                with archive.open(f"{name}.npy") as file:
                    found.append(_array(file, name, max_bytes=left_bytes))
                    left_bytes -= found[-1].nbytes
            return found
    except KeyError as error:
        raise ValueError(f"{path}: expected arrays named {', '.join(names)}, one is not there") from error
    except _UNREADABLE as error:
        raise ValueError(f"{path}: expected an npz file with arrays of whole numbers, got another: {error}") from error


def _array(file: IO[bytes], name: str, *, max_bytes: int) -> NDArray[Any]:
    version = npy.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"{name} has version {version} of the format")
    shape, is_fortran, dtype = npy.read_array_header_1_0(file)
    if dtype.kind not in "iu" or is_fortran:
        raise ValueError(f"{name} is of {dtype}; save it as whole numbers, such as uint8, in C order")
    try:
        raw = read_array(file, (*shape, dtype.itemsize), max_bytes=max_bytes)
        return raw.reshape(-1).view(dtype).reshape(shape)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
