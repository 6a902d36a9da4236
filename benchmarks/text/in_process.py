"""The product as a learner: coordinator, worker, both replicas, journal and wire in one process.

Memory stands in place of sockets. The server's own replica takes its steps on the same processors as the volunteer's
trials, so `--threads 1` is all of a run on one core.
"""

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from benchmarks.text.rnn_run import RnnRun
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Swarm


@final
class InProcess:
    """A new run with one volunteer. Its schedules are the run's own: `advance` needs no progress."""

    def __init__(self, run: RnnRun, clock: Callable[[], float]) -> None:
        self._trainer, _ = Trainer.open(run.run)
        self._swarm = Swarm(self._trainer, clock)
        self._swarm.join("benchmark", threads=run.threads)
        self._tokens_per_member = run.objective.work_per_member

    def advance(self, progress: float) -> int:  # noqa: ARG002 (the run's configuration knows where it ends)
        n_reported = len(self._swarm.metrics)
        while len(self._swarm.metrics) == n_reported and self._swarm.reason is None:
            self._swarm.advance()
        return sum(step.members for step in self._swarm.metrics[n_reported:]) * self._tokens_per_member

    def weights(self) -> NDArray[np.float32]:
        return self._trainer.replica.weights

    def close(self) -> None:
        """Closes the run's journal."""
        self._trainer.close()
