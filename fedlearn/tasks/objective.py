"""The interface between a task and training: an objective."""

from abc import ABC, abstractmethod

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.replica import UInt8Array
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
