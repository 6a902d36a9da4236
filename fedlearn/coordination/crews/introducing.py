"""Tells seats of a crew who their neighbours are, so that they may send to each other without the server."""

from fedlearn.coordination.crews.crew import Crew, SeatHolder
from fedlearn.coordination.effects import Send, ServerEffect
from fedlearn.wire.messages import Neighbours, NextSeat, SeatBefore


def introduce(crew: Crew) -> list[ServerEffect]:
    """Decides which stages of a complete crew send straight to the next one, and tells all their neighbours.

    A volunteer is only ever named with the address from which it is connected itself: so nobody can have others call a
    machine that is not its own.
    """
    pairs = zip(crew.seated, crew.seated[1:], strict=False)
    willing = {before.stage for before, after in pairs if _can_listen(before) and _can_listen(after)}
    crew.direct = frozenset(willing - crew.through_server)
    return [Send(holder.peer, _neighbours_of(crew, holder)) for holder in crew.seated if _can_listen(holder)]


def _neighbours_of(crew: Crew, holder: SeatHolder) -> Neighbours:
    next_seat = before = None
    if holder.stage in crew.direct:
        volunteer = crew.seated[holder.stage + 1].volunteer
        next_seat = NextSeat(volunteer.address, volunteer.listens_at, _key_of(crew.seated[holder.stage + 1]))
    if holder.stage - 1 in crew.direct:
        sizes = crew.plan.stages[holder.stage - 1]
        key = _key_of(crew.seated[holder.stage - 1])
        before = SeatBefore(key, sizes.batch, sizes.member_bytes, sizes.group_bytes)
    return Neighbours(crew.line, next_seat, before)


def _can_listen(holder: SeatHolder) -> bool:
    return holder.volunteer.listens_at > 0 and bool(holder.volunteer.address)


def _key_of(holder: SeatHolder) -> bytes:
    return bytes.fromhex(holder.volunteer.reputation.identity)
