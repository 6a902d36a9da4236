"""What a replica asks of an optimizer."""

from collections.abc import Mapping
from typing import Protocol, Self

from fedlearn.es.estimate import Int32Array
from fedlearn.es.layout import Float32Array

Numbers = Mapping[str, float]
"""An optimizer's running numbers by name, such as Adam's products of betas."""


class Optimizer(Protocol):
    """A rule with its settings; what it remembers between steps belongs to the replica, which keeps it by name.

    All arithmetic on arrays is done by `es_core`, so that every machine gets the same bits.
    """

    @classmethod
    def configured(cls, *, learning_rate: float, beta1: float, beta2: float) -> Self:
        """The rule with a run's settings; `beta1` is the share of the mean gradient that it keeps, if it keeps any."""

    @property
    def learning_rate(self) -> float:
        """Step size, before a tensor's relative scale."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the arrays, as long as the weights, that it remembers; each begins with zeros."""

    def advanced(self, numbers: Numbers) -> dict[str, float]:
        """The running numbers that a step uses and leaves behind, given those before it; at first there are none."""

    def step(
        self,
        weights: Float32Array,
        slots: Mapping[str, Float32Array],
        estimate: Int32Array,
        *,
        numbers: Numbers,
        gradient_scale: float,
        scale: float,
        decay: float,
    ) -> None:
        """Takes one tensor's step in place: weights, slots and estimate are its interval of each, [n].

        `estimate * gradient_scale` is the gradient, `scale` multiplies the learning rate, and `decay` is the share of
        the weights that is taken off before the step.
        """
