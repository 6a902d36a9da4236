"""Performs the effects of a relay in order, over whatever connects its peers."""

from collections.abc import Callable, Iterable
from typing import Protocol, final

from fedlearn.client.performer import Computed
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.effects import Compute, Forward, Leave, Link, Notice, Reply, ServerEffect
from fedlearn.coordination.relay.relay import Relay, RelayEffect
from fedlearn.wire.messages import Message


class RelayShell(Protocol):
    """The surroundings of a performer: connections on two sides, a clock, and a place for computations."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def send_up(self, message: Message) -> None:
        """Queues a message for the server above, unless either side has parted."""

    def below(self, effects: list[ServerEffect]) -> None:
        """Performs these effects for the volunteers below."""

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        """Computes after everything that was given before, for either side; calls `then` with the result."""

    def say(self, text: str) -> None:
        """Shows a line to the person at this machine."""

    def left(self, leave: Leave) -> None:
        """Ends the conversation with the server above."""


@final
class RelayPerformer:
    """The effects of one relay on both sides, in the order in which the relay gave them."""

    def __init__(self, relay: Relay, volunteer: VolunteerReplica, shell: RelayShell) -> None:
        self._relay = relay
        self._volunteer = volunteer
        self._shell = shell

    def perform(self, effects: Iterable[RelayEffect]) -> None:
        """Performs effects; those that computations lead to follow when these are done."""
        for effect in effects:
            match effect:
                case Reply(message):
                    self._shell.send_up(message)
                case Notice(text):
                    self._shell.say(text)
                case Leave():
                    self._shell.left(effect)
                case Link() | Forward():
                    pass  # a relay holds whole replicas, and has no neighbours
                case _ if isinstance(effect, Compute):
                    self._compute(effect)
                case _:
                    self._shell.below([effect])

    def turn(self) -> None:
        """Lets the relay act on what happened below."""
        self.perform(self._relay.turn(self._shell.now()))

    def _compute(self, compute: Compute) -> None:
        self._shell.compute(
            lambda: self._volunteer.perform(compute),
            lambda result: self.perform(self._relay.computed(result, self._shell.now())),
        )
