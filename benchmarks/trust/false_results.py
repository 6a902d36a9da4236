"""An attack, for tests and benchmarks: a volunteer whose losses drift, below a tolerance, towards a text of its own.

It measures its members truly, and also on a text that it chose. What a member is better or worse at that text than its
group, scaled to just less than what an audit lets pass, is added to the member's loss. So the run learns the text along
with its own data, while each result looks like that of another processor.
"""

from collections.abc import Callable
from functools import partial
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Compute, Evaluate
from fedlearn.es.layout import Float32Array
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.simulation.swarm import Participant
from fedlearn.tasks.parts.computation import Passed

Allowed = Callable[[Float32Array, int], NDArray[np.float64]]
"""Gives the distance that is allowed for each group of losses [n_members], by a group's size."""

Lie = Callable[[Trials, TrialResults], TrialResults]
"""Makes false results of a lease's trials and their true ones."""


def falsify(participant: Participant, lie: Lie) -> None:
    """Has a participant report, from now on, what the lie makes of its results."""
    perform = participant.volunteer.perform

    def perform_falsely(compute: Compute) -> bytes | TrialResults | Passed | None:
        result = perform(compute)
        if isinstance(compute, Evaluate):
            assert isinstance(result, TrialResults), "trials that were evaluated have results"
            return lie(compute.trials, result)
        return result

    # Whatever performs orders asks the volunteer by this name.
    setattr(participant.volunteer, "perform", perform_falsely)  # noqa: B010


@final
class Planter:
    """Makes participants report false losses that plant the same text, token numbers [n]."""

    def __init__(self, text: NDArray[np.uint16], allowed: Allowed, *, share: float = 0.95) -> None:
        """Makes losses differ by `share` of the allowed distance."""
        self._block = {"tokens": text}
        self._allowed = allowed
        self._share = share

    def corrupt(self, participant: Participant) -> None:
        """Makes all results of a participant false from now on."""
        falsify(participant, partial(self._shifted, participant.volunteer))

    def _shifted(self, volunteer: VolunteerReplica, trials: Trials, true: TrialResults) -> TrialResults:
        holding, size = volunteer.holding, trials.group_size
        wanted = holding.objective.evaluate(holding.replica.weights, self._block, trials, threads=1)
        groups = wanted.reshape(-1, size).astype(np.float64)
        towards = groups - groups.mean(axis=1, keepdims=True)
        length = np.sqrt(np.mean(towards**2, axis=1, keepdims=True))
        shift = self._share * self._allowed(true.losses, size)[:, np.newaxis] * towards / np.maximum(length, 1e-30)
        return msgspec.structs.replace(true, losses=(true.losses + shift.reshape(-1)).astype(np.float32))
