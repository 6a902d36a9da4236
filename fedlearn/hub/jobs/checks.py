"""Checks whether a job can be trained here, as far as that is known before it is."""

from collections.abc import Callable
from pathlib import Path

from fedlearn.hub.bodies import Asked, RefusedError
from fedlearn.hub.files import below, file_below, task_below
from fedlearn.hub.jobs.datasets import ARCHIVE_SUFFIX, MNIST_FILES, MNIST_PIXELS, N_CLASSES
from fedlearn.hub.jobs.spec import layers_of, weights_between
from fedlearn.hub.settings import HubSettings

WEB = ("http://", "https://")
MAX_WEIGHTS = 4_000_000


def check_job(asked: Asked, settings: HubSettings, *, has: Callable[[str], bool]) -> str:
    """A notice for the client, or an empty text; `has` says whether a package is installed.

    Raises:
        RefusedError: there can be no such job.
    """
    model, dataset = asked.model_config, asked.dataset_config
    if model.layer_sizes and model.kind != "mlp":
        raise RefusedError(400, f"layer_sizes: expected none with the type {model.kind}; leave one of them out")
    if model.kind == "task":
        task_below(settings.tasks, model.task)
        return ""
    _need(has, "torch", "PyTorch")
    if model.kind == "transformer":
        if model.width % model.n_heads:
            raise RefusedError(400, f"width: expected a multiple of n_heads, {model.n_heads}, got {model.width}")
        if not dataset.source:
            raise RefusedError(400, "dataset_config.source: expected a text within the hub's data folder, got none")
        file_below(settings.data, dataset.source, key="dataset_config.source")
        return ""
    note = _check_classifier(asked)
    if dataset.path and dataset.url:
        raise RefusedError(400, "dataset_config: expected path or url, got both; leave one of them out")
    if dataset.path:
        _check_mnist(below(settings.data, dataset.path, key="dataset_config.path"))
    elif dataset.url:
        if not dataset.url.lower().startswith(WEB):
            raise RefusedError(400, f"dataset_config.url: expected one with http or https, got {dataset.url!r}")
    else:
        _need(has, "sklearn", "scikit-learn")
    return note


def _check_classifier(asked: Asked) -> str:
    model, dataset = asked.model_config, asked.dataset_config
    sizes = model.layer_sizes
    if dataset.name.upper() != "MNIST":
        raise RefusedError(400, f"dataset_config.name: expected MNIST for layer_sizes, got {dataset.name!r}")
    if len(sizes) < 2 or sizes[-1] != N_CLASSES:
        raise RefusedError(400, f"layer_sizes: expected two sizes or more that end in {N_CLASSES}, got {list(sizes)}")
    if (n_weights := weights_between(layers_of(asked))) > MAX_WEIGHTS:
        raise RefusedError(400, f"layer_sizes: expected at most {MAX_WEIGHTS} weights, got {n_weights}; take fewer")
    n_pixels = layers_of(asked)[0]
    if sizes[0] == n_pixels:
        return ""
    if sizes[0] != MNIST_PIXELS:
        raise RefusedError(400, f"layer_sizes: expected {n_pixels} first, the pixels of an image, got {sizes[0]}")
    return (
        f"no path or url of MNIST's files is given, so scikit-learn's digits of {n_pixels} pixels are used: the first "
        f"layer takes {n_pixels} in place of {sizes[0]}"
    )


def _check_mnist(folder: Path) -> None:
    if folder.is_file() and folder.suffix == ARCHIVE_SUFFIX:
        return
    missing = [name for name in MNIST_FILES if not ((folder / name).is_file() or (folder / f"{name}.gz").is_file())]
    if missing:
        raise RefusedError(
            400, f"dataset_config.path: expected MNIST's files or an npz file there, missing: {', '.join(missing)}"
        )


def _need(has: Callable[[str], bool], module: str, name: str) -> None:
    if not has(module):
        raise RefusedError(500, f"the hub's machine lacks {name}; install it there: pip install 'fedlearn[hub]'")
