"""One network with a population, and the calls into es_core that a step makes for it."""

from typing import final

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout
from fedlearn.tasks.rnn.layout import rnn_layout

SIGMA = 0.01


def default_population(hidden_size: int) -> int:
    """Members that keep a call above some ten milliseconds and the working set honest."""
    return min(max(2**19 // hidden_size, 512), 4096)


@final
class Trial:
    """A network with random weights, tokens for a population, and the calls into our kernels."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        population: int,
        sequence_length: int,
        group_size: int,
        rank: int,
        threads: int,
    ) -> None:
        """`shape` is (vocabulary, hidden, layers); the population is rounded down to whole groups, one at least."""
        vocab_size, hidden_size, _ = self.shape = shape
        self.layout: ParameterLayout = rnn_layout(*shape, 1.0)
        self.group_size, self.threads = group_size, threads
        self.n_groups = max(population // group_size, 1)
        self.population = self.n_groups * group_size
        self.n_tokens = self.population * sequence_length
        generator = np.random.default_rng(1)
        deviation = np.float32(0.7 / hidden_size**0.5)
        self.weights = generator.standard_normal(self.layout.size, dtype=np.float32) * deviation
        self.tokens = generator.integers(0, vocab_size, (self.n_groups, 1, sequence_length + 1)).astype(np.uint16)
        self.utilities = generator.integers(-64, 65, self.population).astype(np.int8)
        self.scales = np.ones(len(self.layout.tensors), dtype=np.float32)
        self.table = self.layout.table(rank)
        self.is_cold = np.ones(self.n_groups, dtype=np.uint8)
        self.estimate_result = np.zeros(self.layout.size, dtype=np.int32)
        self.moments = np.zeros((2, self.layout.size), dtype=np.float32)

    def evaluate(self, *, int8: bool = False, reset_token: int = -1, threads: int | None = None) -> NDArray[np.float32]:
        """Losses of all members; on the trial's threads unless told otherwise."""
        return es_core.rnn_member_losses(
            self.shape,
            self.table,
            self.scales,
            self.weights,
            seed=1,
            step=0,
            first_member=0,
            group_size=self.group_size,
            tokens=self.tokens,
            context=0,
            is_cold=self.is_cold,
            sigma=SIGMA,
            int8=int8,
            reset_token=reset_token,
            threads=self.threads if threads is None else threads,
        )

    def gradient_of_activations(self, reset_token: int = -1) -> NDArray[np.int32]:
        """Trials with noise on activations and what they say of the gradient; the head's part in closed form."""
        _, estimate, _ = es_core.rnn_activation_gradient(
            self.shape,
            self.layout.table(0),
            self.scales,
            self.weights,
            seed=1,
            step=0,
            first_member=0,
            group_size=self.group_size,
            tokens=self.tokens,
            context=0,
            is_cold=self.is_cold,
            sigma=0.05,
            logit_sigma=0.0,
            discount=0.8,
            reset_token=reset_token,
            threads=self.threads,
        )
        return estimate

    def evaluate_with(self, isa: str) -> NDArray[np.float32]:
        """The same in another instruction set."""
        before = es_core.current_isa()
        es_core.select_isa(isa)
        try:
            return self.evaluate()
        finally:
            es_core.select_isa(before)

    def estimate(self) -> None:
        """The gradient estimate of all members."""
        masks = np.ones((self.n_groups, self.shape[0] + 1), dtype=np.uint8)
        self.estimate_result = es_core.estimate_gradient(
            self.table,
            self.layout.size,
            seed=1,
            step=0,
            group_size=self.group_size,
            spans=[(0, self.population)],
            utilities=self.utilities,
            row_masks=masks,
            threads=self.threads,
        )

    def take_adam_step(self) -> None:
        """The optimizer on all parameters, too small a step to move the weights."""
        es_core.adam_step(
            self.weights,
            self.moments[0],
            self.moments[1],
            self.estimate_result,
            gradient_scale=1e-6,
            learning_rate=1e-12,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-8,
            correction1=1.0,
            correction2=1.0,
        )
