"""A multilayer perceptron for classification, described by a list of layer sizes."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedlearn.tasks.task import Setting
from fedlearn.tasks.torch.supervised import Rows, Supervised, supervised

Examples = tuple[NDArray[np.float32] | NDArray[np.uint8], NDArray[np.int64]]
"""Inputs [rows, features], and classes [rows] counted from 0."""

Prepare = Callable[[Tensor], Tensor]
"""A function that makes a network's inputs [rows, features] of those that the data hold."""


def perceptron(layer_sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them; the sizes are those of features, hidden layers and classes."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(layer_sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def classifier(
    layer_sizes: Sequence[int],
    training: Examples,
    held_out: Examples,
    *,
    batch_size: int,
    settings: Mapping[str, Setting],
    prepare: Prepare = lambda inputs: inputs,
) -> Supervised:
    """A task that trains a perceptron by cross-entropy; `accuracy` and `loss` are measured on held-out examples."""

    def logits(model: nn.Module, rows: Rows) -> Tensor:
        found: Tensor = model(prepare(rows["x"]))
        return found

    def loss(model: nn.Module, rows: Rows) -> Tensor:
        return functional.cross_entropy(logits(model, rows), rows["y"])

    last: list[tuple[Rows, Tensor]] = []

    def examined(model: nn.Module, rows: Rows) -> Tensor:
        """The logits of held-out rows, computed once for both metrics: each examination has rows of its own."""
        if not last or last[0][0] is not rows:
            last[:] = [(rows, logits(model, rows))]
        return last[0][1]

    def accuracy(model: nn.Module, rows: Rows) -> Tensor:
        return (examined(model, rows).argmax(-1) == rows["y"]).to(torch.float32).mean()

    def held_out_loss(model: nn.Module, rows: Rows) -> Tensor:
        return functional.cross_entropy(examined(model, rows), rows["y"])

    return supervised(
        lambda: perceptron(layer_sizes),
        loss,
        _columns(training),
        held_out=_columns(held_out),
        batch_size=batch_size,
        metrics={"accuracy": accuracy, "loss": held_out_loss},
        settings=settings,
    )


def scaled_pixels(mean: Sequence[float], std: Sequence[float], *, n_channels: int) -> Prepare:
    """The function that makes floats of images of bytes [rows, pixels]: from 0 to 1, then less a mean, and divided.

    Both have a number for all pixels, or one for those of each channel.
    """

    def scaled(images: Tensor) -> Tensor:
        floats = images.to(torch.float32)
        if len(mean) == len(std) == 1:
            return floats.div(255.0 * std[0]).sub_(mean[0] / std[0])
        width = floats.shape[-1] // n_channels
        channels = [floats[:, i * width : (i + 1) * width] for i in range(n_channels)]
        return torch.cat([(x / 255.0 - m) / s for x, m, s in zip(channels, mean, std, strict=True)], dim=-1)

    return scaled


def _columns(examples: Examples) -> dict[str, ArrayLike]:
    return {"x": examples[0], "y": examples[1]}
