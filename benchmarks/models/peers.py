"""Digits with four clients: fedlearn beside Flower's FedAvg and evotorch, until 95 % of unseen digits are right.

All clients and the server are in one process. Seconds are the processor's, of all together; building models and looking
at the accuracy do not count. Bytes are those of all clients, up and down:

- fedlearn, by gradients over its default settings: of all messages, as they are on the wire, with the data that
  clients are sent;
- FedAvg, by Flower's own strategy: of the parameters that each client is sent and sends, serialised by Flower. Each
  has a quarter of the digits and takes epochs of SGD between two rounds;
- evotorch's PGPE, by losses: of all solutions, which its main process sends to actors, and their losses (computed).
"""

import argparse
import itertools
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch import nn

from benchmarks.measure import Stopwatch, parser_of, print_tables, use_processors
from benchmarks.models.own_model import Alone, backprop
from benchmarks.models.subjects import BATCH_SIZE, Subject, judged, mlp, new_model

N_CLIENTS = 4
POPULATION = 200
ROWS = 256
"""Digits on which evotorch judges a generation."""


class Row(msgspec.Struct, frozen=True):
    """What one learner needed; no seconds where it never was as accurate."""

    learner: str
    accuracy: float
    seconds: float | None
    exchanges: int
    megabytes: float
    data_megabytes: float = 0.0
    """What of them is the training data, which FedAvg's clients and evotorch's actors are taken to hold."""


Exchanges = Iterator[tuple[nn.Module, int]]
"""The model and all bytes so far, before training and after each exchange."""


def fedlearn_exchanges(subject: Subject, n_local: int, watch: Stopwatch, seed: int) -> Exchanges:
    """Steps of a server and its volunteers, each with so many local ones."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Alone(subject.task, watch.seconds, {"seed": seed, "local_steps": n_local}, folder, N_CLIENTS)
        yield subject.task.model, 0
        while alone.advance():
            subject.task.load(alone.trainer.replica.weights)
            yield subject.task.model, sum(alone.swarm.traffic())
        alone.trainer.close()


def fedavg_exchanges(subject: Subject, rate: float, epochs: int, seed: int) -> Exchanges:
    """Rounds of Flower's FedAvg."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server.strategy import FedAvg

    model, strategy = new_model(subject, seed), FedAvg(fit_metrics_aggregation_fn=lambda _: {})
    n_rows = len(subject.task.data["label"])
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    trainings = [
        backprop(subject, model, [optimizer], BATCH_SIZE, seed + client, rows=range(client, n_rows, N_CLIENTS))
        for client in range(N_CLIENTS)
    ]
    n_batches = epochs * (n_rows // N_CLIENTS // BATCH_SIZE)
    shared, n_bytes = ndarrays_to_parameters(_arrays(model)), 0
    yield model, 0
    for number in itertools.count(1):
        results: list[Any] = []
        for training in trainings:
            _load(model, parameters_to_ndarrays(shared))
            for _ in range(n_batches):
                next(training)
            sent = ndarrays_to_parameters(_arrays(model))
            n_bytes += sum(map(len, shared.tensors)) + sum(map(len, sent.tensors))
            results.append((None, FitRes(Status(Code.OK, ""), sent, n_rows // N_CLIENTS, {})))
        taken, _ = strategy.aggregate_fit(number, results, [])
        assert taken is not None
        shared = taken
        _load(model, parameters_to_ndarrays(shared))
        yield model, n_bytes


def evotorch_exchanges(subject: Subject, seed: int) -> Exchanges:
    """Generations of PGPE, whose losses are those of one batch for all."""
    from evotorch import Problem
    from evotorch.algorithms import PGPE

    logging.disable(logging.INFO)  # it tells of each problem on standard output
    model = new_model(subject, seed)
    start = nn.utils.parameters_to_vector(model.parameters()).detach()
    data = {name: torch.as_tensor(column) for name, column in subject.task.data.items()}
    generator = torch.Generator().manual_seed(seed)

    def losses(solutions: torch.Tensor) -> torch.Tensor:
        rows = torch.randint(len(data["label"]), (ROWS,), generator=generator)
        images, labels = data["image"][rows], data["label"][rows]
        return torch.vmap(lambda weights: nn.functional.cross_entropy(_called(model, weights, images), labels))(
            solutions
        )

    problem = Problem("min", losses, solution_length=len(start), initial_bounds=(-0.1, 0.1), vectorized=True, seed=seed)
    search = PGPE(
        problem,
        popsize=POPULATION,
        center_learning_rate=0.1,
        stdev_learning_rate=0.1,
        stdev_init=0.05,
        center_init=start,
        optimizer="clipup",
        optimizer_config={"max_speed": 0.2},
    )
    yield model, 0
    for generation in itertools.count(1):
        search.step()
        nn.utils.vector_to_parameters(search.status["center"].detach().clone(), model.parameters())
        yield model, generation * POPULATION * 4 * (len(start) + 1)


def needed(learner: str, subject: Subject, exchanges: Exchanges, watch: Stopwatch, options: argparse.Namespace) -> Row:
    """What it takes until the model is accurate, or until its time is over."""
    next(exchanges)
    number, n_bytes = 0, 0
    while watch.seconds() < options.seconds:
        watch.start()
        model, n_bytes = next(exchanges)
        watch.stop()
        number += 1
        with torch.no_grad():
            _, found = judged(subject, model)
        assert found is not None
        if found >= options.accuracy:
            return Row(learner, options.accuracy, watch.seconds(), number, 1e-6 * n_bytes)
    return Row(learner, options.accuracy, None, number, 1e-6 * n_bytes)


def _arrays(model: nn.Module) -> list[Any]:
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def _load(model: nn.Module, arrays: list[Any]) -> None:
    with torch.no_grad():
        for parameter, array in zip(model.parameters(), arrays, strict=True):
            parameter.copy_(torch.from_numpy(array.copy()))


def _called(model: nn.Module, weights: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    named, first = {}, 0
    for name, parameter in model.named_parameters():
        named[name] = weights[first : first + parameter.numel()].view(parameter.shape)
        first += parameter.numel()
    found: torch.Tensor = torch.func.functional_call(model, named, (images,))
    return found


def rows_of(subject: Subject, learner: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """The rows of one learner, one for each of its settings that were asked for."""
    watch = Stopwatch(time.process_time)
    if learner == "evotorch":
        return [needed("evotorch", subject, evotorch_exchanges(subject, seed), watch, options)]
    rows = []
    if learner == "FedAvg":
        for rate, epochs in itertools.product(options.rates, options.epochs):
            name, watch = f"FedAvg, SGD {rate:g}, epochs {epochs}", Stopwatch(time.process_time)
            rows.append(needed(name, subject, fedavg_exchanges(subject, rate, epochs, seed), watch, options))
    else:
        for n_local in options.local_steps:
            name, watch = f"fedlearn, local steps {n_local}", Stopwatch(time.process_time)
            row = needed(name, subject, fedlearn_exchanges(subject, n_local, watch, seed), watch, options)
            data_bytes = N_CLIENTS * sum(column.nbytes for column in subject.task.data.values())
            rows.append(msgspec.structs.replace(row, data_megabytes=1e-6 * data_bytes))
    return rows


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    learners = ["fedlearn", "FedAvg", "evotorch"]
    parser.add_argument("--learners", nargs="+", default=learners, choices=learners)
    parser.add_argument("--accuracy", type=float, default=0.95, help="(default: 0.95)")
    parser.add_argument("--seconds", type=float, default=60.0, help="the most that a learner has (default: 60)")
    parser.add_argument("--local-steps", type=int, nargs="+", default=[1, 32], help="of fedlearn (default: 1 32)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.3, 1.0], help="of FedAvg's SGD")
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 4], help="of FedAvg's clients between rounds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    options = parser.parse_args()
    use_processors(1)
    subject = mlp()
    rows = [row for seed in options.seeds for name in options.learners for row in rows_of(subject, name, seed, options)]
    print_tables("peers", as_json=options.json, facts={"clients": N_CLIENTS}, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
