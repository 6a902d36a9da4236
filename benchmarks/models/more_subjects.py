"""Networks of many kinds, with data that are made here or come with scikit-learn; no setting was chosen by them."""

import sys
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedlearn.tasks.blocks import Columns

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
except ImportError:
    sys.exit("this benchmark needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.models.subjects import Subject, held_out_subject, images_of_digits
from fedlearn.tasks.torch.supervised import Judge, Rows

N_HELD_OUT = 300

Make = Callable[[], nn.Module]


def subject(make: Make, loss: Judge, columns: Columns) -> Subject:
    """A model with its data, of which the last rows are held out."""
    return held_out_subject(make, loss, columns, N_HELD_OUT)


def square_error(model: nn.Module, rows: Rows) -> Tensor:
    """The loss of a model that gives a number a row."""
    return F.mse_loss(model(rows["x"])[:, 0], rows["y"])


def cross_entropy(model: nn.Module, rows: Rows) -> Tensor:
    """The loss of a model that gives logits."""
    return F.cross_entropy(model(rows["x"]), rows["y"])


def perceptron(*widths: int) -> nn.Module:
    """Linear layers of these widths, with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def digits() -> Columns:
    """Handwritten digits as images [1, 8, 8], and their labels."""
    images, labels = images_of_digits((1, 8, 8))
    return {"x": images, "y": labels}


def numbers(n_rows: int, n_columns: int) -> tuple[NDArray[np.float32], np.random.Generator]:
    """Uniform numbers from 0 to 1, and the generator that drew them."""
    generator = np.random.default_rng(0)
    return generator.random((n_rows, n_columns), dtype=np.float32), generator


def regression() -> Subject:
    """Friedman's first function of ten numbers, by a perceptron with two hidden layers."""
    x, _ = numbers(4000, 10)
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return subject(lambda: perceptron(10, 64, 64, 1), square_error, {"x": x, "y": y})


def prices() -> Subject:
    """Targets in thousands that nobody has scaled, by the same kind of perceptron."""
    x, _ = numbers(4000, 8)
    y = 2000 + 2000 * x[:, 0] * x[:, 1] + 1000 * np.abs(x[:, 2] - 0.5)
    return subject(lambda: perceptron(8, 64, 64, 1), square_error, {"x": x, "y": y})


def ages() -> Subject:
    """Targets of tens with a deviation of 5 that nothing explains, by two hidden layers of 128."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(4000, 12)).astype(np.float32)
    y = 45 + 12 * np.tanh(x[:, 0] + x[:, 1] * x[:, 2]) + 5 * generator.normal(size=4000)
    return subject(lambda: perceptron(12, 128, 128, 1), square_error, {"x": x, "y": y.astype(np.float32)})


def logistic() -> Subject:
    """A linear classifier of digits, which has no hidden matrix."""
    return subject(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), cross_entropy, digits())


def deep() -> Subject:
    """A perceptron of eight hidden layers without norms or residuals, of digits."""
    return subject(lambda: nn.Sequential(nn.Flatten(), perceptron(*[64] * 9, 10)), cross_entropy, digits())


def autoencoder() -> Subject:
    """Digits through eight numbers."""

    def make() -> nn.Module:
        layers = [nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8), nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64)]
        return nn.Sequential(nn.Flatten(), *layers)

    def loss(model: nn.Module, rows: Rows) -> Tensor:
        return F.mse_loss(model(rows["x"]), rows["x"].flatten(1))

    return subject(make, loss, digits())


class ResidualBlock(nn.Module):
    """Two convolutions behind group norms, added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [(nn.GroupNorm(4, width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(2)]
        self.layers = nn.Sequential(*[module for layer in layers for module in layer])

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, width, H, W] to the same."""
        change: Tensor = self.layers(x)
        return x + change


def resnet() -> Subject:
    """Three residual blocks of convolutions, on digits."""

    def make() -> nn.Module:
        blocks = [ResidualBlock(24) for _ in range(3)]
        return nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)
        )

    return subject(make, cross_entropy, digits())


class ConvNet(nn.Module):
    """The network of PyTorch's examples, with batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.hidden, self.head = nn.Linear(512, 64), nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images [B, 1, 8, 8] to logits [B, 10]."""
        x = F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(images))))))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        logits: Tensor = self.head(self.dropout2(F.relu(self.hidden(x))))
        return logits


def convnet() -> Subject:
    """Convolutions with batch norms and dropout, on digits."""
    return subject(ConvNet, cross_entropy, digits())


def depthwise() -> Subject:
    """Convolutions by channel and across channels in turn, as in MobileNet, on digits."""

    def make() -> nn.Module:
        def separable(inputs: int, outputs: int) -> list[nn.Module]:
            spatial = nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs)
            return [spatial, nn.Conv2d(inputs, outputs, 1), nn.SiLU()]

        first = [nn.Conv2d(1, 32, 3, padding=1), nn.SiLU(), *separable(32, 64), *separable(64, 64)]
        return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    return subject(make, cross_entropy, digits())


class Mixer(nn.Module):
    """Perceptrons over 16 patches and over channels in turn."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.over_patches = nn.ModuleList(perceptron(16, 32, 16) for _ in range(depth))
        self.over_channels = nn.ModuleList(perceptron(width, 64, width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Maps images [B, 1, 8, 8] to logits [B, 10]."""
        x = self.patches(images).flatten(2).mT
        for layer, (patches, channels) in enumerate(zip(self.over_patches, self.over_channels, strict=True)):
            x = x + patches(self.norms[2 * layer](x).mT).mT
            x = x + channels(self.norms[2 * layer + 1](x))
        logits: Tensor = self.head(x.mean(1))
        return logits


def mixer() -> Subject:
    """An MLP-Mixer, on digits."""
    return subject(Mixer, cross_entropy, digits())


class UNet(nn.Module):
    """A step down and a step up, with a connection past them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.middle, self.up = nn.Conv2d(32, 32, 3, padding=1), nn.ConvTranspose2d(32, 16, 2, 2)
        self.last = nn.Conv2d(32, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps images [B, 1, H, W] to the same."""
        fine = F.silu(self.first(x))
        coarse = F.silu(self.middle(F.silu(self.down(fine))))
        image: Tensor = self.last(torch.cat([fine, self.up(coarse)], 1))
        return image


def unet() -> Subject:
    """Digits out of noise, by convolutions down and up."""
    images = digits()["x"]
    noisy = (images + np.random.default_rng(0).normal(0.0, 0.3, images.shape)).astype(np.float32)

    def loss(model: nn.Module, rows: Rows) -> Tensor:
        return F.mse_loss(model(rows["noisy"]), rows["x"])

    return subject(UNet, loss, {"x": images, "noisy": noisy})


class Adder(nn.Module):
    """A GRU whose last state is read."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = nn.GRU(2, 64, batch_first=True), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, T, 2] to [B, 1]."""
        states, _ = self.recurrent(x)
        total: Tensor = self.head(states[:, -1])
        return total


def adding() -> Subject:
    """The sum of two marked numbers of thirty, by a GRU."""
    values, generator = numbers(6000, 30)
    marks = np.zeros_like(values)
    chosen = generator.permuted(np.tile(np.arange(30), (6000, 1)), axis=1)[:, :2]
    np.put_along_axis(marks, chosen, 1.0, axis=1)
    return subject(Adder, square_error, {"x": np.stack([values, marks], axis=2), "y": (values * marks).sum(axis=1)})


class Recommender(nn.Module):
    """Embeddings of users and of things, and a perceptron over both and their product."""

    def __init__(self, n_users: int, n_things: int) -> None:
        super().__init__()
        self.users, self.things = nn.Embedding(n_users, 16), nn.Embedding(n_things, 16)
        self.score = perceptron(48, 64, 1)

    def forward(self, user: Tensor, thing: Tensor) -> Tensor:
        """Maps numbers of users and things [B] to scores [B]."""
        one, other = self.users(user), self.things(thing)
        scores: Tensor = self.score(torch.cat([one, other, one * other], 1))[:, 0]
        return scores


def recommender() -> Subject:
    """What 300 users think of 200 things, a product of four hidden numbers each."""
    generator = np.random.default_rng(0)
    users, things = generator.normal(size=(300, 4)), generator.normal(size=(200, 4))
    user, thing = generator.integers(0, 300, 12000), generator.integers(0, 200, 12000)
    score = ((users[user] * things[thing]).sum(axis=1) + 0.1 * generator.normal(size=12000)).astype(np.float32)

    def loss(model: nn.Module, rows: Rows) -> Tensor:
        return F.mse_loss(model(rows["user"], rows["thing"]), rows["score"])

    return subject(lambda: Recommender(300, 200), loss, {"user": user, "thing": thing, "score": score})


class Siren(nn.Module):
    """Sines of thirty times linear layers, whose matrices begin accordingly small."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(inputs, 64) for inputs in (2, 64, 64))
        self.head = nn.Linear(64, 1)
        bounds = (0.5, (6 / 64) ** 0.5 / 30, (6 / 64) ** 0.5 / 30)
        for layer, bound in zip(self.hidden, bounds, strict=True):
            nn.init.uniform_(layer.get_parameter("weight"), -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Maps places [B, 2] to values [B, 1]."""
        for layer in self.hidden:
            x = torch.sin(30 * layer(x))
        values: Tensor = self.head(x)
        return values


def siren() -> Subject:
    """A picture as a function of its places, by a network of sines."""
    places = 2 * numbers(4096, 2)[0] - 1
    u, v = places.T
    return subject(Siren, square_error, {"x": places, "y": np.sin(8 * u) * np.cos(6 * u * v) + (np.hypot(u, v) < 0.5)})


MORE_SUBJECTS: Mapping[str, Callable[[], Subject]] = {
    "regression": regression,
    "prices": prices,
    "ages": ages,
    "recommender": recommender,
    "logistic": logistic,
    "deep": deep,
    "autoencoder": autoencoder,
    "resnet": resnet,
    "convnet": convnet,
    "depthwise": depthwise,
    "mixer": mixer,
    "unet": unet,
    "adding": adding,
    "siren": siren,
}
