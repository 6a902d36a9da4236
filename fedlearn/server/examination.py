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
    """Says when the model is to be looked at: every `interval_s`, the first time early; 0: never."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time; if so, the next time is after another interval."""
        if self._interval_s == 0:
            return False
        if self._due is None:
            self._due = now + self._interval_s / 3
        if now < self._due:
            return False
        self._due = now + self._interval_s
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
