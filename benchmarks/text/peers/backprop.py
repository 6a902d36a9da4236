"""Backpropagation with Adam in PyTorch, truncated to the scored tokens of the same windows."""

from typing import final

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.text.peers.same_windows import check_one_layer, same_windows
from benchmarks.text.peers.torch_rnn import losses, split, starting_states, warm_states
from benchmarks.text.rnn_run import RnnRun


class BackpropSettings(msgspec.Struct, frozen=True):
    """The learning rate falls linearly to 0 over the budget.

    Chosen on tinyshakespeare, hidden 64, of 16, 32 and 64 windows and learning rates 0.005 to 0.03: 2.73 bits per
    character on validation with 1e6 tokens, 2.54 with 1e7. 16 windows reach 2.67 with 1e6 tokens, in several times the
    seconds; rate 0.01 is 0.06 and 0.02 behind.
    """

    windows: int = 64
    """A step."""
    learning_rate: float = 0.02
    clip: float = 1.0
    """Greatest norm of the gradient."""
    weight_decay: float = 0.0
    """Decoupled, as ours is: times the learning rate."""


@final
class Backprop:
    """The learner."""

    def __init__(self, run: RnnRun, settings: BackpropSettings) -> None:
        check_one_layer(run)
        torch.set_num_threads(run.threads or torch.get_num_threads())
        self._run, self._settings = run, settings
        weights = torch.from_numpy(run.initial_weights())
        parts = split(weights[None], run.objective.layout)
        self._parameters = {name: part.clone().requires_grad_() for name, part in parts.items()}
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._step = 0

    def advance(self, progress: float) -> int:
        settings = self._settings
        windows = same_windows(self._run, step=self._step, n_windows=settings.windows)
        context, tokens, is_cold = (
            torch.from_numpy(array) for array in (windows.context, windows.tokens, windows.is_cold)
        )
        warm = warm_states(self._parameters, context)
        self._optimizer.zero_grad()
        loss = losses(self._parameters, tokens, starting_states(self._parameters, warm, is_cold))
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), settings.clip)
        self._optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - progress)
        self._optimizer.step()
        self._step += 1
        return settings.windows * self._run.options.sequence_length

    def weights(self) -> NDArray[np.float32]:
        flat: NDArray[np.float32] = torch.cat([part.detach().flatten() for part in self._parameters.values()]).numpy()
        return flat
