"""Handwritten digits to classify: MNIST's files where they are given, else the small ones of scikit-learn."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.data.download import Cache
from fedlearn.data.idx import read_idx
from fedlearn.data.npz import read_npz
from fedlearn.es.layout import Float32Array
from fedlearn.hub.bodies import Normalize

MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
ARCHIVE_SUFFIX = ".npz"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
"""Names of the same four arrays in MNIST's archive of NumPy."""

N_CLASSES = 10
MNIST_PIXELS = 28 * 28
SMALL_PIXELS = 8 * 8
SMALL_MAX = 16.0
"""The value of the brightest pixel of scikit-learn's digits."""

HELD_OUT_SHARE = 5
"""One digit in this many of scikit-learn's is held out; MNIST has files of its own for that."""


class Digits(msgspec.Struct, frozen=True, eq=False):
    """Images [rows, pixels] with pixels from 0 to 1, and classes [rows]."""

    name: str
    images: Float32Array
    labels: NDArray[np.int64]
    held_out_images: Float32Array
    held_out_labels: NDArray[np.int64]

    def normalized(self, by: Normalize | None) -> "Digits":
        """The same images with shifted and scaled pixels."""
        if by is None:
            return self
        mean, std = np.float32(by.mean[0]), np.float32(by.std[0])
        return msgspec.structs.replace(
            self, images=(self.images - mean) / std, held_out_images=(self.held_out_images - mean) / std
        )


def small_digits() -> Digits:
    """The digits of scikit-learn, in an order that is the same everywhere."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] / SMALL_MAX).astype(np.float32), labels[order].astype(np.int64)
    cut = len(labels) - len(labels) // HELD_OUT_SHARE
    return Digits("scikit-learn's digits", images[:cut], labels[:cut], images[cut:], labels[cut:])


def mnist(path: Path) -> Digits:
    """The digits of MNIST, from its four files in a folder, or from an npz file.

    Raises:
        ValueError: a file, which the message names, is missing or wrong.
    """
    name = f"MNIST in {path.name}"
    if path.suffix == ARCHIVE_SUFFIX:
        return _of_arrays(read_npz(path, ARRAYS), name=name)
    return _of_arrays([read_idx(_packed_or_not(path, file)) for file in MNIST_FILES], name=name)


def mnist_from(url: str) -> Digits:
    """The digits of MNIST, from the address on the web of its four compressed files, or of an npz file.

    Raises:
        ValueError: they cannot be had.
    """
    cache, name = Cache.of_user(os.environ), f"MNIST from {url}"
    if urlsplit(url).path.endswith(ARCHIVE_SUFFIX):
        return _of_arrays(read_npz(cache.fetch(url), ARRAYS), name=name)
    files = [cache.fetch(f"{url.rstrip('/')}/{file}.gz") for file in MNIST_FILES]
    return _of_arrays([read_idx(file) for file in files], name=name)


def _packed_or_not(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            return path
    raise ValueError(f"{name}: expected it, or the same with .gz, in the folder {folder.name}; put MNIST's files there")


def _of_arrays(arrays: Sequence[NDArray[np.uint8]], *, name: str) -> Digits:
    images, labels, held_out_images, held_out_labels = arrays
    for some, of_them in ((images, labels), (held_out_images, held_out_labels)):
        if some.shape[1:] != (28, 28) or of_them.shape != (len(some),) or not len(some) or of_them.max() >= N_CLASSES:
            raise ValueError(
                f"{name}: expected images of 28 x 28 with a class each, got {some.shape} and {of_them.shape}"
            )
    return Digits(
        name, _pixels(images), labels.astype(np.int64), _pixels(held_out_images), held_out_labels.astype(np.int64)
    )


def _pixels(images: NDArray[np.uint8]) -> Float32Array:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255.0)
