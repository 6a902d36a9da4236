"""The policy of whoever has none: a small network of numpy alone."""

import math
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.environment.policy import ArrayPolicy, Forward, Stacked

N_HIDDEN = 16
"""Number of hidden units."""

MOST_INPUTS = 1024
"""The most numbers of an observation; images want a network of their own, and are not normalised as they come."""


@final
class DefaultPolicy(ArrayPolicy):
    """A linear layer without biases, and added to it a hidden layer of tanh, over all numbers of an observation; all
    outputs are zero at first.

    The hidden layer's weights begin as those of PyTorch's linear layers do, between plus and minus one over the root of
    the number of inputs, and its biases at zero: a policy without a wish for any action learns sooner.

    Raises:
        ValueError: an observation has more than `MOST_INPUTS` numbers, or the number of outputs is unknown.
    """

    def __init__(self, observation_shape: tuple[int, ...], n_outputs: int | None) -> None:
        n_inputs = math.prod(observation_shape)
        if n_inputs > MOST_INPUTS or n_outputs is None:
            what = "actions of a function of your own" if n_outputs is None else f"observations {[*observation_shape]}"
            raise ValueError(f"policy: expected a torch module or a function with `start` for {what}, got none")
        super().__init__(
            {
                "linear.weight": np.zeros((n_outputs, n_inputs)),
                "hidden.weight": np.zeros((N_HIDDEN, n_inputs)),
                "hidden.bias": np.zeros(N_HIDDEN),
                "output.weight": np.zeros((n_outputs, N_HIDDEN)),
            }
        )
        self.draw_weights(0)

    def draw_weights(self, seed: int) -> None:
        random, weights = np.random.Generator(np.random.PCG64(seed)), self.tensors["hidden.weight"]
        weights[...] = (2.0 * random.random(weights.shape) - 1.0) / math.sqrt(max(weights.shape[1], 1))

    def forward(self, stacked: Stacked) -> Forward:
        """The policies of these members, ready for many observations."""
        linear, hidden, output = (
            np.ascontiguousarray(stacked[f"{layer}.weight"].swapaxes(1, 2)) for layer in ("linear", "hidden", "output")
        )
        biases = stacked["hidden.bias"][:, np.newaxis]

        def forward(observations: Float32Array) -> NDArray[Any]:
            inputs = observations.reshape(*observations.shape[:2], -1)
            outputs: NDArray[Any] = inputs @ linear + np.tanh(inputs @ hidden + biases) @ output
            return outputs

        return forward
