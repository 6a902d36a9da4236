"""Trials that a volunteer is asked to run, and their results."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.sums.moments import NO_MOMENTS, Int64Array

Float32Array = NDArray[np.float32]

MAX_GROUP_MEMBERS = 2**20
"""The most losses in one Result."""


class Trials(msgspec.Struct, frozen=True):
    """Consecutive members of one step, in whole groups."""

    step: int
    perturbation: Perturbation
    group_size: int
    first_member: int
    n_members: int
    shaping: Shaping | None = None
    """The shaping, where the exact sum of these members is wanted; None where it is not."""

    @property
    def first_group(self) -> int:
        """Number of the first group."""
        return self.first_member // self.group_size

    @property
    def n_groups(self) -> int:
        """Number of groups that these members form."""
        return self.n_members // self.group_size

    def check_groups(self) -> None:
        """Checks that the members form whole groups.

        Raises:
            ValueError: they do not, or groups are too large.
        """
        if self.group_size > MAX_GROUP_MEMBERS or self.n_members % self.group_size:
            raise ValueError(
                f"trials: expected whole groups of at most {MAX_GROUP_MEMBERS} members, got {self.n_members} members "
                f"in groups of {self.group_size}"
            )

    def check_numbers(self) -> None:
        """Checks that there are members, a step and noise of these numbers.

        Raises:
            ValueError: there are not.
        """
        if self.first_member + self.n_members >= 2**63 or not 0 <= self.step < 2**32:
            raise ValueError(
                f"trials: expected members below 2^63 of a step below 2^32, got members from {self.first_member} on "
                f"of step {self.step}"
            )
        if self.perturbation.rank < 0:
            raise ValueError(f"trials: expected a rank of 0 or more, got {self.perturbation.rank}")

    def part(self, first_group: int, n_groups: int) -> "Trials":
        """The trials of some of the groups, counted from the first of these."""
        return msgspec.structs.replace(
            self, first_member=self.first_member + first_group * self.group_size, n_members=n_groups * self.group_size
        )


class TrialResults(msgspec.Struct, frozen=True, eq=False):
    """The results of trials."""

    losses: Float32Array
    """The losses [n_members]; lower is better, and losses that are not finite do not count."""
    estimate: CodedEstimate = NO_ESTIMATE
    """The sum of gradients; empty where replicas compute the gradient from all losses."""
    variance_left: float | None = None
    """The share of the losses' variance that control variates left; None without control variates."""
    moments: Int64Array = NO_MOMENTS
    """The moments of what the members of each group observed; empty where nothing is normalised by them."""
