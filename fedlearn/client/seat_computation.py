"""The part of a replica that a seat holds on this machine: members of its crew pass through it."""

from typing import final

from fedlearn.coordination.effects import Pass, Passed
from fedlearn.coordination.work.stage_computation import StageComputation
from fedlearn.tasks.holding import PartHolding
from fedlearn.tasks.objective import PartObjective
from fedlearn.wire.messages import Seat


@final
class SeatComputation:
    """The state that is held while this machine has the seat."""

    def __init__(self, part: PartObjective, seat: Seat, *, seed: int, threads: int, kept: int) -> None:
        self.holding = PartHolding(part, seed=seed, threads=threads, kept=kept)
        self._passage = StageComputation(part, seat.wire, is_last=seat.place == len(seat.cuts), threads=threads)

    def passed(self, order: Pass) -> Passed:
        """What the neighbours of this seat are sent of these members, and what it reports itself.

        Raises:
            RemoteProtocolError: what a neighbour sent contradicts the plan.
        """
        return self._passage.passed(order, self.holding.block(order.block))
