"""The work of a seat: members of its crew's leases pass through it, and what it says of them takes its route."""

from typing import final

from fedlearn.coordination.effects import ClientEffect, Evaluate
from fedlearn.coordination.work.pipeline import Pipeline
from fedlearn.coordination.work.route import ActivationRoute, unreachable
from fedlearn.coordination.work.work import Heard, LineEvent, Linked, Unlinked
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.wire.messages import Activations, Assignment, Message, Neighbours, Seat, Taken


@final
class CrewStage:
    """One stage of a crew, with its pipeline and its route to the next stage."""

    def __init__(self, seat: Seat, *, is_direct: bool) -> None:
        """`is_direct` says whether this machine calls neighbours, and is called by them."""
        self._pipeline, self._route = Pipeline(seat), ActivationRoute()
        self._is_direct = is_direct

    @property
    def bytes_waiting(self) -> int:
        return self._pipeline.bytes_waiting

    def take(self, event: Message | LineEvent, now: float) -> list[ClientEffect]:
        match event:
            case Assignment():
                return self._turn_away(self._pipeline.assign(event, now))
            case Activations():
                self._pipeline.received(event)
            case Taken():
                self._pipeline.taken(event)
            case Neighbours() if self._is_direct:
                self._pipeline.hear(event.before)
                return self._route.name(event)
            case Linked():
                return self._route.opened()
            case Unlinked(reason, is_next=True):
                return self._route.lost(reason)
            case Unlinked(reason) if self._pipeline.hears:
                return self._turn_away(reason)
            case Heard(activations):
                reason = self._pipeline.heard(activations)
                return self._turn_away(reason) if not activations.backward else self._route.lost(reason)
        return []

    def _turn_away(self, reason: str) -> list[ClientEffect]:
        """Stops hearing the previous seat directly, where there is a reason: the server looks at what it sends."""
        if not reason:
            return []
        self._pipeline.hear(None)
        self._route.turn_away()
        return [unreachable(reason, is_next=False)]

    def give_up(self) -> None:
        self._pipeline.clear()

    def next(self, step: int, now: float) -> Pass | None:
        return self._pipeline.next(step, now)

    def done(
        self, order: Evaluate | Pass, result: Passed | TrialResults, digest: bytes, *, started: float, now: float
    ) -> list[ClientEffect]:
        del started
        assert isinstance(order, Pass)
        assert isinstance(result, Passed)
        said = self._pipeline.passed(order, result, digest, now)
        return [effect for message in said for effect in self._route.say(message)]
