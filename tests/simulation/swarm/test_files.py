import pytest

from fedlearn.config import RunConfig
from fedlearn.server import history
from fedlearn.server.run import Run
from fedlearn.storage.checkpoint import latest_checkpoint
from fedlearn.storage.journal import Journal, read_journal
from tests.runs import created, reopened
from tests.simulation.swarm.stage import Stage, StageOf, journal_of


def test_replay_of_genesis_and_journal_equals_the_checkpoint(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=12)
    stage_of(run).train(volunteers=2)
    snapshot, problems = latest_checkpoint(run.folder)
    holding, last = history.replay(run)
    assert (snapshot.step, problems) == (12, [])
    assert holding.replica.digest == snapshot.digest
    assert last is not None
    assert last.step == 11


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
    assert latest_checkpoint(parts.folder)[0].digest == latest_checkpoint(whole.folder)[0].digest


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
    content = broken.folder.journal.read_bytes()
    broken.folder.journal.write_bytes(content[:-10])
    stage = stage_of(reopened(broken)).train()
    assert ["torn last record" in notice for notice in stage.notices] == [True]
    assert stage.swarm.metrics[0].step == 8
    assert journal_of(broken) == journal_of(whole)
    assert latest_checkpoint(broken.folder)[0].digest == latest_checkpoint(whole.folder)[0].digest


def test_damaged_checkpoint_is_passed_over_with_a_notice(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=10)
    digest = stage_of(run).train().trainer.replica.digest
    (path,) = run.folder.checkpoints.iterdir()
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    stage = stage_of(reopened(run))
    stage.close()
    assert ["checkpoint passed over" in notice and path.name in notice for notice in stage.notices] == [True]
    assert (stage.trainer.replica.step, stage.trainer.replica.digest) == (10, digest)


@pytest.mark.parametrize("journal", ["short", "lost"])
def test_checkpoint_ahead_of_the_journal_is_set_aside(config: RunConfig, stage_of: StageOf, journal: str) -> None:
    run = created(config, steps=10, checkpoint_time=1.0)
    stage = stage_of(run)
    stage.join()
    for step in (2, 4, 8):
        stage.go_to(step)
        stage.clock.now += 1.0
    stage.settle()
    stage.close()
    saved = sorted(int(path.stem) for path in run.folder.checkpoints.iterdir())
    if journal == "short":
        cut_journal(run, 7)
    else:
        run.folder.journal.unlink()
    end = 7 if journal == "short" else 0
    again = stage_of(reopened(run, steps=12))
    assert again.trainer.replica.step == end
    assert again.trainer.replica.digest == history.replay(run)[0].replica.digest
    later = [step for step in saved if step > end]
    assert later
    (notice,) = again.notices
    assert f"ends at step {end}, before the newest checkpoint" in notice
    assert all(f"{step:012d}.set-aside" in notice for step in later)
    earlier = [run.folder.checkpoints / f"{step:012d}.safetensors" for step in saved if step <= end]
    assert all(path.exists() for path in earlier)
    assert (journal == "short") == bool(earlier)
    again.join()
    again.settle()
    again.close()
    assert latest_checkpoint(run.folder)[0].digest == history.replay(run)[0].replica.digest
    assert latest_checkpoint(run.folder)[0].step == 12


def cut_journal(run: Run, step: int) -> None:
    """Takes the last Updates away, as a disk may that lied about what it had written."""
    updates = [update for update in read_journal(run.folder.journal) if update.step < step]
    run.folder.journal.unlink()
    with Journal.open(run.folder.journal) as journal:
        for update in updates:
            journal.append(update)
