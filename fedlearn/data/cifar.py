"""Reads CIFAR's binary files: rows of one byte for a class, of CIFAR-100 one for its kind before, and 3,072 of colours.

Source: https://www.cs.toronto.edu/~kriz/cifar.html
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIDE = 32
PIXELS = 3 * SIDE * SIDE
CIFAR10_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
CIFAR100_FILES = ("train.bin", "test.bin")
CIFAR_FILES = (CIFAR10_FILES, CIFAR100_FILES)
"""Names of the files of each, of which the last is held out."""


def read_cifar(paths: Sequence[Path]) -> list[NDArray[np.uint8]]:
    """Images [rows, 32, 32, 3] and classes [rows] of the files but the last, then those of the last.

    Raises:
        ValueError: a file is no such file.
    """
    n_labels = 1 if len(paths) == len(CIFAR10_FILES) else 2
    rows = [_rows(path, n_labels) for path in paths]
    parts = (np.concatenate(rows[:-1]), rows[-1])
    return [
        array
        for part in parts
        for array in (part[:, n_labels:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), part[:, n_labels - 1])
    ]


def _rows(path: Path, n_labels: int) -> NDArray[np.uint8]:
    found = np.fromfile(path, dtype=np.uint8)
    if not found.size or found.size % (n_labels + PIXELS):
        raise ValueError(f"{path}: expected rows of {n_labels + PIXELS} bytes, as CIFAR's are, got {found.size} bytes")
    return found.reshape(-1, n_labels + PIXELS)
