"""What volunteers hear of their own credit."""

from collections.abc import Iterable

from fedlearn.coordination.credit import Ledger
from fedlearn.coordination.effects import Send, ServerEffect
from fedlearn.coordination.roster import Phase, Volunteer

TELL_S = 10.0
"""Between two words about credit to one volunteer."""


def tell_credit(
    volunteers: Iterable[Volunteer], ledger: Ledger, now: float, *, is_last: bool = False
) -> list[ServerEffect]:
    """A Credit for everybody at work that was told something else before; `is_last`: however short a while ago."""
    effects: list[ServerEffect] = []
    for volunteer in volunteers:
        if volunteer.phase is not Phase.READY or (now < volunteer.credit_due and not is_last):
            continue
        credit = ledger.total(volunteer.standing.identity)
        if credit not in (None, volunteer.credit):
            volunteer.credit, volunteer.credit_due = credit, now + TELL_S
            effects.append(Send(volunteer.peer, credit))
    return effects
