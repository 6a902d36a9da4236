"""Divides the replica of a run among the seats of a crew, by asking the planner of crews about this run's model."""

from collections.abc import Sequence
from math import prod
from typing import Self, final

from msgspec.structs import replace

from fedlearn.config import ConfigError, RunConfig
from fedlearn.coordination.crews.crew_plan import CrewPlan, StageSpec
from fedlearn.coordination.work.flow import SHARES, fitting_batch, fitting_window
from fedlearn.es.optimizers import OPTIMIZERS, optimizer_name
from fedlearn.graphs.graph import Graph
from fedlearn.graphs.pieces import stages_of
from fedlearn.graphs.planning.crews import LacksMemory, Machine, PlannedSeat
from fedlearn.graphs.planning.fitting import Cutting, Cuttings, fitting
from fedlearn.graphs.planning.parts import ModelCosts, Needs
from fedlearn.graphs.planning.planner import divide, plan
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.limits import MEMBERS_AT_LEAST, PARAMETER_BYTES, SUM_BYTES
from fedlearn.tasks.parts.activations import ActivationCodec, member_bytes, needs_base
from fedlearn.tasks.torch_graph.sharing import unpacked

NEEDS = Needs(PARAMETER_BYTES, MEMBERS_AT_LEAST)
"""What a volunteer asks for before it joins."""

GRADIENT_NEEDS = Needs(PARAMETER_BYTES + SUM_BYTES, MEMBERS_AT_LEAST)
"""The needs where gradients are measured: a backward pass keeps as much as there is room for."""

MESSAGE_BYTES = 2**21
"""Bytes of activations in one message, unless one member takes more: each call of PyTorch costs a seat a millisecond
beside its arithmetic."""

GRADIENT_MESSAGE_BYTES = 2**17
"""Bytes of activations in one message where members come back: each is differentiated by itself, and all seats work at
once the sooner, the shorter messages are."""

MOST_AT_ONCE = 64
"""Members in one message, where each seat has ROOM for them."""

ROOM = MOST_AT_ONCE // MEMBERS_AT_LEAST
"""Multiple of a part's own memory that is needed so that MOST_AT_ONCE members run at once."""

LINE_BYTES_PER_S = 1.25e6
"""Upload speed that is assumed for volunteers of whom nothing is known: 10 Mbit/s."""

MULTIPLY_ADDS_PER_S_AND_BYTE = 1.0
"""Speed that is assumed where none was measured, in proportion to memory."""

MOST_PLANNED = 6
"""Volunteers that are considered for one crew: a plan of 12 takes a second of the server."""

_DIVIDES = {"local_steps": "--local-steps 1", "optimizer": "--optimizer adam"}
"""The flag that lets crews hold the model, by the setting that does not."""

_ROOMY = 2**62
"""Memory that is assumed for volunteers without a limit, in bytes."""


@final
class CrewPlanner:
    """Implements `fedlearn.coordination.crews.crew_plan.PlansCrews`."""

    def __init__(
        self,
        graph: Graph,
        *,
        seats: int,
        wire: ActivationCodec,
        shards: int = 1,
        comes_back: bool = False,
        whole: frozenset[str] = frozenset(),
    ) -> None:
        """`seats` in each crew; 0: as many as a replica takes.

        The vocabulary's rows are in `shards`, or in more, where volunteers lend too little for these. With `comes_back`
        members have no noise, and cotangents come back from each seat. The tensors in `whole` are never cut.

        Raises:
            GraphError: the model has no vocabulary that can be cut so.
            PlanError: the model has too few pieces for so many seats.
        """
        self._cuttings = Cuttings(graph, least=shards, whole=whole)
        self._seats, self._shards, self._comes_back = seats, shards, comes_back
        self._needs = GRADIENT_NEEDS if comes_back else NEEDS
        self.wire: ActivationCodec = wire
        costs = ModelCosts.of(graph)
        self.replica_bytes = self._seats_of(costs, [_ROOMY])[0].need_bytes
        """Memory that a whole replica takes."""
        # Of all cuts that there could be: what shares a product decides about last digits, whatever the cuts are.
        self._most_sent = max(piece.sent_bytes for piece in costs.pieces)
        self._refused: tuple[int, ...] = ()
        """Memories for which there was no crew; the planner is asked about the same volunteers again in each step."""
        if seats:
            self._seated([0] * seats)

    @classmethod
    def of(
        cls,
        attachment: bytes,
        *,
        seats: int,
        wire: ActivationCodec,
        shards: int = 1,
        comes_back: bool = False,
        by_matrix: bool = False,
    ) -> Self:
        """Makes the planner of a task that was shared as a graph; with `by_matrix` no hidden matrix is cut."""
        shared = unpacked(attachment)
        whole = frozenset(shared.hidden) if by_matrix else frozenset[str]()
        return cls(shared.graph, seats=seats, wire=wire, shards=shards, comes_back=comes_back, whole=whole)

    def fits(self, stage: StageSpec, memory_bytes: int) -> bool:
        return memory_bytes == 0 or max(stage.need_bytes, SHARES * stage.waiting_bytes) <= memory_bytes

    def draft(self, memories: Sequence[int], *, fewer: bool = False) -> CrewPlan | None:
        wanted = min(self._seats, len(memories)) if fewer else self._seats
        if len(memories) < max(wanted, 1) or tuple(memories) == self._refused:
            return None
        chosen = self._chosen(memories)
        lent = [memories[number] for number in chosen]
        try:
            if all(memories) and sum(memories) < self.replica_bytes:
                raise LacksMemory(self.lack(memories))
            cutting, seats = self._seated(lent) if self._seats else self._planned(lent)
        except LacksMemory:
            self._refused = tuple(memories)
            return None
        return self._draft(cutting, seats, [(chosen[int(seat.machine)], lent[int(seat.machine)]) for seat in seats])

    def lack(self, memories: Sequence[int]) -> str:
        if self._seats > len(memories):
            return f"a crew of {self._seats} needs {self._seats - len(memories)} more"
        need = self.replica_bytes / 1e6
        return f"a replica takes {need:.3g} MB, and what they lend, {sum(memories) / 1e6:.3g} MB, can't hold its parts"

    def _chosen(self, memories: Sequence[int]) -> list[int]:
        """The candidates for a crew, in their order: the volunteers that lend the most."""
        largest = sorted(range(len(memories)), key=lambda number: -(memories[number] or _ROOMY))
        return sorted(largest[: self._seats or MOST_PLANNED])

    def _planned(self, memories: Sequence[int]) -> tuple[Cutting, Sequence[PlannedSeat]]:
        cutting, found = fitting(plan, self._cuttings, _machines(memories), self._needs)
        return cutting, found.crews[0].seats

    def _seated(self, memories: Sequence[int]) -> tuple[Cutting, Sequence[PlannedSeat]]:
        """One seat for each volunteer; with `shards`, where there are seats enough, one for the body and the first
        shard, and one for each other shard."""
        most = max(*memories, 2 * self.replica_bytes)  # and tied shards count on every seat that holds them
        known = [memory or most for memory in memories]
        if self._shards == 1 or len(known) < self._shards:
            cutting, found = fitting(divide, self._cuttings, _machines(known), self._needs)
            return cutting, found.crews[0].seats
        cutting, n_more = self._cuttings.first, self._shards - 1
        pieces, model = cutting.model.pieces, cutting.model
        first = len(pieces) - n_more
        seats = self._seats_of(replace(model, pieces=pieces[:first]), known[: len(known) - n_more])
        for number in range(first, len(pieces)):
            (seat,) = self._seats_of(replace(model, pieces=pieces[number : number + 1]), [known[len(seats)]])
            seats.append(replace(seat, machine=str(len(seats)), first=number, end=number + 1))
        return cutting, seats

    def _draft(self, cutting: Cutting, seats: Sequence[PlannedSeat], holders: Sequence[tuple[int, int]]) -> CrewPlan:
        """Makes the plan of a crew; `holders` are the index of each seat's volunteer, and the memory that it lends."""
        cuts = tuple(seat.end for seat in seats[:-1])
        received = [[array.shape for array in stage.received] for stage in stages_of(cutting.graph, cuts)]
        sent = [self._sent_bytes(shapes) for shapes in [*received[1:], []]]
        returned = [0, *(member for member, _ in sent[:-1])] if self._comes_back else [0] * len(seats)
        receivers = self._receivers([lent for _, lent in holders], sent)
        # Where memory is scarce, need_bytes has room for so many.
        is_roomy = all(
            not lent or ROOM * seat.need_bytes <= lent for seat, (_, lent) in zip(seats, holders, strict=True)
        )
        at_once = MOST_AT_ONCE if self._seats and is_roomy else MEMBERS_AT_LEAST
        message_bytes = GRADIENT_MESSAGE_BYTES if self._comes_back else MESSAGE_BYTES
        batch = fitting_batch(min(max(message_bytes // self._most_sent, 1), at_once), receivers)
        window = fitting_window(batch, receivers)
        waiting = [window * (batch * member + group) for _, member, group in receivers]
        waiting = [0] * (len(seats) - len(waiting)) + waiting
        stages = tuple(
            StageSpec(
                tensors=tuple(name for name in seat.tensors if name in cutting.model.learned),
                need_bytes=seat.need_bytes,
                member_bytes=its_member,
                group_bytes=its_group,
                batch=batch,
                waiting_bytes=its_waiting,
                received_bytes=its_returned,
            )
            for seat, (its_member, its_group), its_waiting, its_returned in zip(
                seats, sent, waiting, returned, strict=True
            )
        )
        return CrewPlan(
            cuts=cuts,
            shards=cutting.n_shards,
            stages=stages,
            order=tuple(number for number, _ in holders),
            window=window,
            reason=self._reason(cutting),
        )

    def _reason(self, cutting: Cutting) -> str:
        if cutting.n_shards == self._shards:
            return ""
        return (
            f"the rows of the vocabulary are cut into {cutting.n_shards} shards, since what volunteers lend holds no "
            f"division of {'whole tensors' if self._shards == 1 else 'fewer'}"
        )

    def _sent_bytes(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int]:
        """Bytes of the values that cross a cut, for one member and once a group."""
        member = sum(member_bytes(self.wire, shape) for shape in shapes)
        has_base = needs_base(self.wire) and not self._comes_back
        return member, sum(4 * prod(shape) for shape in shapes) if has_base else 0

    def _receivers(self, memories: Sequence[int], sent: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """The memory that each receiving seat's volunteer lends, and the bytes of a member and of a group that it is
        sent, by the seat before and, where members come back, as much as it sends itself by the next one."""
        if not self._comes_back:
            return [(lent, *its) for lent, its in zip(memories[1:], sent, strict=False)]
        received = [0, *(member for member, _ in sent[:-1])]
        return [(lent, before + member, 0) for lent, before, (member, _) in zip(memories, received, sent, strict=True)]

    def _seats_of(self, model: ModelCosts, memories: Sequence[int]) -> list[PlannedSeat]:
        """The seats of one crew, with parts in proportion to memories."""
        return list(divide(model, _machines(memories), self._needs).crews[0].seats)


def undivided_of(invitation: Invitation, config: RunConfig) -> tuple[int, str]:
    """The memory that a whole replica takes, in bytes, and the flag with which crews could hold the model, of a run for
    whose settings each volunteer holds all of it; 0 and nothing for any other run."""
    key, _ = _undivided(config)
    if not (key and invitation.attachment):
        return 0, ""
    try:
        planner = _planner_of(invitation, config, seats=0, shards=1)
    except ValueError:  # no settings would divide it
        return 0, ""
    return planner.replica_bytes, _DIVIDES[key]


def crew_planner_of(invitation: Invitation, config: RunConfig) -> CrewPlanner | None:
    """The planner of a run; None for a model that cannot be divided, and need not.

    Where volunteers take local steps each holds the model, and also where a tensor's step depends on all others.

    Raises:
        ConfigError: crews are wanted of such a model.
    """
    settings = config.server
    seats, shards = settings.seats, settings.shards
    is_wanted = seats > 0 or shards > 1
    key, expected = _undivided(config)
    if key:
        if is_wanted:
            raise ConfigError(
                f"{key}: expected {expected} where crews hold the model (seats, shards), got {config.get(key)}; leave "
                f"{key} out, or seats and shards"
            )
        return None
    if not invitation.attachment:
        if not is_wanted:
            return None
        raise ConfigError(
            f"seats, shards: expected a task of a PyTorch module that travels as a graph, got one of the kind "
            f"{invitation.kind}; leave them out, and every volunteer holds the whole model"
        )
    try:
        return _planner_of(invitation, config, seats=seats, shards=shards)
    except ValueError as error:
        if not is_wanted:
            return None
        raise ConfigError(
            f"seats, shards: expected a model that can be divided among {seats or 'its volunteers'}: {error}"
        ) from error


def _planner_of(invitation: Invitation, config: RunConfig, *, seats: int, shards: int) -> CrewPlanner:
    return CrewPlanner.of(
        invitation.attachment,
        seats=seats,
        wire=config.server.wire,
        shards=shards,
        comes_back=config.strategy.measure == "gradients",
        by_matrix=OPTIMIZERS[optimizer_name(config.optimizer.optimizer)].by_matrix,
    )


def _machines(memories: Sequence[int]) -> list[Machine]:
    return [
        Machine(str(number), float(memory), LINE_BYTES_PER_S, MULTIPLY_ADDS_PER_S_AND_BYTE * memory)
        for number, memory in enumerate(memories)
    ]


def _undivided(config: RunConfig) -> tuple[str, str]:
    """The setting for which each volunteer holds the whole model, and what crews need in its place; empty if none."""
    if config.strategy.measure == "gradients" and config.strategy.local_steps != 1:
        return "local_steps", "1"
    if OPTIMIZERS[optimizer_name(config.optimizer.optimizer)].gathers:
        return "optimizer", "a rule that steps each tensor by itself, such as adam,"
    return "", ""
