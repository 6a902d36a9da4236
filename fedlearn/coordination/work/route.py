"""The route of a seat's activations to the next one: through the server, or over a direct connection."""

from enum import Enum
from typing import final

from msgspec.structs import replace

from fedlearn.coordination.effects import ClientEffect, Forward, Link, Notice, Reply
from fedlearn.wire.messages import MAX_REASON_LENGTH, Activations, Message, Neighbours, Unreachable


class _Line(Enum):
    NONE = "everything goes through the server"
    OPENING = "the next seat is being called"
    OPEN = "activations go straight to the next seat"
    LOST = "the server has not yet said what to do without the line"


@final
class ActivationRoute:
    """The route of one seat, as pure as its pipeline: what is sent about members, and where."""

    def __init__(self) -> None:
        self._line = _Line.NONE
        self._held: list[Activations] = []

    def name(self, neighbours: Neighbours) -> list[ClientEffect]:
        """Takes the neighbours that the server named; activations that were in flight are dropped."""
        self._held.clear()
        self._line = _Line.NONE if neighbours.next is None else _Line.OPENING
        return [Link(neighbours)]

    def say(self, message: Message) -> list[ClientEffect]:
        """Sends a message about members; activations wait while the next seat is being called."""
        if not isinstance(message, Activations) or self._line is _Line.NONE:
            return [Reply(message)]
        if self._line is _Line.OPEN:
            return [Forward(message), Reply(replace(message, payload=b""))]
        if self._line is _Line.OPENING:
            self._held.append(message)
        return []

    def opened(self) -> list[ClientEffect]:
        """Takes note that the next seat is connected."""
        if self._line is not _Line.OPENING:
            return []
        self._line = _Line.OPEN
        held, self._held = self._held, []
        notice = Notice("activations go straight to the next seat")
        return [notice, *(effect for activations in held for effect in self.say(activations))]

    def lost(self, reason: str) -> list[ClientEffect]:
        """Takes note that the next seat is not connected, or not any more; the server leases lost members again."""
        if self._line not in (_Line.OPENING, _Line.OPEN):
            return []
        self._line = _Line.LOST
        self._held.clear()
        return [Notice(f"activations go through the server: {reason}"), unreachable(reason, is_next=True)]


def unreachable(reason: str, *, is_next: bool) -> Reply:
    """The message that asks the server to replace a direct connection."""
    printable = "".join(c if c.isprintable() else "?" for c in reason[:MAX_REASON_LENGTH])
    return Reply(Unreachable(is_next, printable))
