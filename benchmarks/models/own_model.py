"""A module of one's own by gradients over fedlearn's default settings, beside PyTorch's Adam alone, on one core.

Both have seconds of processor time. Adam's rate is constant, the best of several. A run of fedlearn is one process with
the server's half, a volunteer that is sent the model as a graph, both replicas, the journal and all messages; only
sockets are missing. It is given a share of Adam's seconds, and its schedule ends with them. The loss is that of rows
that neither has seen, in nats; for the transformer in bits per character.
"""

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.measure import parser_of, print_tables, use_processors
from fedlearn.config import ConfigError
from fedlearn.library.training import configured
from fedlearn.runs.creation import create
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Swarm
from fedlearn.tasks.blocks import Columns

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
except ImportError:
    sys.exit("own_model.py needs PyTorch: pip install 'fedlearn[torch]'")

from fedlearn.tasks.torch.small_gpt import Shape, language_task, windows_of
from fedlearn.tasks.torch.supervised import Judge, Rows, Supervised, supervised

BATCH_SIZE = 32


class Row(msgspec.Struct, frozen=True):
    """What one learner reached."""

    model: str
    learner: str
    seconds: float
    share: float
    """Of Adam's seconds."""
    steps: int
    loss: float
    accuracy: float | None = None


class Subject(msgspec.Struct, frozen=True):
    """A model with its data."""

    task: Supervised
    loss: Judge
    unit: float = 1.0
    """What a loss in nats is divided by."""
    accuracy: Judge | None = None


def gpt(text: bytes) -> Subject:
    """A causal transformer of two blocks that reads the bytes of a text."""
    shape = Shape(context=64, width=64, n_layers=2, n_heads=4)
    task = language_task(windows_of(text, shape), shape, batch_size=BATCH_SIZE, settings={})
    return Subject(task, task._metrics["loss"], math.log(2))


def _digits(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Subject:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    columns: Columns = {
        "image": (images[order] / 16).astype(np.float32).reshape(-1, *shape),
        "label": labels[order].astype(np.int64),
    }
    n_training = len(order) * 4 // 5
    training = {name: column[:n_training] for name, column in columns.items()}
    held_out = {name: column[n_training:] for name, column in columns.items()}

    def loss(model: nn.Module, rows: Rows) -> Tensor:
        return F.cross_entropy(model(rows["image"]), rows["label"])

    def accuracy(model: nn.Module, rows: Rows) -> float:
        return float((model(rows["image"]).argmax(-1) == rows["label"]).float().mean())

    return Subject(supervised(make, loss, training, held_out=held_out, batch_size=BATCH_SIZE), loss, 1.0, accuracy)


def mlp() -> Subject:
    """A perceptron with a hidden layer, on handwritten digits."""
    return _digits(lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), (64,))


def cnn() -> Subject:
    """Two convolutions and a head, on handwritten digits."""

    def make() -> nn.Module:
        layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1)]
        return nn.Sequential(*layers, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))

    return _digits(make, (1, 8, 8))


def judged(subject: Subject, model: nn.Module) -> tuple[float, float | None]:
    """The loss of a model on held-out rows, and its accuracy where it has one."""
    rows = {name: torch.as_tensor(column) for name, column in subject.task.held_out.items()}
    with torch.no_grad():
        loss = float(subject.loss(model, rows)) / subject.unit
        return loss, None if subject.accuracy is None else float(subject.accuracy(model, rows))


def backprop(
    subject: Subject, model: nn.Module, optimizer: torch.optim.Optimizer, batch_size: int, seed: int
) -> Iterator[None]:
    """Takes a step of PyTorch's optimizer each time, for ever."""
    columns = {name: torch.as_tensor(column) for name, column in subject.task.data.items()}
    n_rows = len(next(iter(columns.values())))
    generator = torch.Generator().manual_seed(seed)
    while True:
        rows = torch.randint(n_rows, (batch_size,), generator=generator)
        optimizer.zero_grad()
        loss = subject.loss(model, {name: column[rows] for name, column in columns.items()})
        assert isinstance(loss, Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield


def adam(name: str, subject: Subject, rate: float, seconds: float, seed: int) -> Row:
    """PyTorch's Adam with a constant rate."""
    torch.manual_seed(0)
    make = subject.task._model
    assert not isinstance(make, nn.Module)
    model = make()
    training = backprop(subject, model, torch.optim.Adam(model.parameters(), lr=rate), BATCH_SIZE, seed)
    steps, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        next(training)
        steps += 1
    return Row(name, f"Adam, {rate:g}", seconds, 1.0, steps, *judged(subject, model))


def fedlearn_alone(
    name: str, subject: Subject, seconds: float, share: float, seed: int, settings: Mapping[str, str | float]
) -> Row:
    """A server and one volunteer of fedlearn in this process."""
    with tempfile.TemporaryDirectory() as folder:
        given = {**settings, "runs": folder, "duration": share * seconds, "seed": seed, "audit": 0.0}
        given |= {"volunteers": 1, "threads": 1, "sample_time": 0.0}
        kind, task, config = configured(subject.task, given, always={})
        trainer, _ = Trainer.open(create(kind, config, task))
        swarm = Swarm(trainer, time.process_time)
        swarm.join("benchmark", threads=1)
        while swarm.reason is None:
            swarm.advance()
        subject.task.load(trainer.replica.weights)
        steps = trainer.replica.step
        trainer.close()
    return Row(name, "fedlearn", share * seconds, share, steps, *judged(subject, subject.task.model))


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", default=["mlp", "cnn", "gpt"], choices=["mlp", "cnn", "gpt"])
    parser.add_argument("--text", type=Path, help="a text, for gpt")
    parser.add_argument("--seconds", type=float, nargs="+", default=[12.0], help="Adam's (default: 12)")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 1.0], help="of them (default: 0.5 1)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.003, 0.01], help="of Adam")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of fedlearn's runs")
    options = parser.parse_args()
    use_processors(1)
    settings = dict(pair.split("=", 1) for pair in options.set)
    rows = []
    for name in options.models:
        if name == "gpt" and options.text is None:
            parser.error("--text: expected a text for gpt, got none")
        subject = gpt(options.text.read_bytes()) if name == "gpt" else {"mlp": mlp, "cnn": cnn}[name]()
        for seconds in options.seconds:
            for seed in options.seeds:
                best = min(
                    (adam(name, subject, rate, seconds, seed) for rate in options.rates), key=lambda row: row.loss
                )
                rows.append(best)
                try:
                    rows += [fedlearn_alone(name, subject, seconds, s, seed, settings) for s in options.shares]
                except ConfigError as error:
                    parser.error(str(error))
    print_tables("own_model", as_json=options.json, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
