"""Describes for the server's owner which seats are not ready to work, and why."""

from collections.abc import Sequence

from fedlearn.coordination.crews.crew import Crew, SeatHolder
from fedlearn.coordination.crews.crew_plan import PlansCrews

_LOADING = (
    (0.0, ""),
    (10.0, " for more than 10 s"),
    (30.0, " for more than 30 s"),
    (60.0, " for more than a minute"),
    (300.0, " for more than 5 min"),
    (1800.0, " for more than half an hour"),
)
"""Texts for how long a part has been loading, coarse enough not to be repeated often."""


def who_waits(spares: Sequence[SeatHolder], crews: Sequence[Crew], planner: PlansCrews, now: float) -> str:
    """Describes who has no seat, which seats are empty, and which parts are loading since when; empty where nobody
    waits."""
    texts = []
    if spares:
        lack = planner.lack([holder.volunteer.memory_bytes for holder in spares])
        who = "1 volunteer waits" if len(spares) == 1 else f"{len(spares)} volunteers wait"
        texts.append(f"{who} for a part of the model: {lack}")
    for crew in crews:
        if n_empty := crew.holders.count(None):
            texts.append(f"crew {crew.number} waits: {n_empty} of its {len(crew.holders)} seats are empty")
        texts += [
            f"crew {crew.number} waits: {holder.volunteer.name} loads its part{_since(holder.loading_since, now)}"
            for holder in crew.seated
            if holder.loading_since is not None and not holder.is_awaited
        ]
        awaited = [holder.volunteer.name for holder in crew.seated if holder.is_awaited]
        texts += [f"{name} has a seat and does not answer, and nobody else is there for it" for name in awaited]
    return "; ".join(texts)


def _since(began: float, now: float) -> str:
    return [text for least_s, text in _LOADING if now - began >= least_s][-1]
