"""Examines the model: figures on validation data and, of a model that writes, a short sample."""

from typing import final

import msgspec
import numpy as np

from fedlearn.es.layout import Float32Array
from fedlearn.tasks.kind import Examiner, TextExaminer
from fedlearn.text.sampling import Manner, sample
from fedlearn.text.writing import up_to_a_word

SAMPLE_TOKENS = 120
DULL_SHARE = 0.5
"""Share of letters and digits among the characters of a sample below which it says nothing, as those of young models.
"""

FIRST_SHARE = 1 / 6
"""Share of the interval between two looks after which the first look is due; the next ones follow after twice as long
each."""


class Examination(msgspec.Struct, frozen=True):
    """The result of examining a model."""

    figures: dict[str, float]
    sample: str
    """Text with its line breaks; empty for models that do not write."""


@final
class Agenda:
    """Decides when the next look is due: one every so many seconds, the first ones early, and one every so many
    steps."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._share = FIRST_SHARE
        self._last_step = 0

    def is_due(self, now: float, interval_s: float, *, step: int = 0, every: int = 0) -> bool:
        """Whether a look is due, which is then the last one.

        `step` steps were taken. `interval_s` and `every` so many steps may change, 0: never by this.
        """
        if every and step != self._last_step and step % every == 0:
            self._last, self._last_step = now, step
            return True
        if interval_s == 0:
            return False
        if self._last is None:
            self._last = now
        if now < self._last + interval_s * self._share:
            return False
        self._last, self._share = now, min(2 * self._share, 1.0)
        return True


def examine(examiner: Examiner, weights: Float32Array) -> Examination:
    """Measures the weights on validation data, and lets the model write."""
    text = _sample(examiner, weights) if isinstance(examiner, TextExaminer) else ""
    return Examination(examiner.validate(weights, threads=1), text)


def _sample(examiner: TextExaminer, weights: Float32Array) -> str:
    """The text that the model writes by itself or, where that says nothing, after a few words in brackets that it is
    given."""
    model = examiner.language_model(weights)
    for prompt in ("", examiner.opening):
        written = sample(
            model,
            examiner.tokenizer.encode(prompt),
            length=SAMPLE_TOKENS,
            generator=np.random.default_rng(),
            manner=Manner(),
        )
        text = examiner.tokenizer.decode(written.tokens)
        if sum(map(str.isalnum, text)) >= DULL_SHARE * max(len(text), 1):
            break
    said = (text if written.is_stopped else up_to_a_word(text)).strip()
    return f"[{prompt}] {said}".strip() if prompt else said
