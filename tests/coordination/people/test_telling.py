import math

import msgspec

from fedlearn.coordination.effects import Send
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Phase, Volunteer
from fedlearn.coordination.people.telling import TELL_S, news_of, tell_credit
from fedlearn.coordination.steps.plan import Status
from fedlearn.wire.messages import Credit, News
from tests.coordination.coordinator.scene import PLAN

ANNA, BERT = Reputation("a", "anna"), Reputation("b", "bert")


def volunteer(peer: int, reputation: Reputation, phase: Phase = Phase.READY) -> Volunteer:
    return Volunteer(peer, phase=phase, reputation=reputation)


def earning(ledger: Ledger, step: int, *identities: str) -> None:
    for identity in identities:
        ledger.add(identity, identity, 10, 1.0)
    ledger.entry(step)


def test_every_connection_of_who_has_earned_is_told_its_identitys_sum() -> None:
    ledger = Ledger(0, 0.0, work_per_member=3)
    volunteers = [volunteer(1, ANNA), volunteer(2, BERT), volunteer(3, ANNA)]
    earning(ledger, 0, "a")
    told = Credit(10, 30, 1, 0, 0)
    assert tell_credit(volunteers, ledger, 5.0) == [Send(1, told), Send(3, told)]


def test_who_does_not_hold_the_weights_is_told_nothing() -> None:
    ledger = Ledger(0, 0.0, work_per_member=3)
    others = [volunteer(1, ANNA, phase) for phase in Phase if phase is not Phase.READY]
    earning(ledger, 0, "a")
    assert tell_credit(others, ledger, 5.0, is_last=True) == []


def test_nobody_is_told_twice_within_a_while_but_at_the_end() -> None:
    ledger = Ledger(0, 0.0, work_per_member=3)
    anna = volunteer(1, ANNA)
    earning(ledger, 0, "a")
    assert len(tell_credit([anna], ledger, 5.0)) == 1
    earning(ledger, 1, "a")
    assert tell_credit([anna], ledger, 5.0 + TELL_S - 0.1) == []
    assert tell_credit([anna], ledger, 5.0 + TELL_S) == [Send(1, Credit(20, 60, 2, 0, 0))]
    earning(ledger, 2, "a")
    assert tell_credit([anna], ledger, 5.0 + TELL_S, is_last=True) == [Send(1, Credit(30, 90, 3, 0, 0))]


def test_who_earned_nothing_since_is_not_told_again() -> None:
    ledger = Ledger(0, 0.0, work_per_member=3)
    anna, bert = volunteer(1, ANNA), volunteer(2, BERT)
    earning(ledger, 0, "a", "b")
    assert len(tell_credit([anna, bert], ledger, 5.0)) == 2
    earning(ledger, 1, "b")
    assert tell_credit([anna, bert], ledger, 50.0, is_last=True) == [Send(2, Credit(20, 60, 2, 0, 0))]


def test_news_travel_with_the_credit_and_are_no_reason_to_tell_it_again() -> None:
    ledger = Ledger(0, 0.0, work_per_member=3)
    anna, news = volunteer(1, ANNA), News(100, None, 2, 1.5)
    earning(ledger, 0, "a")
    assert tell_credit([anna], ledger, 5.0, news) == [Send(1, Credit(10, 30, 1, 0, 0, news))]
    assert tell_credit([anna], ledger, 50.0, News(100, None, 3, 1.4)) == []


def test_news_have_no_figures_that_are_none() -> None:
    plan = msgspec.structs.replace(PLAN, steps=100)
    assert news_of(plan, Status(7, 2, 1.0, 30.0), 1.5) == News(steps=100, left_s=30.0, volunteers=2, loss=1.5)
    assert news_of(plan, Status(7, 2, 1.0, math.inf), None) == News(steps=100, left_s=None, volunteers=2, loss=None)


def test_news_have_the_loss_as_the_owner_is_shown_it() -> None:
    plan = msgspec.structs.replace(PLAN, show=lambda loss: ("bits_per_character", 2 * loss))
    assert news_of(plan, Status(7, 2, 1.0, 30.0), 1.5).shown == ("bits_per_character", 3.0)
    assert news_of(plan, Status(7, 2, 1.0, 30.0), None).shown is None
