"""Requests of other systems' users, as they type them, beside plain PyTorch with the same rates and epochs.

A: jobs over HTTP, by a hub, its servers and devices as processes. B: ranks of torchrun. C: providers. D: a boss and its
workers. E: a text trainer's configuration file. All run on one processor, and each row is said when it is known.
Plain PyTorch and a hub's lone device learn several times, PyTorch with so many seeds, the device from as many orders of
the images. Accuracies and losses are of data that neither has seen; losses are in nats, and D's are mean squares.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compat.hub_jobs import FEDLEARN, HubOfOwn
from benchmarks.compat.made_images import Examples, made_images, write_archive
from benchmarks.compat.rows import Row, head, line_of, with_median
from benchmarks.measure import describe_machine, parser_of, print_tables, use_processors

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
except ImportError:
    sys.exit("five_systems.py needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.compat.scripts import curve, providers, ranks
from fedlearn.tasks.torch.perceptron import perceptron
from fedlearn.tasks.torch.small_gpt import Shape, SmallGPT, windows_of

JOB: dict[str, Any] = {
    "model_config": {"layer_sizes": [784, 128, 64, 10]},
    "dataset_config": {
        "name": "MNIST",
        "batch_size": 256,
        "val_batch_size": 1000,
        "normalize": {"mean": [0.1307], "std": [0.3081]},
    },
}
TRAINING = {"epochs": 10, "learning_rate": 0.1}
TEXT_JOB = {"model_config": {"type": "transformer"}, "dataset_config": {"source": "data.txt"}}
SHAPE, TEXT_BATCH, TEXT_EPOCHS, ADAM_RATE = Shape(32, 64, 4, 4), 16, 3, 0.001
CREWS = ((2, 0), (5, 2))
"""Devices, and how many of them are killed."""

N_TRAINING, N_HELD_OUT = 60_000, 10_000
E_CONFIG = Path(__file__).parents[2] / "tests/acceptance/originals/config.json"


def plain_classifier(training: Examples, held_out: Examples, seed: int) -> Row:
    """PyTorch's SGD on the same images, which is validated after each epoch as a job is."""
    torch.manual_seed(seed)
    model = perceptron(JOB["model_config"]["layer_sizes"])
    images, labels = _scaled(training[0]), torch.as_tensor(training[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=TRAINING["learning_rate"])

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(images[rows]), labels[rows])

    def validated() -> tuple[float, float]:
        with torch.no_grad():
            logits, classes = model(_scaled(held_out[0])), torch.as_tensor(held_out[1])
            return float((logits.argmax(-1) == classes).float().mean()), float(F.cross_entropy(logits, classes))

    batch_size = JOB["dataset_config"]["batch_size"]
    steps, seconds, processor_s = _trained(
        loss, optimizer, len(labels), batch_size, TRAINING["epochs"], after_epoch=validated
    )
    return Row("A", "classifier", f"PyTorch, SGD 0.1, seed {seed}", steps, seconds, processor_s, *validated())


def plain_transformer(text: bytes) -> Row:
    """PyTorch's AdamW on the same windows."""
    torch.manual_seed(0)
    windows = windows_of(text, SHAPE)
    counts = np.bincount(windows.training[:, 1:].reshape(-1), minlength=len(windows.alphabet)) + 1.0
    model = SmallGPT(SHAPE, counts / counts.sum())
    tokens = torch.as_tensor(windows.training)
    optimizer = torch.optim.AdamW(model.parameters(), lr=ADAM_RATE)

    def loss(rows: Tensor) -> Tensor:
        return _text_loss(model, tokens[rows])

    passes = TEXT_EPOCHS / 2  # windows overlap by half
    steps, seconds, processor_s = _trained(loss, optimizer, len(tokens), TEXT_BATCH, passes)
    with torch.no_grad():
        held_loss = float(_text_loss(model, torch.as_tensor(windows.held_out)))
    return Row("A", "transformer", f"PyTorch, AdamW {ADAM_RATE}", steps, seconds, processor_s, None, held_loss)


def _trained(
    loss: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    n_rows: int,
    batch_size: int,
    epochs: float,
    *,
    after_epoch: Callable[[], object] = lambda: None,
) -> tuple[int, float, float]:
    """Steps, seconds and processor seconds of so many passes over the rows."""
    began, processor_began, n_steps = time.perf_counter(), time.process_time(), 0
    for batches in _epochs(n_rows, batch_size, epochs):
        for rows in batches:
            optimizer.zero_grad()
            loss(rows).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        n_steps += len(batches)
        after_epoch()
    return n_steps, time.perf_counter() - began, time.process_time() - processor_began


def _epochs(n_rows: int, batch_size: int, epochs: float) -> Iterator[Sequence[Tensor]]:
    """The batches of each epoch, of which the last may be a part."""
    left = round(epochs * n_rows)
    while left > 0:
        order = torch.randperm(n_rows)[:left]
        left -= len(order)
        yield torch.split(order, batch_size)


def _scaled(images: np.ndarray[Any, Any]) -> Tensor:
    return (torch.as_tensor(images.reshape(len(images), -1)).to(torch.float32) / 255.0 - 0.1307) / 0.3081


def _text_loss(model: nn.Module, windows: Tensor) -> Tensor:
    tokens = windows.to(torch.int64)
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def classifier_jobs(n_training: int, n_seeds: int) -> Iterator[Row]:
    """The job as typed, by 1, 2 and 5 devices, of which two are killed; by 1 with the images in several orders."""
    lone = (_classifier_jobs(n_training, [(1, 0)], order=seed) for seed in range(n_seeds))
    yield from with_median(chain.from_iterable(lone))
    yield from _classifier_jobs(n_training, CREWS, order=0)


def _classifier_jobs(n_training: int, crews: Iterable[tuple[int, int]], *, order: int) -> Iterator[Row]:
    hub = HubOfOwn(lambda data: write_archive(data / "MNIST.npz", n_training, N_HELD_OUT, order=order))
    try:
        for n_devices, n_killed in crews:
            done = hub.train(JOB, TRAINING, n_devices=n_devices, n_killed=n_killed)
            who = f"hub, {n_devices} device{'s' if n_devices > 1 else ''}"
            who += f", {n_killed} killed" if n_killed else f", seed {order}"
            figures = done.figures
            numbers = (done.steps, done.seconds, done.processor_s, figures["accuracy"], figures["loss"])
            yield Row("A", "classifier", who, *numbers, done.to_result_s)
    finally:
        hub.close()


def transformer_job(text: bytes) -> Row:
    """The job as typed, by the hub's own machine."""
    hub = HubOfOwn(lambda data: (data / "data.txt").write_bytes(text))
    try:
        done = hub.train(TEXT_JOB, {}, n_devices=0)
    finally:
        hub.close()
    return Row(
        "A",
        "transformer",
        "hub, its own machine",
        done.steps,
        done.seconds,
        done.processor_s,
        None,
        done.figures["loss"],
        done.to_result_s,
    )


def own_configuration(seconds: float) -> Row:
    """A minute with the configuration file of the text trainer, on Python's documentation."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--duration", str(seconds), "--port", "0", "--board", "0", "--plain", "--runs", folder)
        subprocess.run([*FEDLEARN, "serve", str(E_CONFIG), *flags], cwd=folder, check=True, capture_output=True)
        lines = [json.loads(line) for line in next(Path(folder).glob("*/metrics.jsonl")).read_text().splitlines()]
    losses = [line["loss"] for line in lines[-20:]]
    return Row(
        "E", "config.json, 60 s", "fedlearn", len(lines), lines[-1]["elapsed_s"], 0.0, None, float(np.mean(losses))
    )


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--text", type=Path, help="a text for A's transformer, which is left out without one")
    parser.add_argument("--images", type=int, default=N_TRAINING, help=f"to learn from (default: {N_TRAINING})")
    parser.add_argument("--seeds", type=int, default=5, help="of plain PyTorch and of a hub's lone device (default: 5)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of E (default: 60)")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error(f"--seeds: expected 1 or more, got {options.seeds}")
    use_processors(1)
    torch.set_num_threads(1)
    if not options.json:
        print(describe_machine().processor, head(), sep="\n", flush=True)
    rows: list[Row] = []
    for system in options.systems:
        for row in SYSTEMS[system](options):
            rows.append(row)
            if not options.json:
                print(line_of(row), flush=True)
    if options.json:
        print_tables("five_systems", as_json=True, rows=rows)
    return 0


def _jobs(options: argparse.Namespace) -> Iterator[Row]:
    if options.images:
        images = made_images(options.images, N_HELD_OUT)
        yield from with_median(plain_classifier(*images, seed) for seed in range(options.seeds))
        yield from classifier_jobs(options.images, options.seeds)
    if options.text is not None:
        text = options.text.read_bytes()
        yield plain_transformer(text)
        yield transformer_job(text)


def _own_configuration(options: argparse.Namespace) -> Iterator[Row]:
    yield own_configuration(options.seconds)


SYSTEMS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "A": _jobs,
    "B": lambda options: ranks(options.seeds),
    "C": lambda options: providers(options.seeds),
    "D": lambda options: curve(options.seeds),
    "E": _own_configuration,
}


if __name__ == "__main__":
    sys.exit(main())
