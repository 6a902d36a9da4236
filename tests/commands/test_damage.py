"""A flipped byte anywhere in a run's folder: what looks at the run comes to the right result, or says a sentence."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedlearn.commands.look.evaluate import eval_command
from fedlearn.commands.look.replay import replay_command
from fedlearn.commands.look.sample import sample_command
from fedlearn.config import RunConfig
from fedlearn.runs.run import Run, edited_settings, find, load_run_config
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.segment import segments_in
from fedlearn.storage.logs.metrics import read_last_metrics
from tests.commands.recorded_run import options_of, recorded_run

POSITIONS = 7
"""Of each file, evenly spread from its first byte to its last."""

SENTENCES = (StorageError, ValueError, OSError)
"""What the command line shows as one line, with exit code 1."""


@pytest.fixture
def run(config: RunConfig) -> Run:
    """A run of 60 steps in three segments, with checkpoints at 10, 30 and 50."""
    run = recorded_run(config.replace({"keep_journal": "16KB"}), begin=0, end=60, checkpoints=(10, 30, 50))
    assert len(segments_in(run.folder.journal)) > 2
    return run


def flipped(run: Run) -> Iterator[Path]:
    """Each file of the run in turn, with one byte altered at each of some positions."""
    for path in sorted(path for path in run.folder.path.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for number in range(POSITIONS):
            at = number * (len(whole) - 1) // (POSITIONS - 1)
            damaged = bytearray(whole)
            damaged[at] ^= 1 << number % 8
            path.write_bytes(damaged)
            yield path
        path.write_bytes(whole)


def said_of(command: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, output and what else was said: either a result, or the sentence in place of it."""
    try:
        code = command()
    except SENTENCES as error:
        code, sentence = 1, str(error)
    else:
        sentence = ""
    assert "\n" not in sentence
    shown = capsys.readouterr()
    return code, shown.out, shown.err + sentence


@pytest.mark.parametrize("verb", [sample_command, eval_command, replay_command])
def test_verbs_come_to_the_right_result_or_say_a_sentence(
    run: Run, capsys: pytest.CaptureFixture[str], verb: Callable[..., int]
) -> None:
    def act() -> int:
        return verb(options_of(run, seed=1))

    expected = said_of(act, capsys)
    assert expected[0] == 0
    outcomes = {"right": 0, "told": 0}
    for path in flipped(run):
        code, result, told = said_of(act, capsys)
        is_right = (result, told) == expected[1:]
        is_told = path.name in told + result or str(path.parent) in told or code == 1
        assert is_right or is_told, f"{path}: {result}{told}"
        assert code == 0 or told or result
        outcomes["right" if is_right else "told"] += 1
    print(f"{verb.__name__}: {outcomes}")
    assert min(outcomes.values()) > 10


def test_resuming_goes_on_from_a_good_state_or_says_a_sentence(run: Run, tmp_path: Path) -> None:
    digests = {line.step + 1: line.digest for line in read_last_metrics(run.folder.metrics, 100)}
    outcomes = {"whole": 0, "earlier": 0, "refused": 0}
    for path in flipped(run):
        root = tmp_path / "copies"
        shutil.copytree(run.folder.path, root / "1")
        try:
            copy = find(str(root), "1")
            edited = edited_settings(copy.folder, load_run_config(copy.folder))
            trainer, notices = Trainer.open(copy)
        except SENTENCES as error:
            outcome, sentence = "refused", str(error)
        else:
            trainer.close()
            step = trainer.replica.step
            assert trainer.replica.digest.hex() == digests[step], path
            assert step == 60 or notices, path
            assert edited or copy.config == run.config.replace({"step_num": copy.config.run.step_num}), path
            again, _ = Trainer.open(find(str(root), "1"))
            again.close()
            assert again.replica.digest == trainer.replica.digest
            outcome, sentence = ("whole" if step == 60 else "earlier"), "expected"
        assert re.search("expected|damaged|could not", sentence), f"{path}: {sentence}"
        outcomes[outcome] += 1
        shutil.rmtree(root)
    print(outcomes)
    assert outcomes["whole"] > 50
    assert min(outcomes.values()) > 0
