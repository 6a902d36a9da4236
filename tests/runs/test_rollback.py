from pathlib import Path

import pytest

from fedlearn.config import RunConfig
from fedlearn.runs import history
from fedlearn.runs.rollback import roll_back
from fedlearn.runs.run import Run, load_run_config
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.checkpoint import checkpoints_in, step_of
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.segment import read_places, segments_in
from fedlearn.storage.logs.metrics import read_last_metrics
from tests.commands.recorded_run import recorded_run
from tests.run_folders import reopened, update_of
from tests.storage.journals import flip


@pytest.fixture
def run(config: RunConfig) -> Run:
    """A run of 40 steps in two segments, with checkpoints at 10, 20 and 30."""
    return recorded_run(config.replace({"keep_journal": "16KB"}), begin=0, end=40, checkpoints=(10, 20, 30))


def files_of(run: Run) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("step", [0, 1, 10, 15, 25, 39, 40])
def test_run_goes_on_from_the_step_it_was_taken_rebuilt_at(run: Run, step: int) -> None:
    digests = {line.step + 1: line.digest for line in read_last_metrics(run.folder.metrics, 100)}
    digests[0] = run.origin.digest
    aside = roll_back(run, step)
    assert load_run_config(run.folder).run.step_num == step
    assert all(line.step < step for line in read_last_metrics(run.folder.metrics, 100))
    assert all(step_of(path) <= step for path in checkpoints_in(run.folder))
    assert all((aside.folder / name).exists() for name in aside.names)
    assert history.rebuilt_at(reopened(run)).begun.step == (step if step < 40 else 40)
    trainer, notices = Trainer.open(reopened(run))
    assert (trainer.replica.step, trainer.replica.digest.hex(), notices) == (step, digests[step], [])
    update = update_of(run, step, elapsed_s=1.5)
    trainer.append(update)
    after = trainer.apply(update)
    trainer.close()
    assert history.replay(reopened(run)).holding.replica.digest == after


def test_everything_that_was_later_lies_in_a_folder(run: Run) -> None:
    before = files_of(run)
    aside = roll_back(run, 15)
    changed = {path for path, content in before.items() if not path.exists() or path.read_bytes() != content}
    changed -= {run.folder.config}
    assert {run.folder.path / name for name in aside.names} == changed
    assert all((aside.folder / name).read_bytes() == before[run.folder.path / name] for name in aside.names)


@pytest.mark.parametrize(("step", "expected"), [(-1, "0 or more"), (41, r"one .* at most 40 from .*30\.safetensors")])
def test_step_outside_the_run_is_refused_with_nothing_changed(run: Run, step: int, expected: str) -> None:
    before = files_of(run)
    with pytest.raises(StorageError, match=f"step: expected {expected}.*, got {step}"):
        roll_back(run, step)
    assert files_of(run) == before


def test_step_behind_damage_is_refused_with_the_last_one_before_it(run: Run) -> None:
    segment = segments_in(run.folder.journal)[0]
    flip(segment, [*read_places(segment)][12].begin + 20)
    with pytest.raises(StorageError, match=r"at most 12 from .*10\.safetensors, got 15; .*damaged at byte"):
        roll_back(run, 15)
    assert roll_back(run, 12).names


def test_taking_back_twice_is_as_once(run: Run) -> None:
    roll_back(run, 25)
    before = files_of(run)
    assert roll_back(run, 25).names == []
    assert files_of(run) == before


def test_kill_in_the_midst_leaves_a_run_that_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {line.step + 1: line.digest for line in read_last_metrics(run.folder.metrics, 100)}
    rename, n_left = Path.rename, 0

    def renamed(path: Path, target: Path) -> Path:
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    n_killed = 0
    while True:
        n_left = 1  # each time it comes one file further
        try:
            roll_back(run, 5)
            break
        except KeyboardInterrupt:
            n_killed += 1
        rebuilt = history.rebuilt_at(reopened(run))
        assert rebuilt.holding.replica.digest.hex() == digests[rebuilt.holding.replica.step]
        assert (rebuilt.holding.replica.step >= 5, rebuilt.problems) == (True, ())
    assert n_killed == 3
    assert history.rebuilt_at(reopened(run)).holding.replica.digest.hex() == digests[5]
