import shutil
from pathlib import Path

import msgspec
import pytest

from fedlearn.config import RunConfig
from fedlearn.runs import history
from fedlearn.runs.run import Run, load
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.checkpoint import checkpoints_in, read_checkpoint, write_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.journal import Journal
from fedlearn.storage.journal.segment import Header, read_places, segments_in
from fedlearn.storage.logs.metrics import read_last_metrics
from fedlearn.storage.runs import RunFolder
from tests.commands.recorded_run import recorded_run
from tests.run_folders import created, reopened, update_of
from tests.storage.journals import flip


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


@pytest.fixture
def digests(run: Run) -> list[bytes]:
    """Of the replica at steps 0 to 5, whose Updates are in the journal."""
    trainer, _ = Trainer.open(run)
    digests = [trainer.replica.digest]
    for step in range(5):
        trainer.append(update_of(run, step))
        digests.append(trainer.apply(update_of(run, step)))
    trainer.close()
    return digests


def test_replay_takes_every_step_of_the_journal_or_up_to_one(run: Run, digests: list[bytes]) -> None:
    for until in (None, *range(6)):
        step = 5 if until is None else until
        rebuilt = history.replay(run, until=until)
        assert (rebuilt.holding.replica.step, rebuilt.holding.replica.digest) == (step, digests[step])
        assert (rebuilt.last.step if rebuilt.last else -1) == step - 1
        assert (rebuilt.begun.step, rebuilt.problems) == (0, ())


def test_replay_of_a_run_without_a_journal_is_its_genesis(run: Run) -> None:
    rebuilt = history.replay(run)
    assert (rebuilt.holding.replica.digest, rebuilt.last) == (read_checkpoint(run.folder.genesis).snapshot.digest, None)


def test_journal_is_followed_from_where_the_replica_stands(run: Run, digests: list[bytes]) -> None:
    holding, problems = history.replay(run, until=2).holding, list[str]()
    last = history.follow_journal(run, holding, problems=problems)
    assert problems == []
    assert (holding.replica.step, holding.replica.digest) == (5, digests[5])
    assert last is not None
    assert last.step == 4


@pytest.fixture
def long(config: RunConfig) -> Run:
    """A run of 60 steps in segments of 22, with checkpoints at 10, 30 and 50."""
    return recorded_run(config.replace({"keep_journal": "16KB"}), begin=0, end=60, checkpoints=(10, 30, 50))


def digest_at(run: Run, step: int) -> bytes:
    (line,) = [line for line in read_last_metrics(run.folder.metrics, 100) if line.step + 1 == step]
    return bytes.fromhex(line.digest)


def damage_step(run: Run, step: int) -> Path:
    """Flips a byte of a step in the journal; gives its segment."""
    for segment in segments_in(run.folder.journal):
        for place in read_places(segment):
            if place.record.step == step:
                flip(segment, place.begin + 30)
                return segment
    raise AssertionError(step)


def test_newest_reads_only_what_is_behind_the_newest_checkpoint(long: Run) -> None:
    for segment in segments_in(long.folder.journal)[:-1]:
        segment.write_bytes(b"")
    for path in checkpoints_in(long.folder)[:-1]:
        path.write_bytes(b"")
    rebuilt = history.rebuilt_at(long)
    assert (rebuilt.holding.replica.step, rebuilt.holding.replica.digest) == (60, digest_at(long, 60))
    assert (rebuilt.begun.step, rebuilt.problems) == (50, ())


@pytest.mark.parametrize(("damaged", "end"), [(12, 60), (49, 60), (52, 52), (50, 50)])
def test_newest_goes_to_the_damage_behind_the_newest_checkpoint_and_tells(long: Run, damaged: int, end: int) -> None:
    damage_step(long, damaged)
    rebuilt = history.rebuilt_at(long)
    assert (rebuilt.holding.replica.step, rebuilt.holding.replica.digest) == (end, digest_at(long, end))
    is_met = damaged >= 44  # in the segment that is read
    assert any("damaged at byte" in problem for problem in rebuilt.problems) == is_met
    assert any(f"expected step {end}, the journal goes on" in problem for problem in rebuilt.problems) == (end < 60)


def test_newest_passes_over_a_damaged_checkpoint_and_tells(long: Run) -> None:
    flip(checkpoints_in(long.folder)[-1], -1)
    rebuilt = history.rebuilt_at(long)
    assert (rebuilt.begun.step, rebuilt.holding.replica.digest) == (30, digest_at(long, 60))
    (problem,) = rebuilt.problems
    assert problem.startswith("checkpoint skipped: ")
    assert "000000000050.safetensors" in problem


def test_last_update_comes_from_the_checkpoint_where_no_step_follows(long: Run) -> None:
    rebuilt = history.replay(long, until=50)
    assert rebuilt.last is not None
    for segment in segments_in(long.folder.journal):
        segment.unlink()
    alone = history.rebuilt_at(long)
    assert alone.last is not None
    assert (alone.holding.replica.step, alone.last.step) == (50, 49)
    assert (alone.last.elapsed_s, alone.last.shaping_scale) == (rebuilt.last.elapsed_s, rebuilt.last.shaping_scale)


def test_replay_begins_at_the_first_checkpoint_from_which_the_journal_is_whole(long: Run) -> None:
    segments_in(long.folder.journal)[0].unlink()
    rebuilt = history.replay(long)
    assert (rebuilt.begun.step, rebuilt.holding.replica.digest) == (30, digest_at(long, 60))
    assert rebuilt.problems == ()
    assert history.replay(long, until=10).begun.step == 10
    with pytest.raises(StorageError, match=r"journal is whole up to step 20, got none; it has steps 21 to 60; choose"):
        history.replay(long, until=20)


def test_replay_around_damage_begins_behind_it_and_tells(long: Run) -> None:
    segment = damage_step(long, 40)
    rebuilt = history.replay(long)
    assert (rebuilt.begun.step, rebuilt.holding.replica.digest) == (50, digest_at(long, 60))
    assert [problem.startswith(f"{segment}: damaged at byte") for problem in rebuilt.problems] == [True]
    assert history.replay(long, until=40).begun.step == 0


def test_every_step_is_compared_with_the_digest_that_the_journal_has_of_it(long: Run) -> None:
    with Journal.open(long.folder.journal, Header(long.origin.identity, 60, bytes(8))) as journal:
        for step in range(60, 63):
            journal.append(update_of(long, step), digest_at(long, 60) if step == 60 else bytes(8))
    complaint = (
        r"journal: expected step 61 to begin with digest [0-9a-f]{16}, as it was rebuilt, the journal has 0{16};"
    )
    with pytest.raises(StorageError, match=complaint):
        history.rebuilt_at(long)
    with pytest.raises(StorageError, match=complaint):
        history.replay(long)


def test_mixed_runs_are_refused_with_the_file_that_is_foreign(long: Run, config: RunConfig) -> None:
    other = recorded_run(config.replace({"seed": 2, "keep_journal": "16KB"}), begin=0, end=60, checkpoints=(55,))
    (foreign,) = checkpoints_in(other.folder)
    copy = long.folder.checkpoints / foreign.name
    copy.write_bytes(foreign.read_bytes())
    with pytest.raises(StorageError, match=f"{copy}: expected a checkpoint of this run"):
        history.rebuilt_at(long)
    copy.unlink()
    last = segments_in(long.folder.journal)[-1]
    last.write_bytes((other.folder.journal / last.name).read_bytes())
    with pytest.raises(StorageError, match=f"{last}: expected a segment of this run"):
        history.rebuilt_at(long)
    with pytest.raises(StorageError, match=f"{last}: expected a segment of this run"):
        history.replay(long)
    long.folder.genesis.write_bytes(other.folder.genesis.read_bytes())
    with pytest.raises(StorageError, match=r"genesis.*: expected a checkpoint of this run"):
        history.replay(long, until=20)


def test_copy_of_a_run_that_went_on_otherwise_is_refused(long: Run) -> None:
    copy = RunFolder(long.folder.path.parent / "2")
    shutil.copytree(long.folder.path, copy.path)
    for folder, scale in ((long.folder, -0.2), (copy, -0.3)):
        trainer, _ = Trainer.open(load(folder, long.config))
        for step in range(60, 63):
            update = msgspec.structs.replace(update_of(long, step), gradient_scale=scale)
            trainer.append(update)
            trainer.apply(update)
            if step == 60:
                trainer.save_checkpoint()
        trainer.close()
    newest = checkpoints_in(copy)[-1]
    (long.folder.checkpoints / newest.name).write_bytes(newest.read_bytes())
    with pytest.raises(
        StorageError, match=r"expected step 61 to begin with digest .* are not of one run: restore both"
    ):
        history.rebuilt_at(long)


def test_progress_is_told_each_step(long: Run) -> None:
    steps: list[int] = []
    history.rebuilt_at(long, progress=steps.append)
    assert steps == list(range(51, 61))


def test_checkpoint_whose_weights_are_not_those_of_its_digest_is_refused(long: Run) -> None:
    path = checkpoints_in(long.folder)[-1]
    checkpoint = read_checkpoint(path)
    other = msgspec.structs.replace(checkpoint.snapshot, digest=bytes(8))
    write_checkpoint(path, other, checkpoint.last, long.context(step=50))
    with pytest.raises(
        StorageError, match=f"{path}: expected weights of digest 0{{16}}, got .*; move it out of the folder"
    ):
        history.rebuilt_at(long)


def test_genesis_with_other_weights_than_the_run_was_begun_with_is_refused(long: Run) -> None:
    snapshot = read_checkpoint(long.folder.genesis).snapshot
    other = long.holding()
    other.load(msgspec.structs.replace(snapshot, weights=snapshot.weights + 1))
    write_checkpoint(long.folder.genesis, other.replica.snapshot(), None, long.context(step=0))
    with pytest.raises(StorageError, match=rf"genesis.*: expected weights of digest {long.origin.digest}, got"):
        history.replay(long)


def test_what_was_passed_over_when_the_run_was_opened_is_told(long: Run) -> None:
    long.folder.origin.unlink()
    for rebuilt in (history.rebuilt_at(reopened(long)), history.replay(reopened(long))):
        assert ["origin.json" in problem for problem in rebuilt.problems] == [True]
