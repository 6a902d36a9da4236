"""One replica in place of all volunteers' equal ones, so that their common computations are done once."""

from typing import final

import numpy as np

from fedlearn.client.performer import Computed
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Apply, Begin, Compute, Evaluate, Load
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.sums.moments import width
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.user.named_task import NamedTask


@final
class SharedReplica:
    """Answers the orders of many workers that all begin at the same step.

    The trials of all workers are run, each once. A step is taken when the first worker takes it; the others are told
    its digest. Trials of a step that somebody has taken are not run: that step is closed, and nobody looks at their
    result.
    """

    def __init__(self, task: NamedTask | None = None, *, threads: int = 1) -> None:
        self._volunteer = VolunteerReplica(threads, task=task)
        self._digests: dict[int, bytes] = {}
        """Digests of the replica by the step before which it has them."""
        self._estimate: CodedEstimate = NO_ESTIMATE
        """The last estimate, which is as long as any other."""

    def perform(self, compute: Compute) -> Computed:
        """The result that a machine of its own would give."""
        match compute:
            case Load(snapshot) if self._digests:
                return self._digests[snapshot.step]
            case Begin(start) if self._digests:
                return self._digests[start.first_step]
            case Apply(update) if update.step + 1 in self._digests:
                return self._digests[update.step + 1]
            case Evaluate(trials) if trials.step < self._step:
                moments = np.zeros(trials.n_groups * self._width, dtype=np.int64)
                return TrialResults(np.zeros(trials.n_members, dtype=np.float32), self._estimate, moments=moments)
        return self._first(compute)

    def _first(self, compute: Compute) -> Computed:
        result = self._volunteer.perform(compute)
        if isinstance(result, bytes):
            self._digests[self._step] = result
        elif isinstance(result, TrialResults):
            self._estimate = result.estimate
        return result

    @property
    def _width(self) -> int:
        return width(self._volunteer.holding.objective.layout.n_observed)

    @property
    def _step(self) -> int:
        replica = self._volunteer.replica
        return -1 if replica is None else replica.step
