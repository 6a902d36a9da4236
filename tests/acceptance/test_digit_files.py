"""The job for MNIST on files of its form: in a folder of the hub, and as an archive on the web.

The images are scikit-learn's digits, enlarged to 28 x 28: nothing is downloaded.
"""

import functools
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.hub.jobs.datasets import ARRAYS, MNIST_FILES, small_digits
from tests.acceptance.hubs import Place, devices_of, hub_in, skip_without

skip_without("torch", "sklearn", "starlette")
pytestmark = pytest.mark.long


def enlarged(images: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Images [rows, 28, 28] of bytes: each pixel three times wide and high, within a margin."""
    wide = images.reshape(-1, 8, 8).repeat(3, axis=1).repeat(3, axis=2)
    return np.pad((wide * 255).astype(np.uint8), ((0, 0), (2, 2), (2, 2)))


def arrays() -> list[NDArray[np.uint8]]:
    digits = small_digits()
    labels, held_out_labels = digits.labels.astype(np.uint8), digits.held_out_labels.astype(np.uint8)
    return [enlarged(digits.images), labels, enlarged(digits.held_out_images), held_out_labels]


def write_files(folder: Path) -> None:
    folder.mkdir()
    for name, array in zip(MNIST_FILES, arrays(), strict=True):
        (folder / name).write_bytes(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a web server with the files of a folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def trained(place: Place, dataset: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
    """The job at its end, trained by one device."""
    body = {"model_config": {"layer_sizes": [784, 32, 10]}, "dataset_config": {"name": "MNIST", **dataset}}
    assert place.curl("POST", "/api/jobs", body).content == {"message": "Job created", "job_id": 1}
    with devices_of(place, "ada", job=1):
        assert place.curl("POST", "/api/network/initialize/1").status == 200
        assert place.curl("POST", "/api/network/train/1", training).status == 200
        job = place.wait(lambda job: job["status"] == "completed" and "accuracy" in job["validation"])
    assert "1438 images to learn from, 359 held out" in place.log()
    assert "in place of" not in place.log()
    return job


def test_idx_files_in_the_folder_of_the_hub_are_learned(tmp_path: Path) -> None:
    with hub_in(tmp_path) as place:
        write_files(place.folder / "data" / "mnist")
        job = trained(place, {"path": "mnist", "batch_size": 64}, {"epochs": 3, "learning_rate": 0.03})
    print(f"accuracy {job['validation']['accuracy']:.3f} after {job['steps']} steps")
    assert job["validation"]["accuracy"] >= 0.9


def test_an_archive_on_the_web_is_fetched_and_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "web").mkdir()
    named: dict[str, Any] = dict(zip(ARRAYS, arrays(), strict=True))
    np.savez_compressed(tmp_path / "web" / "mnist.npz", **named)
    with served(tmp_path / "web") as url, hub_in(tmp_path) as place:
        job = trained(place, {"url": f"{url}/mnist.npz", "batch_size": 720}, {"epochs": 2})
        assert f"data: MNIST from {url}/mnist.npz" in place.log()
    assert job["steps"] == 2 * 2
