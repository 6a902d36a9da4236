import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.hub.bodies import Asked, RefusedError
from fedlearn.hub.jobs.checks import check_job
from fedlearn.hub.jobs.datasets import ARRAYS
from fedlearn.hub.settings import HubSettings
from tests.hub.digit_files import write_mnist


def check(settings: HubSettings, model: dict[str, Any], missing: str = "", **dataset: Any) -> str:  # noqa: ANN401
    asked = msgspec.convert({"model_config": model, "dataset_config": dataset}, Asked)
    return check_job(asked, settings, has=lambda name: name != missing)


LAYERS = {"layer_sizes": [784, 128, 64, 10]}


@pytest.fixture(autouse=True)
def _no_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)


def test_small_digits_take_the_place_of_mnist_and_the_answer_says_so(settings: HubSettings) -> None:
    pytest.importorskip("sklearn")
    said = check(settings, LAYERS, name="MNIST")
    assert "MNIST's files are not here" in said
    assert "the first layer takes 64 in place of 784" in said
    assert "in place of" not in check(settings, {"layer_sizes": [64, 10]}, name="MNIST")


def test_files_are_read_when_the_job_is_made(settings: HubSettings) -> None:
    write_mnist(settings.data / "KMNIST")
    assert check(settings, LAYERS, name="KMNIST") == check(settings, {"layer_sizes": [784, 12]}, name="KMNIST") == ""
    with pytest.raises(RefusedError, match="expected 784 first"):
        check(settings, {"layer_sizes": [64, 10]}, name="KMNIST")
    with pytest.raises(RefusedError, match="expected at least 10 last"):
        check(settings, {"layer_sizes": [784, 9]}, name="KMNIST")
    with pytest.raises(RefusedError, match="one for each of 1 channels"):
        check(settings, LAYERS, name="KMNIST", normalize={"mean": [0.1, 0.2], "std": [1.0]})
    (settings.data / "KMNIST" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"no file")
    with pytest.raises(RefusedError, match="expected an idx file"):
        check(settings, LAYERS, name="KMNIST")


PIXELS, CLASSES = np.zeros((4, 28, 28), np.uint8), np.arange(4)


@pytest.mark.parametrize(
    ("pixels", "classes", "message"),
    [
        (PIXELS, np.array(["a", "b", "c", "d"]), "y_train is of <U1; save it as whole numbers"),
        (PIXELS, np.array(["a", "b", "c", "d"], object), "y_train is of object"),
        (np.full((4, 28, 28), np.nan, np.float32), CLASSES, "x_train is of float32; save it as whole numbers, such"),
        (PIXELS.astype(np.int32), CLASSES, "expected bytes as images .* got int32"),
        (PIXELS, CLASSES[:3], r"a whole number each, got uint8 \(4, 28, 28\), int64 \(3,\)"),
        (PIXELS, np.eye(4, dtype=np.int64), "a whole number each, got .* int64"),
        (PIXELS[0], CLASSES, "as images of one size"),
        (PIXELS[:0], CLASSES[:0], "as images of one size"),
        (PIXELS, CLASSES - 1, "expected classes from 0, got -1"),
        (PIXELS, CLASSES * 0 + 2, "expected two classes or more to learn from, got 2 alone"),
        (PIXELS, CLASSES * 4, "layer_sizes: expected at least 13 last, a unit for each class, got 10"),
    ],
)
def test_files_that_can_not_be_trained_on_are_refused_when_the_job_is_made(
    settings: HubSettings, pixels: NDArray[Any], classes: NDArray[Any], message: str
) -> None:
    given: dict[str, Any] = dict(zip(ARRAYS, (pixels, classes) * 2, strict=True))
    np.savez(settings.data / "MNIST.npz", **given)
    with pytest.raises(RefusedError, match=message) as refused:
        check(settings, LAYERS, name="MNIST")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("model", "dataset", "message"),
    [
        ({}, {"name": "MNIST"}, "layer_sizes: expected two sizes or more"),
        ({"layer_sizes": [784]}, {"name": "MNIST"}, "layer_sizes: expected two sizes or more"),
        ({"layer_sizes": [784, 9]}, {"name": "MNIST"}, "layer_sizes: expected at least 10 last"),
        ({"layer_sizes": [100, 10]}, {"name": "MNIST"}, "layer_sizes: expected 64 first"),
        ({"layer_sizes": [784, 65536, 10]}, {"name": "MNIST"}, "at most 4000000 weights, got 4849664"),
        (LAYERS, {}, "dataset_config.name: expected a collection"),
        (LAYERS, {"name": "CIFAR-10"}, "CIFAR-10: expected its files in the hub's data folder"),
        (LAYERS, {"name": "MNIST", "path": "../../etc"}, "dataset_config.path: expected a name within"),
        (LAYERS, {"name": "MNIST", "path": "a", "url": "https://b"}, "expected path or url, got both"),
        (LAYERS, {"name": "MNIST", "url": "file:///etc"}, "expected one with http or https"),
        (LAYERS | {"type": "transformer"}, {"source": "text.txt"}, "expected none with the type transformer"),
        ({"type": "transformer"}, {}, "dataset_config.source: expected a text"),
        ({"type": "transformer"}, {"source": "none.txt"}, "dataset_config.source: expected a name within"),
        ({"type": "transformer", "width": 33}, {"source": "text.txt"}, "width: expected a multiple of n_heads, 4"),
        ({"type": "transformer", "context": 1024}, {"source": "text.txt"}, "a text of 12288 bytes or more, got 5000"),
        ({"type": "task"}, {}, "task: expected FILE.py:NAME"),
        ({"type": "task", "task": "none.py:task"}, {}, "task: expected a name within"),
    ],
)
def test_a_job_that_can_not_be_is_refused_with_the_key(
    settings: HubSettings, model: dict[str, Any], dataset: dict[str, Any], message: str
) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        check(settings, model, **dataset)
    assert refused.value.status == 400


def test_what_the_machine_lacks_is_named(settings: HubSettings) -> None:
    with pytest.raises(RefusedError, match=r"the hub's machine lacks .*fedlearn\[hub\]") as refused:
        check(settings, LAYERS, missing="torch", name="MNIST")
    assert refused.value.status == 500


def test_a_task_of_the_folder_is_fine(settings: HubSettings) -> None:
    Path(settings.tasks / "mine.py").write_text("task = 1")
    assert check(settings, {"type": "task", "task": "mine.py:task"}) == ""
