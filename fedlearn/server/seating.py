"""How the replica of a run is divided among the seats of a crew: the planner of crews, asked about this run's model."""

from collections.abc import Sequence
from math import prod
from typing import Self, final

from msgspec.structs import replace

from fedlearn.config import ConfigError, ServerSettings
from fedlearn.coordination.crew import Draft, Place
from fedlearn.graphs.crews import Machine, PlanError, Seat
from fedlearn.graphs.graph import Graph
from fedlearn.graphs.parts import Model, Needs
from fedlearn.graphs.pieces import stages_of
from fedlearn.graphs.planner import divide, plan
from fedlearn.graphs.shards import sharded
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.limits import MEMBERS_AT_LEAST, PARAMETER_BYTES
from fedlearn.tasks.torch_graph.sharing import unpacked
from fedlearn.wire.activations import ActivationCodec, member_bytes, needs_base

NEEDS = Needs(PARAMETER_BYTES, MEMBERS_AT_LEAST)

MESSAGE_BYTES = 2**20
"""Of activations in one message, where a member does not take more."""

MOST_AT_ONCE = 64
"""Members in one message."""

LINE_BYTES_PER_S = 1.25e6
"""Of those of whom nothing is known: 10 Mbit/s up."""

MOST_PLANNED = 6
"""Volunteers among whom a crew is looked for, those who lend the most: a plan of 12 takes a second of the server."""

_UNKNOWN = 1 << 62
"""Bytes that somebody lends who named no limit."""

MULTIPLY_ADDS_PER_S_AND_BYTE = 1.0
"""Speed where none was measured, in proportion to memory."""


@final
class Draftsman:
    """Implements `fedlearn.coordination.crew.Planner`."""

    def __init__(self, graph: Graph, *, seats: int, wire: ActivationCodec, shards: int = 1) -> None:
        """`seats` in each crew; 0: as many as a replica takes. The vocabulary's rows are in so many `shards`.

        Raises:
            GraphError: the model has no vocabulary that can be cut so.
            PlanError: the model has too few pieces for so many seats, or there are more shards than seats.
        """
        if 0 < seats < shards:
            raise PlanError(f"shards: expected at most one for each of {seats} seats, got {shards}")
        self._graph, self._seats, self._shards = sharded(graph, shards), seats, shards
        self._model = Model.of(self._graph)
        self._refused: Sequence[int] | None = None
        """Those among whom no crew was found last: the same ones are asked about in every step."""
        self.wire: ActivationCodec = wire
        # Of all cuts that there could be: what shares a product decides about last digits, whatever the cuts are.
        self._most_sent = max(piece.sent_bytes for piece in self._model.pieces)
        self._seated([0] * max(seats, shards))

    @classmethod
    def of(cls, attachment: bytes, *, seats: int, wire: ActivationCodec, shards: int = 1) -> Self:
        """That of a task that was shared as a graph."""
        return cls(unpacked(attachment).graph, seats=seats, wire=wire, shards=shards)

    @property
    def replica_bytes(self) -> int:
        """Memory that a whole replica takes."""
        return _divided(self._model, [0])[0].need_bytes

    def fits(self, place: Place, memory_bytes: int) -> bool:
        return memory_bytes == 0 or place.need_bytes <= memory_bytes

    def draft(self, memories: Sequence[int]) -> Draft | None:
        if len(memories) < self._seats or memories == self._refused:
            return None
        draft = self._draft_of_some(memories)
        self._refused = list(memories) if draft is None else None
        return draft

    def _draft_of_some(self, memories: Sequence[int]) -> Draft | None:
        # Who lends little must not keep others waiting; and however many wait, no plan may take long.
        largest = sorted(range(len(memories)), key=lambda number: -(memories[number] or _UNKNOWN))
        if self._seats > 0:
            first = range(self._seats)
            return self._draft_of(first, memories) or self._draft_of(sorted(largest[: self._seats]), memories)
        if sum(memories) < self.replica_bytes:
            return None
        return self._draft_of(sorted(largest[:MOST_PLANNED]), memories)

    def _draft_of(self, chosen: Sequence[int], memories: Sequence[int]) -> Draft | None:
        """Of some of the volunteers alone, by their numbers; None where they can't hold a replica."""
        lent = [memories[number] for number in chosen]
        try:
            seats = self._seated(lent) if self._seats > 0 else plan(self._model, _machines(lent), NEEDS).crews[0].seats
        except PlanError:
            return None
        draft = self._draft(seats)
        order = tuple(chosen[number] for number in draft.order)
        fit = all(self.fits(place, memories[n]) for place, n in zip(draft.places, order, strict=True))
        return replace(draft, order=order) if fit else None

    def lack(self, memories: Sequence[int]) -> str:
        if len(memories) < self._seats:
            return f"a crew of {self._seats} needs {self._seats - len(memories)} more"
        need, lent = self.replica_bytes / 1e6, sum(memories) / 1e6
        return f"a replica takes {need:.3g} MB, and what they lend, {lent:.3g} MB, can't hold its parts"

    def _seated(self, memories: Sequence[int]) -> list[Seat]:
        """A seat for each: those of the body and the first shard, then one for each other shard."""
        pieces, n_more = self._model.pieces, self._shards - 1
        first = len(pieces) - n_more
        seats = _divided(replace(self._model, pieces=pieces[:first]), memories[: len(memories) - n_more])
        for number in range(n_more):
            shard = replace(self._model, pieces=pieces[first + number : first + number + 1])
            (seat,) = _divided(shard, [memories[len(seats)]])
            seats.append(replace(seat, machine=str(len(seats)), first=first + number, end=first + number + 1))
        return seats

    def _draft(self, seats: Sequence[Seat]) -> Draft:
        cuts = tuple(seat.end for seat in seats[:-1])
        received = [[array.shape for array in stage.received] for stage in stages_of(self._graph, cuts)]
        sent = [*received[1:], []]
        return Draft(
            cuts=cuts,
            shards=self._shards,
            places=tuple(self._place(seat, shapes) for seat, shapes in zip(seats, sent, strict=True)),
            order=tuple(int(seat.machine) for seat in seats),
        )

    def _place(self, seat: Seat, sent: Sequence[tuple[int, ...]]) -> Place:
        return Place(
            tensors=tuple(name for name in seat.tensors if name in self._model.learned),
            need_bytes=seat.need_bytes,
            member_bytes=sum(member_bytes(self.wire, shape) for shape in sent),
            group_bytes=sum(4 * prod(shape) for shape in sent) if needs_base(self.wire) else 0,
            # Where memory is scarce, need_bytes has room for so many.
            batch=min(max(MESSAGE_BYTES // self._most_sent, 1), MOST_AT_ONCE if self._seats else MEMBERS_AT_LEAST),
        )


def _divided(model: Model, memories: Sequence[int]) -> list[Seat]:
    """The seats of one crew, whose parts are as large as their memories; alike where one of those is not known."""
    known = memories if all(memories) else [_UNKNOWN] * len(memories)
    return list(divide(model, _machines(known), NEEDS).crews[0].seats)


def draftsman_of(invitation: Invitation, settings: ServerSettings) -> Draftsman | None:
    """The draftsman of a run; None for a model that cannot be divided, and need not.

    Raises:
        ConfigError: crews are wanted of such a model.
    """
    seats, shards = settings.seats, settings.shards
    is_wanted = seats > 0 or shards > 1
    if not invitation.attachment:
        if not is_wanted:
            return None
        raise ConfigError(
            f"seats, shards: expected a task of a PyTorch module that travels as a graph, got one of the kind "
            f"{invitation.kind}; leave them out, and every volunteer holds the whole model"
        )
    try:
        return Draftsman.of(invitation.attachment, seats=seats, wire=settings.wire, shards=shards)
    except ValueError as error:
        if not is_wanted:
            return None
        raise ConfigError(
            f"seats, shards: expected a model that can be divided among {seats or 'its volunteers'}: {error}"
        ) from error


def _machines(memories: Sequence[int]) -> list[Machine]:
    return [
        Machine(str(number), float(memory), LINE_BYTES_PER_S, MULTIPLY_ADDS_PER_S_AND_BYTE * memory)
        for number, memory in enumerate(memories)
    ]
