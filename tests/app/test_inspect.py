import argparse
import re
from typing import Any

import msgspec
import numpy as np
import pytest

from fedlearn.app import history, inspect
from fedlearn.app import run as runs
from fedlearn.app.run import Run
from fedlearn.app.trainer import Trainer
from fedlearn.config import RunConfig
from fedlearn.coordination.effects import StepReport
from fedlearn.es.update import Update
from fedlearn.text.byte_tokenizer import ByteTokenizer
from fedlearn.text.language_model import Continuation


@pytest.fixture
def run(config: RunConfig) -> Run:
    """A run whose newest checkpoint is of step 3 and whose journal and metrics end at step 5."""
    run = runs.create(msgspec.structs.replace(config, step_num=1))
    (block,) = run.blocks
    trainer, _ = Trainer.open(run)
    for step in range(1, 5):
        utilities = np.arange(-8, 8, dtype=np.int8)
        update = Update(
            step, block, ((0, 16),), utilities, 1, 8, -0.1, "adam", 0.01, 0.9, 0.999, 1e-8, False, 0.0, 0.0, 1.0
        )
        trainer.append(update)
        digest = trainer.apply(update)
        report = StepReport(step, 1.0, members=16, duration_s=0.1, volunteers=1, digest=digest)
        trainer.record(report, bytes_in=0, bytes_out=0)
        if trainer.replica.step == 3:
            trainer.save_checkpoint()
    trainer.close()
    return run


def options_of(run: Run, **options: Any) -> argparse.Namespace:  # noqa: ANN401 (values of any flag)
    sampling = {"prompt": "the ", "length": 20, "seed": 1, "temperature": 0.8, "top_k": 0, "top_p": 1.0}
    others = {"beams": None, "length_normalised": False, "data": None, "step": None}
    return argparse.Namespace(**({"run": "1", "runs": run.config.runs} | sampling | others | options))


def damage_checkpoint(run: Run) -> str:
    (path,) = run.folder.checkpoints.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    return path.name


def test_eval_measures_the_weights_at_the_journals_end(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.eval_command(options_of(run)) == 0
    replica, _ = history.replay(run)
    expected = run.validation_bits_per_character(replica.weights, threads=1)
    assert f"step 5: {expected:.4f} bits/character" in capsys.readouterr().out


def test_sample_says_the_step_beside_the_text(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.sample_command(options_of(run)) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("the ")
    assert "step" not in shown.out
    assert shown.err == "run 1, step 5\n"


def test_damaged_checkpoint_is_told_beside_the_text(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    name = damage_checkpoint(run)
    assert inspect.sample_command(options_of(run)) == 0
    shown = capsys.readouterr()
    assert name not in shown.out
    assert name in shown.err
    assert "run 1, step 5" in shown.err


def test_sample_keeps_lines_and_replaces_what_a_terminal_would_obey(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = msgspec.structs.replace(run, dataset=msgspec.structs.replace(run.dataset, tokenizer=ByteTokenizer()))
    tokens = np.array(ByteTokenizer().encode("\x1b[2J\tb\r\nc\x9b\x7f"), dtype=np.uint16)
    monkeypatch.setattr(runs, "find", lambda *_: run)
    monkeypatch.setattr(inspect, "sample", lambda *_, **__: Continuation(tokens, 0.0, is_stopped=False))
    assert inspect.sample_command(options_of(run, prompt="")) == 0
    assert capsys.readouterr().out == "\ufffd[2J\tb\ufffd\nc\ufffd\ufffd\n"


@pytest.mark.parametrize(("flag", "value"), [("seed", -1), ("beams", 0), ("beams", 4097)])
def test_sample_names_the_flag_that_is_out_of_range(run: Run, flag: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"--{flag}: expected .* got {value}"):
        inspect.sample_command(options_of(run, **{flag: value}))


def test_replay_goes_to_the_journals_end(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.replay_command(options_of(run)) == 0
    assert re.search(r"step 5: digest .*\nequal to .* in metrics\.jsonl", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("step", "source"), [(1, "genesis.safetensors"), (2, "metrics.jsonl"), (3, "000000000003.safetensors")]
)
def test_replay_to_a_step_is_compared_with_what_was_recorded_of_it(
    run: Run, capsys: pytest.CaptureFixture[str], step: int, source: str
) -> None:
    assert inspect.replay_command(options_of(run, step=step)) == 0
    assert re.search(rf"step {step}: digest .*\nequal to .* in {source}", capsys.readouterr().out)


def test_replay_of_other_weights_than_recorded_fails(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run.folder.metrics.read_text().splitlines()
    run.folder.metrics.write_text("\n".join([*lines[:-1], re.sub('"digest":"..', '"digest":"00', lines[-1])]) + "\n")
    assert inspect.replay_command(options_of(run)) == 1
    assert "DIFFERENT from" in capsys.readouterr().out


@pytest.mark.parametrize(("n_lines", "step", "source"), [(3, 4, "metrics.jsonl"), (0, 3, "000000000003.safetensors")])
def test_replay_of_a_run_whose_server_was_killed_compares_what_was_recorded_last(
    run: Run, capsys: pytest.CaptureFixture[str], n_lines: int, step: int, source: str
) -> None:
    lines = run.folder.metrics.read_text().splitlines(keepends=True)
    run.folder.metrics.write_text("".join(lines[:n_lines]))
    assert inspect.replay_command(options_of(run)) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"step {step}: digest .*\nequal to .* in {source}\nthe journal goes on to step 5", shown)


def test_replay_without_anything_to_compare_with_fails(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.folder.metrics.unlink()
    for checkpoint in run.folder.checkpoints.iterdir():
        checkpoint.unlink()
    assert inspect.replay_command(options_of(run)) == 1
    assert "nothing to compare it with" in capsys.readouterr().out


def test_replay_names_an_unreadable_checkpoint_and_fails(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    name = damage_checkpoint(run)
    assert inspect.replay_command(options_of(run)) == 1
    shown = capsys.readouterr().out
    assert name in shown
    assert "equal to" in shown


def test_replay_names_a_journal_that_ends_before_the_newest_checkpoint(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.folder.journal.unlink()
    assert inspect.replay_command(options_of(run)) == 1
    shown = capsys.readouterr().out
    assert "it ends at step 1, before checkpoint 3" in shown
    assert "goes on" not in shown


@pytest.mark.parametrize(("step", "expected"), [(0, "1 or more"), (-1, "1 or more"), (6, "at most 5")])
def test_replay_to_a_step_outside_the_run_is_refused(run: Run, step: int, expected: str) -> None:
    with pytest.raises(ValueError, match=f"--step: expected {expected}, where .* got {step}"):
        inspect.replay_command(options_of(run, step=step))
