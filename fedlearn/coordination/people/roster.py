"""The volunteers of a run, and the parties that they are: what each has been sent, and how fast it is."""

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import final

import msgspec

from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.wire.messages import Assignment, Credit

KEPT_BLOCKS = 2
"""Blocks of data that a client keeps: the current one, and the one before it, which the last Update may name."""

KEPT_EXCHANGES = 8
"""The exchanges whose least is what a line takes: whatever makes one longer, such as other programs that a machine has
to run, is not the line's."""

_SPEED_MEMORY = 0.5
"""Weight of the past in the measured speed."""


class Phase(Enum):
    """The state of a volunteer between connecting and parting; a seat's weights are those of its part."""

    UNAUTHENTICATED = "has not proven who it is"
    WAITING = "waits for the weights"
    SYNCING = "was sent the weights, and has not answered"
    READY = "holds the weights"
    GONE = "has left, or was sent away"


_NEXT: Mapping[Phase, frozenset[Phase]] = {
    Phase.UNAUTHENTICATED: frozenset([Phase.WAITING, Phase.GONE]),
    Phase.WAITING: frozenset([Phase.SYNCING, Phase.GONE]),
    Phase.SYNCING: frozenset([Phase.READY, Phase.WAITING, Phase.GONE]),
    Phase.READY: frozenset([Phase.WAITING, Phase.GONE]),
    Phase.GONE: frozenset(),
}


class Held(msgspec.Struct, frozen=True):
    """The weights that a volunteer says it has kept from an earlier conversation."""

    step: int
    digest: bytes


class Party(msgspec.Struct, kw_only=True, eq=False):
    """What the coordinator leases members to: a volunteer that holds a whole replica, or a crew.

    A volunteer that has a seat, or waits for one, is leased nothing itself.
    """

    name: str = ""
    reputation: Reputation = msgspec.field(default_factory=lambda: Reputation(""))
    """The reputation of its identity, which other connections may share."""
    address: str = ""
    """Address from which it is connected."""
    lease: Lease | None = None
    cut_at: int = -1
    """Step of a lease that was taken from it, of which it may still send results."""
    members_per_s: float | None = None
    exchange_s: float | None = None
    """Seconds that an Assignment and its Result travel, together."""
    exchanges: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=KEPT_EXCHANGES))
    """Those of the last few."""
    member_s: float | None = None
    """Seconds that one of its machines computes at a member."""
    n_machines: int = 1
    """Number of machines that compute groups side by side, of which a relay has several."""

    @property
    def line_s(self) -> float | None:
        """Seconds that its line takes for an Assignment and a Result; None: unknown."""
        return min(self.exchanges, default=None)

    @property
    @abstractmethod
    def volunteers(self) -> "Sequence[Volunteer]":
        """The machines that it is, in the order in which members pass them."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether members can be leased to it."""

    @abstractmethod
    def begin(self, lease: Lease, assignment: Assignment) -> None:
        """Takes a lease, of which its volunteers are told by this message."""

    @abstractmethod
    def end(self, now: float) -> Lease | None:
        """Gives its lease back; None where it has none."""

    @abstractmethod
    def log(self, first_member: int, n_members: int) -> ActivationLog | None:
        """The route of some members of its lease from one of its volunteers to the next; None where there is one
        volunteer."""

    def measure(self, n_members: int, duration_s: float) -> None:
        """Updates the speed with a new measurement."""
        self.members_per_s = _smoothed(self.members_per_s, n_members / max(duration_s, 1e-6))

    def time_exchange(self, n_members: int, duration_s: float, busy_s: float, *, n_machines: int = 1) -> None:
        """Updates `exchange_s` and `member_s` after Results with `n_members` in all, of which the last one came
        `duration_s` after its Assignment and was done after `busy_s`."""
        self.n_machines = n_machines
        if not 0.0 < busy_s <= duration_s:
            return
        self.exchanges.append(duration_s - busy_s)
        self.exchange_s = _smoothed(self.exchange_s, duration_s - busy_s)
        self.member_s = _smoothed(self.member_s, n_machines * busy_s / max(n_members, 1))


@final
class Volunteer(Party, eq=False):
    """One connection and what the coordinator knows about it."""

    peer: int
    threads: int = 0
    memory_bytes: int = 0
    """Memory that the volunteer lends, in bytes; 0: enough for any replica."""
    listens_at: int = 0
    """Port at its address on which it accepts a neighbour, which also means that it is willing to call one; 0:
    neither."""
    is_seated: bool = False
    """Whether it holds a part of the replica, or waits for one, and works in a crew only."""
    tensors: tuple[str, ...] = ()
    """Names of the tensors that its seat holds, or is sent."""
    phase: Phase = Phase.UNAUTHENTICATED
    blocks: deque[bytes] = msgspec.field(default_factory=lambda: deque(maxlen=KEPT_BLOCKS))
    held: Held | None = None
    """The weights that it brought along."""
    n_resyncs: int = 0
    """Number of drifts in a row."""
    has_joined: bool = False
    """Whether it ever held the weights."""
    credit: Credit | None = None
    """The credit that it was last told."""
    credit_due: float = 0.0
    """When its credit may be sent again."""
    snapshot: tuple[int, bytes] | None = None
    """Step and digest of the weights that it was sent last, which its Ready must show. Only a Result of a later step
    shows that its own arithmetic is right."""

    def enter(self, phase: Phase) -> None:
        """Goes on to another phase."""
        assert phase in _NEXT[self.phase], f"{self.name}: {phase} after {self.phase}"
        self.phase = phase

    @property
    def follows_updates(self) -> bool:
        """Whether every Update is sent to it: a volunteer that was sent the weights must miss none."""
        return self.phase in (Phase.SYNCING, Phase.READY)

    @property
    def volunteers(self) -> "Sequence[Volunteer]":
        return (self,)

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.READY and not self.is_seated

    def begin(self, lease: Lease, assignment: Assignment) -> None:  # noqa: ARG002
        self.lease = lease

    def end(self, now: float) -> Lease | None:  # noqa: ARG002
        lease, self.lease = self.lease, None
        return lease

    def log(self, first_member: int, n_members: int) -> None:  # noqa: ARG002
        return None


class Roster(msgspec.Struct, eq=False):
    """All volunteers by their connections, and the crews that they form."""

    volunteers: dict[int, Volunteer] = msgspec.field(default_factory=dict)
    crews: Sequence[Party] = ()

    @property
    def parties(self) -> list[Party]:
        """All that members can be leased to, and others."""
        return [*self.volunteers.values(), *self.crews]

    @property
    def ready(self) -> list[Party]:
        """The parties that members can be leased to now."""
        return [party for party in self.parties if party.is_ready]


def _smoothed(before: float | None, new: float) -> float:
    return new if before is None else before + (1.0 - _SPEED_MEMORY) * (new - before)
