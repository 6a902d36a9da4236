import re
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fedlearn.board import public as module
from fedlearn.board.public import describe, status_of, summarize
from fedlearn.runs.run import KIND_FILE, Run, load_run_config
from fedlearn.runs.status_file import live_status
from fedlearn.storage.logs.changes import Change
from fedlearn.tasks.reason import Reason
from tests.board.folders import IDENTITY, append, show_status, volunteer, write_steps
from tests.run_folders import created, rnn_config


def test_settings_are_shown_with_their_reasons_and_without_paths(run: Run, tmp_path: Path) -> None:
    reasons = [Reason("measured: much"), Reason("learned: most", "sigma", "0.02"), Reason("odd")]
    run.folder.reasons.write_bytes(msgspec.json.encode(reasons))
    found = describe(run.folder)
    by_key = {setting.key: setting for setting in found["settings"]}
    assert (found["name"], found["task"], found["notes"]) == ("1", "rnn", ["measured: much", "odd"])
    assert (by_key["sigma"].value, by_key["sigma"].reason) == ("0.02", "learned: most")
    assert by_key["hidden_size"].help.startswith("units in each")
    assert by_key["data"].value == "corpus.txt"
    assert (by_key["rank"].is_usual, by_key["sigma"].is_usual) == (True, False)
    changeable = [by_key[key].is_changeable for key in ("rank", "volunteers", "sigma")]
    assert changeable == [False, False, True]  # the second only when the server starts
    assert not {"host", "token_file", "allow", "tls_key", "public_host", "runs", "step_num"} & set(by_key)
    assert str(tmp_path) not in str(found)


def test_of_several_texts_the_names_are_shown_without_paths_and_passwords(run: Run) -> None:
    text = run.folder.config.read_text()
    given = '["/home/ada/a.txt", "C:\\\\bob\\\\b.txt", "https://eve:secret@example.org/c.txt?key=secret#sha256=00"]'
    run.folder.config.write_text(re.sub(r'"data": \[[^]]*\]', lambda _: f'"data": {given}', text))
    by_key = {setting.key: setting for setting in describe(run.folder)["settings"]}
    assert by_key["data"].value == "a.txt, b.txt, c.txt"


@pytest.mark.parametrize("reasons", [b"", b"{}", b"\xff", b'[{"why": "ok"}, 5]'])
def test_reasons_that_can_not_be_read_are_none(run: Run, reasons: bytes) -> None:
    run.folder.reasons.write_bytes(reasons)
    assert describe(run.folder)["notes"] == []


def test_setting_that_the_operator_changed_is_shown_with_its_step_and_what_it_was(run: Run) -> None:
    run.folder.reasons.write_bytes(msgspec.json.encode([Reason("learned most", "sigma", "0.02")]))
    append(run.folder.changes, [Change(step=3, time=1.0, key="sigma", value=0.1, before=0.02)])
    by_key = {setting.key: setting for setting in describe(run.folder)["settings"]}
    assert (by_key["sigma"].value, by_key["sigma"].set_at, by_key["sigma"].reason) == ("0.02", None, "learned most")
    text = run.folder.config.read_text()
    run.folder.config.write_text(text.replace('"sigma": 0.02', '"sigma": 0.5').replace('"steps": 0', '"steps": 9'))
    later = [("sigma", 7, 0.5, 0.1), ("steps", 8, 9, 0)]
    append(
        run.folder.changes,
        [Change(step=step, time=1.0, key=key, value=value, before=before) for key, step, value, before in later],
    )
    by_key = {setting.key: setting for setting in describe(run.folder)["settings"]}
    found = by_key["sigma"]
    assert (found.value, found.set_at, found.before, found.reason) == ("0.5", 7, "0.1", "")
    assert (by_key["steps"].value, by_key["steps"].set_at) == ("9", 8)
    assert by_key["rank"].set_at is None


def test_bound_that_followed_a_rate_names_it_and_whoever_sets_a_rate_is_warned(run: Run) -> None:
    text = run.folder.config.read_text()
    run.folder.config.write_text(text.replace('"max_learning_rate": 0.0', '"max_learning_rate": 0.5'))
    by_key = {setting.key: setting for setting in describe(run.folder)["settings"]}
    assert {key: shown.bound for key, shown in by_key.items() if shown.bound} == {"learning_rate": "max_learning_rate"}
    run.folder.config.write_text(text)
    followed = Change(step=3, time=1.0, key="max_learning_rate", value=0.0, before=0.5, along_with="learning_rate")
    append(run.folder.changes, [followed])
    by_key = {setting.key: setting for setting in describe(run.folder)["settings"]}
    found = by_key["max_learning_rate"]
    assert (found.set_at, found.before, found.along_with) == (3, "0.5", "learning_rate")
    assert by_key["learning_rate"].bound == ""


def test_reason_of_another_value_than_the_one_in_force_is_not_given(run: Run) -> None:
    run.folder.reasons.write_bytes(msgspec.json.encode([Reason("learned most", "sigma", "0.7")]))
    by_key = {setting.key: setting for setting in describe(run.folder)["settings"]}
    assert (by_key["sigma"].value, by_key["sigma"].reason) == ("0.02", "")


CHANGE = msgspec.json.encode(Change(step=3, time=1.0, key="sigma", value=0.02, before=0.5)) + b"\n"


def test_reason_is_not_given_for_a_value_that_the_operator_set_back(run: Run) -> None:
    run.folder.reasons.write_bytes(msgspec.json.encode([Reason("learned most", "sigma", "0.02")]))
    run.folder.changes.write_bytes(CHANGE)
    (found,) = (setting for setting in describe(run.folder)["settings"] if setting.key == "sigma")
    assert (found.set_at, found.before, found.reason) == (3, "0.5", "")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\n[", CHANGE + b" " * 2**21])
def test_changes_that_can_not_be_read_are_none(run: Run, content: bytes) -> None:
    run.folder.changes.write_bytes(content)
    assert all(setting.set_at is None for setting in describe(run.folder)["settings"])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
def test_reasons_that_have_no_end_are_none(run: Run) -> None:
    run.folder.reasons.unlink()
    run.folder.reasons.symlink_to("/dev/zero")
    assert describe(run.folder)["notes"] == []


def test_summary_says_where_a_run_stands(run: Run) -> None:
    assert summarize(run.folder)["state"] == "ended"
    write_steps(run.folder, range(12))
    show_status(run)
    found = summarize(run.folder)
    assert (found["name"], found["task"], found["state"], found["step"]) == ("1", "rnn", "running", 12)
    assert found["shown"] == {"bits_per_character": pytest.approx(4.989)}
    run.folder.config.write_text("{")
    assert summarize(run.folder)["task"] == "unreadable"


def test_summary_has_the_settings_that_tell_runs_apart_the_model_s_first(run: Run) -> None:
    found = summarize(run.folder)["settings"]
    assert found["hidden_size"] == str(load_run_config(run.folder).get("hidden_size"))
    assert list(found)[-1] == "seed"
    assert list(found).index("cell") < list(found).index("perturb")
    assert not {"learning_rate", "host", "port", "runs"} & set(found)


def test_run_of_a_kind_that_is_not_here_is_listed(run: Run) -> None:
    (run.folder.data / KIND_FILE).write_text("transformer")
    write_steps(run.folder, range(2))
    assert (summarize(run.folder)["task"], summarize(run.folder)["step"]) == ("unreadable", 2)
    run.folder.metrics.unlink()
    run.folder.metrics.mkdir()
    assert (summarize(run.folder)["task"], summarize(run.folder)["step"]) == ("unreadable", 0)


def test_status_shows_neither_process_nor_whole_identities(run: Run) -> None:
    assert status_of(run.folder) is None
    show_status(run)
    found = status_of(run.folder)
    assert found is not None
    assert (found["state"], found["n_volunteers"], found["work_per_s"]) == ("running", 1, 960.0)
    assert found["volunteers"][0]["identity"] == IDENTITY[:8]
    assert IDENTITY not in str(found)
    assert "pid" not in found


@pytest.mark.parametrize("changes", [{"state": "ended"}, {"time": time.time() - 60}, {"pid": 2**22 + 1}])
def test_run_that_no_server_has_is_over_and_has_no_volunteers(run: Run, changes: dict[str, object]) -> None:
    show_status(run, **changes)
    found = status_of(run.folder)
    assert found is not None
    assert (found["state"], found["volunteers"], found["n_volunteers"]) == ("ended", [], 0)
    assert (found["members_per_s"], found["work_per_s"], found["bytes_in_per_s"], found["bytes_out_per_s"]) == (0,) * 4
    assert live_status(run.folder) is None


def test_reason_that_names_a_file_is_kept_from_the_public(run: Run) -> None:
    show_status(run, state="ended", reason="all 100 steps are done")
    found = status_of(run.folder)
    assert found is not None
    assert found["reason"] == "all 100 steps are done"
    show_status(run, state="ended", reason="/home/ada/runs/1/journal: disk full")
    found = status_of(run.folder)
    assert found is not None
    assert "ada" not in found["reason"]


def test_of_many_volunteers_those_with_the_largest_shares_are_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VOLUNTEERS", 2)
    show_status(run, volunteers=tuple(volunteer(f"v{n}", share=n / 10) for n in (2, 1, 4)))
    found = status_of(run.folder)
    assert found is not None
    assert ([each["name"] for each in found["volunteers"]], found["n_volunteers"]) == (["v2", "v4"], 3)


def test_task_is_named_without_its_folder(tmp_path: Path) -> None:
    run = created(rnn_config(tmp_path))
    text = run.folder.config.read_text().replace('"task": "rnn"', '"task": "/home/ada/secret/task.py:task"')
    run.folder.config.write_text(text)
    assert "secret" not in str(describe(run.folder))
    assert summarize(run.folder)["task"] == "task.py:task"
