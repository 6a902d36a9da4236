"""Where a run stands, with everybody in it: what viewers of a run are shown."""

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from fedlearn.coordination.credit import Ledger
from fedlearn.coordination.open_step import OpenStep
from fedlearn.coordination.plan import Plan, Status
from fedlearn.coordination.roster import Phase, Volunteer
from fedlearn.wire.messages import Credit

IDENTITY_DIGITS = 16
"""Of an identity, as `fedlearn runs --credit` shows it; enough to tell volunteers apart."""

_NOTHING = Credit(0, 0, 0, 0, 0)


class Earnings(msgspec.Struct, frozen=True):
    """A volunteer's credit over all its connections."""

    members: int
    work: int
    """In the task's unit."""
    seconds: int
    agreed: int
    """Groups that were checked and right."""
    caught: int
    """Results that were checked and false."""


class VolunteerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One connection that is let in. Neither its address nor its whole identity is here."""

    name: str
    identity: str
    """The first IDENTITY_DIGITS hexadecimal digits."""
    threads: int
    """By its own word."""
    is_local: bool
    """Whether the server started it."""
    phase: Literal["waiting", "syncing", "ready", "seated"]
    """For the weights; was sent the weights; holds the weights; holds a part of them, or waits for one."""
    members_per_s: float | None
    share: float
    """Of the population of the open step, as far as it was asked for."""
    members: int
    """Of these, how many are in."""
    exchange_s: float | None
    """What an Assignment and its Result take on their way, together."""
    trust: Literal["proven", "stranger"]
    caught: int
    """False results of its identity."""
    digest: Literal["unknown", "equal", "drifted"]
    """Whether its weights are the server's."""
    credit: Earnings


class StepStatus(msgspec.Struct, frozen=True):
    """The step that is open."""

    left_s: float
    """Until it closes at the latest."""
    members: int
    """That are in."""
    wanted: int


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, as in `status.json`. What follows `volunteers` the server adds that has the run."""

    format: Literal[1] = 1
    run: str
    state: Literal["running", "waiting", "paused", "ended"]
    """Waiting: for volunteers. Paused: by its operator."""
    reason: str = ""
    """Why it is paused, or ended."""
    step: int
    """Steps that are taken."""
    steps: int
    """At which it ends, 0: never."""
    duration_s: float = 0.0
    """Of training after which it ends, 0: never."""
    run_left_s: float | None
    """Of its training time, None where that has no end."""
    members_per_s: float
    """Of the last step, 0 where nobody works."""
    open_step: StepStatus | None
    volunteers: tuple[VolunteerStatus, ...]
    pid: int = 0
    time: float = 0.0
    """Seconds since 1970."""
    unit: str = ""
    """Of work: tokens, examples, episodes."""
    loss: float | None = None
    shown: dict[str, float] = {}
    """The loss of the last step as people read it."""
    work_per_s: float = 0.0
    """Of the last step, in `unit`."""
    bytes_in_per_s: float = 0.0
    bytes_out_per_s: float = 0.0
    validation: dict[str, float | None] = {}
    """Figures of unperturbed weights on held-out data, when they were last measured."""
    sample: str = ""
    """What the model wrote last."""


def run_status(
    plan: Plan,
    status: Status,
    volunteers: Iterable[Volunteer],
    step: OpenStep | None,
    ledger: Ledger,
    *,
    members_per_s: float,
    paused_by: str = "",
) -> RunStatus:
    """What the coordinator knows; `members_per_s` is the last step's."""
    population = max(step.population.limit, 1) if step is not None else 1
    return RunStatus(
        run=plan.run,
        state="paused" if paused_by else "running" if status.volunteers else "waiting",
        reason=f"{paused_by} paused it" if paused_by else "",
        step=status.step,
        steps=plan.steps,
        duration_s=plan.duration_s,
        run_left_s=status.run_left_s if math.isfinite(status.run_left_s) else None,
        members_per_s=members_per_s if status.volunteers else 0.0,
        open_step=None if step is None else StepStatus(status.step_left_s, step.n_members, step.population.limit),
        volunteers=tuple(
            _volunteer_status(volunteer, population, ledger)
            for volunteer in volunteers
            if volunteer.phase is not Phase.STRANGER
        ),
    )


_PHASES: dict[Phase, Literal["waiting", "syncing", "ready", "seated"]] = {
    Phase.WAITING: "waiting",
    Phase.SYNCING: "syncing",
    Phase.READY: "ready",
    Phase.SEATED: "seated",
}


def _volunteer_status(volunteer: Volunteer, population: int, ledger: Ledger) -> VolunteerStatus:
    standing, lease = volunteer.standing, volunteer.lease
    credit = ledger.total(standing.identity) or _NOTHING
    return VolunteerStatus(
        name=volunteer.name,
        identity=standing.identity[:IDENTITY_DIGITS],
        threads=volunteer.threads,
        is_local=standing.is_local,
        phase=_PHASES[volunteer.phase],
        members_per_s=volunteer.members_per_s,
        share=lease.quota / population if lease is not None else 0.0,
        members=lease.n_received if lease is not None else 0,
        exchange_s=volunteer.exchange_s,
        trust="proven" if standing.is_proven else "stranger",
        caught=standing.n_caught,
        digest=_digest_of(volunteer),
        credit=Earnings(credit.members, credit.work, credit.seconds, credit.agreed, credit.caught),
    )


def _digest_of(volunteer: Volunteer) -> Literal["unknown", "equal", "drifted"]:
    if volunteer.n_resyncs:
        return "drifted"
    return "equal" if volunteer.phase is Phase.READY else "unknown"
