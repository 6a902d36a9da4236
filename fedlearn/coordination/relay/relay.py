"""A relay as a pure machine: a volunteer to the server above, and a coordinator to the volunteers below.

Above, it speaks through a Worker, which is shown no Assignment: the relay shares those among the volunteers below, and
their results go up. Below, it speaks through a Coordinator, whose steps end with the Updates from above.
"""

from collections import deque
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
from fedlearn.coordination.leases.open_step import LEAST_GRACE_S, OpenStep
from fedlearn.coordination.people.roster import KEPT_BLOCKS, Held
from fedlearn.coordination.relay.holes import cut_late, holes_in, idle, pieces
from fedlearn.coordination.relay.upstream_steps import UpstreamSteps
from fedlearn.coordination.work.worker import Worker
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.tasks.parts.computation import Passed
from fedlearn.wire.messages import Assignment, DataBlock, Farewell, Message, Ready, Seat, Welcome

NO_SEAT = (
    "seat: expected a run whose volunteers hold whole replicas, as all behind a relay do; "
    "where crews hold the model, join the server itself"
)

RelayEffect = ClientEffect | ServerEffect
"""Effects above and below in one order, because the replica changes between them."""

Serve = Callable[[Welcome, int, bytes], tuple[Coordinator, UpstreamSteps]]
"""Makes the coordinator and the steps for volunteers of this run, beginning at this step and digest."""


@final
class Relay:
    """Outlasts conversations with the server above, each of which has a worker of its own."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._worker: Worker | None = None
        self._welcome: Welcome | None = None
        self._coordinator: Coordinator | None = None
        self._steps: UpstreamSteps | None = None
        self._step = -1
        self._under_way: Compute | None = None
        self._ready: Reply | None = None
        """The Ready that is sent above as soon as there is a volunteer below to lease to."""
        self._ending = ""
        self._blocks: deque[bytes] = deque(maxlen=KEPT_BLOCKS)
        """Names of the blocks that volunteers below can be sent."""

    # ---- the server above

    def start(
        self, worker: Worker, *, nonce: bytes, binding: bytes = b"", held: Held | None = None
    ) -> list[ClientEffect]:
        """Begins a conversation with the server above; see Worker."""
        self._worker = worker
        return worker.start(nonce=nonce, binding=binding, held=held)

    def received(self, message: Message, now: float) -> list[RelayEffect]:
        """Takes a message of the server above."""
        assert self._worker is not None, "received before a conversation began"
        match message:
            case Assignment():
                reason = self._refusal_of(message)
                return [*self._worker.fail(reason)] if reason else [*self._assigned(message, now)]
            case DataBlock(block):
                self._blocks.append(block)
            case Seat():
                return [*self._worker.fail(NO_SEAT)]
            case Farewell(kind="run_ended", reason=reason):
                self._ending = reason
        return self._follow(self._worker.received(message, now), now)

    def computed(self, result: bytes | TrialResults | Passed | None, now: float) -> list[RelayEffect]:
        """Takes the result of the computation under way: a digest for Load, Begin and Apply."""
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
            return effects  # the conversation is over; the replica has only finished what was under way
        return [*effects, *self._follow(self._worker.computed(result, now), now)]

    def lost(self) -> None:
        """Takes note that the conversation is over; the volunteers below wait for the next one."""
        self._worker = self._ready = None
        if self._coordinator is not None and self._steps is not None:
            self._steps.revoke()
            self._coordinator.loop.abandon()

    def _refusal_of(self, lease: Assignment) -> str:
        """Why volunteers below can't take parts of the lease; empty where they can."""
        if lease.block != NO_BLOCK and lease.block not in self._blocks:
            return f"block {lease.block.hex()}: expected one that the server sent lately, got a name without data"
        trials = Trials(lease.step, lease.perturbation, lease.group_size, lease.first_member, lease.quota)
        try:
            trials.check_groups()
            trials.check_numbers()
        except ValueError as error:
            return str(error)
        return ""

    def _assigned(self, assignment: Assignment, now: float) -> list[ServerEffect]:
        if self._coordinator is None or self._steps is None:
            return []
        if self._steps.step is not None and self._steps.step.population.step == assignment.step:
            self._coordinator.loop.abandon()  # the server leases again, for the same step, members that nobody had
        self._steps.assign(assignment, now)
        return self._coordinator.loop.open_next(now)

    def _hold(self, step: int, digest: bytes | TrialResults | Passed | None, now: float) -> list[ServerEffect]:
        """Takes note of the step before which the replica stands after it was loaded, begun or kept."""
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
        """Translates the worker's effects to both sides."""
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
        """Says Ready above once there is a volunteer, since otherwise the server would wait for an empty relay."""
        if self._ready is None or self._coordinator is None:
            return []
        if not self._coordinator.roster.ready:
            return []
        ready, self._ready = self._ready, None
        return [ready]

    def _close(self, update: Update, now: float) -> list[ServerEffect]:
        """Ends the step below with an Update from above; the replica takes it once, for both sides."""
        assert self._coordinator is not None, "an Update before the weights"
        assert self._steps is not None
        effects = self._coordinator.loop.close(self._steps.closed(update, now), now)
        return [effect for effect in effects if not isinstance(effect, ApplyUpdate)]

    # ---- the volunteers below

    def turn(self, now: float) -> list[RelayEffect]:
        """Sends results up and leases members again, where something has happened below."""
        steps, coordinator = self._steps, self._coordinator
        if steps is None or coordinator is None or steps.step is None:
            return self._say_ready()
        step = steps.step
        known = [party.exchange_s for party in coordinator.roster.parties if party.exchange_s is not None]
        exchange_s = median(known) if known else 0.0
        n_machines = sum(party.n_machines for party in coordinator.roster.ready)
        results = steps.hand_up(now, exchange_s=exchange_s, n_machines=max(n_machines, 1))
        effects: list[RelayEffect] = [Reply(result) for result in results]
        if steps.next_member < steps.end and (step.is_complete or now >= step.deadline):
            effects += self._fill(coordinator, steps, step, now)
        return effects

    def _fill(self, coordinator: Coordinator, steps: UpstreamSteps, step: OpenStep, now: float) -> list[ServerEffect]:
        """Leases the missing members again, to volunteers that are done."""
        parties = coordinator.roster.parties
        number, open_s = step.population.step, max(now - step.opened_at, LEAST_GRACE_S)
        if not step.is_complete:
            if idle(parties, number):
                cut_late(step, parties, now)
            elif not step.has_results:
                step.deadline = now + open_s  # a group takes longer than expected
                return []
        helpers = idle(parties, number)
        holes = holes_in(step.leases, steps.next_member, steps.end)
        cut = pieces(holes, len(helpers), step.population.group_size)
        if helpers and cut:
            step.deadline = min(steps.deadline, now + open_s)
        effects: list[ServerEffect] = []
        for party, (first_member, quota) in zip(helpers, cut, strict=False):
            effects += coordinator.loop.lease_again(party, first_member, quota, now)
        return effects
