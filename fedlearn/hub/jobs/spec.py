"""The task of a job, made from the request wherever the job's `task.py` is named."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fedlearn.hub.bodies import Asked, RefusedError, Training
from fedlearn.hub.files import below, file_below
from fedlearn.hub.jobs.datasets import MNIST_PIXELS, SMALL_PIXELS, Digits, mnist, mnist_from, small_digits
from fedlearn.tasks.task import Setting

if TYPE_CHECKING:
    from fedlearn.tasks.torch.supervised import Supervised

ORDER_FILE = "order.json"
TASK_FILE = "task.py"
TASK_SOURCE = f'''"""The task of a job of the hub, which {ORDER_FILE} beside this file describes."""

from pathlib import Path

from fedlearn.hub.jobs.spec import read_task

task = read_task(Path(__file__).with_name("{ORDER_FILE}"))
'''
"""This text is the same for every job: nothing of a request ever becomes code."""

POPULATION = 512
TEXT_POPULATION = 256
GROUP_SIZE = 32
CLASSIFIER_BATCH = 64
TEXT_BATCH = 8
MAX_TEXT_BYTES = 8 * 2**20
STEPS_PER_EPOCH = 20
"""Steps of an epoch where there are no batches, or so many that a pass over them would take hours."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that defines the task."""

    asked: Asked
    training: Training
    data: str
    """The hub's data folder."""


def read_task(path: Path, *, say: Callable[[str], None] = print) -> "Supervised":
    """The task that the file describes; calls `say` with an explanation of it.

    Raises:
        ValueError: the task cannot be made.
    """
    order = msgspec.json.decode(path.read_bytes(), type=JobSpec)
    try:
        return _text_task(order, say) if order.asked.model_config.kind == "transformer" else _digits_task(order, say)
    except RefusedError as error:
        raise ValueError(error.text) from error


def layers_of(asked: Asked) -> tuple[int, ...]:
    """Sizes of a classifier's layers as they are trained: the first has the number of pixels of the digits."""
    dataset = asked.dataset_config
    return (MNIST_PIXELS if dataset.path or dataset.url else SMALL_PIXELS, *asked.model_config.layer_sizes[1:])


def weights_between(sizes: Sequence[int]) -> int:
    """Weights of the matrices between layers of these sizes."""
    return sum(n_in * n_out for n_in, n_out in pairwise(sizes))


def _digits_task(order: JobSpec, say: Callable[[str], None]) -> "Supervised":
    from fedlearn.tasks.torch.perceptron import classifier

    dataset, sizes = order.asked.dataset_config, order.asked.model_config.layer_sizes
    digits = _digits(order).normalized(dataset.normalize)
    n_rows, n_pixels = digits.images.shape
    if sizes[0] != n_pixels:
        say(f"layer_sizes: the first layer takes the {n_pixels} pixels of {digits.name} in place of {sizes[0]}")
    batch_size = min(dataset.batch_size or CLASSIFIER_BATCH, n_rows)
    per_epoch = math.ceil(n_rows / batch_size)
    say(f"data: {digits.name}, {n_rows} images to learn from, {len(digits.held_out_labels)} held out")
    settings = _settings(order, per_epoch, rate=0.03, sigma=0.05, population=POPULATION)
    _say_plan(order, settings, per_epoch, f"batches of {batch_size} images", say)
    return classifier(
        (n_pixels, *sizes[1:]),
        (digits.images, digits.labels),
        (digits.held_out_images, digits.held_out_labels),
        batch_size=batch_size,
        settings=settings,
    )


def _digits(order: JobSpec) -> Digits:
    dataset = order.asked.dataset_config
    if dataset.path:
        return mnist(below(Path(order.data), dataset.path, key="dataset_config.path"))
    return mnist_from(dataset.url) if dataset.url else small_digits()


def _text_task(order: JobSpec, say: Callable[[str], None]) -> "Supervised":
    from fedlearn.tasks.torch.small_gpt import Shape, language_task, windows_of

    dataset, model = order.asked.dataset_config, order.asked.model_config
    path = file_below(Path(order.data), dataset.source, key="dataset_config.source")
    with open(path, "rb") as file:
        text = file.read(MAX_TEXT_BYTES + 1)
    if len(text) > MAX_TEXT_BYTES:
        say(f"source: only the first {MAX_TEXT_BYTES} bytes are read")
    shape = Shape(model.context, model.width, model.n_layers, model.n_heads)
    windows = windows_of(text[:MAX_TEXT_BYTES], shape)
    batch_size = min(dataset.batch_size or TEXT_BATCH, len(windows.training))
    n_batches = math.ceil(len(windows.training) / batch_size)
    per_epoch = min(n_batches, STEPS_PER_EPOCH)
    say(
        f"data: {path.name}, {len(windows.training)} windows of {shape.context} bytes to learn from; counting bytes "
        f"alone reaches {windows.unigram:.4f} nats on what is held out"
    )
    if per_epoch < n_batches:
        say(f"epochs: {per_epoch} steps each, since a pass over the text would be {n_batches}")
    settings = _settings(order, per_epoch, rate=0.02, sigma=0.03, population=TEXT_POPULATION)
    _say_plan(order, settings, per_epoch, f"batches of {batch_size} windows", say)
    return language_task(windows, shape, batch_size=batch_size, settings=settings)


def _settings(order: JobSpec, per_epoch: int, *, rate: float, sigma: float, population: int) -> dict[str, Setting]:
    return {
        "steps": order.training.epochs * per_epoch,
        "learning_rate": order.training.learning_rate or rate,
        "sigma": sigma,
        "group_size": GROUP_SIZE,
        "population_limit": population,
        "time_per_step": 600.0,
    }


def _say_plan(
    order: JobSpec, settings: dict[str, Setting], per_epoch: int, batches: str, say: Callable[[str], None]
) -> None:
    population = int(settings["population_limit"])
    say(
        f"epochs: {order.training.epochs} of {per_epoch} steps, a step for each of the {batches} of a pass; each step "
        f"tries {population} members, forward only, in {population // GROUP_SIZE} groups with a batch of its own each"
    )
    say(f"learning rate: {settings['learning_rate']:g} (adam)")
    say("quantization: 8 bits, of the utilities that losses become; weights and trials are float32")
    say("device: the volunteers' own, by default cpu")
