"""Performs a relay's effects in order, whatever its peers are connected by."""

from collections.abc import Callable, Iterable
from typing import Protocol, final

from fedlearn.client.performer import Computed
from fedlearn.client.volunteer import Volunteer
from fedlearn.coordination.effects import Compute, Leave, Notice, Reply, ServerEffect
from fedlearn.coordination.relay import Relay, RelayEffect
from fedlearn.wire.messages import Message


class Shell(Protocol):
    """What surrounds a performer: two sides, a clock, and a place for computations."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def send_up(self, message: Message) -> None:
        """Queues a message for the server above, unless either side has parted."""

    def below(self, effects: list[ServerEffect]) -> None:
        """Performs these for the volunteers below."""

    def compute(self, task: Callable[[], Computed], then: Callable[[Computed], None]) -> None:
        """Computes behind all that was given before, for whichever side; calls `then` with the result."""

    def say(self, text: str) -> None:
        """A line for the person at this machine."""

    def left(self, leave: Leave) -> None:
        """The conversation above is over."""


@final
class Performer:
    """One relay's effects on either side, in the order in which the relay gave them."""

    def __init__(self, relay: Relay, volunteer: Volunteer, shell: Shell) -> None:
        self._relay = relay
        self._volunteer = volunteer
        self._shell = shell

    def perform(self, effects: Iterable[RelayEffect]) -> None:
        """Performs effects; what computations lead to follows once they are done."""
        for effect in effects:
            match effect:
                case Reply(message):
                    self._shell.send_up(message)
                case Notice(text):
                    self._shell.say(text)
                case Leave():
                    self._shell.left(effect)
                case _ if isinstance(effect, Compute):
                    self._compute(effect)
                case _:
                    self._shell.below([effect])

    def turn(self) -> None:
        """Something happened below."""
        self.perform(self._relay.turn(self._shell.now()))

    def _compute(self, compute: Compute) -> None:
        self._shell.compute(
            lambda: self._volunteer.perform(compute),
            lambda result: self.perform(self._relay.computed(result, self._shell.now())),
        )
