"""The route of what a seat sends to its neighbours: through the server, or over a direct connection."""

from enum import Enum
from typing import final

from msgspec.structs import replace

from fedlearn.coordination.effects import ClientEffect, Forward, Link, Notice, Reply
from fedlearn.wire.messages import MAX_REASON_LENGTH, Activations, Message, Neighbours, Unreachable


class _Line(Enum):
    NONE = "everything goes through the server"
    OPENING = "the next seat is being called"
    OPEN = "it goes straight to the neighbour"
    LOST = "the server has not yet said what to do without the line"


@final
class ActivationRoute:
    """The route of one seat, as pure as its pipeline: what is sent about members, and where."""

    def __init__(self) -> None:
        self._line = self._line_back = _Line.NONE
        self._held: list[Activations] = []

    def name(self, neighbours: Neighbours) -> list[ClientEffect]:
        """Takes the neighbours that the server named; activations that were in flight are dropped."""
        self._held.clear()
        self._line = _Line.NONE if neighbours.next is None else _Line.OPENING
        # Nothing goes back before something came over that line.
        self._line_back = _Line.NONE if neighbours.before is None else _Line.OPEN
        return [Link(neighbours)]

    def say(self, message: Message) -> list[ClientEffect]:
        """Sends a message about members; activations wait while the next seat is being called."""
        if not isinstance(message, Activations):
            return [Reply(message)]
        line = self._line_back if message.backward else self._line
        if line is _Line.NONE:
            return [Reply(message)]
        if line is _Line.OPEN:
            return [Forward(message), Reply(replace(message, payload=b""))]
        if line is _Line.OPENING:
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

    def turn_away(self) -> None:
        """Sends nothing back directly any more."""
        if self._line_back is _Line.OPEN:
            self._line_back = _Line.LOST

    def lost(self, reason: str) -> list[ClientEffect]:
        """Takes note that the next seat is not connected, or not any more; the server leases lost members again."""
        if not reason or self._line not in (_Line.OPENING, _Line.OPEN):
            return []
        self._line = _Line.LOST
        self._held.clear()
        return [Notice(f"activations go through the server: {reason}"), unreachable(reason, is_next=True)]


def unreachable(reason: str, *, is_next: bool) -> Reply:
    """The message that asks the server to replace a direct connection."""
    printable = "".join(c if c.isprintable() else "?" for c in reason[:MAX_REASON_LENGTH])
    return Reply(Unreachable(is_next, printable))
