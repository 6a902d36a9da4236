"""The state of a run with all volunteers, for its viewers."""

import math
from typing import Literal

import msgspec

from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.roster import Party, Phase, Roster, Volunteer
from fedlearn.coordination.steps.plan import RunPlan, Status
from fedlearn.wire.messages import Credit

IDENTITY_DIGITS = 16
"""Number of digits of an identity that are shown, as in `fedlearn runs --credit`: enough to tell volunteers apart."""

_NOTHING = Credit(0, 0, 0, 0, 0)


class Earnings(msgspec.Struct, frozen=True):
    """The credit of a volunteer's identity, over all its connections."""

    members: int
    work: int
    """Work in the task's unit."""
    seconds: int
    agreed: int
    """Groups that were checked and agreed."""
    caught: int
    """Results that were found false."""


class VolunteerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that was admitted, without its address and without most digits of its identity."""

    name: str
    identity: str
    """The first IDENTITY_DIGITS hexadecimal digits of its identity."""
    threads: int
    """Number of threads that the volunteer reports."""
    is_local: bool
    """Whether the server started it."""
    phase: Literal["waiting", "syncing", "ready", "seated"]
    """The volunteer waits for the weights; was sent them; holds them; or holds a part of them, or waits for one."""
    tensors: tuple[str, ...] = ()
    """Names of the tensors that its seat holds, or is sent; empty where it has no seat."""
    members_per_s: float | None
    share: float
    """Share of the open step's population that it was asked for; the seats of a crew have equal shares of the crew's.
    """
    members: int
    """Members of this share whose results have come."""
    exchange_s: float | None
    """Seconds that an Assignment and its Result travel, together."""
    trust: Literal["proven", "stranger"]
    caught: int
    """Number of false results of its identity."""
    digest: Literal["unknown", "equal", "drifted"]
    """Whether its weights are those of the server."""
    credit: Earnings


class StepStatus(msgspec.Struct, frozen=True):
    """The step that is open."""

    left_s: float
    """Seconds until it closes at the latest."""
    members: int
    """Members whose results have come."""
    wanted: int


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `status.json`. The server that has the run adds the fields after `volunteers`."""

    format: Literal[1] = 1
    run: str
    state: Literal["running", "waiting", "paused", "ended"]
    """The state of the run; it waits for volunteers, or was paused by its operator."""
    reason: str = ""
    """Why the run waits, is paused or has ended; empty while it just waits for volunteers."""
    step: int
    """Steps that the run has taken."""
    steps: int
    """The step at which the run ends; 0: no such end."""
    duration_s: float = 0.0
    """Seconds of training after which the run ends; 0: no such end."""
    run_left_s: float | None
    """Seconds of training that are left; None where training has no time limit."""
    members_per_s: float
    """Members per second in the last step; 0 where no volunteer works."""
    open_step: StepStatus | None
    volunteers: tuple[VolunteerStatus, ...]
    pid: int = 0
    time: float = 0.0
    """Seconds since 1970."""
    unit: str = ""
    """The unit of work: tokens, examples or episodes."""
    loss: float | None = None
    shown: dict[str, float] = {}
    """The loss of the last step, by the names and units that people read."""
    figures: dict[str, float] = {}
    """Other figures of the last step, by the names of `FIGURES`."""
    work_per_s: float = 0.0
    """Work per second in the last step, in `unit`."""
    bytes_in_per_s: float = 0.0
    bytes_out_per_s: float = 0.0
    validation: dict[str, float | None] = {}
    """Figures of the unperturbed weights on held-out data, when they were last measured."""
    sample: str = ""
    """The last sample of the model's text."""


def run_status(
    plan: RunPlan,
    status: Status,
    roster: Roster,
    step: OpenStep | None,
    ledger: Ledger,
    *,
    members_per_s: float,
    paused_by: str = "",
) -> RunStatus:
    """The status as far as the coordinator knows it; `members_per_s` is that of the last step."""
    population = step.population.limit if step is not None else 0
    everybody = [v for v in roster.volunteers.values() if v.phase is not Phase.UNAUTHENTICATED]
    parties = {seat.peer: crew for crew in roster.crews if crew.is_ready for seat in crew.volunteers}
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
            _volunteer_status(volunteer, parties.get(volunteer.peer, volunteer), population, ledger)
            for volunteer in everybody
        ),
    )


_PHASES: dict[Phase, Literal["waiting", "syncing", "ready"]] = {
    Phase.WAITING: "waiting",
    Phase.SYNCING: "syncing",
    Phase.READY: "ready",
}


def _volunteer_status(volunteer: Volunteer, party: Party, population: int, ledger: Ledger) -> VolunteerStatus:
    n_alike = len(party.volunteers)
    reputation, lease = volunteer.reputation, party.lease
    credit = ledger.total(reputation.identity) or _NOTHING
    return VolunteerStatus(
        name=volunteer.name,
        identity=reputation.identity[:IDENTITY_DIGITS],
        threads=volunteer.threads,
        is_local=reputation.is_local,
        phase="seated" if volunteer.is_seated else _PHASES[volunteer.phase],
        tensors=volunteer.tensors,
        members_per_s=None if party.members_per_s is None else party.members_per_s / n_alike,
        share=lease.quota / population / n_alike if lease is not None and population else 0.0,
        members=lease.n_received // n_alike if lease is not None else 0,
        exchange_s=party.exchange_s,
        trust="proven" if reputation.is_trusted else "stranger",
        caught=reputation.n_caught,
        digest=_digest_of(volunteer, party),
        credit=Earnings(credit.members, credit.work, credit.seconds, credit.agreed, credit.caught),
    )


def _digest_of(volunteer: Volunteer, party: Party) -> Literal["unknown", "equal", "drifted"]:
    if volunteer.n_resyncs:
        return "drifted"
    return "equal" if party.is_ready else "unknown"
