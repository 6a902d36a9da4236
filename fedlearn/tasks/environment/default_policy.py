"""The policy of whoever has none: a small network of numpy alone."""

import math
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.environment.policy import ArrayPolicy, Forward, Stacked

N_HIDDEN = 16
"""Number of hidden units."""


@final
class DefaultPolicy(ArrayPolicy):
    """A linear layer, and added to it a hidden layer of tanh; all outputs are zero at first.

    The hidden layer begins as PyTorch's linear layers do, with weights and biases between plus and minus one over the
    root of the number of inputs.

    Raises:
        ValueError: observations have not one axis, or the number of outputs is unknown.
    """

    def __init__(self, observation_shape: tuple[int, ...], n_outputs: int | None) -> None:
        if len(observation_shape) != 1 or n_outputs is None:
            what = "actions of a function of your own" if n_outputs is None else f"observations {[*observation_shape]}"
            raise ValueError(f"policy: expected a torch module or a function with `start` for {what}, got none")
        n_inputs = observation_shape[0]
        random, bound = np.random.Generator(np.random.PCG64(0)), 1.0 / math.sqrt(max(n_inputs, 1))

        def drawn(*shape: int) -> NDArray[np.float64]:
            return bound * (2.0 * random.random(shape) - 1.0)

        super().__init__(
            {
                "linear.weight": np.zeros((n_outputs, n_inputs)),
                "linear.bias": np.zeros(n_outputs),
                "hidden.weight": drawn(N_HIDDEN, n_inputs),
                "hidden.bias": drawn(N_HIDDEN),
                "output.weight": np.zeros((n_outputs, N_HIDDEN)),
            }
        )

    def forward(self, stacked: Stacked) -> Forward:
        """The policies of these members, ready for many observations."""
        linear, hidden, output = (
            np.ascontiguousarray(stacked[f"{layer}.weight"].swapaxes(1, 2)) for layer in ("linear", "hidden", "output")
        )
        biases, thresholds = stacked["linear.bias"][:, np.newaxis], stacked["hidden.bias"][:, np.newaxis]

        def forward(observations: Float32Array) -> NDArray[Any]:
            outputs: NDArray[Any] = (
                observations @ linear + biases + np.tanh(observations @ hidden + thresholds) @ output
            )
            return outputs

        return forward
