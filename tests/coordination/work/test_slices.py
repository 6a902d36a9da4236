import msgspec
import numpy as np
import pytest

from fedlearn.coordination.effects import Apply, Evaluate, StoreBlock
from fedlearn.coordination.work.slices import MAX_SLICE_MEMBERS, SLICE_S
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.sums.exchange import SUM_SLICE_S
from fedlearn.es.trials import Trials
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.limits import max_message_bytes
from fedlearn.wire.messages import Credit, Result
from tests.coordination.work.scene import (
    BLOCK,
    DATA,
    FIRST,
    GROUP,
    QUOTA,
    Scene,
    assignment,
    digest_of,
    measured,
    replies,
    update,
)


def test_assignment_becomes_trials(scene: Scene) -> None:
    scene.hear(assignment(4, perturbation=Perturbation(0.25, 2)))
    trials = scene.trials
    assert trials is not None
    assert msgspec.structs.replace(trials, n_members=0) == Trials(4, Perturbation(0.25, 2), GROUP, FIRST, 0)
    assert isinstance(scene.under_way, Evaluate)
    assert scene.under_way.block == BLOCK


def test_first_slice_is_one_group_and_later_ones_are_sized_by_measured_speed(scene: Scene) -> None:
    scene.hear(assignment(4))
    sizes = []
    for members_per_s in (800.0, 1600.0, 400.0, 1.0):
        assert scene.trials is not None
        sizes.append(scene.trials.n_members)
        scene.compute(scene.trials.n_members / members_per_s)
    assert sizes == [GROUP, SLICE_S * 800, SLICE_S * 1600, SLICE_S * 400 // GROUP * GROUP]


@pytest.mark.parametrize("share", [None, 0.25])
def test_result_says_the_variance_left_where_the_trials_do(scene: Scene, share: float | None) -> None:
    scene.variance_left = share
    scene.hear(assignment(4))
    (result,) = replies(Result, scene.compute(1.0))
    assert result.variance_left == share


def test_results_follow_slice_by_slice_until_the_quota_is_done(scene: Scene) -> None:
    scene.hear(assignment(4))
    results: list[Result] = []
    while scene.trials is not None:
        effects = scene.compute(scene.trials.n_members / 2000.0)
        assert len(replies(Result, effects)) == 1
        results += replies(Result, effects)
    assert len(results) > 3
    assert {(result.step, result.digest) for result in results} == {(4, digest_of(4))}
    assert [result.first_member for result in results] == [int(result.losses[0]) for result in results]
    assert np.concatenate([result.losses for result in results]).tolist() == list(range(FIRST, FIRST + QUOTA))
    assert all(result.losses.size % GROUP == 0 for result in results)


def test_quota_smaller_than_a_slice_is_done_in_one(scene: Scene) -> None:
    measured(scene, 1e6)
    scene.hear(assignment(5, quota=2 * GROUP))
    assert scene.trials is not None
    assert scene.trials.n_members == 2 * GROUP
    scene.compute(0.01)
    assert scene.trials is None


def test_no_slice_is_planned_beyond_the_deadline(scene: Scene) -> None:
    scene.hear(assignment(4, time_left_s=1.0))
    start = scene.now
    while scene.trials is not None:
        scene.compute(scene.trials.n_members / 100.0)
    assert start + 0.8 < scene.now <= start + 1.0


def test_slice_is_cut_short_when_little_time_is_left(scene: Scene) -> None:
    measured(scene, 1000.0)
    scene.hear(assignment(5, time_left_s=0.1))
    assert scene.trials is not None
    # A tenth of the time is left for the Result to arrive in.
    assert scene.trials.n_members == 0.09 * 1000 // GROUP * GROUP


def test_slow_machine_tries_one_group_of_a_step_and_no_further_one_that_would_come_too_late(scene: Scene) -> None:
    measured(scene, 1.0)
    scene.hear(assignment(5, time_left_s=6.0))
    assert scene.trials is not None
    assert scene.trials.n_members == GROUP
    assert len(replies(Result, scene.compute(4.0))) == 1
    assert scene.trials is None


def test_slow_machine_goes_on_group_by_group_while_there_is_time(scene: Scene) -> None:
    measured(scene, 1.0)
    scene.hear(assignment(5, time_left_s=30.0))
    sizes = []
    while scene.trials is not None:
        sizes.append(scene.trials.n_members)
        scene.compute(GROUP / 1.0)
    assert sizes == [GROUP] * 3


def test_slice_of_the_fastest_machine_fits_into_a_result(scene: Scene) -> None:
    measured(scene, 1e12)
    scene.hear(assignment(5, quota=10**7 * GROUP))
    assert scene.trials is not None
    assert 0 < scene.trials.n_members <= MAX_SLICE_MEMBERS
    losses = np.zeros(MAX_SLICE_MEMBERS, dtype=np.float32)
    limit = max_message_bytes(Result, max_snapshot_bytes=0)
    assert len(encode(Result(5, FIRST, losses, digest_of(5)))) <= limit


def test_assignment_of_another_step_is_not_begun(scene: Scene) -> None:
    assert scene.hear(assignment(9)) == []


@pytest.mark.parametrize("members_per_s", [None, 1e-3, 1e6])
def test_one_group_is_tried_though_time_is_up_and_no_further_one(scene: Scene, members_per_s: float | None) -> None:
    """A group may take longer than anybody thought, and a step with nothing in waits for it."""
    if members_per_s is not None:
        measured(scene, members_per_s)
    step = 4 if members_per_s is None else 5
    scene.hear(update(step), assignment(step + 1, time_left_s=2.0))
    scene.compute(3.0)
    assert scene.trials is not None
    assert scene.trials.n_members == GROUP
    assert len(replies(Result, scene.compute(0.1))) == 1
    assert scene.under_way is None


def test_result_that_took_longer_than_the_step_is_sent(scene: Scene) -> None:
    scene.hear(assignment(4, time_left_s=1.0))
    assert len(replies(Result, scene.compute(60.0))) == 1
    assert scene.under_way is None


def test_trials_wait_for_the_update_before_them(scene: Scene) -> None:
    scene.hear(assignment(4, quota=GROUP), update(4), assignment(5))
    scene.compute(0.1)
    assert isinstance(scene.under_way, Apply)
    scene.compute(0.1)
    assert scene.trials is not None
    assert scene.trials.step == 5
    assert replies(Result, scene.compute(0.1))[0].digest == digest_of(5)


def test_update_ends_the_trials_of_its_step(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(update(4))
    effects = scene.compute(0.1)
    assert replies(Result, effects) == []
    assert isinstance(scene.under_way, Apply)
    assert scene.compute(0.1) == []


def test_slice_of_the_last_step_is_not_taken_for_the_next(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(update(4), assignment(5))
    assert replies(Result, scene.compute(0.1)) == []
    scene.compute(0.1)
    assert scene.trials is not None
    assert scene.trials.first_member == FIRST


def test_slice_of_a_population_that_was_given_up_is_not_sent(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(assignment(4, first_member=FIRST + QUOTA))
    assert replies(Result, scene.compute(0.1)) == []
    (result,) = replies(Result, scene.compute(0.1))
    assert result.first_member == FIRST + QUOTA


def test_block_between_two_slices_is_stored(scene: Scene) -> None:
    scene.hear(assignment(4))
    scene.hear(DATA)
    scene.compute(0.1)
    assert isinstance(scene.under_way, StoreBlock)
    scene.compute()
    assert scene.trials is not None


def test_trials_whose_sum_is_wanted_say_so_and_come_in_longer_slices(scene: Scene) -> None:
    shaping = Shaping("sign", 0.5)
    scene.hear(assignment(4, quota=GROUP * 1000, shaping=shaping))
    sizes = []
    for _ in range(2):
        assert scene.trials is not None
        assert scene.trials.shaping == shaping
        sizes.append(scene.trials.n_members)
        scene.compute(scene.trials.n_members / 800.0)
    assert sizes == [GROUP, SUM_SLICE_S * 800]


def test_trials_of_perturbed_activations_come_in_longer_slices(scene: Scene) -> None:
    perturbation = Perturbation(0.25, 0, space="activations")
    scene.hear(assignment(4, quota=GROUP * 1000, perturbation=perturbation))
    sizes = []
    for _ in range(2):
        assert scene.trials is not None
        sizes.append(scene.trials.n_members)
        scene.compute(scene.trials.n_members / 800.0)
    assert sizes == [GROUP, SUM_SLICE_S * 800]


def test_result_says_how_long_the_assignment_has_been_here(scene: Scene) -> None:
    scene.hear(assignment(4))
    (first,) = replies(Result, scene.compute(0.5))
    (second,) = replies(Result, scene.compute(0.25))
    assert (first.busy_s, second.busy_s) == (0.5, 0.75)


def test_credit_is_kept_and_disturbs_nothing(scene: Scene) -> None:
    scene.hear(assignment(4))
    trials = scene.trials
    assert scene.worker.credit is None
    assert scene.hear(Credit(1, 2, 3, 4, 5)) == []
    assert scene.trials is trials
    assert scene.worker.credit == Credit(1, 2, 3, 4, 5)
