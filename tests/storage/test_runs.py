import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedlearn.storage.durable import StorageError, write_durably
from fedlearn.storage.runs import RunFolder, create_run, list_runs, lock_run, resolve_run


def start_run(root: Path) -> RunFolder:
    run = create_run(root)
    write_durably(run.config, b"{}")
    return run


def test_runs_count_from_one_with_their_subfolders(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "trainingRuns"
    first, second = create_run(root), create_run(root)
    assert (first.path, second.path) == (root / "1", root / "2")
    assert first.checkpoints.is_dir()
    assert first.data.is_dir()


def test_new_run_follows_the_highest_number_and_ignores_other_names(tmp_path: Path) -> None:
    for name in ("2", "10", "old", "3.bak"):
        (tmp_path / name).mkdir()
    (tmp_path / "99").touch()
    assert create_run(tmp_path).path.name == "11"


def test_number_that_somebody_took_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1").mkdir()
    monkeypatch.setattr("fedlearn.storage.runs._numbers", lambda _: [])
    assert create_run(tmp_path).path.name == "2"


def test_runs_are_listed_by_number_once_they_have_a_configuration(tmp_path: Path) -> None:
    runs = [start_run(tmp_path) for _ in range(11)]
    create_run(tmp_path)
    assert list_runs(tmp_path) == runs


def test_missing_root_has_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "nowhere") == []


def test_run_is_found_by_number_latest_and_path(tmp_path: Path) -> None:
    first, second = start_run(tmp_path), start_run(tmp_path)
    create_run(tmp_path)
    assert resolve_run(tmp_path, "1") == first
    assert resolve_run(tmp_path, "latest") == second
    assert resolve_run(tmp_path / "elsewhere", str(first.path)) == first


@pytest.mark.parametrize("text", ["3", "nonsense", "/", ""])
def test_unknown_run_is_refused_with_those_there_are(tmp_path: Path, text: str) -> None:
    start_run(tmp_path)
    start_run(tmp_path)
    with pytest.raises(StorageError, match=f"run '{text}': expected .* 'latest'; runs in .*: 1, 2"):
        resolve_run(tmp_path, text)


@pytest.mark.parametrize("name", ["config.json", "checkpoints", "checkpoints/1.safetensors"])
def test_file_of_a_run_is_refused_with_the_run_that_it_is_of(tmp_path: Path, name: str) -> None:
    run = start_run(tmp_path)
    (run.checkpoints / "1.safetensors").touch()
    with pytest.raises(StorageError, match=f"expected .* 'latest'; that is within the run '{run.path}'"):
        resolve_run(tmp_path, str(run.path / name))


def test_run_that_has_not_begun_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    run = create_run(tmp_path)
    (tmp_path / "7").mkdir()
    for text, path in (("1", run.path), (str(run.path), run.path), ("7", tmp_path / "7")):
        with pytest.raises(
            StorageError, match=f"run '{text}': expected config.json in {path}, got none; .*has not beg"
        ):
            resolve_run(tmp_path, text)
    with pytest.raises(StorageError, match="has not begun; remove the folder"):
        resolve_run(tmp_path / "elsewhere", str(run.path))


def test_run_that_has_lost_its_configuration_is_to_be_restored(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    run.config.unlink()
    run.genesis.touch()
    with pytest.raises(StorageError, match=f"expected config.json in {run.path}, got none; restore it from a copy"):
        resolve_run(tmp_path, "1")


def test_latest_of_no_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"runs in .*: none"):
        resolve_run(tmp_path, "latest")


def test_second_writer_is_refused_by_name_until_the_first_is_done(tmp_path: Path) -> None:
    run = create_run(tmp_path)
    with (
        lock_run(run),
        pytest.raises(StorageError, match=f"process {os.getpid()} does"),
        lock_run(run),
    ):
        pass
    with lock_run(run):
        pass


def test_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    run = create_run(tmp_path)
    (run.path / "lock").mkdir()
    with pytest.raises(StorageError, match="lock: could not be written: Is a directory; check that"), lock_run(run):
        pass


def test_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    run = create_run(tmp_path)
    program = (
        "import sys, pathlib, fedlearn.storage.runs as runs\n"
        "with runs.lock_run(runs.RunFolder(pathlib.Path(sys.argv[1]))):\n"
        "    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(StorageError, match=f"process {process.pid} does"), lock_run(run):
            pass
        process.kill()
        process.wait()
        with lock_run(run):
            pass


@pytest.mark.parametrize("root", ["/proc/x", "file", "file/below"])
def test_root_that_can_be_no_folder_is_named(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"runs: expected a folder .* got '.*{root}'.*--runs"):
        create_run(tmp_path / root)
