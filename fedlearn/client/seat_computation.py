"""The part of a replica that a seat holds on this machine: members of its crew pass through it."""

from typing import final

from fedlearn.coordination.effects import Pass
from fedlearn.coordination.work.stage_computation import StageComputation
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.holding import PartHolding
from fedlearn.tasks.objective import PartObjective
from fedlearn.wire.messages import Seat


@final
class SeatComputation:
    """The state that is held while this machine has the seat."""

    def __init__(self, part: PartObjective, seat: Seat, *, seed: int, threads: int, kept: int) -> None:
        self.holding = PartHolding(part, seed=seed, threads=threads, kept=kept)
        self._passage = StageComputation(part, seat.wire, is_last=seat.place == len(seat.cuts), threads=threads)

    def passed(self, order: Pass) -> bytes | TrialResults:
        """The activations of these members for the next seat; at the last seat, their losses.

        Raises:
            RemoteProtocolError: the activations of the previous seat contradict the plan.
        """
        passed = self._passage.passed(order.trials, self.holding.block(order.block), order.payload)
        return passed if isinstance(passed, bytes) else TrialResults(passed)
