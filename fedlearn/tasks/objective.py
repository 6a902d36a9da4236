"""The interface between a task and training: an objective, whole or a part of it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

import msgspec

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.replica import UInt8Array
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.sums.moments import Int64Array
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns


class Objective(ABC):
    """A value without weights of its own that turns weights and data into losses.

    An ability that only some objectives have is a method with a default here, which says that there is nothing.
    """

    layout: ParameterLayout
    """The layout of the tensors in the flat weights."""
    work_per_member: int
    """The work of one trial, in `unit`."""
    unit: str
    """The unit of work, such as tokens, examples or episodes."""

    @abstractmethod
    def initial_weights(self) -> Float32Array:
        """The initial weights [n_parameters] of a run."""

    @abstractmethod
    def evaluate(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        """The loss of each member, [n_members]; lower is better, and a loss that is not finite does not count.

        The last digits may differ between machines.
        """

    def observe(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        """The losses as in `evaluate`, and the moments of what the members of each group observed where the layout has
        statistics of that."""
        return TrialResults(self.evaluate(weights, data, trials, threads=threads))

    def gradient_sum(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        """The losses, and the sum over groups of the gradient estimate, times `ESTIMATE_UNIT`; without noise times
        2^unit_bits.

        The last digits may differ between machines. Groups with a loss that is not finite contribute zero.

        Raises:
            ValueError: the objective knows no more of such trials than their losses.
        """
        del weights, data, trials, threads
        raise ValueError("perturb, head: expected weights and perturbed, got a task that can't sum gradients")

    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:  # noqa: ARG002
        """The mask [groups, columns], the same on every machine: 1 for each row of a masked tensor that could change
        the group's loss; None where no tensor is masked."""
        return None

    def trial_bytes(self, data: Columns, trials: Trials, *, threads: int) -> int:  # noqa: ARG002
        """Bytes that these trials take besides weights and data, whose sizes an untrusted peer may have chosen.

        It is an estimate that is never too low; 0 where nobody knows.
        """
        return 0

    def mask_bytes(self, data: Columns, n_groups: int) -> int:  # noqa: ARG002
        """Bytes that the row masks of `n_groups` groups take."""
        return 0

    def report(self) -> str:
        """Lines that explain how trials run best on this machine; empty where there is only one possibility."""
        return ""


Values = Mapping[str, Float32Array]
"""The arrays that cross a cut, by name."""


class PartGradients(msgspec.Struct, frozen=True, eq=False):
    """What a part finds on the way back of some members without noise."""

    given: Values
    """The values [members, ...] that the part hands on; the last part has the losses here."""
    cotangents: Values
    """The derivatives of each member's loss by what the part received, [members, ...]."""
    total: Int64Array
    """The sum over members of the derivatives by the part's tensors, [n_parameters], in units of 2^-unit_bits."""
    is_finite: bool
    """Whether all losses and derivatives are finite; else the total is of no use."""


class PartObjective(Protocol):
    """A part of a model that was cut, which turns values of the part before, by its own tensors, into values to hand
    on."""

    @property
    @abstractmethod
    def whole(self) -> ParameterLayout:
        """The layout of all tensors in the whole model's flat weights."""

    @property
    @abstractmethod
    def layout(self) -> ParameterLayout:
        """The layout of the part's tensors in the flat weights of the part."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of work, such as tokens, examples or episodes."""

    @property
    @abstractmethod
    def receives(self) -> Mapping[str, tuple[int, ...]]:
        """The shape, for one member, of each value that the part before hands on."""

    @property
    @abstractmethod
    def gives(self) -> Mapping[str, tuple[int, ...]]:
        """The shape, for one member, of each value that is handed on, in order; the last part gives losses."""

    @abstractmethod
    def member_bytes(self) -> int:
        """Bytes of memory for each member that passes through the part at the same time; an estimate that is never too
        low."""

    @abstractmethod
    def load(self, weights: Float32Array) -> None:
        """Loads the weights of the part, [n_parameters]."""

    @abstractmethod
    def unperturbed(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        """The values that unperturbed weights hand on for the rows of the group of these trials."""

    @abstractmethod
    def members(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        """The values, [members, ...] each, that members of one group hand on."""

    @abstractmethod
    def forward(self, data: Columns, trials: Trials, received: Values, *, threads: int) -> Values:
        """The values, [members, ...] each, that members without noise hand on, each of rows of its own."""

    @abstractmethod
    def backward(
        self, data: Columns, trials: Trials, received: Values, cotangents: Values, *, threads: int
    ) -> PartGradients:
        """The derivatives of these members' losses; `cotangents` are those by what the part hands on, none at the last
        part.

        Raises:
            ValueError: the part can't be differentiated.
        """

    @abstractmethod
    def encoded(self, total: Int64Array, trials: Trials) -> CodedEstimate:
        """The sum of the derivatives of these members as it travels: exact for what other parts add to as well."""

    @property
    @abstractmethod
    def backward_bytes(self) -> int:
        """Bytes of memory that `backward` takes; an estimate that is never too low."""

    @abstractmethod
    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        """The mask [groups, columns] as an `Objective` gives it, for the tensors of the whole model."""
