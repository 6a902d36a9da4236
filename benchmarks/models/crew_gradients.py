"""Crews of three by gradients and forward only, beside backprop in as many steps of as many rows.

Each run is in this process, with the server's half, a volunteer for each seat, their parts, the journal and all
messages; only sockets are missing. PyTorch's Adam has the best of several constant rates, and fedlearn its defaults.
The loss is that of rows that nobody has seen, in nats; for the transformer in bits per character. Bytes are those that
a member sends across each cut, there and back, of the rows of one gradient or forward only of one trial.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.measure import parser_of, print_tables, use_processors

try:
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

    from benchmarks.models.own_model import Alone, adam, backprop
    from benchmarks.models.subjects import BATCH_SIZE, Subject, digits, gpt, judged, new_model
except ImportError:
    sys.exit("crew_gradients.py needs PyTorch: pip install 'fedlearn[torch]'")

MEMBERS = 4
"""Gradients in a step."""


class ResidualCnn(nn.Module):
    """Convolutions of which each adds to what went in, on handwritten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(4))
        self.head = nn.Linear(16 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        for block in self.blocks:
            x = x + F.relu(block(x))
        found: Tensor = self.head(x.flatten(1))
        return found


def perceptron() -> nn.Module:
    """Two hidden layers, of which a crew of three takes one each and the head."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


class Row(msgspec.Struct, frozen=True):
    """What one learner reached."""

    model: str
    learner: str
    seed: int
    steps: int
    loss: float
    accuracy: float | None
    bytes_a_cut: list[float]


def in_pytorch(name: str, subject: Subject, rate: float, steps: int, seed: int) -> Row:
    """Backprop in PyTorch alone."""
    model = new_model(subject, seed)
    training = backprop(subject, model, adam(model, rate), MEMBERS * BATCH_SIZE, seed)
    for _ in range(steps):
        next(training)
    return Row(name, f"Adam, {rate:g}", seed, steps, *judged(subject, model), [])


def in_a_crew(
    name: str, learner: str, subject: Subject, steps: int, seed: int, settings: Mapping[str, str | float]
) -> Row:
    """A run of a crew of three."""
    given = {"seats": 3, "steps": steps, "seed": seed, **settings}
    with tempfile.TemporaryDirectory() as folder:
        alone = Alone(subject.task, time.monotonic, given, folder, volunteers=3)
        while alone.advance():
            pass
        subject.task.load(alone.trainer.replica.weights)
        crossed = sorted(alone.swarm.metrics[-1].relayed.items())
        alone.trainer.close()
    each = [n_bytes / n_members for _, (n_members, n_bytes, _) in crossed if n_members]
    return Row(name, learner, seed, steps, *judged(subject, subject.task.model), each)


def rows_of(name: str, subject: Subject, steps: int, seed: int, options: argparse.Namespace) -> list[Row]:
    """All learners, each for so many steps."""
    alone = [in_pytorch(name, subject, rate, steps, seed) for rate in options.rates]
    crew = partial(in_a_crew, name, subject=subject, steps=steps, seed=seed)
    gradients: dict[str, str | float] = {"population_limit": MEMBERS, "max_population": MEMBERS}
    found = [min(alone, key=lambda row: row.loss), crew("crew by gradients", settings=gradients)]
    found += [crew(f"crew by gradients, {wire}", settings={**gradients, "wire": wire}) for wire in options.wires]
    if n := options.trials:
        losses = {"measure": "losses", "population_limit": n, "max_population": n}
        found.append(crew("crew by losses", settings=losses))
    return found


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", default=["mlp", "cnn"], choices=["mlp", "cnn", "gpt"])
    parser.add_argument("--text", type=Path, help="a text, for the transformer")
    parser.add_argument("--steps", type=int, nargs="+", default=[200], help="(default: 200)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.003, 0.01], help="of Adam")
    parser.add_argument("--wires", nargs="*", default=["int8-delta"], help="codecs beside float32")
    parser.add_argument(
        "--trials", type=int, default=256, metavar="N", help="in a step by losses; 0 leaves that out (default: 256)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    options = parser.parse_args()
    use_processors(1)
    rows: list[Row] = []
    for name in options.models:
        if name == "gpt" and options.text is None:
            parser.error("--text: expected a text for gpt, got none")
        subject = {
            "mlp": lambda: digits(perceptron, (64,)),
            "cnn": lambda: digits(ResidualCnn, (1, 8, 8)),
            "gpt": lambda: gpt(options.text.read_bytes()),
        }[name]()
        for steps, seed in itertools.product(options.steps, options.seeds):
            rows += rows_of(name, subject, steps, seed, options)
    print_tables("crew_gradients", as_json=options.json, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
