from pathlib import Path

import pytest

from fedlearn.config import RunConfig
from fedlearn.runs.listing import as_json, look_at, size_of
from fedlearn.runs.run import Run
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.samples import Sample
from tests.run_folders import created


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


def test_a_run_that_took_no_step_has_its_settings_alone(run: Run) -> None:
    listed = look_at(run.folder)
    assert (listed.config, listed.problem, listed.state, listed.last, listed.validation) == (
        run.config,
        "",
        None,
        None,
        {},
    )
    assert listed.step == run.config.run.step_num == 0


def test_the_last_figures_on_validation_data_are_listed_without_those_that_are_none(run: Run) -> None:
    log = LineLog(run.folder.samples)
    log.append(Sample(time=1.0, step=1, figures={"accuracy": 0.5, "loss": 2.0}, text=""))
    log.append(Sample(time=2.0, step=2, figures={"accuracy": 0.75, "loss": None}, text=""))
    log.close()
    assert look_at(run.folder).validation == {"accuracy": 0.75}


def test_a_run_that_can_not_be_read_says_why_and_how_large_it_is(run: Run) -> None:
    run.folder.config.write_text("{")
    listed = look_at(run.folder)
    assert (listed.config, listed.step) == (None, 0)
    assert "config.json" in listed.problem
    assert as_json(listed) == {
        "run": "1",
        "folder": str(run.folder.path),
        "size_bytes": size_of(run.folder.path),
        "problem": listed.problem,
    }


def test_sizes_are_of_all_files_below_and_not_of_what_links_point_to(tmp_path: Path) -> None:
    (tmp_path / "run" / "journal").mkdir(parents=True)
    (tmp_path / "run" / "config").write_bytes(b"12345")
    (tmp_path / "run" / "journal" / "0").write_bytes(b"123")
    (tmp_path / "elsewhere").write_bytes(b"1234567")
    (tmp_path / "run" / "link").symlink_to(tmp_path / "elsewhere")
    assert size_of(tmp_path / "run") == 8
