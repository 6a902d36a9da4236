"""Speed of members of convolutional and recurrent modules, as a share of the module's own inference on the same rows.

Inference runs all members' rows in one call, unperturbed. Members are run as a task runs them, at once, in the pieces
that its search finds. One thread, alternating rounds, processor time; every share is the median of ratios within a
round. Losses are compared with members one by one first.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import final

import msgspec
import numpy as np

from benchmarks.kernels.kernel import ENVIRONMENT
from benchmarks.measure import TURN_S, Spread, alternate, parser_of, print_tables, ratio, spread, use_processors
from fedlearn.es.noise import member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.task import flat_weights

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    sys.exit("member_layers.py needs PyTorch: pip install 'fedlearn[torch]'")

from fedlearn.tasks.torch.members.noise import as_tensors, of_members
from fedlearn.tasks.torch.members.sequential import sequential
from fedlearn.tasks.torch.supervised import Rows, supervised

WARM_UP = 20
"""Steps in which a task searches for the size of its pieces."""


@final
class Recurrent(nn.Module):
    """The outputs of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """[texts, length, hidden] of [texts, length, inputs]."""
        y: Tensor = self.layer(x)[0]
        return y


def convolutional() -> nn.Module:
    """Three convolutions of growing width, for small colour images."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def separable() -> nn.Module:
    """Depthwise and pointwise convolutions in turn."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU()]
    for stride in (1, 2, 1):
        layers += [
            nn.Conv2d(32, 32, 3, stride=stride, padding=1, groups=32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 1),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


def deep() -> nn.Module:
    """Wide layers on a few places, as at the end of a residual network."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 4, stride=4), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1),
    )  # fmt: skip


def temporal() -> nn.Module:
    """Dilated convolutions of a sequence."""
    return nn.Sequential(
        nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 32, 3, padding=2, dilation=2), nn.ReLU(),
        nn.Conv1d(32, 32, 3, padding=4, dilation=4),
    )  # fmt: skip


MODULES: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "CNN": (convolutional, (16, 3, 32, 32)),
    "CNN, separable": (separable, (16, 3, 32, 32)),
    "CNN, deep": (deep, (8, 3, 32, 32)),
    "CNN, 1d": (temporal, (16, 16, 64)),
    "LSTM 64": (lambda: Recurrent(nn.LSTM(32, 64, batch_first=True)), (8, 32, 32)),
    "LSTM 256": (lambda: Recurrent(nn.LSTM(64, 256, batch_first=True)), (8, 32, 64)),
    "GRU 64": (lambda: Recurrent(nn.GRU(32, 64, batch_first=True)), (8, 32, 32)),
    "GRU 256": (lambda: Recurrent(nn.GRU(64, 256, batch_first=True)), (8, 32, 64)),
}
"""By name: what makes it, and the rows of a member."""


class Result(msgspec.Struct, frozen=True):
    """What was found for one module."""

    module: str
    parameters: int
    inference_us: Spread
    """Of one member's rows."""
    share_of_inference: Spread
    way: str


def loss(model: nn.Module, rows: Rows) -> Tensor:
    """A number that every output has a part in."""
    mean: Tensor = model(rows["x"]).square().mean()
    return mean


def measure(name: str, options: argparse.Namespace) -> Result:
    """The share of one module.

    Raises:
        RuntimeError: members lose something else one by one.
    """
    make, shape = MODULES[name]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    task = supervised(make, loss, {"x": x}, batch_size=len(x))
    task.use("cpu", threads=1)
    weights = flat_weights(task.tensors)
    trials = Trials(0, Perturbation(sigma=0.01, rank=options.rank), options.members, 0, options.members)
    noise = member_noise(task.layout, trials, seed=1)
    rows = torch.from_numpy(x)

    def infer() -> object:
        with torch.inference_mode():
            return loss(task.model, {"x": rows.repeat(options.members, *(1,) * (rows.dim() - 1))})

    def ours() -> Tensor:
        members = task.members(weights, noise, n_groups=1)
        with task.computing():
            losses: Tensor = members(partial(loss, task.model), {"x": rows[None]})
        return losses

    with torch.inference_mode():
        some = of_members(as_tensors(noise, "cpu"), 0, 4)
        alone = torch.stack(
            sequential(lambda: loss(task.model, {"x": rows}), list(task.parameters.values()), task.load(weights), some)
        )
    for _ in range(WARM_UP):
        losses = ours()
    if not torch.allclose(losses[:4], alone, rtol=1e-5, atol=2e-6):
        raise RuntimeError(f"{name}: expected losses like {alone.tolist()}, got {losses[:4].tolist()}")
    contestants: dict[str, Callable[[], object]] = {"inference": infer, "ours": ours}
    seconds = alternate(contestants, rounds=options.rounds, turn_s=TURN_S, clock=time.process_time)
    return Result(
        name,
        task.layout.size,
        spread([1e6 * s / options.members for s in seconds["inference"]]),
        ratio(seconds["inference"], seconds["ours"]),
        task.report().splitlines()[0],
    )


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--modules", nargs="+", choices=MODULES, default=list(MODULES), metavar="NAME", help="which")
    parser.add_argument("--members", type=int, default=64, metavar="N", help="members (default: 64)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="alternating rounds (default: 7)")
    parser.add_argument("--rank", type=int, default=1, metavar="N", help="rank of the noise (default: 1)")
    options = parser.parse_args()
    use_processors(1, **ENVIRONMENT)
    torch.set_num_threads(1)
    facts = {"rounds": options.rounds, "members": options.members, "rank": options.rank}
    results = [measure(name, options) for name in options.modules]
    print_tables(
        "member_layers", as_json=options.json, facts={**facts, "PyTorch": str(torch.__version__)}, results=results
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
