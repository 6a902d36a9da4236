"""What becomes of credit: entries for the ledger's file, and what volunteers hear of their own."""

import math
from collections.abc import Iterable

import msgspec

from fedlearn.coordination.credit import Ledger
from fedlearn.coordination.effects import RecordCredit, Send, ServerEffect
from fedlearn.coordination.plan import Plan, Status
from fedlearn.coordination.roster import Phase, Volunteer
from fedlearn.wire.messages import News

TELL_S = 10.0
"""Between two words about credit to one volunteer."""


def settle_credit(
    volunteers: Iterable[Volunteer], ledger: Ledger, step: int, now: float, news: News | None = None
) -> list[ServerEffect]:
    """An entry up to the last step before `step`, if one is due, and word of it."""
    if not ledger.is_due(now):
        return []
    return [RecordCredit(ledger.entry(step - 1)), *tell_credit(volunteers, ledger, now, news)]


def settle_last_credit(volunteers: Iterable[Volunteer], ledger: Ledger, step: int) -> list[ServerEffect]:
    """What no entry has yet, at the end of a run before `step`, and word of it."""
    entry: list[ServerEffect] = [RecordCredit(ledger.entry(step - 1))] if ledger.first_step < step else []
    return [*entry, *tell_credit(volunteers, ledger, 0.0, is_last=True)]


def tell_credit(
    volunteers: Iterable[Volunteer], ledger: Ledger, now: float, news: News | None = None, *, is_last: bool = False
) -> list[ServerEffect]:
    """A Credit for everybody at work that was told something else before; `is_last`: however short a while ago."""
    effects: list[ServerEffect] = []
    for volunteer in volunteers:
        if volunteer.phase not in (Phase.READY, Phase.SEATED) or (now < volunteer.credit_due and not is_last):
            continue
        credit = ledger.total(volunteer.standing.identity)
        if credit is not None and credit != volunteer.credit:
            volunteer.credit, volunteer.credit_due = credit, now + TELL_S
            effects.append(Send(volunteer.peer, msgspec.structs.replace(credit, news=news)))
    return effects


def news_of(plan: Plan, status: Status, loss: float) -> News:
    """What volunteers are told of a run besides; `loss` is the last step's."""
    left_s = status.run_left_s if math.isfinite(status.run_left_s) else None
    return News(plan.steps, left_s, status.volunteers, loss if math.isfinite(loss) else None)
