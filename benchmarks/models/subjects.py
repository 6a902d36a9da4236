"""Models of one's own, with their data, that benchmarks train."""

import math
import sys
from collections.abc import Callable
from contextlib import nullcontext

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.blocks import Columns

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
except ImportError:
    sys.exit("this benchmark needs PyTorch: pip install 'fedlearn[torch]'")

from fedlearn.tasks.torch.small_gpt import Shape, language_task, windows_of
from fedlearn.tasks.torch.supervised import Judge, Rows, Supervised, supervised

BATCH_SIZE = 32

SMALL = Shape(context=64, width=64, n_layers=2, n_heads=4)
TEN_MILLION = Shape(context=64, width=320, n_layers=8, n_heads=5)


class Subject(msgspec.Struct, frozen=True):
    """A model with its data."""

    task: Supervised
    loss: Judge
    unit: float = 1.0
    """What a loss in nats is divided by."""
    accuracy: Judge | None = None


def gpt(text: bytes, shape: Shape = SMALL) -> Subject:
    """A causal transformer that reads the bytes of a text."""
    task = language_task(windows_of(text, shape), shape, batch_size=BATCH_SIZE, settings={})
    return Subject(task, task._metrics["loss"], math.log(2))


def held_out_subject(
    make: Callable[[], nn.Module],
    loss: Judge,
    columns: Columns,
    n_held_out: int,
    *,
    unit: float = 1.0,
    accuracy: Judge | None = None,
) -> Subject:
    """A model with its data, of which the last rows are held out."""
    training = {name: column[:-n_held_out] for name, column in columns.items()}
    held_out = {name: column[-n_held_out:] for name, column in columns.items()}
    return Subject(supervised(make, loss, training, held_out=held_out, batch_size=BATCH_SIZE), loss, unit, accuracy)


def images_of_digits(shape: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Handwritten digits as images of this shape, and their labels, in an order by chance."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order] / 16).astype(np.float32).reshape(-1, *shape), labels[order].astype(np.int64)


def digits(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Subject:
    """A classifier of handwritten digits, which takes images of this shape."""
    images, labels = images_of_digits(shape)
    n_held_out = len(labels) - len(labels) * 4 // 5

    def loss(model: nn.Module, rows: Rows) -> Tensor:
        return F.cross_entropy(model(rows["image"]), rows["label"])

    def accuracy(model: nn.Module, rows: Rows) -> float:
        return float((model(rows["image"]).argmax(-1) == rows["label"]).float().mean())

    return held_out_subject(make, loss, {"image": images, "label": labels}, n_held_out, accuracy=accuracy)


def mlp() -> Subject:
    """A perceptron with a hidden layer, on handwritten digits."""
    return digits(lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), (64,))


def cnn() -> Subject:
    """Two convolutions and a head, on handwritten digits."""

    def make() -> nn.Module:
        layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1)]
        return nn.Sequential(*layers, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))

    return digits(make, (1, 8, 8))


def vit() -> Subject:
    """A vision transformer of timm, on handwritten digits in 16 patches."""
    from timm.models.vision_transformer import VisionTransformer

    def make() -> nn.Module:
        module: nn.Module = VisionTransformer(
            img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=64, depth=4, num_heads=4
        )
        return module

    return digits(make, (1, 8, 8))


def judged(subject: Subject, model: nn.Module) -> tuple[float, float | None]:
    """The loss of a model in evaluation on held-out rows, and its accuracy where it has one."""
    rows = {name: torch.as_tensor(column) for name, column in subject.task.held_out.items()}
    is_ours, is_training = model is subject.task.model, model.training
    with torch.no_grad(), subject.task.judging() if is_ours else nullcontext():
        loss = float(subject.loss(model.eval(), rows)) / subject.unit
        accuracy = None if subject.accuracy is None else float(subject.accuracy(model, rows))
    model.train(is_training)
    return loss, accuracy


def new_model(subject: Subject, seed: int) -> nn.Module:
    """The model as it is before the training of a run with this seed."""
    torch.manual_seed(seed)
    make = subject.task._model
    assert not isinstance(make, nn.Module)
    return make()


def subject_of(name: str, text: bytes) -> Subject:
    """The model of that name, new, with its data."""
    if name.startswith("gpt"):
        return gpt(text, SMALL if name == "gpt" else TEN_MILLION)
    return {"mlp": mlp, "cnn": cnn, "vit": vit}[name]()
