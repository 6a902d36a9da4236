"""A module of one's own by gradients over fedlearn's default settings, beside PyTorch's optimizers alone, on one core.

All have seconds of processor time. Adam's rate is constant, the best of several. With `--falling` there are Adam and
Muon, too, with the rate that falls in the second half, as in runs of fedlearn that have an end. A run of fedlearn is
one process with the server's half, a volunteer that is sent the model as a graph, both replicas, the journal and all
messages; only sockets are missing. It is given a share of Adam's seconds, and its schedule ends with them. The loss is
that of rows that nobody has seen, in nats; for models of text in bits per character.

With `--accuracy` the seconds are those until rows that nobody has seen are classified so well; runs of fedlearn then
have no end, and `--seconds` bounds all. Looking does not count.
"""

import argparse
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.measure import Stopwatch, parser_of, print_tables, use_processors
from fedlearn.config import ConfigError
from fedlearn.library.training import configured
from fedlearn.runs.creation import create
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Swarm
from fedlearn.tasks.task import Setting, Task

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    sys.exit("own_model.py needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.models.more_subjects import MORE_SUBJECTS
from benchmarks.models.subjects import BATCH_SIZE, Subject, judged, new_model, subject_of
from benchmarks.models.text_subjects import MORE_TEXT_SUBJECTS
from benchmarks.models.zoo import ZOO
from fedlearn.tasks.torch.hidden import hidden_matrices

MUON_RATES = (0.02, 0.01)
"""Rates of PyTorch's Muon, and of Adam for all that is no hidden matrix; the best of five and three for the GPT."""


class Row(msgspec.Struct, frozen=True):
    """What one learner reached."""

    model: str
    learner: str
    seconds: float
    share: float
    """The share of Adam's seconds."""
    steps: int
    loss: float
    accuracy: float | None = None


class Reached(msgspec.Struct, frozen=True):
    """When one learner was as accurate as asked; nothing where it never was."""

    model: str
    learner: str
    accuracy: float
    seconds: float | None
    steps: int


def adam(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """PyTorch's Adam."""
    return [torch.optim.Adam(model.parameters(), lr=rate)]


def muon(model: nn.Module) -> list[torch.optim.Optimizer]:
    """PyTorch's Muon for the hidden matrices that it takes, Adam for all else."""
    hidden = hidden_matrices(model)
    named = dict(model.named_parameters())
    matrices = [name for name, parameter in named.items() if name in hidden and parameter.dim() == 2]
    others = [parameter for name, parameter in named.items() if name not in matrices]
    rate, other_rate = MUON_RATES
    optimizers: list[torch.optim.Optimizer] = [torch.optim.Adam(others, lr=other_rate)]
    if matrices:
        optimizers.append(torch.optim.Muon([named[name] for name in matrices], lr=rate, weight_decay=0.0))
    return optimizers


def backprop(
    subject: Subject,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    batch_size: int,
    seed: int,
    rows: range | None = None,
) -> Iterator[None]:
    """Takes a step of PyTorch's optimizers, each for its own parameters, each time, for ever.

    Batches are drawn from these rows of the data; None means from all.
    """
    columns = {name: torch.as_tensor(column) for name, column in subject.task.data.items()}
    rows = rows or range(len(next(iter(columns.values()))))
    generator = torch.Generator().manual_seed(seed)
    while True:
        drawn = rows.start + rows.step * torch.randint(len(rows), (batch_size,), generator=generator)
        model.zero_grad()
        loss = subject.loss(model, {name: column[drawn] for name, column in columns.items()})
        assert isinstance(loss, Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
        yield


def falling(optimizers: Sequence[torch.optim.Optimizer], share: Callable[[], float]) -> Callable[[], None]:
    """Sets rates that fall to zero in the second half of a run, of which `share` has passed."""
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: min(max(2.0 * (1.0 - share()), 0.0), 1.0))
        for optimizer in optimizers
    ]

    def set_rates() -> None:
        for schedule in schedules:
            schedule.step()

    return set_rates


def in_pytorch(
    name: str,
    learner: str,
    subject: Subject,
    optimizers_of: Callable[[nn.Module], list[torch.optim.Optimizer]],
    *,
    seconds: float,
    seed: int,
    falls: bool = False,
) -> Row:
    """PyTorch alone."""
    model = new_model(subject, seed)
    optimizers = optimizers_of(model)
    training = backprop(subject, model, optimizers, BATCH_SIZE, seed)
    steps, watch = 0, Stopwatch(time.process_time)
    set_rates = falling(optimizers, lambda: watch.seconds() / seconds)
    watch.start()
    while watch.seconds() < seconds:
        next(training)
        steps += 1
        if falls:
            set_rates()
    return Row(name, learner, seconds, 1.0, steps, *judged(subject, model))


class Alone:
    """A server of fedlearn and its volunteers, usually one, in this process."""

    def __init__(
        self,
        task: Task,
        clock: Callable[[], float],
        settings: Mapping[str, Setting],
        folder: str,
        volunteers: int = 1,
    ) -> None:
        given = {"volunteers": volunteers, "threads": 1, "sample_time": 0.0, "audit": 0.0, "runs": folder, **settings}
        kind, named, config = configured(task, given, always={})
        self.trainer, _ = Trainer.open(create(kind, config, named))
        self.swarm = Swarm(self.trainer, clock, task=named)
        for number in range(volunteers):
            self.swarm.join(f"benchmark {number}", threads=1)

    def advance(self) -> bool:
        """Goes on to the end of the next step; False where there is none."""
        step = self.trainer.replica.step
        while self.trainer.replica.step == step and self.swarm.reason is None:
            self.swarm.advance()
        return self.swarm.reason is None


def fedlearn_alone(
    name: str, subject: Subject, seconds: float, share: float, seed: int, settings: Mapping[str, str | float]
) -> Row:
    """A run of fedlearn that ends after a share of the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Alone(subject.task, time.process_time, {**settings, "duration": share * seconds, "seed": seed}, folder)
        while alone.advance():
            pass
        subject.task.load(alone.trainer.replica.weights)
        steps = alone.trainer.replica.step
        alone.trainer.close()
    return Row(name, "fedlearn", share * seconds, share, steps, *judged(subject, subject.task.model))


def reached(
    name: str,
    learner: str,
    subject: Subject,
    accuracy: float,
    steps: Iterator[nn.Module],
    watch: Stopwatch,
    most_s: float,
) -> Reached:
    """When the model that each step gives first is as accurate; the watch stands still while it is judged.

    The model before the first step comes first, and building it does not count.
    """
    next(steps)
    n_steps = 0
    while watch.seconds() < most_s:
        watch.start()
        model = next(steps)
        watch.stop()
        n_steps += 1
        _, found = judged(subject, model)
        if found is not None and found >= accuracy:
            return Reached(name, learner, accuracy, watch.seconds(), n_steps)
    return Reached(name, learner, accuracy, None, n_steps)


def pytorch_models(subject: Subject, rate: float, seed: int) -> Iterator[nn.Module]:
    """The model before and after each step of PyTorch's Adam."""
    model = new_model(subject, seed)
    yield model
    for _ in backprop(subject, model, adam(model, rate), BATCH_SIZE, seed):
        yield model


def fedlearn_models(
    subject: Subject, seed: int, watch: Stopwatch, settings: Mapping[str, str | float]
) -> Iterator[nn.Module]:
    """The model before and after each step of a run of fedlearn that has no end."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Alone(subject.task, watch.seconds, {**settings, "seed": seed}, folder)
        yield subject.task.model
        try:
            while alone.advance():
                subject.task.load(alone.trainer.replica.weights)
                yield subject.task.model
        finally:
            alone.trainer.close()


def to_accuracy(
    name: str,
    subject: Subject,
    accuracy: float,
    *,
    rates: Sequence[float],
    most_s: float,
    seed: int,
    settings: Mapping[str, str | float],
) -> list[Reached]:
    """Adam at its best rate, and fedlearn."""
    found = []
    for rate in rates:
        watch = Stopwatch(time.process_time)
        models = pytorch_models(subject, rate, seed)
        found.append(reached(name, f"Adam, {rate:g}", subject, accuracy, models, watch, most_s))
    best = min(found, key=lambda row: math.inf if row.seconds is None else row.seconds)
    watch = Stopwatch(time.process_time)
    models = fedlearn_models(subject, seed, watch, settings)
    return [best, reached(name, "fedlearn", subject, accuracy, models, watch, most_s)]


def to_seconds(
    name: str,
    subject: Subject,
    seconds: float,
    seed: int,
    options: argparse.Namespace,
    settings: Mapping[str, str | float],
) -> list[Row]:
    """All learners for so many seconds."""
    constant = (
        in_pytorch(name, f"Adam, {rate:g}", subject, partial(adam, rate=rate), seconds=seconds, seed=seed)
        for rate in options.rates
    )
    rows = [min(constant, key=lambda row: row.loss)]
    if options.falling:
        falls = (
            in_pytorch(
                name,
                f"Adam, {rate:g}, falling",
                subject,
                partial(adam, rate=rate),
                seconds=seconds,
                seed=seed,
                falls=True,
            )
            for rate in options.rates
        )
        rows.append(min(falls, key=lambda row: row.loss))
        rows.append(in_pytorch(name, "Muon of PyTorch, falling", subject, muon, seconds=seconds, seed=seed, falls=True))
    return rows + [fedlearn_alone(name, subject, seconds, share, seed, settings) for share in options.shares]


def any_subject(name: str, text: bytes) -> Subject:
    """The model of that name, new, with its data."""
    if made := {**MORE_SUBJECTS, **ZOO}.get(name):
        return made()
    return MORE_TEXT_SUBJECTS[name](text) if name in MORE_TEXT_SUBJECTS else subject_of(name, text)


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    of_text = ["gpt", "gpt-10m", *MORE_TEXT_SUBJECTS]
    models = ["mlp", "cnn", "vit", *MORE_SUBJECTS, *ZOO, *of_text]
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", default=["mlp", "cnn", "gpt"], choices=models)
    parser.add_argument("--text", type=Path, help=f"a text, for {', '.join(of_text)}")
    parser.add_argument("--seconds", type=float, nargs="+", default=[12.0], help="Adam's (default: 12)")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 1.0], help="of them (default: 0.5 1)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.003, 0.01], help="of Adam")
    parser.add_argument("--falling", action="store_true", help="also Adam and Muon with rates that fall")
    parser.add_argument("--accuracy", type=float, default=0.0, help="seconds until models are so accurate")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of fedlearn's runs")
    options = parser.parse_args()
    use_processors(1)
    settings = dict(pair.split("=", 1) for pair in options.set)
    rows: list[Row] = []
    times: list[Reached] = []
    for name in options.models:
        if name in of_text and options.text is None:
            parser.error(f"--text: expected a text for {name}, got none")
        subject = any_subject(name, options.text.read_bytes() if options.text else b"")
        for seconds, seed in itertools.product(options.seconds, options.seeds):
            try:
                if options.accuracy:
                    times += to_accuracy(
                        name,
                        subject,
                        options.accuracy,
                        rates=options.rates,
                        most_s=seconds,
                        seed=seed,
                        settings=settings,
                    )
                else:
                    rows += to_seconds(name, subject, seconds, seed, options, settings)
            except ConfigError as error:
                parser.error(str(error))
    tables = {"times": times} if options.accuracy else {"rows": rows}
    print_tables("own_model", as_json=options.json, **tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
