"""What a relay makes of volunteers that are late, gone or false, and of a line that breaks."""

from typing import Any

import numpy as np
import pytest

from fedlearn.client.performer import Computed
from fedlearn.config import RunConfig
from fedlearn.coordination.effects import Compute, Evaluate
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.work import slices
from fedlearn.es.trials import TrialResults
from fedlearn.es.update import Update
from fedlearn.simulation.swarm import Participant
from fedlearn.storage.journal.journal import read_journal
from fedlearn.wire.messages import DataBlock, Result, Start
from tests.relay.branch import Branch, add_to
from tests.relay.test_equality import STEPS, WAYS, digest_of, finish, flat, relay_of
from tests.run_folders import created
from tests.simulation.swarm.stage import Stage, StageOf

way = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def _groups_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    monkeypatch.setattr(slices, "SUM_SLICE_S", 0.0)


def peopled(stage: Stage, n_volunteers: int = 4, **given: Any) -> tuple[Branch, list[Participant]]:  # noqa: ANN401
    """A relay with volunteers, all of whom have taken part in two steps."""
    relay = relay_of(stage, **given)
    volunteers = [relay.join(f"volunteer {number}") for number in range(n_volunteers)]
    stage.go_to(2)
    return relay, volunteers


def until_it_has_work(stage: Stage, participant: Participant) -> None:
    """Until trials wait for it, which it will not begin."""
    participant.is_stalled = True
    while not participant._computes:
        assert stage.advance()


@way
def test_members_of_a_volunteer_that_dies_are_leased_again(
    config: RunConfig, stage_of: StageOf, settings: dict[str, Any]
) -> None:
    digests = flat(stage_of, created(config, steps=STEPS, **settings))
    stage = stage_of(created(config, steps=STEPS, **settings))
    relay, volunteers = peopled(stage)
    until_it_has_work(stage, volunteers[0])
    stage.settle()
    assert stage.trainer.replica.step == relay.assigned[-1].step < STEPS
    relay.kill(volunteers[0])
    assert finish(stage) == digests
    assert {metrics.members for metrics in stage.swarm.metrics} == {64}


@way
def test_members_of_a_late_volunteer_are_leased_again_and_it_goes_on(
    config: RunConfig, stage_of: StageOf, settings: dict[str, Any]
) -> None:
    digests = flat(stage_of, created(config, steps=STEPS, **settings))
    stage = stage_of(created(config, steps=STEPS, **settings))
    relay, volunteers = peopled(stage)
    until_it_has_work(stage, volunteers[0])
    stage.settle()
    step = stage.trainer.replica.step
    stage.clock.now += 0.2  # of a step in which the others were at once
    stage.go_to(step + 1)
    volunteers[0].is_stalled = False
    assert finish(stage) == digests
    assert digest_of(volunteers[0]) == digests[-1]
    assert [notice for notice in relay.notices if "sent away" in notice or "drifted" in notice] == []


@way
def test_without_anybody_to_lease_them_again_members_are_missing_and_digests_equal(
    config: RunConfig, stage_of: StageOf, settings: dict[str, Any]
) -> None:
    run = created(config, steps=STEPS, **settings)
    stage = stage_of(run)
    relay, (first, second) = peopled(stage, 2)
    until_it_has_work(stage, second)
    while len(first._computes) == 0 or not relay.metrics or first.volunteer.replica is None:
        assert stage.advance()
    until_it_has_work(stage, first)
    step = stage.trainer.replica.step
    first.is_stalled = False
    work = relay.participants[1].worker._work
    assert isinstance(work, slices.LeaseSlices)
    while not work._n_done:
        assert stage.advance()
    first.is_stalled = True
    stage.settle()
    stage.clock.now += config.strategy.time_per_step
    stage.go_to(step + 1)
    metrics = stage.swarm.metrics[step]
    assert 0 < metrics.members < 64
    first.is_stalled = second.is_stalled = False
    digests = finish(stage)
    assert [digest_of(each) for each in (relay, first, second)] == [digests[-1]] * 3
    update = list(read_journal(run.folder.journal))[step]
    assert update.spans == ((0, metrics.members),)


def test_what_is_handed_up_continues_where_the_last_ended(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=STEPS, exchange="sum"))
    relay, _ = peopled(stage)
    finish(stage)
    at: dict[int, int] = {}
    for result in relay.handed_up:
        assert result.first_member == at.get(result.step, 0)
        at[result.step] = result.first_member + result.losses.size
    assert set(at.values()) == {64}


def test_relay_that_was_cut_off_catches_up_and_its_volunteers_with_it(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=12))
    relay, volunteers = peopled(stage)
    stage.join()
    stage.go_to(5)
    stage.swarm.kill(next(p for p in stage.swarm.participants.values() if p.link is relay.link))
    relay.cut()
    stage.go_to(8)
    relay.connect()
    add_to(stage.swarm, relay)
    digests = finish(stage)
    assert [digest_of(relay), *map(digest_of, volunteers)] == [digests[-1]] * 5
    assert [volunteer.worker.n_steps for volunteer in volunteers] == [12] * 4
    assert relay.metrics[-1].volunteers > 0
    assert not any("replaced" in notice for each in volunteers for notice in each.notices)


def test_whoever_comes_back_to_a_relay_is_sent_the_updates_that_it_missed(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=12))
    relay, _ = peopled(stage)
    assert relay.keeper is not None
    replica = relay.volunteer.replica
    assert replica is not None
    held = Held(replica.step, replica.digest)
    while replica.step < held.step + 3:
        assert stage.advance()
    missed = relay.keeper.missed(held)
    assert missed is not None
    (start, _), *updates = missed
    assert start == Start(held.digest, held.step, held.step + 3, keeps_start=False)
    assert [message.step for message, _ in updates if isinstance(message, Update)] == [2, 3, 4]
    assert relay.keeper.missed(Held(held.step, b"otherwis")) is None
    assert replica.layout.is_masked
    relay.blocks.keep(DataBlock(b"another block", b""))
    assert relay.keeper.missed(held) is None  # the row masks of each step follow from its block, and one is sent


def test_relay_that_is_sent_other_weights_sends_them_on(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=12))
    relay, volunteers = peopled(stage)
    stage.join()
    assert relay.volunteer.replica is not None
    relay.volunteer.replica.weights[0] += 1.0
    digests = finish(stage)
    assert [digest_of(relay), *map(digest_of, volunteers)] == [digests[-1]] * 5
    assert any("drifted" in notice for notice in stage.swarm.notices)
    assert all(any("replaced" in notice for notice in volunteer.notices) for volunteer in volunteers)


def test_relay_without_volunteers_is_not_waited_for(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=STEPS))
    relay = relay_of(stage)
    stage.join()
    digests = finish(stage)
    assert relay.assigned == []
    assert digest_of(relay) == digests[-1]


def test_false_losses_below_never_go_up(config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch) -> None:
    run = created(config, steps=STEPS, audit=1.0)
    stage = stage_of(run)
    relay = relay_of(stage, audit=1.0)
    liar, *honest = [relay.join(name) for name in ("Eve", "Ada", "Bob")]
    perform = liar.volunteer.perform

    def lie(compute: Compute) -> Computed:
        results = perform(compute)
        if isinstance(compute, Evaluate):
            assert isinstance(results, TrialResults)
            return TrialResults(np.full_like(results.losses, 77.0), results.estimate)
        return results

    monkeypatch.setattr(liar.volunteer, "perform", lie)
    digests = finish(stage)
    assert [digest_of(each) for each in honest] == [digests[-1]] * 2
    assert any("Eve: results of step" in notice for notice in relay.notices)
    assert not any("were false" in notice for notice in stage.swarm.notices)
    assert all((result.losses != 77.0).all() for result in relay.handed_up if isinstance(result, Result))


def test_step_under_way_when_the_line_broke_is_worked_on_anew(config: RunConfig, stage_of: StageOf) -> None:
    stage = stage_of(created(config, steps=STEPS))
    relay, volunteers = peopled(stage)
    for volunteer in volunteers:
        until_it_has_work(stage, volunteer)
    stage.settle()
    stage.swarm.kill(next(p for p in stage.swarm.participants.values() if p.link is relay.link))
    relay.cut()
    for volunteer in volunteers:
        volunteer.is_stalled = False
    relay.settle()
    relay.connect()
    add_to(stage.swarm, relay)
    assert len(finish(stage)) == STEPS
    assert {digest_of(relay), *map(digest_of, volunteers)} == {stage.swarm.metrics[-1].digest}
    # Under other numbers: what was under way may still have come.
    _, _, anew, *_ = read_journal(stage.trainer.run.folder.journal)
    assert anew.spans == ((64, 64),)
    assert not any("sent away" in notice for notice in relay.notices)
