from pathlib import Path

import pytest

from fedlearn.hub.bodies import Training
from fedlearn.hub.jobs.records import JobFolder, JobRecord, Process, find_jobs
from fedlearn.storage.durable import StorageError


def test_a_record_is_found_as_it_was_saved(tmp_path: Path) -> None:
    record = JobRecord(
        job_id=3, asked={"model_config": {}}, status="training", training=Training(epochs=2), process=Process(7, 1.5)
    )
    JobFolder(tmp_path / "3").save(record)
    assert find_jobs(tmp_path) == ({3: record}, [])


def test_a_folder_that_was_not_finished_is_no_job_and_one_that_is_damaged_is_told(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    for number, text in ((2, "{"), (3, "[" * 9000), (4, '{"job_id": 4, "asked": {}, "status": "odd"}')):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "job.json").write_text(text)
    JobFolder(tmp_path / "5").save(JobRecord(job_id=6, asked={}))
    JobFolder(tmp_path / "7").save(JobRecord(job_id=7, asked={}))
    (tmp_path / "notes").mkdir()
    found, problems = find_jobs(tmp_path)
    assert list(found) == [7]
    assert [f"{number}/job.json" in problem for number, problem in zip((2, 3, 4, 5), problems, strict=True)] == [
        True
    ] * 4


def test_no_folder_has_no_jobs(tmp_path: Path) -> None:
    assert find_jobs(tmp_path / "none") == ({}, [])


def test_a_disk_that_refuses_leaves_the_record_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = JobFolder(tmp_path / "1")
    folder.save(JobRecord(job_id=1, asked={}))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedlearn.storage.durable.replace", full)
    with pytest.raises(StorageError):
        folder.save(JobRecord(job_id=1, asked={}, status="failed"))
    assert find_jobs(tmp_path)[0][1].status == "created"


def test_lines_are_added_to_the_log(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    for text in ("one", "two \udcff"):
        folder.say(text)
    assert folder.log.read_text() == "hub: one\nhub: two ?\n"
