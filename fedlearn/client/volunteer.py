"""A volunteer's computations, with its own replica, as a Worker orders them."""

from typing import final

from es_core import usable_processors
from fedlearn.client.lending.budget import BudgetError, MemoryBudget
from fedlearn.coordination.effects import Apply, Begin, Build, Compute, Evaluate, Load, StoreBlock, TakeSeat
from fedlearn.coordination.people.roster import KEPT_BLOCKS, Held
from fedlearn.es.replica import Replica
from fedlearn.es.trials import TrialResults
from fedlearn.graphs.graph import GraphTooLargeError
from fedlearn.tasks.blocks import block_name, decode_block
from fedlearn.tasks.holding import Holding, PartHolding, Replicated
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.kind import Divides
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.tasks.registry import find_kind
from fedlearn.tasks.task import Device
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import DataBlock, Seat, Start


@final
class VolunteerReplica:
    """The state of a run on this machine, over any number of connections; 0 `threads` means all processors.

    `task` is what the person at this machine named, None for runs that need no code of a user's. Trials of PyTorch
    models run on `device`. Orders that exceed the `budget` are refused, and so is every run where something is
    `missing` here.
    """

    def __init__(
        self,
        threads: int,
        *,
        task: NamedTask | None = None,
        missing: str = "",
        device: Device = "cpu",
        budget: MemoryBudget | None = None,
    ) -> None:
        self._missing = missing
        self._budget = budget or MemoryBudget()
        self._threads = threads
        self._task = task
        self._device: Device = device
        self._holding: Holding | None = None
        self._seat: PartHolding | None = None
        """The part that this machine holds instead of a whole replica; else None."""
        self._invitation: Invitation | None = None
        self._refusal = "objective: expected a Welcome first"
        """The reason why there is no objective."""

    @property
    def replica(self) -> Replica | None:
        """The replica, once there is one, or the part of it that is held here."""
        held = self._seat if self._seat is not None else self._holding
        return held.replica if held is not None and held.has_replica else None

    @property
    def holding(self) -> Holding:
        """Objective, blocks and replica.

        Raises:
            RemoteProtocolError: there was no Welcome yet.
        """
        return self._ready()

    @property
    def held(self) -> Held | None:
        """The step and digest of the replica's weights, computed anew; None where there is none."""
        if self.replica is None or self._seat is not None:
            return None  # of a part nothing is kept for another conversation
        return Held(self.replica.step, self.replica.digest)

    @property
    def lacks(self) -> str:
        """The reason why this machine can't hold the whole model, while it waits for a part of it; else empty."""
        is_waiting = self._invitation is not None and self._holding is None and self._seat is None
        return self._refusal if is_waiting else ""

    @property
    def unit(self) -> str:
        """The unit of the work of trials; empty before there is an objective."""
        if self._seat is not None:
            return self._seat.part.unit
        return self._holding.objective.unit if self._holding is not None else ""

    @property
    def report(self) -> str:
        """How trials run on this machine, where that was measured; else empty."""
        return self._holding.objective.report() if self._holding is not None else ""

    def perform(self, compute: Compute) -> bytes | TrialResults | Passed | None:
        """The result of a computation: a digest for Load, Begin and Apply, losses for Evaluate and what Pass asks for.

        Raises:
            ValueError: this machine cannot take part in the run, or the budget does not allow what is asked.
            RemoteProtocolError: an order contradicts what came before.
        """
        match compute:
            case Build(welcome):
                self._build(welcome.invitation)
                return None
            case TakeSeat(seat):
                self._take(seat)
                return None
            case Pass() if self._seat is not None:
                self._budget.check_pass(self._seat.part, compute.trials)
                return self._seat.passed(compute)
            case StoreBlock(block):
                self._store(block)
                return None
            case Load(snapshot):
                return _checked(self._replicated().load(snapshot), snapshot.digest)
            case Begin(start):
                return self._begin(start)
            case Apply(update) if self._seat is not None:
                held = self._seat
                self._budget.check_update(held.part, held.held(update.block), update)
                return held.apply(update)
            case Apply(update):
                holding = self._ready()
                self._budget.check_update(holding.objective, holding.held(update.block), update)
                return holding.apply(update)
            case Evaluate(trials, name):
                holding = self._ready()
                data = holding.block(name)
                self._budget.check_trials(holding.objective, data, trials, threads=self._threads or usable_processors())
                return holding.evaluate(trials, name)
            case Pass():
                raise RemoteProtocolError("activations: expected a Seat first")

    def _take(self, seat: Seat) -> None:
        """Takes a part of the model, and holds it from now on."""
        invitation = self._invitation
        if invitation is None:
            raise RemoteProtocolError("seat: expected a Welcome first")
        kind = find_kind(invitation.kind)
        if not isinstance(kind, Divides):
            raise RemoteProtocolError(f"seat: expected a run whose model can be divided, got one of {invitation.kind}")
        before: Replicated | None = self._seat if self._seat is not None else self._holding
        self._holding = self._seat = None
        part = kind.part(
            invitation,
            seat.cuts,
            seat.place,
            shards=seat.shards,
            device=self._device,
            max_bytes=self._budget.max_bytes,
        )
        self._budget.check_layout(part.layout)
        self._seat = PartHolding(
            part,
            seat.wire,
            is_last=seat.place == len(seat.cuts),
            seed=invitation.seed,
            threads=self._threads,
            kept=KEPT_BLOCKS,
        )
        if before is not None:
            self._seat.take_blocks(before)

    def _build(self, invitation: Invitation) -> None:
        """Makes the objective of a run; keeps what is held if the run is the same."""
        if self._holding is not None and invitation == self._invitation:
            return
        if self._missing:
            raise ValueError(self._missing)
        self._holding, self._seat, self._invitation = None, None, invitation
        kind = find_kind(invitation.kind)
        try:
            objective = kind.join(invitation, self._task, device=self._device, max_bytes=self._budget.max_bytes)
            self._budget.check_layout(objective.layout)
        except (BudgetError, GraphTooLargeError) as error:
            if self._task is not None or not isinstance(kind, Divides):
                raise
            self._refusal = str(error)  # unless it is given a seat
            return
        self._holding = Holding(objective, seed=invitation.seed, threads=self._threads, kept=KEPT_BLOCKS)

    def _begin(self, start: Start) -> bytes:
        holding, held = self._ready(), self.held
        if held == Held(start.first_step, start.digest):
            return held.digest
        # If this start is not the server's, its digest shows that, and the server sends the weights.
        return holding.begin(start.first_step, keeps_start=start.keeps_start)

    def _store(self, block: DataBlock) -> None:
        self._budget.check_block(len(block.columns))
        columns = decode_block(block.columns)
        if block_name(columns) != block.block:
            raise RemoteProtocolError(f"block {block.block.hex()}: expected data with that hash, got other data")
        self._replicated().store(block.block, columns)

    def _ready(self) -> Holding:
        if self._holding is None:
            raise RemoteProtocolError(self._refusal)
        return self._holding

    def _replicated(self) -> Replicated:
        """The blocks and the replica, of the whole model or of a part."""
        return self._seat if self._seat is not None else self._ready()


def _checked(digest: bytes, expected: bytes) -> bytes:
    if digest != expected:
        raise RemoteProtocolError(f"weights: expected digest {expected.hex()}, got {digest.hex()} here")
    return digest
