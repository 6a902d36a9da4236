"""The requests that the operator of a running run may make."""

from typing import final

from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import Notice, ServerEffect
from fedlearn.coordination.steps.plan import RunPlan
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.es.strategy import Strategy


@final
class RunOperator:
    """Acts on a coordinator and on its source of steps."""

    def __init__(self, coordinator: Coordinator, steps: OwnSteps) -> None:
        self._coordinator = coordinator
        self._steps = steps

    @property
    def paused_by(self) -> str:
        """Name of the operator that paused the run; empty while it goes on."""
        return self._steps.paused_by

    @property
    def is_still(self) -> bool:
        """Whether no step is open, and the last one is taken."""
        return self._coordinator.loop.is_between_steps

    @property
    def next_end(self) -> int:
        """The step at which a run ends that finishes the open step, if there is one, and opens no other."""
        loop = self._coordinator.loop
        return loop.step + loop.has_open_step

    @property
    def is_at_work(self) -> bool:
        """Whether further steps would be taken: volunteers are there, and the run is not paused."""
        return not self.paused_by and any(party.volunteers for party in self._coordinator.roster.ready)

    def pause(self, by: str) -> list[ServerEffect]:
        """Pauses the run: the open step ends as usual, and none is opened after it; volunteers stay, and wait.

        No results are lost, and no training time passes.
        """
        self._steps.paused_by = by
        return [Notice(f"{by} paused the run")]

    def go_on(self, by: str, now: float) -> list[ServerEffect]:
        """Resumes the run: steps are opened again."""
        self._steps.paused_by = ""
        return [Notice(f"{by} let the run go on"), *self._coordinator.loop.open_next(now)]

    def send_away(self, who: str, by: str, now: float) -> list[ServerEffect]:
        """Parts with a volunteer until the server ends, by its name or the first digits of its identity.

        Raises:
            ValueError: nobody is there by that name, or several are, or it is one of the server's own volunteers.
        """
        effects = self._coordinator.send_away(who, now)
        return [Notice(f"{by} sends {who} away"), *effects]

    def change(self, plan: RunPlan, strategy: Strategy, now: float) -> None:
        """Makes steps that are opened from now on follow these; each Update carries what replicas need to take it."""
        self._steps.change(plan, strategy)
        self._coordinator.replan(plan, now)

    def feed(self, plan: RunPlan, strategy: Strategy, now: float) -> list[ServerEffect]:
        """Opens the next step of a run that is fed, by this strategy on the block of this plan."""
        self._steps.feed(plan, strategy)
        return self._coordinator.loop.open_next(now)

    def stop(self, by: str) -> list[ServerEffect]:
        """Ends the run cleanly, so that it can be resumed at any time."""
        return self._coordinator.stop(f"{by} stopped the server")
