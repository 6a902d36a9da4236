"""Trials that a volunteer is asked to run, and their results."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate

Float32Array = NDArray[np.float32]


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
