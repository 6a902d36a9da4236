"""Files like MNIST's, of a few images."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlearn.hub.jobs.datasets import ARRAYS, IDX_FILES


def arrays(n_training: int = 40, n_held_out: int = 10, side: int = 28) -> list[NDArray[np.uint8]]:
    generator = np.random.default_rng(0)
    found = []
    for n in (n_training, n_held_out):
        labels = np.arange(n, dtype=np.uint8) % 10
        images = generator.integers(0, 256, (n, side, side), dtype=np.uint8)
        found += [images, labels]
    return found


def write_archive(path: Path) -> Path:
    named: dict[str, Any] = dict(zip(ARRAYS, arrays(), strict=True))
    np.savez_compressed(path, **named)
    return path


def write_mnist(
    folder: Path, *, packed: bool = True, side: int = 28, n_training: int = 40, n_held_out: int = 10
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(IDX_FILES, arrays(n_training, n_held_out, side), strict=True):
        payload = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(payload, compresslevel=1))
        else:
            (folder / name).write_bytes(payload)
    return folder
