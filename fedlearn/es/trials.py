"""Trials: what a volunteer is asked to evaluate, and what came of it."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping

Float32Array = NDArray[np.float32]


class Trials(msgspec.Struct, frozen=True):
    """Consecutive members of one step, in whole groups."""

    step: int
    perturbation: Perturbation
    group_size: int
    first_member: int
    n_members: int
    shaping: Shaping | None = None
    """Where the sum of their gradients is wanted, exact; None: losses, or what a summed perturbation tells."""

    @property
    def first_group(self) -> int:
        """Number of the first group."""
        return self.first_member // self.group_size

    @property
    def n_groups(self) -> int:
        """Groups that these members form."""
        return self.n_members // self.group_size

    def part(self, first_group: int, n_groups: int) -> "Trials":
        """Some of the groups, counted from the first of these."""
        return msgspec.structs.replace(
            self, first_member=self.first_member + first_group * self.group_size, n_members=n_groups * self.group_size
        )


class TrialResults(msgspec.Struct, frozen=True, eq=False):
    """What came of trials."""

    losses: Float32Array
    """Of each member, [n_members]; lower is better, and what is not finite does not count."""
    estimate: CodedEstimate = NO_ESTIMATE
    """Sum of gradients; empty where every replica finds it from everybody's losses."""
