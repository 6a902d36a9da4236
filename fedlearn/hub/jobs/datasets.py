"""Images to classify, by the names that torchvision gives their collections: from files, the web, or torchvision."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.data.cifar import CIFAR_FILES, read_cifar
from fedlearn.data.download import Cache
from fedlearn.data.idx import read_idx
from fedlearn.data.npz import read_npz
from fedlearn.hub.bodies import DatasetConfig
from fedlearn.hub.files import below

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""Names of the four files that MNIST and its kin are spread as."""

ARCHIVE_SUFFIX = ".npz"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
"""Names of the same four arrays in an archive of NumPy's, as Keras has them."""

OF_TORCHVISION = ("MNIST", "FashionMNIST", "KMNIST", "QMNIST", "EMNIST", "CIFAR10", "CIFAR100")
"""Collections that torchvision can be asked for, all of which have `train`, `data` and `targets`."""

PASSED_ON = ("split", "compat")
"""Arguments of a collection that say which images it has; of all others the hub decides."""

SMALL = "MNIST"
"""The name under which scikit-learn's digits are used where no files of it are found, which the answer says."""

SMALL_MAX = 16.0
"""The value of the brightest pixel of scikit-learn's digits."""

HELD_OUT_SHARE = 5
"""One digit in this many of scikit-learn's is held out; all others have held-out images of their own."""


class Images(msgspec.Struct, frozen=True, eq=False):
    """Images [rows, pixels] as bytes, channel after channel, and classes [rows] counted from 0."""

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    held_out_images: NDArray[np.uint8]
    held_out_labels: NDArray[np.int64]
    n_channels: int = 1
    is_stand_in: bool = False

    @property
    def n_pixels(self) -> int:
        """Number of inputs of a network that reads an image."""
        return int(self.images.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(max(self.labels.max(), self.held_out_labels.max())) + 1


def images_of(dataset: DatasetConfig, data: Path) -> Images:
    """The images that a request names; those of a name alone are looked for in the `data` folder, then in torchvision.

    Raises:
        RefusedError: the path leads out of the folder.
        ValueError: they cannot be had, or are no images with classes.
    """
    if dataset.path:
        return _from_files(dataset.name, below(data, dataset.path, key="dataset_config.path"))
    if dataset.url:
        return _from_web(dataset.name, dataset.url)
    for path in (data / dataset.name, data / f"{dataset.name}{ARCHIVE_SUFFIX}"):
        if path.resolve().exists() and path.resolve().is_relative_to(data.resolve()):
            return _from_files(dataset.name, path)
    try:
        return from_torchvision(dataset.name, dataset.args, data / "torchvision")
    except ValueError:
        if dataset.name.upper() != SMALL:
            raise
        return small_digits()


@lru_cache(maxsize=1)
def small_digits() -> Images:
    """The digits of scikit-learn, in an order that is the same everywhere.

    Raises:
        ValueError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ValueError("MNIST: expected its files in the hub's data folder, or scikit-learn's digits") from error

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = np.rint(images[order] * (255 / SMALL_MAX)).astype(np.uint8), labels[order].astype(np.int64)
    cut = len(labels) - len(labels) // HELD_OUT_SHARE
    return Images("scikit-learn's digits", images[:cut], labels[:cut], images[cut:], labels[cut:], is_stand_in=True)


def _from_files(name: str, path: Path) -> Images:
    title = f"{name} in {path.name}"
    if path.suffix == ARCHIVE_SUFFIX:
        return _of_arrays(title, read_npz(path, ARRAYS))
    if not path.is_dir():
        raise ValueError(f"{title}: expected a folder or an {ARCHIVE_SUFFIX} file")
    for files in CIFAR_FILES:
        found = [path / file for file in files if _is_below(path / file, path)]
        if len(found) == len(files):
            return _of_arrays(title, read_cifar(found))
    return _of_arrays(title, [read_idx(_packed_or_not(path, file)) for file in IDX_FILES])


def _from_web(name: str, url: str) -> Images:
    cache, title = Cache.of_user(os.environ), f"{name} from {url}"
    if urlsplit(url).path.endswith(ARCHIVE_SUFFIX):
        return _of_arrays(title, read_npz(cache.fetch(url), ARRAYS))
    return _of_arrays(title, [read_idx(cache.fetch(f"{url.rstrip('/')}/{file}.gz")) for file in IDX_FILES])


def from_torchvision(name: str, args: Mapping[str, Any], root: Path) -> Images:
    """A collection of torchvision's, which it fetches unless it is in the folder `root`.

    Raises:
        ValueError: torchvision has no such collection, or can't get it.
    """
    nowhere = f"{name}: expected its files in the hub's data folder, in a folder {name} or {name}{ARCHIVE_SUFFIX}"
    if name not in OF_TORCHVISION:
        raise ValueError(f"{nowhere}, or one of torchvision's {', '.join(OF_TORCHVISION)}")
    try:
        from torchvision import datasets

        collection: Callable[..., Any] = getattr(datasets, name)
        given = {key: value for key, value in args.items() if key in PASSED_ON}
        parts = [collection(str(root), train=is_training, download=True, **given) for is_training in (True, False)]
    except Exception as error:  # whatever torchvision, the web and the disk have to say
        raise ValueError(f"{nowhere}; torchvision could not fetch them: {error}") from error
    arrays = [np.asarray(array) for part in parts for array in (part.data, part.targets)]
    return _of_arrays(f"torchvision's {name}", arrays)


def _packed_or_not(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if _is_below(path, folder):
            return path
    raise ValueError(
        f"{name}: expected it, or the same with .gz, in the folder {folder.name}; put the four idx files there, "
        f"CIFAR's binary files, or name an {ARCHIVE_SUFFIX} file"
    )


def _is_below(path: Path, folder: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def _of_arrays(name: str, arrays: Sequence[NDArray[Any]]) -> Images:
    """Images [rows, height, width] or with channels last, and classes [rows] or [rows, 1], both twice.

    Raises:
        ValueError: they are something else.
    """
    images, labels, held_out_images, held_out_labels = arrays
    given = ", ".join(f"{array.dtype} {array.shape}" for array in arrays)
    for some, of_them in ((images, labels), (held_out_images, held_out_labels)):
        are_images = some.dtype == np.uint8 and some.ndim in (3, 4) and some.shape[1:] == images.shape[1:] and some.size
        if not are_images or of_them.shape not in ((len(some),), (len(some), 1)) or of_them.dtype.kind not in "iu":
            raise ValueError(f"{name}: expected bytes as images of one size with a whole number each, got {given}")
        if (least := _classes(of_them).min()) < 0:
            raise ValueError(f"{name}: expected classes from 0, got {least}")
    if labels.min() == labels.max():
        raise ValueError(f"{name}: expected two classes or more to learn from, got {labels.min()} alone")
    return Images(
        name,
        _pixels(images),
        _classes(labels),
        _pixels(held_out_images),
        _classes(held_out_labels),
        n_channels=images.shape[3] if images.ndim == 4 else 1,
    )


def _pixels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    by_channel = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images
    return np.ascontiguousarray(by_channel).reshape(len(images), -1)


def _classes(labels: NDArray[Any]) -> NDArray[np.int64]:
    return labels.reshape(-1).astype(np.int64)
