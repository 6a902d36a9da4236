import json
import re
import shutil

import pytest

from fedlearn.commands.look.check import check_command
from fedlearn.config import RunConfig, to_json
from fedlearn.runs.run import Run
from fedlearn.storage.checkpoint import checkpoints_in
from fedlearn.storage.journal.journal import Journal
from fedlearn.storage.journal.segment import Header, read_places, segments_in
from tests.commands.recorded_run import options_of, recorded_run
from tests.storage.journals import flip


def test_check_says_what_was_verified(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_command(options_of(run)) == 0
    shown = capsys.readouterr().out
    assert f"run 1: identity {run.origin.identity.hex()}, begun at step 1\n" in shown
    assert f"settings: {len(run.origin.settings)} are as the run began" in shown
    files = "blocks.json, dataset.json, kind, test.npy, tokenizer.json, train.npy, validation.npy"
    assert f"data: {files} are as the run began" in shown
    assert "genesis.safetensors: step 1, whole\n000000000003.safetensors: step 3, whole\n" in shown
    assert "journal: 1 segment, steps 1 to 5\n" in shown
    assert shown.endswith("all files are complete and belong together\n")


def test_check_names_all_that_is_damaged(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (segment,) = segments_in(run.folder.journal)
    flip(segment, [*read_places(segment)][1].begin + 20)
    flip(checkpoints_in(run.folder)[0], -1)
    run.folder.origin.unlink()
    assert check_command(options_of(run)) == 1
    shown = capsys.readouterr().out
    assert "journal: 1 segment, steps 1 to 2, 3 to 5\n" in shown
    problems = re.findall("^problem: (.*)", shown, re.MULTILINE)
    expected = "origin.json", "000000000003.safetensors", f"{segment}: damaged", "step 2 is missing"
    for problem, name in zip(problems, expected, strict=True):
        assert name in problem
    assert shown.endswith("4 problems\n")


def test_check_tells_programs_the_same(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_command(options_of(run, json=True)) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["run"], told["identity"], told["begun_at_step"]) == ("1", run.origin.identity.hex(), 1)
    assert told["found"][:2] == ["genesis.safetensors: step 1, whole", "000000000003.safetensors: step 3, whole"]
    assert told["changed"] == told["problems"] == []
    flip(checkpoints_in(run.folder)[0], -1)
    assert check_command(options_of(run, json=True)) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "000000000003.safetensors" in problem


def test_check_names_what_is_of_another_run(run: Run, config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    other = recorded_run(config.replace({"seed": 2}))
    for path in (run.folder.genesis, *checkpoints_in(run.folder), *segments_in(run.folder.journal)):
        whole = path.read_bytes()
        path.write_bytes((other.folder.path / path.relative_to(run.folder.path)).read_bytes())
        assert check_command(options_of(run)) == 1
        shown = capsys.readouterr().out
        assert re.search(rf"problem: {path}: expected a \w+ of this run .* got one of another ", shown)
        path.write_bytes(whole)


def test_check_names_settings_that_were_altered(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.folder.config.write_text(to_json(run.config.replace({"sigma": 0.5})))
    assert check_command(options_of(run)) == 0
    assert "changed: sigma: 0.5 in " in capsys.readouterr().out


def test_check_misses_a_journal_that_is_not_there(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run.folder.journal)
    assert check_command(options_of(run)) == 1
    shown = capsys.readouterr().out
    assert "journal: 0 segments, steps none\n" in shown
    assert f"problem: {run.folder.journal}: steps 1 to 4 are missing; " in shown  # the metrics have them
    run.folder.metrics.unlink()
    assert check_command(options_of(run)) == 1
    assert f"problem: {run.folder.journal}: steps 1 to 2 are missing; " in capsys.readouterr().out


def test_check_misses_no_steps_that_were_dropped(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded_run(config.replace({"keep_journal": "0.2KB"}), checkpoints=(3,))
    (segment,) = segments_in(run.folder.journal)
    records = [place.record for place in read_places(segment)]
    segment.unlink()
    for first, code in ((3, 0), (4, 1)):  # the server drops what lies before the oldest checkpoint
        with Journal.open(run.folder.journal, Header(run.origin.identity, first, bytes(8))) as journal:
            for record in records:
                if record.step >= first:
                    journal.append(record.update, record.digest)
        assert check_command(options_of(run)) == code
        assert ("step 3 is missing" in capsys.readouterr().out) == bool(code)
        shutil.rmtree(run.folder.journal)
