from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedlearn.hub.bodies import Asked, RefusedError
from fedlearn.hub.jobs.checks import check_job
from fedlearn.hub.jobs.datasets import MNIST_FILES
from fedlearn.hub.settings import HubSettings


def check(settings: HubSettings, model: dict[str, Any], missing: str = "", **dataset: Any) -> str:  # noqa: ANN401
    asked = msgspec.convert({"model_config": model, "dataset_config": dataset}, Asked)
    return check_job(asked, settings, has=lambda name: name != missing)


LAYERS = {"layer_sizes": [784, 128, 64, 10]}


def test_a_first_layer_that_does_not_fit_the_digits_there_are_is_told(settings: HubSettings) -> None:
    assert "the first layer takes 64 in place of 784" in check(settings, LAYERS, name="MNIST")
    assert check(settings, {"layer_sizes": [64, 10]}, name="mnist") == ""


def test_files_of_mnist_are_used_as_they_are(settings: HubSettings) -> None:
    folder = settings.data / "mnist"
    folder.mkdir()
    for name in MNIST_FILES[:-1]:
        (folder / f"{name}.gz").touch()
    with pytest.raises(RefusedError, match=f"missing: {MNIST_FILES[-1]}"):
        check(settings, LAYERS, name="MNIST", path="mnist")
    (folder / MNIST_FILES[-1]).touch()
    assert check(settings, LAYERS, name="MNIST", path="mnist") == ""
    (settings.data / "mnist.npz").touch()
    assert check(settings, LAYERS, name="MNIST", path="mnist.npz") == ""
    with pytest.raises(RefusedError, match="or an npz file there"):
        check(settings, LAYERS, name="MNIST", path="text.txt")
    assert check(settings, LAYERS, name="MNIST", url="https://example.org/mnist") == ""


@pytest.mark.parametrize(
    ("model", "dataset", "message"),
    [
        ({}, {"name": "MNIST"}, "layer_sizes: expected two sizes or more"),
        ({"layer_sizes": [784]}, {"name": "MNIST"}, "layer_sizes: expected two sizes or more"),
        ({"layer_sizes": [784, 11]}, {"name": "MNIST"}, "that end in 10"),
        ({"layer_sizes": [100, 10]}, {"name": "MNIST"}, "layer_sizes: expected 64 first"),
        ({"layer_sizes": [64, 10]}, {"name": "MNIST", "url": "https://x.org"}, "layer_sizes: expected 784 first"),
        ({"layer_sizes": [784, 65536, 10]}, {"name": "MNIST"}, "at most 4000000 weights, got 4849664"),
        (LAYERS, {}, "dataset_config.name: expected MNIST"),
        (LAYERS, {"name": "CIFAR-10"}, "dataset_config.name: expected MNIST for layer_sizes, got 'CIFAR-10'"),
        (LAYERS, {"name": "MNIST", "path": "../../etc"}, "dataset_config.path: expected a name within"),
        (LAYERS, {"name": "MNIST", "path": "a", "url": "https://b"}, "expected path or url, got both"),
        (LAYERS, {"name": "MNIST", "url": "file:///etc"}, "expected one with http or https"),
        (LAYERS | {"type": "transformer"}, {"source": "text.txt"}, "expected none with the type transformer"),
        ({"type": "transformer"}, {}, "dataset_config.source: expected a text"),
        ({"type": "transformer"}, {"source": "none.txt"}, "dataset_config.source: expected a name within"),
        ({"type": "transformer", "width": 33}, {"source": "text.txt"}, "width: expected a multiple of n_heads, 2"),
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
    for missing in ("torch", "sklearn"):
        with pytest.raises(RefusedError, match=r"the hub's machine lacks .*fedlearn\[hub\]") as refused:
            check(settings, LAYERS, missing=missing, name="MNIST")
        assert refused.value.status == 500
    assert check(settings, LAYERS, missing="sklearn", name="MNIST", url="https://example.org/mnist") == ""


def test_a_task_of_the_folder_is_fine(settings: HubSettings) -> None:
    Path(settings.tasks / "mine.py").write_text("task = 1")
    assert check(settings, {"type": "task", "task": "mine.py:task"}) == ""
