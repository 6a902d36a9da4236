"""Tokens per second of members of an unmodified PyTorch module, beside plain inference and other ways to try members.

The module is a small causal transformer, and every member reads the same text, with the noise given. All contestants
run on one thread in alternating rounds, their losses are compared first, and every share is the median of ratios within
a round. Ways that hold dense weights a member are given dense noise, and as many members as memory holds.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
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
    from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
except ImportError:
    sys.exit("any_model.py needs PyTorch: pip install 'fedlearn[torch]'")

from fedlearn.tasks.torch.members.noise import Noise, as_tensors, of_members
from fedlearn.tasks.torch.members.sequential import sequential
from fedlearn.tasks.torch.supervised import Rows, supervised

VOCABULARY = 65
PLAIN = "inference"
OURS = "ours"
PIECE = 32
"""Members a call of inference in pieces, whose values then stay in the caches."""
DENSE_NUMBERS = 2**27
"""Dense weights of all members together, at most: 512 MiB."""
ONE_BY_ONE = 64
"""Members of ways that take as long for each of any number."""


@final
class Block(nn.Module):
    """A layer of the transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(width // 32, 1)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[texts, length, width] of the same."""
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        z: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return z


@final
class Transformer(nn.Module):
    """Mean nats per token of texts, by a causal transformer of two layers."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, texts: Tensor) -> Tensor:
        """One number, from texts [texts, length + 1]."""
        x = self.tokens(texts[:, :-1]) + self.places(torch.arange(texts.shape[1] - 1))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())


class Contestant(msgspec.Struct, frozen=True):
    """One way to try members, at one width and population."""

    width: int
    population: int
    parameters: int
    name: str
    members: int
    thousand_tokens_per_s: Spread
    share_of_inference: Spread
    way: str
    """What the task says of the way it chose; empty for others."""


@final
class Trial:
    """A module, its members, and the ways to try them."""

    def __init__(self, width: int, population: int, options: argparse.Namespace) -> None:
        self.population = population
        generator = np.random.default_rng(1)
        texts = generator.integers(0, VOCABULARY, (options.texts, options.length + 1))
        self.task = supervised(
            lambda: Transformer(width, options.length), loss, {"text": texts}, batch_size=options.texts
        )
        self.task.use("cpu", threads=1)
        self._weights = flat_weights(self.task.tensors)
        self._trials = Trials(0, Perturbation(sigma=0.01, rank=options.rank), population, 0, population)
        self._noise = member_noise(self.task.layout, self._trials, seed=1)
        self._tensors: list[Noise] = as_tensors(self._noise, "cpu")
        self._parameters = list(self.task.parameters.values())
        self._texts = torch.from_numpy(texts)
        self.n_parameters = self.task.layout.size
        self.n_dense = max(min(population, DENSE_NUMBERS // self.n_parameters), 1)
        self.n_alone = min(population, ONE_BY_ONE)

    def contestants(self) -> dict[str, tuple[Callable[[], Tensor], int]]:
        """What gives members' losses, and how many members' a call gives; plain inference comes first."""
        ways: dict[str, tuple[Callable[[], Tensor], int]] = {
            PLAIN: (partial(self._infer, self.population), self.population),
            f"{PLAIN}, {PIECE} at a time": (partial(self._infer, PIECE), self.population),
            OURS: (self._try, self.population),
            f"{OURS}, with noise drawn": (self._draw_and_try, self.population),
            f"{OURS}, one by one": (self._try_one_by_one, self.n_alone),
            "dense weights, vmap": (self._dense_vmap(), self.n_dense),
        }
        if find_spec("evotorch"):
            ways["dense weights, evotorch"] = (self._evotorch(), self.n_dense)
        return ways

    def check(self) -> None:
        """Compares the losses that all ways give the members; lets ours find its way.

        Raises:
            RuntimeError: they differ.
        """
        for _ in range(16):
            expected = self._try()
        for name, (way, n_members) in self.contestants().items():
            losses = way()
            if PLAIN not in name and not torch.allclose(losses, expected[:n_members], atol=1e-4):
                raise RuntimeError(f"{name}: expected losses like {expected[:3].tolist()}, got {losses[:3].tolist()}")

    def _infer(self, n_at_once: int) -> Tensor:
        texts = self._texts.repeat(min(n_at_once, self.population), 1)
        with torch.inference_mode():
            for _ in range(0, self.population, n_at_once):
                mean: Tensor = self.task.model(texts)
        return mean

    def _try(self) -> Tensor:
        members = self.task.members(self._weights, self._noise, n_groups=1)
        with self.task.computing():
            losses: Tensor = members(partial(loss, self.task.model), {"text": self._texts[None]})
        return losses

    def _draw_and_try(self) -> Tensor:
        self._noise = member_noise(self.task.layout, self._trials, seed=1)
        return self._try()

    def _try_one_by_one(self) -> Tensor:
        weights = self.task.load(self._weights)
        noise = of_members(self._tensors, 0, self.n_alone)
        with torch.inference_mode():
            return torch.stack(sequential(self.task.model, self._parameters, weights, noise, (self._texts,)))

    def _dense_vmap(self) -> Callable[[], Tensor]:
        noise = dict(zip(self.task.parameters, self._dense_noise(), strict=True))

        def lose(weights: dict[str, Tensor]) -> Tensor:
            mean: Tensor = torch.func.functional_call(self.task.model, weights, (self._texts,))
            return mean

        def call() -> Tensor:
            with torch.inference_mode():
                return torch.vmap(lose)({name: p + noise[name] for name, p in self.task.parameters.items()})

        return call

    def _evotorch(self) -> Callable[[], Tensor]:
        policy = import_module("evotorch.neuroevolution.net.vecrl").Policy(self.task.model)
        noise = torch.cat([one.flatten(1) for one in self._dense_noise()], 1)
        weights, texts = torch.from_numpy(self._weights), self._texts.expand(self.n_dense, -1, -1)

        def call() -> Tensor:
            with torch.inference_mode():
                policy.set_parameters(weights + noise)
                losses: Tensor = policy(texts)
            return losses

        return call

    def _dense_noise(self) -> list[Tensor]:
        noise = of_members(self._tensors, 0, self.n_dense)
        return [one.added_to(torch.zeros(p.shape)) for p, one in zip(self._parameters, noise, strict=True)]


def loss(model: nn.Module, rows: Rows) -> Tensor:
    """What a module loses on texts."""
    mean: Tensor = model(rows["text"])
    return mean


def measure_size(trial: Trial, options: argparse.Namespace, width: int) -> list[Contestant]:
    """All figures of one width and population."""
    trial.check()
    ways = trial.contestants()
    calls: dict[str, Callable[[], object]] = {name: call for name, (call, _) in ways.items()}
    seconds = alternate(calls, rounds=options.rounds, turn_s=TURN_S, clock=time.process_time)
    n_tokens = options.texts * options.length
    rates = {name: [n * n_tokens / s for s in seconds[name]] for name, (_, n) in ways.items()}
    return [
        Contestant(
            width,
            trial.population,
            trial.n_parameters,
            name,
            n_members,
            spread([rate / 1e3 for rate in rates[name]]),
            ratio(rates[name], rates[PLAIN]),
            trial.task.report().splitlines()[0] if name == OURS else "",
        )
        for name, (_, n_members) in ways.items()
    ]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256, 768], metavar="N", help="of the transformer")
    parser.add_argument("--populations", type=int, nargs="+", default=[64, 512], metavar="N", help="members")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="alternating rounds (default: 5)")
    parser.add_argument("--length", type=int, default=64, metavar="N", help="tokens of a text (default: 64)")
    parser.add_argument("--texts", type=int, default=1, metavar="N", help="texts a member reads (default: 1)")
    parser.add_argument("--rank", type=int, default=1, metavar="N", help="rank of the noise (default: 1)")
    options = parser.parse_args()
    use_processors(1, **ENVIRONMENT)
    torch.set_num_threads(1)
    # What vmap says of its own rules, once a call, is what the rows of dense weights show.
    warnings.filterwarnings("ignore", message="There is a performance drop")
    contestants = [
        contestant
        for width in options.widths
        for population in options.populations
        for contestant in measure_size(Trial(width, population, options), options, width)
    ]
    facts = {name: getattr(options, name) for name in ("rounds", "length", "texts", "rank")}
    facts |= {"PyTorch": str(torch.__version__), "evotorch": version("evotorch") if find_spec("evotorch") else None}
    print_tables("any_model", as_json=options.json, facts=facts, contestants=contestants)
    return 0


if __name__ == "__main__":
    sys.exit(main())
