import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fedlearn.hub.bodies import Asked, Training, read_body
from fedlearn.hub.jobs import following as module
from fedlearn.hub.jobs.following import Telling, follow_events, follow_log
from fedlearn.hub.jobs.jobs import Jobs
from fedlearn.hub.jobs.records import JobRecord
from fedlearn.hub.settings import HubSettings
from fedlearn.storage.runs import RunFolder
from tests.board.folders import show_status, write_sample, write_steps
from tests.hub.conftest import Scripted, ended
from tests.patience import LIMIT_S

JOB = b'{"model_config": {"type": "transformer"}}'


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 0.01)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def telling(run: RunFolder, *, n_steps: int = 6, epochs: int = 2, after: int = -1) -> Telling:
    record = JobRecord(job_id=1, asked={}, epochs=epochs)
    return Telling(record, n_steps, metrics=run.metrics, samples=run.samples, after=after)


def events(told: bytes) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in told.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith((":", "retry")))
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_each_step_is_told_once_and_each_epoch_when_it_is_over(run: RunFolder) -> None:
    told = telling(run)
    assert told.read() == b""
    write_steps(run, range(2))
    assert [name for name, _ in events(told.read())] == ["training_data", "training_data", "timing_stats"]
    write_steps(run, range(2, 6))
    found = events(told.read())
    assert [(name, data["step"]) for name, data in found if name == "training_data"] == [
        ("training_data", step) for step in (2, 3, 4, 5)
    ]
    assert [data["epoch"] for name, data in found if name == "epoch_stats"] == [1]  # the last waits to be measured
    assert [data["epoch"] for name, data in found if name == "training_data"] == [1, 2, 2, 2]
    assert told.read() == b""
    write_sample(run, 6, "")
    assert [data["epoch"] for _, data in events(told.read())] == [2]
    assert told.end() == b""


def test_an_epochs_loss_is_the_mean_of_its_steps(run: RunFolder) -> None:
    told = telling(run)
    write_steps(run, range(3), loss=3.0)
    write_steps(run, range(3, 6), loss=1.0)
    found = events(told.read() + told.end())
    assert [data["loss"] for name, data in found if name == "epoch_stats"] == [3.0, 1.0]


def test_an_epoch_is_told_with_what_its_weights_were_measured_to_be(run: RunFolder) -> None:
    told = telling(run)
    write_steps(run, range(1))
    assert events(told.read())[0][1]["accuracy"] is None
    write_sample(run, 1, "")
    write_steps(run, range(1, 3))
    assert "epoch_stats" not in dict(events(told.read()))
    write_sample(run, 3, "")
    found = dict(events(told.read()))
    assert found["epoch_stats"]["validation"] == {"bits_per_character": 3.0}
    assert found["epoch_stats"]["validated_at_step"] == 3


def test_an_epoch_that_was_not_measured_has_the_figures_before_it(run: RunFolder) -> None:
    told = telling(run)
    write_sample(run, 1, "")
    write_steps(run, range(6))
    found = [data for name, data in events(told.read() + told.end()) if name == "epoch_stats"]
    assert [(data["epoch"], data["validated_at_step"]) for data in found] == [(1, 1), (2, 1)]


def test_the_end_of_what_was_never_measured_says_nothing(run: RunFolder) -> None:
    assert telling(run).end() == b""


def test_whoever_comes_back_is_told_what_it_missed(run: RunFolder) -> None:
    write_steps(run, range(6))
    found = events(telling(run, after=3).read())
    assert [data["step"] for name, data in found if name == "training_data"] == [4, 5]
    assert telling(run, after=5).read() == b""
    assert b"id: 5\nevent: training_data" in telling(run).read()


def test_more_epochs_than_steps_are_one_step_each(run: RunFolder) -> None:
    write_steps(run, range(2))
    found = events(telling(run, n_steps=2, epochs=9).end())
    assert [data["epoch"] for name, data in found if name == "epoch_stats"] == [1, 2]


async def gathered(stream: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(LIMIT_S):
        return b"".join([piece async for piece in stream])


def test_events_wait_for_training_and_end_with_it(
    jobs: Jobs, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_S", 0.05)
    record = jobs.create(read_body(JOB, Asked), "")

    async def read() -> bytes:
        reading = asyncio.create_task(gathered(follow_events(jobs, record, -1)))
        await asyncio.sleep(0.2)
        jobs.train(record, Training(epochs=2))
        server = Scripted.started[-1]
        run = server.begin(settings)
        jobs.tick()
        show_status(run, steps=4)
        write_steps(run, range(4))
        write_sample(run, 4, "")
        ended(run, step=4, steps=4)
        server.code = 0
        jobs.tick()
        return await reading

    told = asyncio.run(read())
    assert told.startswith(b"retry: ")
    assert b": still here" in told
    assert {name for name, _ in events(told)} == {"training_data", "timing_stats", "epoch_stats"}
    assert events(told)[-1][1]["validated_at_step"] == 4


def test_a_log_is_followed_until_it_is_over_to_the_last_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 3)
    log, asked = tmp_path / "log", list[int]()

    def is_over() -> bool:
        asked.append(1)
        if len(asked) == 2:
            log.write_bytes(b"some ")
        if len(asked) == 5:
            with open(log, "ab") as file:
                file.write(b"text \xff")
            return False
        return len(asked) > 5

    assert asyncio.run(gathered(follow_log(log, is_over))) == b"some text \xff"


def test_what_is_written_just_before_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def is_over() -> bool:
        if log.exists():
            return True
        log.write_bytes(b"last words")
        return True

    assert asyncio.run(gathered(follow_log(log, is_over))) == b"last words"


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert asyncio.run(gathered(follow_log(tmp_path / "none", lambda: True))) == b""
