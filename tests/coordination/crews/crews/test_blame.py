"""What a crew claims comes with how it went through its seats, and only the seat that was false answers for it."""

from collections.abc import Callable

import pytest

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict
from fedlearn.coordination.people.membership import MAX_RESYNCS
from fedlearn.coordination.people.reputation import MAX_CAUGHT
from fedlearn.coordination.people.roster import Volunteer
from fedlearn.es.digest import DIGEST_BYTES
from tests.coordination.crews.replica import MEMBER_BYTES, N_SEATS
from tests.coordination.crews.scene import Scene

Audit = Callable[[Claim], tuple[Finding, Verdict]]


def verdict_on(claim: Claim, difference: float, place: int | None = None) -> Verdict:
    reputation = claim.reputation if place is None else claim.reputation.seats[place]
    members = (claim.trials.first_member, claim.trials.n_members)
    return Verdict(claim.trials.step, *members, reputation.identity, reputation.name, difference, place)


def scene_with(audit: Audit, monkeypatch: pytest.MonkeyPatch, n: int = N_SEATS) -> Scene:
    scene = Scene(audit=0.02)
    monkeypatch.setattr(scene.trainer, "audit", audit)
    monkeypatch.setattr(scene.trainer, "record_verdict", lambda _: None)
    for _ in range(n):
        scene.join()
    return scene


def volunteer(scene: Scene, peer: int) -> Volunteer:
    return scene.coordinator.roster.volunteers[peer]


def test_a_claim_has_all_that_seats_sent_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    claims: list[Claim] = []

    def audit(claim: Claim) -> tuple[Finding, Verdict]:
        claims.append(claim)
        return Finding.TRUE, verdict_on(claim, 0.0)

    scene_with(audit, monkeypatch).settle(3)
    assert claims
    for claim in claims:
        assert claim.log is not None
        assert len(claim.log.sent) == N_SEATS - 1
        for sent in claim.log.sent:
            members = [m for said in sent for m in range(said.first_member, said.first_member + said.n_members)]
            assert members == list(range(claim.trials.first_member, claim.trials.first_member + claim.trials.n_members))
            assert all(len(said.payload) == said.n_members * MEMBER_BYTES for said in sent)
            assert {(said.step, len(said.digest)) for said in sent} == {(claim.trials.step, DIGEST_BYTES)}


@pytest.mark.parametrize("place", range(N_SEATS))
def test_only_the_seat_that_was_false_is_sent_away(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = place + 1

    def audit(claim: Claim) -> tuple[Finding, Verdict]:
        is_false = any(seat.name == f"volunteer {liar}" for seat in claim.reputation.seats)
        return (Finding.FALSE if is_false else Finding.TRUE), verdict_on(claim, 2.0, place if is_false else None)

    scene = scene_with(audit, monkeypatch, N_SEATS + 1)
    guilty, machine = volunteer(scene, liar), scene.machines[liar]
    scene.settle(4)
    assert guilty.reputation.n_caught == MAX_CAUGHT
    assert machine.farewell is not None
    assert machine.farewell.kind == "refused"
    others = [volunteer(scene, peer).reputation for peer in scene.machines if peer != liar]
    assert [reputation.n_caught for reputation in others] == [0] * N_SEATS
    assert len(scene.trainer.journal) >= 4, "the spare has its seat"
    said = [notice for notice in scene.kept.notices if "were false" in notice]
    assert said[0].startswith(f"volunteer {liar}: results of step 0 were false")


def test_all_seats_answer_where_it_is_not_known_which_was_false(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_with(lambda claim: (Finding.FALSE, verdict_on(claim, 2.0)), monkeypatch)
    seats = [volunteer(scene, peer) for peer in scene.machines]
    scene.settle_for(1.0, 1.0, 1.0)
    assert [seat.reputation.n_caught for seat in seats] == [MAX_CAUGHT] * N_SEATS
    assert not scene.machines, "all were sent away"


def test_drifts_are_forgotten_at_a_later_step_that_is_right() -> None:
    scene = Scene()
    for _ in range(N_SEATS):
        scene.join()
    scene.settle(1)
    drifting = volunteer(scene, 2)
    for _ in range(8):
        scene.machines[2].drifts_next = True
        scene.settle(len(scene.trainer.journal) + 4)
        assert drifting.n_resyncs == 0
    assert 2 in scene.machines
    assert len([notice for notice in scene.kept.notices if "volunteer 2 drifted" in notice]) == 8


def test_who_drifts_in_every_step_is_sent_away() -> None:
    scene = Scene()
    for _ in range(N_SEATS):
        scene.join()
    scene.settle(1)
    while 2 in scene.machines:
        assert len(scene.trainer.journal) <= MAX_RESYNCS + 1
        scene.machines[2].drifts_next = True
        scene.do_work()
        for peer, machine in list(scene.machines.items()):
            machine.hear(scene.clock)
            machine.compute(scene.clock)
            scene.hear(peer)
    assert len(scene.trainer.journal) == MAX_RESYNCS + 1
    assert any(f"{MAX_RESYNCS + 1} times in a row" in notice for notice in scene.kept.notices)
