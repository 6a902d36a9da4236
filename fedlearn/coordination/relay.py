"""A relay as a pure machine: a volunteer to the server above, a coordinator to the volunteers below.

Upwards a Worker speaks, which is shown no Assignment: those are shared among the volunteers below, and what comes back
goes up in its place. Downwards a Coordinator speaks, whose steps end with the Updates from above.
"""

from collections.abc import Callable
from statistics import median
from typing import final

from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import (
    Apply,
    ApplyUpdate,
    Begin,
    Build,
    ClientEffect,
    Compute,
    Leave,
    Load,
    Reply,
    ServerEffect,
)
from fedlearn.coordination.holes import cut_late, holes_in, idle, pieces
from fedlearn.coordination.leased_steps import LeasedSteps
from fedlearn.coordination.open_step import LEAST_GRACE_S, OpenStep
from fedlearn.coordination.roster import Held, Phase
from fedlearn.coordination.worker import Worker
from fedlearn.es.trials import TrialResults
from fedlearn.es.update import Update
from fedlearn.wire.messages import Assignment, Farewell, Message, Ready, Welcome

RelayEffect = ClientEffect | ServerEffect
"""Upwards or downwards, in one order: the replica that both are about changes in between."""

Serve = Callable[[Welcome, int, bytes], tuple[Coordinator, LeasedSteps]]
"""Makes what volunteers of this run need, who begin at a step with this digest."""


@final
class Relay:
    """Lasts over as many conversations with the server above as it takes, each of which has a worker of its own."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._worker: Worker | None = None
        self._welcome: Welcome | None = None
        self._coordinator: Coordinator | None = None
        self._steps: LeasedSteps | None = None
        self._step = -1
        self._under_way: Compute | None = None
        self._ready: Reply | None = None
        """What is said above as soon as there is anybody below to lease to."""
        self._ending = ""

    # ---- the server above

    def start(
        self, worker: Worker, *, nonce: bytes, binding: bytes = b"", held: Held | None = None
    ) -> list[ClientEffect]:
        """A conversation with it begins; see Worker."""
        self._worker = worker
        return worker.start(nonce=nonce, binding=binding, held=held)

    def received(self, message: Message, now: float) -> list[RelayEffect]:
        """It said something."""
        assert self._worker is not None, "received before a conversation began"
        match message:
            case Assignment():
                return [*self._assigned(message, now)]
            case Farewell(kind="run_ended", reason=reason):
                self._ending = reason
        return self._follow(self._worker.received(message, now), now)

    def computed(self, result: bytes | TrialResults | None, now: float) -> list[RelayEffect]:
        """The computation under way ended: a digest for Load, Begin and Apply."""
        effects: list[RelayEffect] = []
        match self._under_way:
            case Load(snapshot):
                effects += self._hold(snapshot.step, result, now)
            case Begin(start):
                effects += self._hold(start.first_step, result, now)
            case Apply(update):
                assert isinstance(result, bytes)
                assert self._coordinator is not None
                assert self._steps is not None
                self._step, self._steps.digest = update.step + 1, result
                effects += self._coordinator.applied(result, now)
        if self._worker is None:
            return effects  # the conversation is over, and the replica took what was under way
        return [*effects, *self._follow(self._worker.computed(result, now), now)]

    def lost(self) -> None:
        """The conversation is over; those below wait for the next one."""
        self._worker = self._ready = None
        if self._coordinator is not None and self._steps is not None:
            self._steps.revoke()
            self._coordinator.abandon()

    def _assigned(self, assignment: Assignment, now: float) -> list[ServerEffect]:
        if self._coordinator is None or self._steps is None:
            return []
        if self._steps.step is not None and self._steps.step.population.step == assignment.step:
            self._coordinator.abandon()  # the server asks anew, for members that nobody had
        self._steps.assign(assignment, now)
        return self._coordinator.assigned(now)

    def _hold(self, step: int, digest: bytes | TrialResults | None, now: float) -> list[ServerEffect]:
        """The replica was replaced, or is where it was."""
        assert isinstance(digest, bytes)
        assert self._welcome is not None, "weights before a Welcome"
        if self._coordinator is None or self._steps is None:
            self._coordinator, self._steps = self._serve(self._welcome, step, digest)
        elif (step, digest) != (self._step, self._steps.digest):
            moved = self._coordinator.moved(step, digest, now)
            self._step, self._steps.digest = step, digest
            return moved
        self._step, self._steps.digest = step, digest
        return []

    def _follow(self, effects: list[ClientEffect], now: float) -> list[RelayEffect]:
        """What the worker wants, and those below are told with it."""
        followed: list[RelayEffect] = []
        for effect in effects:
            match effect:
                case Build(welcome):
                    if self._welcome not in (None, welcome):
                        assert self._worker is not None
                        reason = "the server trains another run now; start the relay anew"
                        return [*followed, *self._worker.fail(reason)]
                    self._welcome = welcome
                case Apply(update):
                    followed += self._close(update, now)
                case Reply(Ready()):
                    self._ready = effect
                    continue
                case Leave() if self._steps is not None:
                    self._steps.reason = self._ending
            if isinstance(effect, Compute):
                self._under_way = effect
            followed.append(effect)
        return [*followed, *self._say_ready()]

    def _say_ready(self) -> list[RelayEffect]:
        """Nobody above waits for a relay that has no volunteers yet."""
        if self._ready is None or self._coordinator is None:
            return []
        if not any(volunteer.phase is Phase.READY for volunteer in self._coordinator.volunteers):
            return []
        ready, self._ready = self._ready, None
        return [ready]

    def _close(self, update: Update, now: float) -> list[ServerEffect]:
        """Passes an Update on; the replica takes it once, for both sides."""
        assert self._coordinator is not None, "an Update before the weights"
        assert self._steps is not None
        effects = self._coordinator.close(self._steps.closed(update, now), now)
        return [effect for effect in effects if not isinstance(effect, ApplyUpdate)]

    # ---- the volunteers below

    def turn(self, now: float) -> list[RelayEffect]:
        """Whatever happened below may have something go up, or have members leased again."""
        steps, coordinator = self._steps, self._coordinator
        if steps is None or coordinator is None or steps.step is None:
            return self._say_ready()
        step = steps.step
        known = [v.exchange_s for v in coordinator.volunteers if v.exchange_s is not None]
        exchange_s = median(known) if known else 0.0
        results = steps.hand_up(now, exchange_s=exchange_s)
        effects: list[RelayEffect] = [Reply(result) for result in results]
        if steps.next_member < steps.end and (step.is_complete or now >= step.deadline):
            effects += self._fill(coordinator, steps, step, now)
        return effects

    def _fill(self, coordinator: Coordinator, steps: LeasedSteps, step: OpenStep, now: float) -> list[ServerEffect]:
        """Leases again what is missing, to those who are done."""
        number, open_s = step.population.step, max(now - step.opened_at, LEAST_GRACE_S)
        if not step.is_complete:
            if idle(coordinator.volunteers, number):
                cut_late(step, coordinator.volunteers, now)
            elif not step.has_results:
                step.deadline = now + open_s  # a group takes longer than anybody thought
                return []
        helpers = idle(coordinator.volunteers, number)
        holes = holes_in(step.leases, steps.next_member, steps.end)
        cut = pieces(holes, len(helpers), step.population.group_size)
        if helpers and cut:
            step.deadline = min(steps.deadline, now + open_s)
        effects: list[ServerEffect] = []
        for volunteer, (first_member, quota) in zip(helpers, cut, strict=False):
            effects += coordinator.lease_again(volunteer, first_member, quota, now)
        return effects
