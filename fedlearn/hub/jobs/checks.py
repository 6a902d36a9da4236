"""Checks whether a job can be trained here, as far as that is known before it is."""

from collections.abc import Callable

from fedlearn.hub.bodies import Asked, DatasetConfig, ModelConfig, RefusedError
from fedlearn.hub.files import file_below, task_below
from fedlearn.hub.jobs.datasets import Images, images_of
from fedlearn.hub.jobs.spec import weights_between
from fedlearn.hub.settings import HubSettings

WEB = ("http://", "https://")
MAX_WEIGHTS = 4_000_000
LEAST_WINDOWS = 120
"""The least length of a text, in windows: a tenth of them is held out."""

LEAST_BYTES = 4000
MNIST_PIXELS = 28 * 28


def check_job(asked: Asked, settings: HubSettings, *, has: Callable[[str], bool]) -> str:
    """A notice for the client, or an empty text; `has` says whether a package is installed. Reads the data.

    Raises:
        RefusedError: there can be no such job.
    """
    model, dataset = asked.model_config, asked.dataset_config
    if model.layer_sizes and model.kind != "mlp":
        raise RefusedError(400, f"layer_sizes: expected none with the type {model.kind}; leave one of them out")
    if model.kind == "task":
        task_below(settings.tasks, model.task)
        return ""
    if not has("torch"):
        raise RefusedError(500, "the hub's machine lacks PyTorch; install it there: pip install 'fedlearn[hub]'")
    if model.kind == "transformer":
        _check_text(model, dataset, settings)
        return ""
    return _check_classifier(model, dataset, settings)


def _check_text(model: ModelConfig, dataset: DatasetConfig, settings: HubSettings) -> None:
    if model.width % model.n_heads:
        raise RefusedError(400, f"width: expected a multiple of n_heads, {model.n_heads}, got {model.width}")
    if not dataset.source:
        raise RefusedError(400, "dataset_config.source: expected a text within the hub's data folder, got none")
    path = file_below(settings.data, dataset.source, key="dataset_config.source")
    least = max(LEAST_BYTES, LEAST_WINDOWS * model.context // 10)
    if (length := path.stat().st_size) < least:
        raise RefusedError(
            400, f"dataset_config.source: expected a text of {least} bytes or more, got {length}; take a longer one"
        )


def _check_classifier(model: ModelConfig, dataset: DatasetConfig, settings: HubSettings) -> str:
    if len(model.layer_sizes) < 2:
        raise RefusedError(400, f"layer_sizes: expected two sizes or more, got {list(model.layer_sizes)}")
    if not dataset.name:
        raise RefusedError(400, "dataset_config.name: expected a collection of images such as MNIST, got none")
    if dataset.path and dataset.url:
        raise RefusedError(400, "dataset_config: expected path or url, got both; leave one of them out")
    if dataset.url and not dataset.url.lower().startswith(WEB):
        raise RefusedError(400, f"dataset_config.url: expected one with http or https, got {dataset.url!r}")
    try:
        images = images_of(dataset, settings.data)
    except ValueError as error:
        raise RefusedError(400, f"dataset_config: {error}") from error
    return _check_sizes(model.layer_sizes, dataset, images)


def _check_sizes(sizes: tuple[int, ...], dataset: DatasetConfig, images: Images) -> str:
    if sizes[-1] < images.n_classes:
        raise RefusedError(
            400, f"layer_sizes: expected at least {images.n_classes} last, a unit for each class, got {sizes[-1]}"
        )
    if sizes[0] not in ((images.n_pixels, MNIST_PIXELS) if images.is_stand_in else (images.n_pixels,)):
        raise RefusedError(
            400, f"layer_sizes: expected {images.n_pixels} first, the pixels of an image, got {sizes[0]}"
        )
    if (n_weights := weights_between((images.n_pixels, *sizes[1:]))) > MAX_WEIGHTS:
        raise RefusedError(400, f"layer_sizes: expected at most {MAX_WEIGHTS} weights, got {n_weights}; take fewer")
    by = dataset.normalize
    if by is not None and {len(by.mean), len(by.std)} - {1} and not len(by.mean) == len(by.std) == images.n_channels:
        raise RefusedError(
            400, f"normalize: expected one mean and std, or one for each of {images.n_channels} channels"
        )
    if not images.is_stand_in:
        return ""
    adapted = "" if sizes[0] == images.n_pixels else f": the first layer takes {images.n_pixels} in place of {sizes[0]}"
    return (
        f"{dataset.name}'s files are not here and could not be fetched, so {images.name} of {images.n_pixels} pixels "
        f"are used{adapted}"
    )
