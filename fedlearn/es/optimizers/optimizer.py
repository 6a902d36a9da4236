"""What a replica asks of an optimizer."""

from collections.abc import Mapping
from typing import Protocol, Self

from fedlearn.es.layout import Float32Array
from fedlearn.es.sums.estimate import Int32Array

Numbers = Mapping[str, float]
"""An optimizer's running numbers by name, such as Adam's products of betas."""


class Optimizer(Protocol):
    """A rule with its settings; the state between steps belongs to the replica, which keeps it by name.

    All arithmetic on arrays is done by `es_core`, so that every machine gets the same bits.
    """

    @classmethod
    def configured(cls, *, learning_rate: float, beta1: float, beta2: float) -> Self:
        """The rule with a run's settings; `beta1` is also the momentum of a rule that has one."""

    @property
    def learning_rate(self) -> float:
        """Step size, before a tensor's relative scale."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the arrays that it keeps, each as long as the weights and at first zero."""

    def advanced(self, numbers: Numbers) -> dict[str, float]:
        """The running numbers that a step uses and leaves behind, from those before it; before the first step there are
        none."""

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
        """Takes the step of one tensor in place; weights, slots and estimate are its intervals, [n].

        The gradient is `estimate * gradient_scale`; `scale` multiplies the learning rate; `decay` is the share of the
        weights that is taken off before the step.
        """
