"""The volunteers of a run: what each has been sent, its speed, and its share of a step."""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.wire.messages import Credit

KEPT_BLOCKS = 2
"""Blocks of data that a client keeps: the current one, and the one before it, which the last Update may name."""

_SPEED_MEMORY = 0.5
"""Weight of the past in the measured speed."""

_MARGIN = 0.5
"""Share of its possible work that a volunteer for which no step waits is asked for: later results would be lost."""

_LEAST_CORE = 8
"""Volunteers for which a step waits do at least this many times the work of all others, apart from one group each."""

_SLOWEST = 1e-3
"""Members per second assumed for a volunteer that sent nothing: shares need a speed above zero."""


class Phase(Enum):
    """The state of a volunteer between connecting and contributing."""

    STRANGER = "has not proven who it is"
    WAITING = "waits for the weights"
    SYNCING = "was sent the weights"
    READY = "holds the weights"
    SEATED = "holds a part of the weights, or waits for one"


class Held(msgspec.Struct, frozen=True):
    """The weights that a volunteer says it has kept from an earlier conversation."""

    step: int
    digest: bytes


class Volunteer(msgspec.Struct):
    """One connection and what the coordinator knows about it."""

    peer: int
    name: str = ""
    threads: int = 0
    memory_bytes: int = 0
    """Memory that the volunteer lends, in bytes; 0: enough for any replica."""
    address: str = ""
    """Address from which it is connected."""
    listens_at: int = 0
    """Port at that address on which it accepts a neighbour, which also means that it is willing to call one; 0:
    neither."""
    tensors: tuple[str, ...] = ()
    """Names of the tensors that its seat holds, or is sent."""
    phase: Phase = Phase.STRANGER
    blocks: deque[bytes] = msgspec.field(default_factory=lambda: deque(maxlen=KEPT_BLOCKS))
    lease: Lease | None = None
    cut_at: int = -1
    """Step of a lease that was taken from it, of which it may still send results."""
    members_per_s: float | None = None
    exchange_s: float | None = None
    """Seconds that an Assignment and its Result travel, together."""
    member_s: float | None = None
    """Seconds that one of its machines computes at a member."""
    n_machines: int = 1
    """Number of machines that compute groups side by side, of which a relay has several."""
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
    standing: Reputation = msgspec.field(default_factory=lambda: Reputation(""))
    """The reputation of its identity, which other connections may share."""
    seats: "tuple[Volunteer, ...]" = ()
    """The volunteers of a crew, where this stands for one; else empty."""

    @property
    def follows_updates(self) -> bool:
        """Whether every Update is sent to it: a volunteer that was sent the weights must miss none."""
        return self.phase in (Phase.SYNCING, Phase.READY)

    def measure(self, n_members: int, duration_s: float) -> None:
        """Updates the speed with a new measurement."""
        self.members_per_s = _smoothed(self.members_per_s, n_members / max(duration_s, 1e-6))

    def time_exchange(self, n_members: int, duration_s: float, busy_s: float, *, n_machines: int = 1) -> None:
        """Updates `exchange_s` and `member_s` after Results with `n_members` in all, of which the last one came
        `duration_s` after its Assignment and was done after `busy_s`."""
        self.n_machines = n_machines
        if not 0.0 < busy_s <= duration_s:
            return
        self.exchange_s = _smoothed(self.exchange_s, duration_s - busy_s)
        self.member_s = _smoothed(self.member_s, n_machines * busy_s / max(n_members, 1))


def _smoothed(before: float | None, new: float) -> float:
    return new if before is None else before + (1.0 - _SPEED_MEMORY) * (new - before)


class Share(msgspec.Struct, frozen=True):
    """The groups that one volunteer is asked for in a step."""

    volunteer: Volunteer
    n_groups: int
    gates: bool
    """Whether the step waits for the volunteer."""


def speeds_of(volunteers: Sequence[Volunteer]) -> list[float | None]:
    """The measured speed of each volunteer."""
    return [volunteer.members_per_s for volunteer in volunteers]


def share_step(
    ready: Sequence[Volunteer],
    n_groups: int,
    *,
    step: int,
    trusts: Callable[[Reputation], bool],
    expected: float = 0.0,
    counted: Callable[[Sequence[Volunteer]], Sequence[float | None]] = speeds_of,
) -> list[Share]:
    """Shares a step: `n_groups` among steady and trusted volunteers, and some among others, for which no step waits.

    Of the others, trusted ones are asked for what they can easily do in a step, all together for at most an eighth of
    `n_groups`, and each of the others for one group. A volunteer that does one member a second does `expected` groups
    in a step. Where no volunteer is steady and trusted, all count as such. Shares are in proportion to what `counted`
    gives.
    """
    awake = [v for v in ready if v.standing.benched_until <= step] or list(ready)
    core = [v for v in awake if v.standing.is_steady and trusts(v.standing)] or awake
    peers = {volunteer.peer for volunteer in core}
    if len(core) > n_groups:
        turn = step * n_groups % len(core)
        core = [*core[turn:], *core[:turn]][:n_groups]
    shares = share_groups(n_groups, counted(core))
    others = [v for v in awake if v.peer not in peers]
    most = n_groups // (_LEAST_CORE * max(len(others), 1))
    wanted = [int(_MARGIN * expected * (v.members_per_s or 0.0)) if trusts(v.standing) else 1 for v in others]
    return [
        *(Share(v, n, gates=True) for v, n in zip(core, shares, strict=True)),
        *(Share(v, max(min(n, most), 1), gates=False) for v, n in zip(others, wanted, strict=True)),
    ]


def share_groups(n_groups: int, speeds: Sequence[float | None]) -> list[int]:
    """Groups for each volunteer in proportion to its speed, `n_groups` in all unless there are more volunteers.

    Everybody gets at least one. A volunteer of unknown speed counts like the slowest known one.
    """
    known = [speed for speed in speeds if speed is not None]
    slowest = min(known, default=1.0)
    weights = [max(slowest if speed is None else speed, _SLOWEST) for speed in speeds]
    total = sum(weights)
    to_share = max(n_groups - len(speeds), 0)
    exact = [to_share * weight / total for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: shares[i] - exact[i])
    for i in by_remainder[: to_share - sum(shares)]:
        shares[i] += 1
    return [share + 1 for share in shares]
