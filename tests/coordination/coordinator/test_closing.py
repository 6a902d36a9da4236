import math

import numpy as np
import pytest

from fedlearn.coordination.effects import AppendToJournal, ApplyUpdate, Broadcast, Left, Send
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.shaping import MAX_LOSS
from fedlearn.es.update import Update
from fedlearn.wire.messages import Assignment
from tests.coordination.coordinator.scene import GROUP, HALF, LIMIT, Scene, of, sent


def test_complete_step_is_journalled_before_it_is_sent_and_applied_after(pair: Scene) -> None:
    pair.report(1)
    effects = pair.report(2)
    kinds = [type(e.message) if isinstance(e, Send) else type(e) for e in effects]
    assert kinds == [AppendToJournal, Broadcast, Assignment, Assignment, ApplyUpdate]
    assert of(Broadcast, effects) == [Broadcast((1, 2), of(AppendToJournal, effects)[0].update)]
    assert of(AppendToJournal, effects)[0].update is of(ApplyUpdate, effects)[0].update


def test_update_counts_every_member_with_its_own_loss(pair: Scene) -> None:
    pair.report(2)
    pair.report(1, GROUP)
    effects = pair.report(1)
    update = sent(Update, effects)[0]
    assert update.step == 1
    assert update.spans == ((0, LIMIT),)
    # Losses ascend with member numbers: the first of each group has the best utility.
    groups = update.utilities.reshape(-1, GROUP)
    assert (np.diff(groups.astype(int), axis=1) < 0).all()


@pytest.mark.parametrize("way", ["killed", "goodbye"])
def test_what_a_volunteer_sent_before_it_left_counts_and_nobody_waits_for_the_rest(pair: Scene, way: str) -> None:
    pair.report(2)
    pair.report(1, GROUP)
    effects = pair.drop(1) if way == "killed" else pair.leave(1)
    assert Left("volunteer 1", "the line broke") in effects
    (update,) = sent(Update, effects)
    assert update.spans == ((0, GROUP), (HALF, HALF))
    assert of(Send, effects)[0].peer == 2
    pair.applied()
    assert pair.assignments[2].quota == LIMIT


def test_report_of_a_step_has_its_figures(pair: Scene) -> None:
    pair.join(3)  # contributes nothing to this step
    pair.report(1)
    pair.now += 2.5
    pair.report(2)
    spread = pair.journal[-1].shaping_scale
    assert spread > 0.0
    assert of(StepReport, pair.applied()) == [
        StepReport(step=1, loss=(LIMIT - 1) / 2, members=LIMIT, duration_s=2.5, volunteers=2, loss_spread=spread)
    ]


def test_one_false_group_does_not_show_in_the_loss(scene: Scene) -> None:
    scene.join(1)
    losses = np.resize(np.array([1, 2, 3, 4], dtype=np.float32), LIMIT)
    losses[:GROUP] = MAX_LOSS
    scene.report(1, losses=losses)
    (report,) = of(StepReport, scene.applied())
    assert report.loss == 2.5


def test_report_has_the_median_of_the_variance_left(pair: Scene) -> None:
    pair.report(1, GROUP, variance_left=0.5)
    pair.report(1, variance_left=0.25)
    pair.report(2, variance_left=-1.0)  # says nothing, and costs its sender nothing
    (report,) = of(StepReport, pair.applied())
    assert (report.variance_left, report.volunteers) == (0.5, 2)


def test_loss_is_that_of_the_groups_in_the_middle_and_broken_groups_count_zero(scene: Scene) -> None:
    scene.join(1)
    losses = np.resize(np.array([1, 2, 3, 4], dtype=np.float32), LIMIT)
    losses[: 2 * GROUP] = [math.nan, 1, 1, 1, math.inf, 1, 1, 5]
    scene.report(1, losses=losses)
    utilities = scene.journal[0].utilities
    assert not utilities[: 2 * GROUP].any()
    assert utilities[-GROUP:].any()
    (report,) = of(StepReport, scene.applied())
    assert report.loss == pytest.approx(2.5)
    assert report.members == LIMIT


@pytest.mark.parametrize("offset", [-1000.0, 0.0, 1000.0])
def test_losses_of_either_sign_count_alike(scene: Scene, offset: float) -> None:
    scene.join(1)
    losses = np.resize(np.array([1, 2, 3, 5], dtype=np.float32), LIMIT)
    scene.report(1, losses=losses + np.float32(offset))
    assert scene.journal[0].utilities[:GROUP].tolist() == [33, 14, -5, -42]
    (report,) = of(StepReport, scene.applied())
    assert report.loss == pytest.approx(2.75 + offset)


@pytest.mark.parametrize("sign", [-1, 1])
def test_loss_beyond_the_bound_breaks_its_group(scene: Scene, sign: int) -> None:
    scene.join(1)
    losses = np.resize(np.array([1, 2, 3, 4], dtype=np.float32), LIMIT)
    losses[1] = sign * np.float32(MAX_LOSS)
    losses[GROUP + 1] = np.nextafter(losses[1], np.float32(sign * np.inf))
    scene.report(1, losses=losses)
    groups = scene.journal[0].utilities.reshape(-1, GROUP)
    assert groups.any(axis=1).tolist() == [True, False, *[True] * (len(groups) - 2)]


def test_step_without_any_finite_loss_goes_by(scene: Scene) -> None:
    scene.join(1)
    scene.report(1, losses=np.full(LIMIT, math.nan, dtype=np.float32))
    assert not scene.journal[0].utilities.any()
    assert math.isfinite(scene.journal[0].gradient_scale)
    (report,) = of(StepReport, scene.applied())
    assert report.loss is None
    assert scene.assignments[1].step == 1
