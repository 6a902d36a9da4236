import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from fedlearn.storage.durable import StorageError
from fedlearn.storage.logs import lines as lines_module
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.metrics import StepMetrics, each_once, read_last_metrics
from tests.steps import step_metrics


def metrics_of(step: int) -> StepMetrics:
    figures = {"members": 12288, "work_per_s": 1e6, "volunteers": 2, "bytes_in": 50000, "bytes_out": 12500}
    return step_metrics(step, **figures, digest="0011223344556677", time=1700000000.5)


def append_metrics(path: Path, *steps: StepMetrics) -> None:
    log = LineLog(path)
    for metrics in steps:
        log.append(metrics)
    log.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_each_step_is_one_line_of_json(path: Path) -> None:
    append_metrics(path, metrics_of(0))
    append_metrics(path, msgspec.structs.replace(metrics_of(1), validation={"accuracy": 0.5}))
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["step"], first["loss"], first["shown"]) == (0, 2.5, {"bits_per_character": 3.6})
    assert "validation" not in first
    assert second["validation"] == {"accuracy": 0.5}
    assert [metrics.validation for metrics in read_last_metrics(path, 2)] == [{}, {"accuracy": 0.5}]


def test_lines_of_runs_before_there_was_a_table_of_figures_are_read(path: Path) -> None:
    line = b'{"step":3,"loss":2.5,"shown":{},"members":64,"work_per_s":1e3,"volunteers":1,"bytes_in":1,"bytes_out":2,'
    line += b'"digest":"00","time":1.7e9,%s"kinds":{"losses":[1,2]}}\n'
    path.write_bytes(line % b"" + line % b'"variance_left":0.25,')
    assert [(metrics.step, metrics.figures) for metrics in read_last_metrics(path, 2)] == [
        (3, {}),
        (3, {"variance_left": 0.25}),
    ]


def test_figures_are_keys_of_the_line_where_they_were_measured(path: Path) -> None:
    append_metrics(path, metrics_of(0), msgspec.structs.replace(metrics_of(1), variance_left=0.25))
    without, having = (json.loads(line) for line in path.read_text().splitlines())
    assert (having["variance_left"], "variance_left" in without, "figures" in having) == (0.25, False, False)


@pytest.mark.parametrize("tail_bytes", [10, 400, 65536])
def test_last_steps_are_read_in_order(path: Path, monkeypatch: pytest.MonkeyPatch, tail_bytes: int) -> None:
    monkeypatch.setattr(lines_module, "_TAIL_BYTES", tail_bytes)
    for step in range(20):
        append_metrics(path, metrics_of(step))
    assert read_last_metrics(path) == [metrics_of(19)]
    assert read_last_metrics(path, 3) == [metrics_of(step) for step in (17, 18, 19)]
    assert len(read_last_metrics(path, 99)) == 20
    assert read_last_metrics(path, 0) == []


def test_last_step_is_found_without_reading_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1000):
        append_metrics(path, metrics_of(step))
    decoded, read = lines_module.decoded, 0

    def record(lines: Iterable[bytes], expected: type[StepMetrics]) -> Iterator[StepMetrics]:
        nonlocal read
        kept = list(lines)
        read += sum(map(len, kept))
        return decoded(kept, expected)

    monkeypatch.setattr(lines_module, "decoded", record)
    assert read_last_metrics(path) == [metrics_of(999)]
    assert 0 < read < path.stat().st_size / 2


def test_torn_last_line_is_passed_over_and_ended(path: Path) -> None:
    append_metrics(path, metrics_of(0))
    append_metrics(path, metrics_of(1))
    path.write_bytes(path.read_bytes()[:-20])
    assert read_last_metrics(path) == [metrics_of(0)]
    append_metrics(path, metrics_of(2))
    assert read_last_metrics(path, 5) == [metrics_of(0), metrics_of(2)]


def test_missing_or_empty_file_has_no_steps(path: Path) -> None:
    assert read_last_metrics(path) == []
    path.touch()
    assert read_last_metrics(path) == []


def test_loss_that_is_no_number_becomes_none(path: Path) -> None:
    append_metrics(path, msgspec.structs.replace(metrics_of(0), loss=float("nan")))
    assert read_last_metrics(path)[0].loss is None


def test_file_stays_open_and_every_line_is_in_it_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LineLog(path)
    log.append(metrics_of(0))
    # As where a process has no file descriptor left.
    monkeypatch.setattr("builtins.open", Mock(side_effect=OSError(24, "Too many open files")))
    log.append(metrics_of(1))
    monkeypatch.undo()
    assert read_last_metrics(path, 9) == [metrics_of(0), metrics_of(1)]
    log.close()
    log.close()


def test_disk_that_refuses_is_a_storage_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()
    with pytest.raises(StorageError, match=r"metrics\.jsonl: a line could not be written: Is a directory"):
        LineLog(path).append(metrics_of(0))
    path.rmdir()
    log = LineLog(path)
    log.append(metrics_of(0))
    monkeypatch.setattr(log, "_file", Mock(write=Mock(side_effect=OSError(28, "No space left on device"))))
    with pytest.raises(StorageError, match="No space left on device; make room"):
        log.append(metrics_of(1))
    monkeypatch.undo()
    log.close()


def test_a_step_that_was_taken_again_stands_once_with_its_last_figures() -> None:
    again = msgspec.structs.replace(metrics_of(4), loss=1.0)
    assert each_once([metrics_of(3), metrics_of(4), metrics_of(5), again]) == [metrics_of(3), again, metrics_of(5)]
