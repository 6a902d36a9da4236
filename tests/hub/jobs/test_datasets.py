import functools
import sys
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedlearn.data.cifar import CIFAR10_FILES, CIFAR100_FILES
from fedlearn.hub.bodies import DatasetConfig, RefusedError
from fedlearn.hub.jobs.datasets import ARRAYS, Images, images_of, small_digits
from tests.http_answering import answering
from tests.hub.digit_files import arrays, write_archive, write_mnist

FIELDS = ("images", "labels", "held_out_images", "held_out_labels")


def images(data: Path, path: str = "", name: str = "MNIST", url: str = "") -> Images:
    return images_of(DatasetConfig(name=name, path=path, url=url), data)


def saved(path: Path, *arrays: Any) -> None:  # noqa: ANN401
    named: dict[str, Any] = dict(zip(ARRAYS, arrays, strict=True))
    np.savez(path, **named)


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_and_an_archive_have_the_same_bytes(tmp_path: Path, packed: bool) -> None:
    write_mnist(tmp_path / "files", packed=packed)
    write_archive(tmp_path / "MNIST.npz")
    found = images(tmp_path, "files")
    given, labels, held_out, _ = arrays()
    assert [str(getattr(found, field).dtype) for field in FIELDS] == ["uint8", "int64", "uint8", "int64"]
    assert np.array_equal(found.images, given.reshape(40, -1))
    assert (found.labels.tolist(), found.n_classes, found.n_pixels) == (labels.tolist(), 10, 784)
    assert len(found.held_out_images) == len(found.held_out_labels) == len(held_out)
    by_name = images(tmp_path)  # what has the collection's name is found by it
    for field in FIELDS:
        assert np.array_equal(getattr(found, field), getattr(by_name, field))


def test_images_with_channels_and_classes_of_int64_in_a_column_are_as_keras_gives_them(tmp_path: Path) -> None:
    pixels = np.arange(2 * 2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 2, 3)
    classes = np.array([[0], [101]])
    saved(tmp_path / "some.npz", pixels, classes, pixels, classes)
    found = images(tmp_path, "some.npz", "CIFAR100")
    assert (found.n_channels, found.n_classes, found.labels.tolist()) == (3, 102, [0, 101])
    assert found.images[0].tolist() == [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]  # channel after channel


@pytest.mark.parametrize(("files", "n_labels"), [(CIFAR10_FILES, 1), (CIFAR100_FILES, 2)])
def test_cifars_binary_files_are_read_the_last_of_them_held_out(
    tmp_path: Path, files: tuple[str, ...], n_labels: int
) -> None:
    (tmp_path / "CIFAR10").mkdir()
    for number, file in enumerate(files):
        rows = [[9] * (n_labels - 1) + [label] + [7] * 3071 + [8] for label in (number, 99)]
        (tmp_path / "CIFAR10" / file).write_bytes(bytes(rows[0] + rows[1]))
    found = images(tmp_path, name="CIFAR10")
    assert found.labels.tolist() == [label for number in range(len(files) - 1) for label in (number, 99)]
    assert found.held_out_labels.tolist() == [len(files) - 1, 99]
    assert (found.n_channels, found.images[0, -2:].tolist()) == (3, [7, 8])
    (tmp_path / "CIFAR10" / files[-1]).write_bytes(b"short")
    with pytest.raises(ValueError, match="as CIFAR's are, got 5 bytes"):
        images(tmp_path, name="CIFAR10")


@pytest.mark.parametrize(
    "wrong",
    [
        (np.zeros((2, 4, 4), np.float32), [0, 1]),
        (np.zeros((2, 16), np.uint8), [0, 1]),
        (np.zeros((2, 4, 4), np.uint8), [0]),
        (np.zeros((2, 4, 4), np.uint8), [0, -1]),
        (np.zeros((2, 4, 4), np.uint8), np.array([0, 2**64 - 1], np.uint64)),
        (np.zeros((0, 4, 4), np.uint8), np.zeros(0, np.int64)),
        (np.zeros((2, 5, 5), np.uint8), [0, 1]),
    ],
)
def test_what_is_no_image_with_a_class_is_told(tmp_path: Path, wrong: tuple[Any, Any]) -> None:
    saved(tmp_path / "some.npz", np.zeros((2, 4, 4), np.uint8), [0, 1], *wrong)
    with pytest.raises(ValueError, match="expected"):
        images(tmp_path, "some.npz")


def test_a_collection_that_can_not_be_had_is_refused_and_only_mnist_has_a_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert images(tmp_path).is_stand_in
    with pytest.raises(ValueError, match=r"FashionMNIST: expected its files in .* torchvision could not fetch"):
        images(tmp_path, name="FashionMNIST")
    with pytest.raises(ValueError, match="or one of torchvision's MNIST, FashionMNIST"):
        images(tmp_path, name="Imagenet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="train-images-idx3-ubyte: expected it"):
        images(tmp_path, "empty")
    with pytest.raises(RefusedError, match="expected a name within"):
        images(tmp_path, "../other")


def test_torchvision_is_asked_by_name_with_the_arguments_that_choose_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class EMNIST:
        data, targets = np.zeros((2, 28, 28), np.uint8), np.array([0, 46])

        def __init__(self, root: str, **given: Any) -> None:  # noqa: ANN401
            asked.append((Path(root).name, given))

    stand_in = ModuleType("torchvision")
    stand_in.datasets = SimpleNamespace(EMNIST=EMNIST)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", stand_in)
    dataset = DatasetConfig(name="EMNIST", args={"split": "balanced", "root": "/etc", "download": False})
    assert images_of(dataset, tmp_path).n_classes == 47
    both = {"download": True, "split": "balanced"}
    assert asked == [("torchvision", {"train": True, **both}), ("torchvision", {"train": False, **both})]


@pytest.mark.skipif(sys.platform == "win32", reason="links take a privilege there")
def test_a_file_that_a_link_leads_out_to_is_missing(tmp_path: Path) -> None:
    elsewhere, folder = write_mnist(tmp_path / "elsewhere", packed=False), tmp_path / "mnist"
    folder.mkdir()
    for path in elsewhere.iterdir():
        (folder / path.name).symlink_to(path)
    with pytest.raises(ValueError, match="expected it"):
        images(tmp_path, "mnist")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:  # noqa: ANN401
            return

    folder = write_mnist(tmp_path / "web" / "mnist").parent
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    with answering(server) as url:
        yield url


def test_files_are_fetched_once(web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    assert images(tmp_path, url=f"{web}/mnist/").images.shape == (40, 784)
    (tmp_path / "web" / "mnist").rename(tmp_path / "web" / "gone")
    assert images(tmp_path, url=f"{web}/mnist/").images.shape == (40, 784)
    with pytest.raises(ValueError, match="404"):
        images(tmp_path, url=f"{web}/other")


def test_an_archive_on_the_web_is_fetched(web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    write_archive(tmp_path / "web" / "mnist.npz")
    digits = images(tmp_path, url=f"{web}/mnist.npz")
    assert (digits.images.shape, digits.name) == ((40, 784), f"MNIST from {web}/mnist.npz")


def test_small_digits_are_the_same_everywhere() -> None:
    pytest.importorskip("sklearn")
    digits = small_digits()
    assert digits.images.shape == (1438, 64)
    assert len(digits.held_out_labels) == 359
    assert (digits.images.min(), digits.images.max()) == (0, 255)
