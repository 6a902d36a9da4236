import functools
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlearn.hub.bodies import Normalize
from fedlearn.hub.jobs.datasets import mnist, mnist_from, small_digits
from tests.hub.digit_files import arrays, write_archive, write_mnist


@pytest.mark.parametrize("packed", [True, False])
def test_files_of_mnist_are_images_from_nought_to_one(tmp_path: Path, packed: bool) -> None:
    digits = mnist(write_mnist(tmp_path / "mnist", packed=packed))
    images, labels, held_out, _ = arrays()
    assert digits.images.shape == (40, 784)
    assert [str(array.dtype) for array in (digits.images, digits.labels)] == ["float32", "int64"]
    assert np.allclose(digits.images * 255, images.reshape(40, -1), atol=1e-3)
    assert digits.labels.tolist() == labels.tolist()
    assert len(digits.held_out_images) == len(digits.held_out_labels) == len(held_out)


def test_an_archive_of_numpy_has_the_same_digits(tmp_path: Path) -> None:
    of_files, of_archive = mnist(write_mnist(tmp_path / "mnist")), mnist(write_archive(tmp_path / "mnist.npz"))
    for field in ("images", "labels", "held_out_images", "held_out_labels"):
        assert np.array_equal(getattr(of_files, field), getattr(of_archive, field))


@pytest.mark.parametrize("packed", [True, False])
def test_as_many_images_as_mnist_has_take_little_more_than_their_pixels(tmp_path: Path, packed: bool) -> None:
    folder = write_mnist(tmp_path / "mnist", packed=packed, n_training=60_000, n_held_out=10_000)
    pixels_bytes = 70_000 * 784 * 4
    tracemalloc.start()
    try:
        digits = mnist(folder).normalized(Normalize((0.1307,), (0.3081,)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    print(f"at most {peak / 1e6:.0f} MB for {pixels_bytes / 1e6:.0f} MB of pixels")
    assert (digits.images.shape, digits.held_out_images.shape) == ((60_000, 784), (10_000, 784))
    assert peak < 2.1 * pixels_bytes


def test_a_missing_file_and_images_of_another_size_are_told(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "small", side=8)
    with pytest.raises(ValueError, match="expected images of 28 x 28"):
        mnist(folder)
    with pytest.raises(ValueError, match="train-images-idx3-ubyte: expected it"):
        mnist(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links take a privilege there")
def test_a_file_that_a_link_leads_out_to_is_missing(tmp_path: Path) -> None:
    elsewhere, folder = write_mnist(tmp_path / "elsewhere", packed=False), tmp_path / "mnist"
    folder.mkdir()
    for path in elsewhere.iterdir():
        (folder / path.name).symlink_to(path)
    with pytest.raises(ValueError, match="expected it"):
        mnist(folder)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:  # noqa: ANN401
            return

    folder = write_mnist(tmp_path / "web" / "mnist").parent
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_are_fetched_once(web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    assert mnist_from(f"{web}/mnist/").images.shape == (40, 784)
    (tmp_path / "web" / "mnist").rename(tmp_path / "web" / "gone")
    assert mnist_from(f"{web}/mnist/").images.shape == (40, 784)
    with pytest.raises(ValueError, match="404"):
        mnist_from(f"{web}/other")


def test_an_archive_on_the_web_is_fetched(web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    write_archive(tmp_path / "web" / "mnist.npz")
    digits = mnist_from(f"{web}/mnist.npz")
    assert (digits.images.shape, digits.name) == ((40, 784), f"MNIST from {web}/mnist.npz")


def test_small_digits_are_the_same_everywhere_and_normalized_as_asked() -> None:
    pytest.importorskip("sklearn")
    digits = small_digits()
    assert digits.images.shape == (1438, 64)
    assert len(digits.held_out_labels) == 359
    assert digits.labels[:8].tolist() == small_digits().labels[:8].tolist()
    assert 0.0 == digits.images.min() < digits.images.max() == 1.0
    shifted = digits.normalized(Normalize((0.5,), (0.25,)))
    assert np.allclose(shifted.images, (digits.images - 0.5) / 0.25)
    assert np.allclose(shifted.held_out_images, (digits.held_out_images - 0.5) / 0.25)
    assert digits.normalized(None) is digits
