"""Shares the groups of a step among the parties that are ready for it."""

from collections.abc import Callable, Sequence

import msgspec

from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Party

_MARGIN = 0.5
"""Share of its possible work that a volunteer for which no step waits is asked for: later results would be lost."""

_LEAST_CORE = 8
"""Volunteers for which a step waits do at least this many times the work of all others, apart from one group each."""

_SLOWEST = 1e-3
"""Members per second assumed for a volunteer that sent nothing: shares need a speed above zero."""


class Share(msgspec.Struct, frozen=True):
    """The groups that one party is asked for in a step."""

    party: Party
    n_groups: int
    gates: bool
    """Whether the step waits for the party."""


def speeds_of(parties: Sequence[Party]) -> list[float | None]:
    """The measured speed of each party."""
    return [party.members_per_s for party in parties]


def share_step(
    ready: Sequence[Party],
    n_groups: int,
    *,
    step: int,
    trusts: Callable[[Reputation], bool],
    expected: float = 0.0,
    counted: Callable[[Sequence[Party]], Sequence[float | None]] = speeds_of,
) -> list[Share]:
    """Shares a step: `n_groups` among steady and trusted volunteers, and some among others, for which no step waits.

    Of the others, trusted ones are asked for what they can easily do in a step, all together for at most an eighth of
    `n_groups`, and each of the others for one group. A volunteer that does one member a second does `expected` groups
    in a step. Where no volunteer is steady and trusted, all count as such. Shares are in proportion to what `counted`
    gives.
    """
    awake = [v for v in ready if v.reputation.benched_until <= step] or list(ready)
    core = [v for v in awake if v.reputation.is_steady and trusts(v.reputation)] or awake
    waited_for = set(core)
    if len(core) > n_groups:
        turn = step * n_groups % len(core)
        core = [*core[turn:], *core[:turn]][:n_groups]
    shares = share_groups(n_groups, counted(core))
    others = [v for v in awake if v not in waited_for]
    most = n_groups // (_LEAST_CORE * max(len(others), 1))
    wanted = [int(_MARGIN * expected * (v.members_per_s or 0.0)) if trusts(v.reputation) else 1 for v in others]
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
