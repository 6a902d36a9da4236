"""A look at what the model can do by now: validation and a short sample, every so often."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from fedlearn.app.terminal import Terminal
from fedlearn.app.trainer import Trainer
from fedlearn.text.sampling import sample

SAMPLE_TOKENS = 120
SAMPLE_TEMPERATURE = 0.8


@final
class Sampler:
    """Shows a sample on the terminal every `sample_time` seconds of the run's configuration."""

    def __init__(self, trainer: Trainer, terminal: Terminal) -> None:
        self._trainer = trainer
        self._terminal = terminal
        self._interval_s = trainer.run.config.sample_time
        self._due: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time for a look; asks for the next one after another interval."""
        if self._interval_s == 0:
            return False
        if self._due is None:
            self._due = now + self._interval_s / 3  # the first look comes early
        if now < self._due:
            return False
        self._due = now + self._interval_s
        return True

    def look(self, weights: NDArray[np.float32]) -> None:
        """Measures and shows; `weights` are a copy, since training goes on meanwhile."""
        run = self._trainer.run
        bits = run.validation_bits_per_character(weights, threads=1)
        self._trainer.validation_bits_per_character = bits
        tokenizer = run.dataset.tokenizer
        model = run.objective.language_model(weights, tokenizer.stop_token)
        written = sample(
            model, [], length=SAMPLE_TOKENS, generator=np.random.default_rng(), temperature=SAMPLE_TEMPERATURE
        )
        text = " ".join(tokenizer.decode(written.tokens).split())
        self._terminal.say(f"validation {bits:.3f} bits/character; it writes: {text}")
