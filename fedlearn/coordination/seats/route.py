"""The way of a seat's activations to the next one: through the server, or over a line of the two."""

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
    """Of one seat, as pure as its pipeline: what is said of members, and where."""

    def __init__(self) -> None:
        self._line = _Line.NONE
        self._held: list[Activations] = []

    def name(self, neighbours: Neighbours) -> list[ClientEffect]:
        """The server named the neighbours; whatever was on its way before is not wanted."""
        self._held.clear()
        self._line = _Line.NONE if neighbours.next is None else _Line.OPENING
        return [Link(neighbours)]

    def say(self, message: Message) -> list[ClientEffect]:
        """Sends what this seat made of members; while the next seat is being called activations wait."""
        if not isinstance(message, Activations) or self._line is _Line.NONE:
            return [Reply(message)]
        if self._line is _Line.OPEN:
            return [Forward(message), Reply(replace(message, payload=b""))]
        if self._line is _Line.OPENING:
            self._held.append(message)
        return []

    def opened(self) -> list[ClientEffect]:
        """The next seat is reached."""
        if self._line is not _Line.OPENING:
            return []
        self._line = _Line.OPEN
        held, self._held = self._held, []
        notice = Notice("activations go straight to the next seat")
        return [notice, *(effect for activations in held for effect in self.say(activations))]

    def lost(self, reason: str) -> list[ClientEffect]:
        """The next seat is not reached, or not any more; the server leases anew what was lost."""
        if self._line not in (_Line.OPENING, _Line.OPEN):
            return []
        self._line = _Line.LOST
        self._held.clear()
        return [Notice(f"activations go through the server: {reason}"), unreachable(reason, is_next=True)]


def unreachable(reason: str, *, is_next: bool) -> Reply:
    """Tells the server that it must stand in for a line."""
    printable = "".join(c if c.isprintable() else "?" for c in reason[:MAX_REASON_LENGTH])
    return Reply(Unreachable(is_next, printable))
