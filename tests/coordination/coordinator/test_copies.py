"""Volunteers who check others: who is asked, who can tell, and what becomes of whom they don't agree with."""

from collections.abc import Sequence
from random import Random
from typing import final

import numpy as np
import pytest

from fedlearn.coordination.audits.audit import Claim
from fedlearn.coordination.effects import Recompute, RecordCredit, RecordVerdict, ServerEffect
from fedlearn.coordination.people.credit import Earned
from fedlearn.coordination.people.reputation import MAX_CAUGHT
from fedlearn.wire.messages import Assignment, Ready
from tests.coordination.coordinator.scene import (
    GROUP,
    LIMIT,
    TIME_PER_STEP,
    Scene,
    digest_of,
    of,
    parted,
)

SHARE = 0.1
WORK = 7


@final
class Rigged:
    """Gives what comes next, or what lets nothing happen; of several it takes the last."""

    def __init__(self) -> None:
        self.next: list[float] = []
        self.usual = 0.3

    def random(self) -> float:
        return self.next.pop(0) if self.next else self.usual

    def sample(self, population: Sequence[int], k: int) -> list[int]:
        return list(population)[len(population) - k :]


def scene_of(n_volunteers: int) -> tuple[Scene, Rigged]:
    """Everybody is proven, and the last of them was named to check the others in the step that has just begun."""
    lottery = Rigged()
    proven = range(1, n_volunteers + 1)
    scene = Scene(audit=SHARE, lottery=lottery, proven=proven, work_per_member=WORK)
    for peer in proven:
        scene.join(peer)
    scene.now += 1.0
    # Two for the Result, then one is named, the others keep their order, and its members begin among the first one's.
    lottery.next = [0.3, 0.3, 0.8, 0.0, 0.3]
    scene.report(1)
    scene.applied()
    assert lottery.next == []
    while scene.claims:
        claim = scene.claims.pop()
        scene.recomputed(claim, claim.losses)
    return scene, lottery


def members_of(assignment: Assignment) -> range:
    return range(assignment.first_member, assignment.first_member + assignment.quota)


def claims(effects: list[ServerEffect]) -> list[Claim]:
    return [effect.claim for effect in of(Recompute, effects)]


def disputed(scene: Scene, lottery: Rigged) -> list[Claim]:
    """The third of three has other losses than they whom it checks; it is named for the next step, too."""
    scene.report(1)
    scene.report(2)
    lottery.next = [0.8, 0.0, 0.3]
    return claims(scene.report(3, losses=-(np.arange(scene.assignments[3].quota, dtype=np.float32) ** 2)))


def test_who_is_named_gets_members_of_others_in_an_assignment_like_any_other() -> None:
    scene, _ = scene_of(3)
    first, second, third = (scene.assignments[peer] for peer in (1, 2, 3))
    owned = {*members_of(first), *members_of(second)}
    assert sorted(owned) == list(range(len(owned)))
    assert set(members_of(third)) < owned
    assert len(owned) + third.quota == LIMIT  # each has the share that it would have had
    assert {a.time_left_s for a in (first, second, third)} == {TIME_PER_STEP}


def test_members_that_are_checked_count_once_and_the_step_waits_for_who_checks_them_as_for_anybody() -> None:
    scene, _ = scene_of(3)
    n_steps, n_owned = len(scene.journal), scene.assignments[1].quota + scene.assignments[2].quota
    scene.report(1)
    scene.report(2)
    assert len(scene.journal) == n_steps
    report_alike(scene, 3)
    assert scene.journal[-1].spans == ((0, n_owned),)
    scene.applied()
    assert scene.assignments[3].quota >= LIMIT // 3 // GROUP * GROUP  # it was as fast as ever


def copied_of(peer: int) -> int:
    """Members of this one that the third of three checks."""
    scene, _ = scene_of(3)
    return len(set(members_of(scene.assignments[peer])) & set(members_of(scene.assignments[3])))


def report_alike(scene: Scene, peer: int, count: int | None = None) -> list[ServerEffect]:
    """Losses that follow from the members' numbers: those that everybody else has of them."""
    return scene.report(peer, count)


def test_what_agrees_costs_the_server_nothing_and_is_written_down() -> None:
    scene, _ = scene_of(3)
    n_before = scene.coordinator._auditor.n_checked
    scene.report(1, GROUP)
    report_alike(scene, 3, 2 * GROUP)
    for peer in (1, 2):
        scene.report(peer)
    assert not claims(report_alike(scene, 3))
    n_copied = scene_of(3)[0].assignments[3].quota
    scene.applied()
    scene.stop()
    earned: dict[str, Earned] = {}
    for effect in of(RecordCredit, scene.effects):
        for part in effect.entry.earned.values():
            earned.setdefault(part.name, Earned()).add(part)
    checker = earned["volunteer 3"]
    assert (checker.members, checker.work, checker.agreed) == (0, n_copied * WORK, 0)
    assert sum(part.members for part in earned.values()) == sum(update.n_members for update in scene.journal)
    assert scene.coordinator._auditor.n_checked - n_before == n_copied
    assert earned["volunteer 2"].agreed * GROUP == copied_of(2)


@pytest.mark.parametrize("first", [1, 3])
def test_some_of_what_agrees_the_server_looks_at_as_both_have_it(first: int) -> None:
    scene, lottery = scene_of(3)
    for peer in (first, 2, 4 - first):
        lottery.usual = 0.0 if peer == 4 - first else 0.3
        effects = scene.report(peer)
    looked_at = [claim for claim in claims(effects) if claim.lease.is_copy or claim.lease.overlaps]
    names = {claim.reputation.name for claim in looked_at}
    assert "volunteer 3" in names
    assert len(names) > 1


def test_of_a_copy_the_server_looks_at_nothing_by_itself() -> None:
    scene, lottery = scene_of(3)
    scene.coordinator._auditor.n_received = 10**6
    lottery.usual = 0.0
    assert not claims(scene.report(3))
    assert claims(scene.report(1))


def test_what_does_not_agree_goes_to_the_server_as_both_have_it() -> None:
    scene, lottery = scene_of(3)
    found = disputed(scene, lottery)
    assert {claim.reputation.name for claim in found} == {"volunteer 1", "volunteer 2", "volunteer 3"}
    for claim in found:
        mine = [other for other in found if other.trials == claim.trials]
        assert len(mine) == 2
        assert not np.array_equal(mine[0].losses, mine[1].losses)
        if claim.reputation.name != "volunteer 3":
            first = claim.trials.first_member
            np.testing.assert_array_equal(claim.losses, np.arange(first, first + GROUP, dtype=np.float32))


def settle(scene: Scene, found: list[Claim], *, liars: set[int]) -> set[str]:
    """The server finds what those have who don't lie; gives whom it names."""
    named = set()
    for claim in found:
        is_lie = claim.reputation.name in {f"volunteer {peer}" for peer in liars}
        own = claim.losses + 100.0 * np.arange(GROUP, dtype=np.float32) if is_lie else claim.losses
        effects = scene.recomputed(claim, own, own)
        named |= {effect.verdict.name for effect in of(RecordVerdict, effects)}
    return named


@pytest.mark.parametrize("liars", [{3}, {1, 2}, {1, 2, 3}])
def test_whoever_is_not_what_the_server_finds_is_named_and_nobody_else(liars: set[int]) -> None:
    scene, lottery = scene_of(3)
    n_owned = scene.assignments[1].quota + scene.assignments[2].quota
    found = disputed(scene, lottery)
    assert settle(scene, found, liars=liars) == {f"volunteer {peer}" for peer in liars}
    assert not parted(scene.effects)
    assert scene.journal[-1].spans == ((0, n_owned),)


def test_who_checks_falsely_and_is_believed_by_nobody_loses_its_place_like_any_liar() -> None:
    scene, lottery = scene_of(3)
    for time in range(1, MAX_CAUGHT + 1):
        found = [claim for claim in disputed(scene, lottery) if claim.reputation.name == "volunteer 3"][:1]
        settle(scene, found, liars={3})
        assert (3 in parted(scene.effects)) == (time == MAX_CAUGHT)
        if time == MAX_CAUGHT:
            break
        found[0].reputation.agreed(100)
        scene.applied()


def test_half_of_those_who_are_trusted_have_members_of_their_own_however_much_is_to_be_checked() -> None:
    scene = Scene(audit=1.0, lottery=Random(0), proven=range(1, 6))
    for peer in range(1, 6):
        scene.join(peer)
    scene.report(1)
    scene.applied()
    ranges = [members_of(scene.assignments[peer]) for peer in range(1, 6)]
    assert len(set().union(*ranges)) < sum(map(len, ranges))
    assert len(set().union(*ranges)) >= LIMIT // 2


def test_nobody_is_checked_by_itself_or_by_who_is_not_trusted() -> None:
    lottery = Rigged()
    lottery.usual = 0.99
    alone = Scene(audit=SHARE, lottery=lottery, proven=[1])
    beside = Scene(audit=SHARE, lottery=lottery, proven=[1])
    for scene in (alone, beside):
        for peer in (1, 2):
            scene.greet(peer, "volunteer 1" if scene is alone else None)
            scene.say(peer, Ready(scene.step, digest_of(scene.step)))
        for _ in range(3):
            for peer in (1, 2):
                if scene.remaining(peer):
                    scene.report(peer)
            if scene.is_applying:
                scene.applied()
        first, second = members_of(scene.assignments[1]), members_of(scene.assignments[2])
        assert not set(first) & set(second)


def test_copies_that_are_in_count_where_those_whose_members_they_are_sent_nothing() -> None:
    scene, _ = scene_of(3)
    copied = members_of(scene.assignments[3])
    report_alike(scene, 3)
    assert scene.wait(TIME_PER_STEP)
    assert scene.journal[-1].spans == ((copied.start, len(copied)),)
    scene, _ = scene_of(3)
    copied = members_of(scene.assignments[3])
    report_alike(scene, 3)
    scene.drop(1)
    scene.drop(2)
    assert scene.journal[-1].spans == ((copied.start, len(copied)),)


def test_who_checks_and_leaves_leaves_what_it_checked() -> None:
    scene, _ = scene_of(3)
    n_owned = scene.assignments[1].quota + scene.assignments[2].quota
    report_alike(scene, 3, GROUP)
    scene.drop(3)
    scene.report(1)
    assert not claims(scene.report(2))
    assert scene.journal[-1].spans == ((0, n_owned),)


def test_where_members_begin_tells_nobody_whose_they_are() -> None:
    scene = Scene(audit=0.02, lottery=Random(5), proven=range(1, 5))
    for peer in range(1, 5):
        scene.join(peer)
    begun: dict[int, set[int]] = {peer: set() for peer in range(1, 5)}
    for _ in range(60):
        for peer in begun:
            if scene.remaining(peer):
                scene.report(peer)
        for claim in scene.claims[:]:
            scene.claims.remove(claim)
            scene.recomputed(claim, claim.losses)
        scene.applied()
        for peer, places in begun.items():
            places.add(scene.assignments[peer].first_member * 4 // LIMIT)
    assert all(len(places) >= 3 for places in begun.values())


def test_share_that_is_checked_is_what_was_asked_for_and_the_server_does_little_of_it() -> None:
    n_steps, n_volunteers = 1500, 4
    scene = Scene(audit=0.04, lottery=Random(6), proven=range(1, 1 + n_volunteers))
    for peer in range(1, 1 + n_volunteers):
        scene.join(peer)
    n_examined = 0
    for _ in range(n_steps):
        for peer in range(1, 1 + n_volunteers):
            if scene.remaining(peer):
                scene.report(peer)
        while scene.claims:
            claim = scene.claims.pop()
            n_examined += claim.trials.n_members
            scene.recomputed(claim, claim.losses)
        scene.applied()
    auditor = scene.coordinator._auditor
    assert 0.04 <= auditor.n_checked / auditor.n_received < 0.06
    print(f"checked {auditor.n_checked / auditor.n_received:.3f}, by the server {n_examined / auditor.n_received:.4f}")
    assert n_examined / auditor.n_received < 0.4 * 0.04
    assert not of(RecordVerdict, scene.effects)


@pytest.mark.parametrize("n_liars", [1, 2])
def test_volunteers_that_were_trusted_and_lie_in_all_they_send_are_caught_soon_also_if_they_agree(n_liars: int) -> None:
    n_volunteers, caught_after = 5, []
    for seed in range(60):
        scene = Scene(audit=0.02, lottery=Random(seed), proven=range(1, 1 + n_volunteers))
        for peer in range(1, 1 + n_volunteers):
            scene.join(peer)
        scene.report(1)
        scene.applied()
        n_results = 0
        while not of(RecordVerdict, scene.effects):
            for peer in range(1, 1 + n_volunteers):
                members = np.array(members_of(scene.assignments[peer]), dtype=np.float32)
                if peer <= n_liars and scene.remaining(peer):
                    n_results += 1
                    scene.report(peer, losses=-(members**2))
                elif scene.remaining(peer):
                    scene.report(peer)
            while scene.claims:
                claim = scene.claims.pop()
                first, n_members = claim.trials.first_member, claim.trials.n_members
                own = np.arange(first, first + n_members, dtype=np.float32)
                scene.recomputed(claim, own, own)
            scene.applied()
        assert {effect.verdict.name for effect in of(RecordVerdict, scene.effects)} <= {"volunteer 1", "volunteer 2"}
        caught_after.append(n_results)
    mean = sum(caught_after) / len(caught_after)
    print(f"{n_liars} of {n_volunteers}: caught after {mean:.1f} Results, {max(caught_after)} at most")
    assert mean < 30
    assert sum(count <= 100 for count in caught_after) >= 58
