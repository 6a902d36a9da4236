"""Reports credit: entries for the ledger's file, and messages to each volunteer about its own."""

import math
from collections.abc import Iterable

import msgspec

from fedlearn.coordination.effects import RecordCredit, Send, ServerEffect
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.roster import Phase, Volunteer
from fedlearn.coordination.steps.plan import RunPlan, Status
from fedlearn.wire.messages import News

TELL_S = 10.0
"""Seconds between two Credits to one volunteer."""


def settle_credit(
    volunteers: Iterable[Volunteer], ledger: Ledger, step: int, now: float, news: News | None = None
) -> list[ServerEffect]:
    """The effects of an entry up to the step before `step`, if one is due, and Credits for volunteers."""
    if not ledger.is_due(now):
        return []
    return [RecordCredit(ledger.entry(step - 1)), *tell_credit(volunteers, ledger, now, news)]


def settle_last_credit(volunteers: Iterable[Volunteer], ledger: Ledger, step: int) -> list[ServerEffect]:
    """The effects of the last entry of a run that ends before `step`, and Credits for volunteers."""
    entry: list[ServerEffect] = [RecordCredit(ledger.entry(step - 1))] if ledger.first_step < step else []
    return [*entry, *tell_credit(volunteers, ledger, 0.0, is_last=True)]


def tell_credit(
    volunteers: Iterable[Volunteer], ledger: Ledger, now: float, news: News | None = None, *, is_last: bool = False
) -> list[ServerEffect]:
    """Credits for all working volunteers whose credit has changed; with `is_last`, however recent the last message
    is."""
    effects: list[ServerEffect] = []
    for volunteer in volunteers:
        if volunteer.phase is not Phase.READY or (now < volunteer.credit_due and not is_last):
            continue
        credit = ledger.total(volunteer.reputation.identity)
        if credit is not None and credit != volunteer.credit:
            volunteer.credit, volunteer.credit_due = credit, now + TELL_S
            effects.append(Send(volunteer.peer, msgspec.structs.replace(credit, news=news)))
    return effects


def news_of(plan: RunPlan, status: Status, loss: float | None) -> News:
    """The news of the run for volunteers; `loss` is that of the last step."""
    left_s = status.run_left_s if math.isfinite(status.run_left_s) else None
    if loss is None:
        return News(plan.steps, left_s, status.volunteers, None)
    return News(plan.steps, left_s, status.volunteers, loss, plan.show(loss) if plan.show is not None else None)
