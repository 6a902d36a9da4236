"""What the learning benchmark asks of whoever learns, and one run of it to the end of a budget."""

from typing import Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Stopwatch
from benchmarks.text.rnn_run import RnnRun
from fedlearn.tasks.rnn.language_model import RnnLanguageModel
from fedlearn.text.sampling import Manner, sample

SHARES = (0, 1 / 200, 1 / 100, 1 / 50, 1 / 20, 1 / 10, 1 / 5, 1 / 3, 1 / 2, 3 / 4, 1)
"""Shares of a budget after which validation is measured: early on, learning is fast."""

SAMPLE_TOKENS = 400


class Budget(msgspec.Struct, frozen=True, order=True):
    """An amount of one resource. A budget of tokens counts scored tokens times members, without context."""

    unit: Literal["trial-tokens", "seconds"]
    amount: float

    def progress(self, *, seconds: float, trial_tokens: int) -> float:
        """The share that is spent, 1 or more at the end."""
        return (seconds if self.unit == "seconds" else trial_tokens) / self.amount

    def __str__(self) -> str:
        return f"{self.amount:g} {'s' if self.unit == 'seconds' else self.unit}"


class Learner(Protocol):
    """Holds weights, and makes them better step by step."""

    def advance(self, progress: float) -> int:
        """Takes a step at this share of the budget; gives its trial-tokens, 0 once there are no more steps."""

    def weights(self) -> NDArray[np.float32]:
        """The present weights, in the layout of the run's objective, [n_parameters]."""


class Look(msgspec.Struct, frozen=True):
    """The state of a run at a measurement of validation."""

    seconds: float
    steps: int
    trial_tokens: int
    validation_bits_per_character: float


class SeedRun(msgspec.Struct, frozen=True):
    """One run to the end of its budget."""

    seed: int
    looks: list[Look]
    validation_bits_per_character: float
    test_bits_per_character: float
    sample: str
    """What the model writes in the end, at the default temperature."""


def learn(learner: Learner, run: RnnRun, budget: Budget, watch: Stopwatch) -> list[Look]:
    """Lets the learner spend the budget, or its last step; what `watch` shows leaves out the looks."""
    looks: list[Look] = []
    trial_tokens = steps = 0
    has_ended = False
    for share in SHARES:
        watch.start()
        while (
            not has_ended and (progress := budget.progress(seconds=watch.seconds(), trial_tokens=trial_tokens)) < share
        ):
            learned = learner.advance(progress)
            has_ended = learned == 0
            steps += not has_ended
            trial_tokens += learned
        watch.stop()
        bits = run.bits_per_character(learner.weights(), run.dataset.validation)
        looks.append(Look(watch.seconds(), steps, trial_tokens, bits))
    return looks


def conclude(run: RnnRun, weights: NDArray[np.float32], looks: list[Look]) -> SeedRun:
    """The run's figures with its final weights."""
    dataset = run.dataset
    tokenizer = dataset.tokenizer
    model = RnnLanguageModel(
        run.objective, weights, stop_token=tokenizer.stop_token, start=dataset.start, never=dataset.unwritten
    )
    generator = np.random.default_rng(1)
    written = sample(model, [], length=SAMPLE_TOKENS, generator=generator, manner=Manner())
    return SeedRun(
        seed=run.config.run.seed,
        looks=looks,
        validation_bits_per_character=run.bits_per_character(weights, run.dataset.validation),
        test_bits_per_character=run.bits_per_character(weights, run.dataset.test),
        sample=tokenizer.decode(written.tokens),
    )
