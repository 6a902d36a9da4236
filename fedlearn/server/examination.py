"""What the model can do at present: figures on validation data and, of a model that writes, a short sample."""

from typing import final

import msgspec
import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.kind import Examiner, WritesText
from fedlearn.text.sampling import Manner, sample

SAMPLE_TOKENS = 120


class Examination(msgspec.Struct, frozen=True):
    """The result of looking at a model."""

    figures: dict[str, float]
    sample: str
    """Text with its line breaks; empty for models that do not write."""


@final
class Agenda:
    """Says when the next look is due: one every so many seconds, the first one early, and one every so many steps."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._last_step = 0

    def is_due(self, now: float, interval_s: float, *, step: int = 0, every: int = 0) -> bool:
        """Whether it is time for a look, which is then the last one.

        `step` steps were taken. `interval_s` and `every` so many steps may change, 0: never by this.
        """
        if every and step != self._last_step and step % every == 0:
            self._last, self._last_step = now, step
            return True
        if interval_s == 0:
            return False
        if self._last is None:
            self._last = now - interval_s * 2 / 3
        if now < self._last + interval_s:
            return False
        self._last = now
        return True


def examine(examiner: Examiner, weights: Float32Array) -> Examination:
    """Measures the weights on validation data, and lets the model write."""
    text = ""
    if isinstance(examiner, WritesText):
        written = sample(
            examiner.language_model(weights),
            [],
            length=SAMPLE_TOKENS,
            generator=np.random.default_rng(),
            manner=Manner(),
        )
        text = examiner.tokenizer.decode(written.tokens).strip()
    return Examination(examiner.validate(weights, threads=1), text)
