import json
from pathlib import Path

import pytest

from fedlearn.runs.repeating import as_begun
from fedlearn.storage.durable import StorageError
from tests.commands.recorded_run import recorded_run
from tests.run_folders import rnn_config


def test_run_is_repeated_without_what_is_of_the_moment(tmp_path: Path) -> None:
    run = recorded_run(rnn_config(tmp_path, port=1234), begin=2, end=5, checkpoints=(4,))
    text = run.folder.config.read_text()
    assert json.loads(text)["run"]["step_num"] == 4
    found, expected = json.loads(as_begun(run.folder.config, text)), json.loads(text)
    expected["run"]["step_num"] = 2
    del expected["run"]["runs"]
    for key in ("host", "port", "board", "tls", "token_file", "allow", "public_host", "joins_per_minute"):
        del expected["server"][key]
    for key in ("tls_cert", "tls_key", "connections_per_address", "connections_per_identity"):
        del expected["server"][key]
    expected["volunteers"] = {"expected_volunteers": 0}
    assert found == expected


@pytest.mark.parametrize("name", ["config.json", "other.json"])
def test_other_files_stay_as_they_are(tmp_path: Path, name: str) -> None:
    text = '{"run": {"step_num": 7, "runs": "x"}}'
    (tmp_path / name).write_text(text)
    assert as_begun(tmp_path / name, text) == text


@pytest.mark.parametrize("text", ["{", "[]", '{"run": 1}'])
def test_what_is_no_configuration_is_left_to_its_reader(tmp_path: Path, text: str) -> None:
    run = recorded_run(rnn_config(tmp_path))
    assert as_begun(run.folder.config, text) == text


def test_folder_that_does_not_say_how_it_began_is_refused(tmp_path: Path) -> None:
    run = recorded_run(rnn_config(tmp_path), checkpoints=())
    run.folder.origin.unlink()
    run.folder.genesis.write_bytes(b"")
    with pytest.raises(StorageError, match=r"origin\.json: expected what the run was begun with"):
        as_begun(run.folder.config, run.folder.config.read_text())
