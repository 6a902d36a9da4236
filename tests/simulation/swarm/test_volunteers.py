import pytest

from fedlearn.client.performer import Computed
from fedlearn.config import RunConfig
from fedlearn.coordination.effects import Apply, Compute
from fedlearn.coordination.work.slices import SLICE_S
from tests.run_folders import created
from tests.simulation.swarm.stage import StageOf, slow_down


def test_stalled_volunteer_is_cut_at_the_deadline_and_follows_again(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=12))
    steady, stalled = stage.join(), stage.join()
    stage.go_to(5)
    stalled.is_stalled = True
    stage.settle()
    step = stage.trainer.replica.step
    stage.clock.now += config.strategy.time_per_step
    stage.go_to(step + 1)
    metrics = stage.swarm.metrics[-1]
    assert (metrics.volunteers, metrics.step) == (1, step)
    assert 0 < metrics.members < config.strategy.population_limit
    stalled.is_stalled = False
    stage.settle()
    stage.close()
    assert stage.drifted() == []
    assert stage.followed(stalled) == stage.followed(steady) == list(range(1, 13))


def test_trials_are_cut_into_slices_by_the_time_they_take(
    config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(created(config, steps=3, population_limit=256))
    participant = stage.join()
    slices = slow_down(participant, stage.clock, 256.0, monkeypatch)
    stage.settle()
    assert sum(slices) == 3 * 256
    assert max(slices) == SLICE_S * 256.0
    assert stage.clock.now == 3.0


def test_what_a_killed_volunteer_sent_counts_and_the_others_go_on(
    config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(created(config, steps=6, population_limit=256))
    killed, steady = stage.join(), stage.join()
    for participant in (steady, killed):
        slow_down(participant, stage.clock, 200.0, monkeypatch)
    stage.go_to(3)
    started = stage.clock.now
    while stage.clock.now < started + 2 * SLICE_S:
        stage.advance()
    stage.swarm.kill(killed)
    late = stage.join()
    stage.settle()
    stage.close()
    cut, after = stage.swarm.metrics[3:5]
    assert cut.volunteers == 2
    assert cut.members < 256
    assert after.members == 256
    assert all(min(metrics.bytes_in, metrics.bytes_out) > 0 for metrics in stage.swarm.metrics)
    assert stage.followed(killed) == [1, 2, 3]
    assert stage.followed(steady) == list(range(1, 7))
    assert stage.followed(late)[-1] == 6
    assert stage.clock.now < config.strategy.time_per_step


def test_volunteer_that_says_goodbye_is_not_waited_for(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=6))
    stage.join()
    leaving = stage.join()
    stage.go_to(3)
    leaving.leave("Ctrl-C")
    stage.advance()
    assert leaving not in stage.swarm.participants.values()
    stage.settle()
    stage.close()
    assert "volunteer 1 left: Ctrl-C" in stage.swarm.notices
    assert stage.swarm.metrics[-1].members == config.strategy.population_limit
    assert stage.clock.now == 0.0


def test_late_joiner_holds_the_same_weights_and_contributes(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=12))
    stage.join()
    stage.go_to(5)
    late = stage.join()
    stage.settle()
    stage.close()
    assert stage.drifted() == []
    first = stage.followed(late)[0]
    assert 5 <= first <= 7
    assert stage.followed(late) == list(range(first, 13))
    assert stage.swarm.metrics[-1].volunteers == 2


def test_drifted_replica_is_noticed_resynchronised_and_counts_again(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=16))
    stage.join()
    drifting = stage.join()
    stage.go_to(5)
    replica = drifting.volunteer.replica
    assert replica is not None
    replica.weights[3] += 1e-3
    stage.settle()
    stage.close()
    assert len([notice for notice in stage.swarm.notices if "volunteer 1 drifted" in notice]) == 1
    joined, resynchronised = drifting.notices
    assert joined.startswith("joined run 1 at step 0: ")
    assert "resynchronises" in resynchronised
    # Its own trials of the step at hand are a little off, which no digest shows; then it is found out.
    assert {number for number, _ in stage.drifted()} == {1}
    steps = [step for _, step in stage.drifted()]
    assert 1 <= len(steps) <= 2
    assert stage.followed(drifting)[-8:] == list(range(9, 17))
    assert [metrics.volunteers for metrics in stage.swarm.metrics].count(1) <= 4
    assert stage.swarm.metrics[-1].volunteers == 2


def test_volunteer_with_wrong_arithmetic_is_sent_away(
    config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(created(config, steps=40))
    stage.join()
    wrong = stage.join()
    perform = wrong.volunteer.perform

    def perform_wrongly(compute: Compute) -> Computed:
        result = perform(compute)
        if isinstance(compute, Apply):
            assert wrong.volunteer.replica is not None
            wrong.volunteer.replica.weights[0] += 1e-6
            return wrong.volunteer.replica.digest
        return result

    monkeypatch.setattr(wrong.volunteer, "perform", perform_wrongly)
    stage.settle()
    stage.close()
    assert wrong.left_by is not None
    assert wrong.left_by.is_refusal
    assert "its arithmetic can't be trusted" in wrong.left_by.reason
    assert stage.swarm.metrics[-1].members == config.strategy.population_limit
