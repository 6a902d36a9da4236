import re

import pytest

from fedlearn.commands.look.replay import replay_command
from fedlearn.config import RunConfig
from fedlearn.runs.run import Run
from fedlearn.storage.journal.segment import HEADER_BYTES, read_places, segments_in
from tests.commands.recorded_run import damage_checkpoint, options_of, recorded_run
from tests.storage.journals import flip


def test_replay_goes_to_the_journals_end(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_command(options_of(run)) == 0
    assert re.search(r"step 5: digest .*\nequal to .* in metrics\.jsonl", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("step", "source"), [(1, "genesis.safetensors"), (2, "metrics.jsonl"), (3, "000000000003.safetensors")]
)
def test_replay_to_a_step_is_compared_with_what_was_recorded_of_it(
    run: Run, capsys: pytest.CaptureFixture[str], step: int, source: str
) -> None:
    assert replay_command(options_of(run, step=step)) == 0
    assert re.search(rf"step {step}: digest .*\nequal to .* in {source}", capsys.readouterr().out)


def test_replay_of_other_weights_than_recorded_fails(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run.folder.metrics.read_text().splitlines()
    run.folder.metrics.write_text("\n".join([*lines[:-1], re.sub('"digest":"..', '"digest":"00', lines[-1])]) + "\n")
    assert replay_command(options_of(run)) == 1
    assert "DIFFERENT from" in capsys.readouterr().out


@pytest.mark.parametrize(("n_lines", "step", "source"), [(3, 4, "metrics.jsonl"), (0, 3, "000000000003.safetensors")])
def test_replay_of_a_run_whose_server_was_killed_compares_what_was_recorded_last(
    run: Run, capsys: pytest.CaptureFixture[str], n_lines: int, step: int, source: str
) -> None:
    lines = run.folder.metrics.read_text().splitlines(keepends=True)
    run.folder.metrics.write_text("".join(lines[:n_lines]))
    assert replay_command(options_of(run)) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"step {step}: digest .*\nequal to .* in {source}\nthe journal goes on to step 5", shown)


def test_replay_without_anything_to_compare_with_fails(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.folder.metrics.unlink()
    for checkpoint in run.folder.checkpoints.iterdir():
        checkpoint.unlink()
    assert replay_command(options_of(run)) == 1
    assert "nothing to compare it with" in capsys.readouterr().out


def test_replay_names_an_unreadable_checkpoint_and_fails(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    name = damage_checkpoint(run)
    assert replay_command(options_of(run)) == 1
    shown = capsys.readouterr().out
    assert name in shown
    assert "equal to" in shown


def test_replay_names_a_journal_that_ends_before_the_newest_checkpoint(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for segment in run.folder.journal.iterdir():
        segment.unlink()
    assert replay_command(options_of(run)) == 1
    shown = capsys.readouterr().out
    assert "it ends at step 1, before checkpoint 3" in shown
    assert "goes on" not in shown


@pytest.mark.parametrize(("step", "expected"), [(0, "1 or more"), (-1, "1 or more"), (6, "at most 5")])
def test_replay_to_a_step_outside_the_run_is_refused(run: Run, step: int, expected: str) -> None:
    with pytest.raises(ValueError, match=f"--step: expected {expected}, where .* got {step}"):
        replay_command(options_of(run, step=step))


def test_replay_of_a_run_whose_first_segments_are_gone_says_where_it_begins(
    config: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded_run(config.replace({"keep_journal": "16KB"}), begin=0, end=60, checkpoints=(10, 30, 50))
    segments_in(run.folder.journal)[0].unlink()
    assert replay_command(options_of(run)) == 0
    assert re.search(
        r"step 60: digest \w+ from checkpoint 30, before which .* and journal\nequal to", capsys.readouterr().out
    )


def test_replay_of_a_damaged_journal_names_the_damage_and_fails(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (segment,) = segments_in(run.folder.journal)
    flip(segment, HEADER_BYTES + 20)
    assert replay_command(options_of(run)) == 1
    shown = capsys.readouterr().out
    assert f"skipped: {segment}: damaged at byte" in shown
    assert re.search(r"step 5: digest \w+ from checkpoint 3, .*\nequal to", shown)
    flip(segment, HEADER_BYTES + 20)
    flip(segment, [*read_places(segment)][3].begin + 20)
    assert replay_command(options_of(run)) == 1
    assert "its last" in capsys.readouterr().out
