import pytest

from fedlearn.config import RunConfig
from fedlearn.runs import history
from fedlearn.storage.checkpoint import latest_checkpoint
from fedlearn.storage.journal.journal import read_journal
from fedlearn.storage.journal.segment import read_places
from tests.run_folders import created, reopened
from tests.simulation.swarm.stage import Stage, StageOf, journal_of


def test_replay_of_genesis_and_journal_equals_the_checkpoint(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=12)
    stage_of(run).train(volunteers=2)
    checkpoint, problems = latest_checkpoint(run.folder)
    rebuilt = history.replay(run)
    assert (checkpoint.step, problems) == (12, {})
    assert rebuilt.holding.replica.digest == checkpoint.snapshot.digest
    assert rebuilt.last is not None
    assert rebuilt.last.step == 11


def test_resumed_run_ends_where_an_uninterrupted_one_does(config: RunConfig, stage_of: StageOf) -> None:
    config = config.replace({"learning_rate_schedule": "constant"})  # which knows of no end
    whole = created(config, steps=40)
    stage_of(whole).train()
    parts = created(config, steps=20)
    stage_of(parts).train()
    stage = stage_of(reopened(parts, steps=40)).train()
    assert stage.notices == []
    assert stage.swarm.metrics[0].step == 20
    assert journal_of(parts) == journal_of(whole)
    assert latest_checkpoint(parts.folder)[0].snapshot.digest == latest_checkpoint(whole.folder)[0].snapshot.digest


def test_run_stopped_in_the_midst_goes_on_where_it_stopped(config: RunConfig, stage_of: StageOf) -> None:
    config = config.replace({"learning_rate_schedule": "constant"})
    whole = created(config, steps=20)
    stage_of(whole).train()
    stopped = created(config, steps=0)
    stage = stage_of(stopped)
    participant = stage.join()
    stage.go_to(7)
    stage.swarm.stop("Ctrl-C")
    stage.close()
    assert stage.swarm.reason == "Ctrl-C"
    assert participant.left_by is not None
    assert (participant.left_by.reason, participant.left_by.is_welcome_back) == ("Ctrl-C", True)
    assert reopened(stopped).config.run.step_num == stage.trainer.replica.step >= 7
    stage_of(reopened(stopped, steps=20)).train()
    assert journal_of(stopped) == journal_of(whole)


def test_seconds_of_training_go_on_where_a_killed_server_left_them(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, duration=8.0, learning_rate_schedule="linear", sigma_schedule="linear")
    for end in (3, 1000):
        stage = stage_of(reopened(run))
        stage.join()
        while stage.swarm.reason is None and stage.trainer.replica.step < end:
            stage.clock.now += 0.125
            assert stage.advance()
        stage.close()
    assert stage.swarm.reason == "the 8 s of training are over"
    updates = list(read_journal(run.folder.journal))
    begins = [0.0, *(update.elapsed_s for update in updates)]
    assert begins == sorted(set(begins))
    assert begins[-2] < 8.0 <= begins[-1]
    rates = [0.02 * (1 - begin / 8.0) for begin in begins[:-1]]
    assert [update.optimizer.learning_rate for update in updates] == pytest.approx(rates)
    assert stage_of(reopened(run)).train().swarm.metrics == []


def test_run_that_is_complete_ends_at_once_when_it_is_reopened(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=3)
    stage_of(run).train()
    stage = stage_of(reopened(run)).train()
    assert stage.swarm.metrics == []


def crash(stage: Stage, step: int) -> None:
    """The server is killed when its replica is at this step."""
    stage.join()
    stage.go_to(step)
    stage.close()


def test_crash_without_a_checkpoint_loses_no_step_in_the_journal(config: RunConfig, stage_of: StageOf) -> None:
    whole, broken = (created(config, steps=15) for _ in range(2))
    stage_of(whole).train()
    crash(stage_of(broken), 9)
    stage = stage_of(reopened(broken)).train()
    assert stage.swarm.metrics[0].step == 9
    assert journal_of(broken) == journal_of(whole)


def test_torn_end_of_the_journal_is_cut_with_a_notice_and_training_goes_on(
    config: RunConfig, stage_of: StageOf
) -> None:
    whole, broken = (created(config, steps=15) for _ in range(2))
    stage_of(whole).train()
    crash(stage_of(broken), 9)
    (segment,) = broken.folder.journal.iterdir()
    segment.write_bytes(segment.read_bytes()[:-10])
    stage = stage_of(reopened(broken)).train()
    assert ["incomplete last record" in notice for notice in stage.notices] == [False, True]
    assert "are an incomplete step" in stage.notices[0]
    assert stage.swarm.metrics[0].step == 8
    assert journal_of(broken) == journal_of(whole)
    assert latest_checkpoint(broken.folder)[0].snapshot.digest == latest_checkpoint(whole.folder)[0].snapshot.digest


def test_damaged_checkpoint_is_passed_over_with_a_notice(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=10)
    digest = stage_of(run).train().trainer.replica.digest
    (path,) = run.folder.checkpoints.iterdir()
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    stage = stage_of(reopened(run))
    stage.close()
    assert "checkpoint skipped" in stage.notices[0]
    assert "set aside" in stage.notices[1]
    assert [path.name in notice for notice in stage.notices] == [True, True]
    assert (stage.trainer.replica.step, stage.trainer.replica.digest) == (10, digest)


@pytest.mark.parametrize("journal", ["short", "lost"])
def test_run_whose_journal_ends_before_the_newest_checkpoint_goes_on_from_the_checkpoint(
    config: RunConfig, stage_of: StageOf, journal: str
) -> None:
    run = created(config, steps=10)
    digest = stage_of(run).train().trainer.replica.digest
    (segment,) = run.folder.journal.iterdir()
    if journal == "short":
        ends = [place.end for place in read_places(segment)]
        segment.write_bytes(segment.read_bytes()[: ends[6]])
    else:
        segment.unlink()
    again = stage_of(reopened(run, steps=12))
    assert (again.trainer.replica.step, again.trainer.replica.digest) == (10, digest)
    assert again.notices == ["journal: it ends before step 10; a new segment begins there"]
    again.train()
    rebuilt = history.replay(run)
    assert (rebuilt.begun.step, rebuilt.holding.replica.step) == (10, 12)
    assert latest_checkpoint(run.folder)[0].snapshot.digest == rebuilt.holding.replica.digest
