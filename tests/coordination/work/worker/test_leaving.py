"""A person who leaves, rests, or can't keep up."""

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.effects import Apply, Evaluate, Leave
from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.messages import DataBlock, Goodbye, Result
from tests.coordination.work.scene import (
    BLOCK,
    FIRST,
    WELCOME,
    Scene,
    assignment,
    measured,
    of,
    replies,
    update,
)


@pytest.fixture
def at_work(scene: Scene) -> Scene:
    """A worker in the midst of a slice of step 5."""
    measured(scene, members_per_s=320.0)
    scene.hear(assignment(5))
    return scene


def test_whoever_leaves_hands_in_the_slice_under_way_and_begins_no_other(at_work: Scene) -> None:
    assert at_work.finish() == []
    effects = at_work.compute(0.25)
    (result,) = replies(Result, effects)
    assert (result.first_member, result.losses.size) == (FIRST, 80)
    assert replies(Goodbye, effects) == [Goodbye("Ctrl-C")]
    assert of(Leave, effects) == [Leave("Ctrl-C", is_welcome_back=False, is_refusal=False)]
    assert at_work.under_way is None


def test_whoever_has_nothing_under_way_leaves_at_once(scene: Scene) -> None:
    assert replies(Goodbye, scene.finish()) == [Goodbye("Ctrl-C")]
    assert scene.finish() == []


def test_orders_that_wait_are_not_carried_out_for_one_who_leaves(at_work: Scene) -> None:
    at_work.hear(update(5))
    at_work.finish()
    assert replies(Goodbye, at_work.compute())
    assert at_work.under_way is None


def test_slice_that_does_not_end_is_left_behind(at_work: Scene) -> None:
    at_work.finish()
    assert replies(Goodbye, at_work.stop()) == [Goodbye("Ctrl-C")]
    assert at_work.compute() == []
    assert at_work.wake() == []


def test_no_trials_begin_during_a_rest_but_steps_are_taken(at_work: Scene) -> None:
    at_work.worker.rest(at_work.now + 10.0)
    assert replies(Result, at_work.compute(0.25))
    assert at_work.under_way is None
    at_work.now += 9.7
    assert at_work.wake() == []
    assert at_work.trials is None
    assert of(Apply, at_work.hear(update(5)))
    at_work.compute()
    at_work.hear(assignment(6))
    assert at_work.trials is None
    at_work.now += 0.1
    (evaluate,) = of(Evaluate, at_work.wake())
    assert evaluate.trials.step == 6


def test_rest_is_no_part_of_the_speed(at_work: Scene) -> None:
    at_work.worker.rest(at_work.now + 5.0)
    at_work.compute(0.25)
    at_work.now += 5.0
    at_work.wake()
    assert at_work.trials is not None
    assert at_work.trials.n_members == 80


def test_bytes_that_wait_are_those_not_yet_begun(at_work: Scene) -> None:
    assert at_work.worker.bytes_waiting == 0
    at_work.hear(DataBlock(BLOCK, bytes(5000)), DataBlock(BLOCK, bytes(7000)))
    assert at_work.worker.bytes_waiting == 2 * 1024 + 12000
    at_work.compute()
    assert at_work.worker.bytes_waiting == 1024 + 7000
    at_work.compute()
    assert at_work.worker.bytes_waiting == 0


def test_spans_and_arrays_of_an_update_are_counted(at_work: Scene) -> None:
    spans = tuple((16 * number, 8) for number in range(800))
    many = msgspec.structs.replace(update(5), spans=spans, utilities=np.zeros(6400, dtype=np.int8))
    at_work.hear(many)
    assert at_work.worker.bytes_waiting == 101 * 1024 + 6400


def test_weights_and_slots_are_counted(stranger: Scene) -> None:
    weights = np.zeros(1000, dtype=np.float32)
    stranger.hear(WELCOME, Snapshot(4, bytes(8), weights, {"a": weights, "b": weights}, {}))
    assert stranger.worker.bytes_waiting == 1024 + 12000


def test_one_that_is_overwhelmed_may_come_back(at_work: Scene) -> None:
    effects = at_work.worker.fail("memory", is_welcome_back=True)
    assert of(Leave, effects) == [Leave("memory", is_welcome_back=True, is_refusal=True)]
