"""Blocks of data: named arrays of one length that are sent to volunteers, and the rows of them that each group sees.

A block travels as safetensors bytes, a format of arrays that runs no code (https://huggingface.co/docs/safetensors),
and is named by the hash of its content.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, final

import numpy as np
import safetensors.numpy
from blake3 import blake3
from numpy.typing import NDArray
from safetensors import SafetensorError

import es_core

Columns = Mapping[str, NDArray[Any]]
"""Named arrays of one length: row i of every column is one example. Empty where a task has no data."""

NO_BLOCK = b""
"""Name of the block of a task without data."""

NAME_BYTES = 16
MAX_BLOCK_BYTES = 60 * 2**20
"""The most bytes of one block, which a volunteer holds in memory and receives in one message."""

MAX_HEADER_BYTES = 2**22
"""The most bytes of the names and shapes of columns; parsed, they take many times the memory of their text."""


@final
class NamedBlocks(Mapping[bytes, Columns]):
    """Blocks by name; only the one that was read last is held in memory."""

    def __init__(self, names: Sequence[bytes], blocks: Sequence[Columns]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._blocks = blocks
        self._last: tuple[bytes, Columns] | None = None

    def __getitem__(self, name: bytes) -> Columns:
        last = self._last
        if last is None or last[0] != name:
            last = self._last = (name, self._blocks[self._places[name]])
        return last[1]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def n_rows(columns: Columns) -> int:
    """Number of rows in the columns; 0 if there are none.

    Raises:
        ValueError: columns differ in length.
    """
    lengths = {name: len(column) if column.ndim else 0 for name, column in sorted(columns.items())}
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise ValueError(f"data: expected columns of one length, got {each}; give every column a value for each row")
    return next(iter(lengths.values()), 0)


def column_of(columns: Columns, name: str) -> NDArray[Any]:
    """The column of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in columns:
        raise ValueError(f"data: expected a column {name!r}, got {', '.join(sorted(columns)) or 'none'}")
    return columns[name]


def block_name(columns: Columns) -> bytes:
    """The name of a block: 16 bytes of a hash of its columns' names, dtypes, shapes and numbers, in any order."""
    if not columns:
        return NO_BLOCK
    digest = blake3(max_threads=blake3.AUTO)
    for name in sorted(columns):
        column = _little_endian(columns[name])
        header = f"{name}\0{column.dtype.str}\0{column.shape}\0"
        digest.update(header.encode())
        digest.update(column.reshape(-1).view(np.uint8).data)
    return digest.digest(NAME_BYTES)


def encode_block(columns: Columns) -> bytes:
    """The columns as safetensors bytes."""
    return safetensors.numpy.save({name: _little_endian(column) for name, column in columns.items()})


def decode_block(payload: bytes) -> Columns:
    """The columns of one length that were given to `encode_block`.

    Raises:
        ValueError: the bytes are no block.
    """
    columns = decode_arrays(payload)
    n_rows(columns)
    return columns


def decode_arrays(payload: bytes) -> Mapping[str, NDArray[Any]]:
    """The arrays of any shapes that were given to `encode_block`.

    Raises:
        ValueError: the bytes are no arrays.
    """
    if (header_bytes := int.from_bytes(payload[:8], "little")) > MAX_HEADER_BYTES:
        raise ValueError(f"block: expected safetensors bytes, got something else: a header of {header_bytes} bytes")
    try:
        arrays: Mapping[str, NDArray[Any]] = safetensors.numpy.load(payload)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"block: expected safetensors bytes, got something else: {error}") from error
    return arrays


def cut(columns: Columns, max_bytes: int = MAX_BLOCK_BYTES) -> list[Columns]:
    """The rows in as few pieces of nearly equal size as possible, in order; without data there are no pieces.

    Raises:
        ValueError: a row is larger than `max_bytes`.
    """
    rows = n_rows(columns)
    if rows == 0:
        return []
    row_bytes = sum(column.nbytes for column in columns.values()) // rows
    if row_bytes > max_bytes:
        raise ValueError(f"data: expected rows of at most {max_bytes} bytes, got {row_bytes}; make them smaller")
    n_pieces = -(-rows // (max_bytes // max(row_bytes, 1)))
    bounds = [rows * piece // n_pieces for piece in range(n_pieces + 1)]
    return [{name: column[start:end] for name, column in columns.items()} for start, end in pairwise(bounds)]


def group_words(seed: int, step: int, first_group: int, n_groups: int, batch_size: int) -> NDArray[np.uint64]:
    """Random words of each group, [n_groups, 1 + batch_size]: its seed, then one for each row."""
    return es_core.random_words(seed, step, first_group, n_groups, 1 + batch_size).astype(np.uint64)


def row_numbers(words: NDArray[np.uint64], rows: int) -> NDArray[np.int64]:
    """Numbers of the rows that groups see, [n_groups, batch_size], drawn with replacement by their random words."""
    return (words[:, 1:] * np.uint64(rows) >> np.uint64(32)).astype(np.int64)


def drawn_rows(columns: Columns, words: NDArray[np.uint64]) -> Columns:
    """The rows that groups see by their random words, [n_groups, batch_size, ...] of each column."""
    numbers = row_numbers(words, n_rows(columns))
    return {name: column[numbers] for name, column in columns.items()}


def _little_endian(column: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))
