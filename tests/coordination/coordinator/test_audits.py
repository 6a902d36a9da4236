"""What is computed again, and what becomes of those whose results were false."""

from random import Random

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.audits.audit import MOST_DIFFERENCE, Claim, Finding, compare, judge
from fedlearn.coordination.audits.auditor import LEAST_CHANCE, MAX_PENDING, Auditor
from fedlearn.coordination.effects import AppendToJournal, Notice, Recompute, RecordVerdict, ServerEffect
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import MAX_CAUGHT, PROOF_GROUPS, Reputation
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.sums.estimate import NO_ESTIMATE, encode_estimate, encode_exactly
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.wire.messages import Assignment
from tests.coordination.coordinator.scene import (
    GROUP,
    HALF,
    LIMIT,
    PLAN,
    STRATEGY,
    TIME_PER_STEP,
    Scene,
    of,
    parted,
    sent,
)

LAYOUT = ParameterLayout((TensorSpec("matrix", (3, 4)),))


@pytest.fixture
def audited() -> Scene:
    """Two volunteers; the first has proven itself."""
    scene = Scene(audit=0.02, lottery=Random(1))
    scene.join(1)
    prove(scene, 1)
    scene.join(2)
    scene.now += 1.0
    agree(scene, scene.report(1))
    scene.applied()
    return scene


def claims(effects: list[ServerEffect]) -> list[Claim]:
    return [effect.claim for effect in of(Recompute, effects)]


def agree(scene: Scene, effects: list[ServerEffect]) -> list[ServerEffect]:
    """The server finds what was claimed."""
    return [found for claim in claims(effects) for found in scene.recomputed(claim, claim.losses)]


def deny(scene: Scene, effects: list[ServerEffect]) -> list[ServerEffect]:
    """The server finds the opposite, and the same again."""
    return [found for claim in claims(effects) for found in scene.recomputed(claim, -claim.losses, -claim.losses)]


def prove(scene: Scene, peer: int, *, beside: int | None = None) -> None:
    """Steps in which as many of its groups are found true as it takes."""
    for _ in range(PROOF_GROUPS):
        scene.now += 1.0
        agree(scene, scene.report(peer))
        if beside is not None:
            agree(scene, scene.report(beside))
        scene.applied()


def test_without_audits_nothing_is_computed_again() -> None:
    for scene in (Scene(audit=0.5), Scene(lottery=Random(1))):
        scene.join(1)
        assert not claims(scene.report(1))


def test_stranger_beside_proven_volunteers_gets_one_group_that_counts_once_it_is_checked(audited: Scene) -> None:
    assert [audited.assignments[peer].quota for peer in (1, 2)] == [LIMIT, GROUP]
    (claim,) = claims(audited.report(2))
    assert (claim.trials.first_member, claim.trials.n_members) == (LIMIT, GROUP)
    agree(audited, audited.report(1, LIMIT - GROUP))
    audited.recomputed(claim, claim.losses)
    audited.report(1)
    assert audited.journal[-1].spans == ((0, LIMIT + GROUP),)


def test_stranger_whose_check_is_not_over_does_not_count_and_is_not_waited_for(audited: Scene) -> None:
    audited.report(2)
    audited.report(1)
    assert audited.journal[-1].spans == ((0, LIMIT),)


def test_stranger_has_its_share_once_it_is_proven(audited: Scene) -> None:
    prove(audited, 2, beside=1)
    assert audited.assignments[2].quota > GROUP
    assert audited.assignments[1].quota + audited.assignments[2].quota == LIMIT


def test_strangers_among_themselves_share_everything_and_the_step_waits_for_their_checks() -> None:
    scene = Scene(audit=0.02, lottery=Random(1))
    scene.join(1)
    scene.join(2)
    agree(scene, scene.report(1))
    scene.applied()
    assert {scene.assignments[peer].quota for peer in (1, 2)} == {LIMIT // 2}
    checks = [effect for peer in (1, 2) for effect in scene.report(peer)]
    assert {claim.trials.n_members for claim in claims(checks)} == {GROUP}
    assert len(scene.journal) == 1
    agree(scene, checks)
    assert scene.journal[-1].spans == ((0, LIMIT),)


def test_stranger_whose_check_takes_longer_than_the_step_may_is_waited_for_if_nobody_else_is_there() -> None:
    scene = Scene(audit=0.02, lottery=Random(1))
    scene.join(1)
    checks = scene.report(1)
    scene.wait(2 * TIME_PER_STEP)
    assert scene.journal == []
    agree(scene, checks)
    assert scene.journal[-1].spans == ((0, LIMIT),)


def test_result_that_waits_for_its_check_was_in_time() -> None:
    scene = Scene(audit=0.02, lottery=Random(1))
    scene.join(1)
    scene.join(2)
    checks = scene.report(1)
    scene.join(3)
    assert scene.wait(TIME_PER_STEP) == []  # nobody is asked again
    agree(scene, checks)
    scene.applied()
    assert scene.assignments[1].time_left_s == TIME_PER_STEP


def test_stranger_that_leaves_before_its_check_is_over_is_not_waited_for() -> None:
    scene = Scene(audit=0.02, lottery=Random(1))
    scene.join(1)
    checks = scene.report(1, HALF)
    scene.drop(1)
    scene.join(2)
    agree(scene, checks)
    agree(scene, scene.report(2))
    assert [sum(span[1] for span in update.spans) for update in scene.journal] == [LIMIT]


def test_stranger_that_is_proven_while_its_lease_is_held_is_checked_all_the_same() -> None:
    for seed in range(20):
        scene = Scene(audit=1e-6, lottery=Random(seed))
        scene.join(1)
        checks = scene.report(1, GROUP)
        for _ in range(PROOF_GROUPS):
            claims(checks)[0].reputation.agreed(1)
        agree(scene, scene.report(1))
        assert len(scene.journal) == 1


def test_false_results_do_not_count(audited: Scene) -> None:
    effects = deny(audited, audited.report(2))
    (verdict,) = [effect.verdict for effect in of(RecordVerdict, effects)]
    assert (verdict.name, verdict.step, verdict.first_member) == ("volunteer 2", audited.step, LIMIT)
    assert verdict.difference > 1
    assert any("volunteer 2: results of step 9 were false" in notice.text for notice in of(Notice, effects))
    audited.report(1)
    assert audited.journal[-1].spans == ((0, LIMIT),)


def test_liar_is_sent_away_for_good_whatever_it_calls_its_connection(audited: Scene) -> None:
    for time in range(1, MAX_CAUGHT + 1):
        effects = deny(audited, audited.report(2))
        assert (2 in parted(effects)) == (time == MAX_CAUGHT)
        audited.report(1)
        audited.applied()
    refused = parted(audited.greet(3, "volunteer 2"))
    assert refused[3][0] == "refused"
    assert "were found 3 times" in refused[3][1]


def test_proven_volunteer_that_lies_is_a_stranger_again(audited: Scene) -> None:
    prove(audited, 2, beside=1)
    assert audited.assignments[2].quota > GROUP
    for _ in range(200):
        audited.now += 1.0
        if checked := claims(audited.report(2)):
            break
        agree(audited, audited.report(1))
        audited.applied()
    audited.recomputed(checked[0], -checked[0].losses, -checked[0].losses)
    for _ in range(2):
        agree(audited, audited.report(1))
        audited.applied()
    assert audited.assignments[2].quota == GROUP


def test_task_that_gives_other_losses_each_time_accuses_nobody(audited: Scene) -> None:
    (claim,) = claims(audited.report(2))
    effects = audited.recomputed(claim, -claim.losses, 2 * claim.losses)
    assert any("audits are off" in notice.text for notice in of(Notice, effects))
    audited.report(1)
    audited.applied()
    assert not claims(audited.report(2))


def test_share_of_proven_results_that_is_checked_is_what_was_asked_for() -> None:
    scene = Scene(audit=0.05, lottery=Random(2))
    scene.join(1)
    prove(scene, 1)
    n_groups, n_results = 0, 0
    for _ in range(400):
        checked = claims(scene.report(1))
        n_groups, n_results = n_groups + len(checked), n_results + bool(checked)
        for claim in checked:
            scene.recomputed(claim, claim.losses)
        scene.applied()
    assert n_groups / (400 * LIMIT / GROUP) == pytest.approx(0.05, rel=0.3)
    assert n_results / 400 > LEAST_CHANCE


def test_result_of_few_groups_is_checked_often_enough() -> None:
    scene = Scene(audit=1e-6, lottery=Random(3))
    scene.join(1)
    prove(scene, 1)
    n_checked = 0
    for _ in range(1000):
        checked = claims(scene.report(1))
        assert len(checked) <= 1
        n_checked += len(checked)
        for claim in checked:
            scene.recomputed(claim, claim.losses)
        scene.applied()
    assert n_checked == pytest.approx(1000 * LEAST_CHANCE, rel=0.4)


def test_steps_do_not_wait_for_audits() -> None:
    scene = Scene(audit=1.0, lottery=Random(1))
    scene.join(1)
    prove(scene, 1)
    assert len(claims(scene.report(1))) == MAX_PENDING
    scene.applied()
    effects = scene.report(1)
    assert not claims(effects)
    assert of(AppendToJournal, effects)


def test_verdict_on_someone_who_has_left_is_written_down(audited: Scene) -> None:
    checked = audited.report(2)
    audited.drop(2)
    assert of(RecordVerdict, deny(audited, checked))
    assert not sent(Assignment, audited.effects[-2:], peer=2)


def test_the_exact_sum_of_a_result_is_looked_at_along_with_one_of_its_groups() -> None:
    shaping, lease = Shaping("sign", 0.5), Lease(0, 4 * GROUP)
    trials = Trials(3, Perturbation(0.1, 1), GROUP, 0, 4 * GROUP, shaping)
    losses = np.arange(4 * GROUP, dtype=np.float32)
    estimate = encode_exactly(LAYOUT, np.full(LAYOUT.size, 300))
    whole = Claim(Reputation("Ada"), trials, b"", losses, estimate, lease)
    first, *others = Auditor(1.0, Ledger(0, 0.0, work_per_member=1), lottery=Random(1)).draw(whole)
    assert first.whole is whole
    assert [claim.whole for claim in others] == [None] * 3
    for claim in (first, *others):
        assert (claim.trials.n_members, claim.trials.shaping, claim.estimate) == (GROUP, None, NO_ESTIMATE)
    own = TrialResults(first.losses, estimate)
    assert judge(first, own, LAYOUT).difference == 0.0
    broken = TrialResults(np.full(GROUP, np.inf, dtype=np.float32), estimate)
    assert judge(first, broken, LAYOUT).difference == MOST_DIFFERENCE
    off = encode_exactly(LAYOUT, np.append(np.full(LAYOUT.size - 1, 300), 301))
    assert judge(first, TrialResults(first.losses, off), LAYOUT).difference == MOST_DIFFERENCE
    results = iter([TrialResults(first.losses, off), TrialResults(first.losses)])
    finding, _ = compare(first, lambda: next(results), LAYOUT)
    assert finding is Finding.FALSE


@pytest.mark.parametrize(("is_exact", "expected"), [(False, 4), (True, 8)])
def test_a_relays_sum_is_checked_with_bytes(is_exact: bool, expected: int) -> None:
    coarse = msgspec.structs.replace(STRATEGY, perturbation=Perturbation(0.0, 0, "nothing"), group_size=1, sum_bits=4)
    scene = Scene(audit=1.0, lottery=Random(1), strategy=coarse)
    scene.join(1)
    assert scene.assignments[1].perturbation.sum_bits == 4
    numbers = np.zeros(PLAN.layout.size, dtype=np.int64)
    estimate = encode_exactly(PLAN.layout, numbers) if is_exact else encode_estimate(PLAN.layout, numbers)
    scene.report(1, 1, estimate=estimate)
    assert [claim.trials.perturbation.sum_bits for claim in scene.claims] == [expected]
