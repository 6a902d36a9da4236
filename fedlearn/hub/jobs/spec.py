"""The task of a job, made from the request wherever the job's `task.py` is named."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fedlearn.es.strategy import AUDITED_PLAIN_STEPS
from fedlearn.hub.bodies import Asked, RefusedError, Training
from fedlearn.hub.files import file_below
from fedlearn.hub.jobs.datasets import images_of, small_digits
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

CLASSIFIER_BATCH = 64
TEXT_BATCH = 16
MAX_TEXT_BYTES = 8 * 2**20
MOST_MEMBERS = 8
"""The most parts that the rows of a batch are cut into: devices share the parts of each step."""

LOCAL_PRODUCTS = 4e9
"""The most products of weights and inputs between two exchanges of a lone device, which take it a second or some."""

STEPS_PER_EPOCH = 20
"""Steps of an epoch of a task file, whose batches the hub does not know."""

RATE = 0.1
"""The learning rate of a classifier, SGD's."""

TEXT_RATE = 0.02
"""The learning rate of a transformer, Muon's."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that defines the task."""

    asked: Asked
    training: Training
    data: str
    """The hub's data folder."""
    n_devices: int = 1
    """Number of devices that train from the beginning, which share the rows of a batch."""
    seats: int = 0
    """Devices that hold one replica between them; 0: each holds a whole one."""
    is_stand_in: bool = False
    """Whether the answer to the request said that other images are used than those that it names."""

    @property
    def takes_local_steps(self) -> bool:
        """Whether steps of a device need no exchange: it is alone, and its optimizer has no state to lose by one."""
        return self.n_devices == 1 and not self.seats and self.asked.model_config.kind == "mlp"

    @property
    def epochs(self) -> int:
        """Passes over the data."""
        return self.training.epochs or self.asked.model_config.usual_epochs


class BatchParts(msgspec.Struct, frozen=True):
    """Rows of one step: parts for devices to share, which together are the batch of the request."""

    n_members: int
    batch_size: int
    """Rows of each part."""

    @property
    def n_rows(self) -> int:
        """Rows of a step."""
        return self.n_members * self.batch_size


def parts_of(batch_size: int, n_devices: int) -> BatchParts:
    """The parts of a batch for so many devices: a power of two, so that usual batches are cut without a rest."""
    n_members = min(2 ** math.ceil(math.log2(max(n_devices, 1))), MOST_MEMBERS, batch_size)
    return BatchParts(n_members, batch_size // n_members)


def local_steps_of(per_epoch: int, products: float) -> int:
    """The number of steps that a lone device takes between two exchanges: one with which a pass over the data, of
    `per_epoch` steps with so many products of weights and inputs each, is nearly whole exchanges.
    """
    most = int(min(AUDITED_PLAIN_STEPS, per_epoch, max(LOCAL_PRODUCTS / products, 1)))
    return min(range(most, most // 2, -1), key=lambda steps: -per_epoch % steps)


def read_task(path: Path, *, say: Callable[[str], None] = print) -> "Supervised":
    """The task that the file describes; calls `say` with an explanation of it.

    Raises:
        ValueError: the task cannot be made.
    """
    order = msgspec.json.decode(path.read_bytes(), type=JobSpec)
    try:
        return _text_task(order, say) if order.asked.model_config.kind == "transformer" else _images_task(order, say)
    except RefusedError as error:
        raise ValueError(error.text) from error


def weights_between(sizes: Sequence[int]) -> int:
    """Weights of the matrices between layers of these sizes."""
    return sum(n_in * n_out for n_in, n_out in pairwise(sizes))


def _images_task(order: JobSpec, say: Callable[[str], None]) -> "Supervised":
    from fedlearn.tasks.torch.perceptron import classifier, scaled_pixels

    dataset, sizes = order.asked.dataset_config, order.asked.model_config.layer_sizes
    scaling = ((0.0,), (1.0,)) if dataset.normalize is None else (dataset.normalize.mean, dataset.normalize.std)
    images = small_digits() if order.is_stand_in else images_of(dataset, Path(order.data))
    if sizes[0] != images.n_pixels:
        say(f"layer_sizes: the first layer takes the {images.n_pixels} pixels of {images.name} in place of {sizes[0]}")
    say(f"data: {images.name}, {len(images.labels)} images to learn from, {len(images.held_out_labels)} held out")
    batch_size, settings = _plan(order, len(images.labels), min(dataset.batch_size or CLASSIFIER_BATCH, 2**16), say)
    return classifier(
        (images.n_pixels, *sizes[1:]),
        (images.images, images.labels),
        (images.held_out_images, images.held_out_labels),
        batch_size=batch_size,
        settings=settings,
        prepare=scaled_pixels(*scaling, n_channels=images.n_channels),
    )


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
    say(
        f"data: {path.name}, {len(windows.training)} windows of {shape.context} bytes to learn from; counting bytes "
        f"alone reaches {windows.unigram:.4f} nats on what is held out"
    )
    # Windows overlap by half: half of them are as many bytes as the text has.
    n_rows = max(len(windows.training) // 2, 1)
    batch_size, settings = _plan(order, n_rows, dataset.batch_size or TEXT_BATCH, say)
    return language_task(windows, shape, batch_size=batch_size, settings=settings)


def _plan(order: JobSpec, n_rows: int, asked: int, say: Callable[[str], None]) -> tuple[int, dict[str, Setting]]:
    """The rows of a member and the settings of a run, over data of `n_rows` and by batches of `asked` of them."""
    parts = parts_of(min(asked, n_rows), order.n_devices)
    per_epoch, n_local = math.ceil(n_rows / parts.n_rows), 1
    if order.takes_local_steps:
        n_local = local_steps_of(per_epoch, weights_between(order.asked.model_config.layer_sizes) * parts.n_rows)
    n_exchanges = math.ceil(per_epoch / n_local)
    settings = _settings(order, n_exchanges, parts, n_local)
    shared = (
        f"pass through the devices by {parts.batch_size}" if order.seats else f"devices share by {parts.batch_size}"
    )
    n_steps = n_exchanges * n_local
    say(f"epochs: {order.epochs} passes over the data, each {n_steps} steps of {parts.n_rows} rows, which {shared}")
    if n_local > 1:
        say(f"exchanges: one after {n_local} steps, since one device takes them")
    say(f"learning rate: {settings['learning_rate']:g} ({settings['optimizer']})")
    say("quantization: 8 bits, of all that is sent after a step; weights are float32")
    say("device: the volunteers' own, by default cpu")
    return parts.batch_size, settings


def _settings(order: JobSpec, n_exchanges: int, parts: BatchParts, n_local: int) -> dict[str, Setting]:
    """Settings of a run with `n_exchanges` steps in an epoch, each of which is `n_local` of plain PyTorch on the same
    rows."""
    rate = order.training.learning_rate
    if order.asked.model_config.kind != "transformer":
        chosen: dict[str, Setting] = {"optimizer": "sgd", "beta1": 0.0, "learning_rate": rate or RATE}
        chosen["learning_rate_schedule"] = "constant"
    elif rate is None:
        chosen = {"optimizer": "muon", "learning_rate": TEXT_RATE}
    else:
        chosen = {"optimizer": "adam", "learning_rate": rate, "learning_rate_schedule": "constant"}
    return chosen | {
        "measure": "gradients",
        "local_steps": n_local,
        "sum_bits": 8,
        "steps": order.epochs * n_exchanges,
        "sample_every": n_exchanges,
        "population_limit": parts.n_members,
        "max_population": parts.n_members,  # devices that come later make no longer steps
        "time_per_step": 600.0,
    }
