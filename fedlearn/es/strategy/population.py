"""The members of one step: how many there are, and how they differ."""

import msgspec

from fedlearn.es.attempts import Attempt
from fedlearn.es.optimizers import AnyOptimizer
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.moments import START_WEIGHT


class Population(msgspec.Struct, frozen=True):
    """The population of one step: at most `limit` members with this perturbation, in whole groups."""

    step: int
    perturbation: Perturbation
    group_size: int
    limit: int
    """The largest number of members, a multiple of `group_size`."""
    optimizer: AnyOptimizer
    """The optimizer, with the learning rate of the strategy's `population_limit` after the schedule; that of local
    steps is in the perturbation."""
    elapsed_s: float
    """Seconds for which the steps before this one were open."""
    shaping_scale: float
    """The running standard deviation of losses within groups before this step; 0 when nothing is known yet."""
    weight_decay: float = 0.0
    observed: float = START_WEIGHT
    """The number of observations that mean and deviation of these stand for before this step."""
    attempt: Attempt | None = None
    """The attempt before this step, None at the first one; where gradients are measured, that of this step."""

    @property
    def n_local_steps(self) -> int:
        """Number of steps that each machine takes between two exchanges."""
        steps = self.perturbation.local_steps
        return self.group_size // steps.n_members if steps is not None else 1
