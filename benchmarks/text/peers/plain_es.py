"""A plain evolution strategy in PyTorch: full-rank Gaussian noise in antithetic pairs, centered ranks, Adam.

As a user would write it for speed: all members of a step read the same windows, and dense weights a member go through
batched products, a few pairs at a time so that their weights stay in the cache.

Source: Salimans et al. 2017, https://arxiv.org/abs/1703.03864.
"""

from typing import final

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.text.peers.same_windows import check_one_layer, same_windows
from benchmarks.text.peers.torch_rnn import losses, split, starting_states, warm_states
from benchmarks.text.rnn_run import RnnRun


class PlainEsSettings(msgspec.Struct, frozen=True):
    """The learning rate falls linearly to 0 over the budget.

    Chosen on tinyshakespeare, hidden 64, 1e7 trial-tokens (3.98 bits per character on validation), of populations of
    64 to 2048 with 1 to 64 windows, sigma 0.01 to 0.1 and learning rates 0.005 to 0.1. Within 0.02 of it: sigma 0.01
    and 0.05, population 64, and 512 with 4 windows; learning rates 0.005 and 0.02 cost 0.15 and 0.19, 64 windows 0.27.
    A longer run wants a larger population: with 4e7 trial-tokens 512 reach 3.71, 128 only 3.74.
    """

    population: int = 128
    windows: int = 16
    """Windows that every member reads in a step."""
    sigma: float = 0.02
    learning_rate: float = 0.01
    pairs_at_once: int = 16


@final
class PlainEs:
    """The learner."""

    def __init__(self, run: RnnRun, settings: PlainEsSettings) -> None:
        check_one_layer(run)
        torch.set_num_threads(run.threads or torch.get_num_threads())
        self._run, self._settings = run, settings
        self._layout = run.objective.layout
        weights = torch.from_numpy(run.initial_weights())
        self._weights = weights.requires_grad_()
        self._optimizer = torch.optim.Adam([self._weights], lr=settings.learning_rate)
        self._generator = torch.Generator().manual_seed(run.config.run.seed)
        self._step = 0

    @torch.no_grad()
    def advance(self, progress: float) -> int:
        settings = self._settings
        n_pairs = settings.population // 2
        noise = torch.randn(n_pairs, self._layout.size, generator=self._generator)
        found = self._evaluate(noise)
        # Of all members, from -0.5 for the lowest loss to 0.5.
        ranks = found.flatten().argsort().argsort().view(2, n_pairs) / (2 * n_pairs - 1) - 0.5
        self._weights.grad = (ranks[0] - ranks[1]) @ noise / (2 * n_pairs * settings.sigma)
        self._optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - progress)
        self._optimizer.step()
        self._step += 1
        return 2 * n_pairs * settings.windows * self._run.options.sequence_length

    def weights(self) -> NDArray[np.float32]:
        weights: NDArray[np.float32] = self._weights.detach().numpy()
        return weights

    def _evaluate(self, noise: Tensor) -> Tensor:
        """Losses [2, pairs] of the members that add and that subtract `noise` [pairs, n_parameters]."""
        windows = same_windows(self._run, step=self._step, n_windows=self._settings.windows)
        tokens, is_cold = torch.from_numpy(windows.tokens), torch.from_numpy(windows.is_cold)
        warm = warm_states(split(self._weights[None], self._layout), torch.from_numpy(windows.context))
        found = []
        for first in range(0, len(noise), self._settings.pairs_at_once):
            some = noise[first : first + self._settings.pairs_at_once]
            members = split(torch.cat([some, -some]).mul_(self._settings.sigma).add_(self._weights), self._layout)
            found.append(losses(members, tokens, starting_states(members, warm, is_cold)).view(2, -1))
        return torch.cat(found, dim=1)
