import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedlearn.coordination.steps.divergence import DIVERGED, NO_LOSS
from fedlearn.hub.bodies import Asked, RefusedError, Registration, Training
from fedlearn.hub.devices import Devices
from fedlearn.hub.jobs import jobs as module
from fedlearn.hub.jobs.jobs import Jobs
from fedlearn.hub.jobs.records import JobRecord
from fedlearn.hub.jobs.served import GONE
from fedlearn.hub.jobs.spec import TASK_SOURCE
from fedlearn.hub.settings import HubSettings
from fedlearn.system.children import MOST_AT_ONCE
from tests.board.folders import show_status
from tests.hub.conftest import LAYERS, TEXT, Scripted, ScriptedNext, ended


def created(jobs: Jobs, body: dict[str, Any] = TEXT) -> JobRecord:
    return jobs.create(msgspec.convert(body, Asked), "")


def training(jobs: Jobs, settings: HubSettings, body: dict[str, Any] = TEXT) -> tuple[JobRecord, Scripted]:
    """A job whose server has begun."""
    record = created(jobs, body)
    jobs.train(record, Training())
    server = Scripted.started[-1]
    server.begin(settings, run=str(record.job_id))
    jobs.tick()
    return record, server


def refused(status: int, what: str) -> Any:  # noqa: ANN401
    return pytest.raises(RefusedError, match=what, check=lambda error: error.status == status)


def test_jobs_are_counted_from_one_also_after_folders_that_are_damaged(jobs: Jobs, settings: HubSettings) -> None:
    assert [created(jobs).job_id for _ in range(2)] == [1, 2]
    (settings.jobs / "9").mkdir()
    assert created(jobs).job_id == 10
    with refused(404, "job 7: there is none"):
        jobs.get(7)


def test_one_process_is_ready_for_the_job_that_is_trained_next(jobs: Jobs) -> None:
    assert ScriptedNext.waiting == []
    record = created(jobs)
    created(jobs)
    (first,) = ScriptedNext.waiting
    first.is_alive = False
    jobs.train(record, Training())
    assert (len(Scripted.started), ScriptedNext.waiting) == (1, [])
    created(jobs)
    assert len(ScriptedNext.waiting) == 1
    jobs.close()
    assert ScriptedNext.waiting == []


def test_layers_are_given_before_they_are_trained(jobs: Jobs, devices: Devices) -> None:
    record = created(jobs, LAYERS)
    with refused(409, "initialized first"):
        jobs.train(record, Training())
    with refused(400, "devices: expected one or more"):
        jobs.initialize(record)
    for split, seats in ((True, 0), (True, 2), (False, 0)):  # again, with those who came meanwhile
        devices.register(Registration(), address="", now=0.0)
        jobs.initialize(record, split=split)
        assert record.seats == seats
    assert "initialized with 1 device, each with the whole model\n" in jobs.folder(record).log.read_text()
    assert (record.status, devices.all()[0].job_id) == ("initialized", 1)
    jobs.train(record, Training())
    assert (record.status, record.n_local) == ("training", 0)
    with refused(409, "it is training"):
        jobs.initialize(record)


def test_an_operator_chooses_devices_and_the_job_is_given_no_others(jobs: Jobs, devices: Devices) -> None:
    record, other = created(jobs, LAYERS), created(jobs, LAYERS)
    for _ in range(4):
        devices.register(Registration(), address="", now=0.0)
    jobs.initialize(other, chosen=[4])
    with refused(409, "expected idle ones, device 4 works for job 2"):
        jobs.initialize(record, chosen=[1, 4])
    assert devices.of(1) == []
    with refused(404, "device 9: none with this number"):
        jobs.initialize(record, chosen=[1, 9])
    with refused(400, "devices: expected one or more, got none that is idle"):
        jobs.initialize(record, chosen=[])
    jobs.initialize(record, chosen=[1, 2])
    jobs.initialize(record, chosen=[2, 3], split=True)
    assert [device.device_id for device in devices.of(1)] == [2, 3]
    assert record.seats == 2
    jobs.initialize(record, chosen=[3])
    jobs.train(record, Training())
    assert [device.device_id for device in devices.of(1)] == [3]


def test_a_transformer_needs_neither_layers_nor_devices(jobs: Jobs, settings: HubSettings) -> None:
    record, server = training(jobs, settings)
    assert server.arguments[server.arguments.index("--volunteers") + 1] == "1"
    assert (record.run, record.port, jobs.server(record)) == ("1", 5001, "127.0.0.1:5001")


def test_nobody_listens_before_its_server_says_so(jobs: Jobs) -> None:
    record = created(jobs)
    assert jobs.server(record) == ""
    jobs.train(record, Training())
    assert jobs.server(record) == ""


def test_a_second_start_is_refused(jobs: Jobs, settings: HubSettings) -> None:
    record, _ = training(jobs, settings)
    with refused(409, "it is training already"):
        jobs.train(record, Training())
    assert len(Scripted.started) == 1


def test_jobs_in_training_are_bounded(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRAINING", 1)
    jobs.train(created(jobs), Training())
    with refused(409, "at most 1 in training"):
        jobs.train(created(jobs), Training())
    monkeypatch.setattr(module, "MAX_JOBS", 2)
    with refused(409, "at most 2"):
        created(jobs)


def test_a_run_with_all_its_steps_completes_its_job_and_frees_its_devices(
    jobs: Jobs, settings: HubSettings, devices: Devices
) -> None:
    devices.register(Registration(), address="", now=0.0)
    record, server = training(jobs, settings)
    assert devices.all()[0].job_id == 1
    run = jobs.run(record)
    assert run is not None
    ended(run, step=100)
    server.code = 0
    jobs.tick()
    assert (record.status, record.process, devices.all()[0].job_id) == ("completed", None, None)


def test_a_completed_job_is_trained_on_by_its_run(jobs: Jobs, settings: HubSettings) -> None:
    record, server = training(jobs, settings)
    run = jobs.run(record)
    assert run is not None
    ended(run, step=30, steps=30)
    server.code = 0
    jobs.tick()
    jobs.train(record, Training(epochs=2, learning_rate=0.5))
    words = Scripted.started[-1].arguments
    assert [words[words.index(flag) + 1] for flag in ("--steps", "--learning-rate")] == ["50", "0.5"]
    assert words[words.index("--resume") + 1].endswith("runs/1")
    assert (record.status, record.epochs) == ("training", 5)
    ended(run, step=50, steps=50)
    Scripted.started[-1].code = 0
    jobs.tick()
    jobs.train(record, Training(epochs=1))
    words = Scripted.started[-1].arguments
    assert [words[words.index(flag) + 1] for flag in ("--steps", "--learning-rate")] == ["60", "0.5"]


@pytest.mark.parametrize("code", [0, GONE])
def test_a_server_that_was_stopped_stops_its_job_which_goes_on_where_it_was(
    jobs: Jobs, settings: HubSettings, code: int
) -> None:
    record, server = training(jobs, settings)
    run = jobs.run(record)
    assert run is not None
    ended(run, step=50, reason="the server was stopped")
    server.code = code
    jobs.tick()
    assert (record.status, record.reason) == ("stopped", "the server was stopped")
    jobs.train(record, Training(epochs=99))
    assert "--resume" in Scripted.started[-1].arguments
    assert (record.status, record.training) == ("training", Training(epochs=3))  # what it began with


def test_a_server_that_could_not_begin_fails_its_job(jobs: Jobs) -> None:
    record = created(jobs)
    jobs.train(record, Training())
    Scripted.started[-1].code = 1
    jobs.tick()
    assert (record.status, record.reason) == ("failed", "its server could not begin; the log says why")


def test_a_server_that_is_called_wrongly_is_not_called_so_again(jobs: Jobs, settings: HubSettings) -> None:
    record, server = training(jobs, settings)
    server.code = module.WRONG_USAGE
    jobs.tick()
    assert (record.status, len(Scripted.started)) == ("failed", 1)


@pytest.mark.parametrize("reason", [f"{DIVERGED} at step 50", f"{NO_LOSS} in the first 3 steps"])
def test_a_run_that_did_not_learn_fails_its_job(jobs: Jobs, settings: HubSettings, reason: str) -> None:
    record, server = training(jobs, settings)
    run = jobs.run(record)
    assert run is not None
    ended(run, step=50, reason=reason)
    server.code = 0
    jobs.tick()
    assert record.status == "failed"


def test_a_server_that_dies_is_started_again_after_a_pause(settings: HubSettings, devices: Devices) -> None:
    now = [0.0]
    jobs = Jobs(settings, devices, clock=lambda: now[0])
    record, server = training(jobs, settings)
    run = jobs.run(record)
    assert run is not None
    show_status(run)
    server.code = -9
    jobs.tick()
    assert (record.status, jobs.server(record), len(Scripted.started)) == ("training", "", 1)
    now[0] = 0.9
    jobs.tick()
    assert len(Scripted.started) == 1
    now[0] = 1.0
    jobs.tick()
    assert Scripted.started[-1].arguments[-2:] == ["--resume", str(run.path)]
    assert "restarted from its journal in 1 s" in jobs.folder(record).log.read_text()


def test_a_server_that_dies_at_once_again_and_again_fails_its_job(settings: HubSettings, devices: Devices) -> None:
    now = [0.0]
    jobs = Jobs(settings, devices, clock=lambda: now[0])
    record, _ = training(jobs, settings)
    for _ in range(MOST_AT_ONCE):
        Scripted.started[-1].code = -11
        jobs.tick()
        now[0] += 60.0
        jobs.tick()
    assert record.status == "failed"
    assert "again and again" in record.reason
    assert len(Scripted.started) == MOST_AT_ONCE


def test_an_operator_stops_a_job_and_no_second_server_has_its_run(jobs: Jobs, settings: HubSettings) -> None:
    record, server = training(jobs, settings)
    server.code = None
    server.terminate = lambda: server.calls.append("terminate")  # type: ignore[method-assign]
    jobs.stop(record)
    assert (record.status, server.calls) == ("stopped", ["terminate"])
    with refused(409, "still ending"):
        jobs.train(record, Training())
    server.code = 0
    jobs.tick()
    assert record.status == "stopped"
    jobs.train(record, Training())
    with refused(409, "expected it in training"):
        jobs.stop(created(jobs))


def test_a_job_that_had_all_its_steps_when_it_was_stopped_is_completed(jobs: Jobs, settings: HubSettings) -> None:
    record, _ = training(jobs, settings)
    run = jobs.run(record)
    assert run is not None
    jobs.stop(record)
    ended(run, step=30, steps=30)
    jobs.tick()
    assert (record.status, record.reason) == ("completed", "")
    jobs.train(record, Training(epochs=3))
    jobs.stop(record)  # before its server has said anything
    jobs.tick()
    assert (record.status, record.steps) == ("stopped", 60)


def test_a_job_that_waits_for_its_restart_is_stopped_for_good(settings: HubSettings, devices: Devices) -> None:
    now = [0.0]
    jobs = Jobs(settings, devices, clock=lambda: now[0])
    record, server = training(jobs, settings)
    server.code = -9
    jobs.tick()
    jobs.stop(record)
    now[0] = 100.0
    jobs.tick()
    assert (record.status, len(Scripted.started)) == ("stopped", 1)


def again(settings: HubSettings) -> Jobs:
    """Another hub over the same folder."""
    jobs = Jobs(settings, Devices(), clock=lambda: 0.0)
    jobs.take_up()
    return jobs


def test_a_hub_that_was_killed_finds_its_jobs_and_their_servers_again(jobs: Jobs, settings: HubSettings) -> None:
    record, _ = training(jobs, settings)
    created(jobs, LAYERS)
    later = again(settings)
    assert later.records == jobs.records
    assert (later.server(later.records[1]), len(Scripted.started)) == ("127.0.0.1:5001", 1)
    assert record.asked == TEXT


def test_what_ended_while_no_hub_was_there_is_found_out(jobs: Jobs, settings: HubSettings) -> None:
    for step in (100, 50):
        record, server = training(jobs, settings)
        run = jobs.run(record)
        assert run is not None
        ended(run, step=step)
        del Scripted.alive[server.process.pid]
    assert [record.status for record in again(settings).records.values()] == ["completed", "stopped"]


def test_a_server_of_which_nobody_knows_the_run_is_replaced(jobs: Jobs, settings: HubSettings) -> None:
    jobs.train(created(jobs), Training())
    first = Scripted.started[-1]
    later = again(settings)
    assert first.calls == ["kill"]
    assert (len(Scripted.started), later.records[1].status) == (2, "training")


def test_a_hub_that_ends_takes_its_servers_along_and_the_next_one_goes_on(jobs: Jobs, settings: HubSettings) -> None:
    record, server = training(jobs, settings)
    run = jobs.run(record)
    assert run is not None
    jobs.close()
    ended(run, step=50)
    del Scripted.alive[server.process.pid]
    assert server.calls == ["terminate"]
    assert again(settings).records[1].status == "training"
    assert Scripted.started[-1].arguments[-2:] == ["--resume", str(run.path)]


def test_the_order_of_a_job_has_no_words_of_a_request_in_its_code(jobs: Jobs, settings: HubSettings) -> None:
    hostile = {"model_config": {"type": "transformer"}, "dataset_config": {"source": '"); import os; ("'}}
    record = created(jobs, hostile)
    jobs.train(record, Training())
    assert "import os" not in (settings.jobs / "1" / "task.py").read_text()
    assert (settings.jobs / "1" / "task.py").read_text() == TASK_SOURCE
    assert not any("import os" in argument for argument in Scripted.started[-1].arguments)
    assert Path(Scripted.started[-1].arguments[Scripted.started[-1].arguments.index("--task") + 1]).is_absolute()


def free_pair() -> int:
    """The first of two free ports, outside the range from which the system gives one to whoever asks for any."""
    while True:
        first = random.randrange(20_000, 30_000)
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", first)),
            socket.create_server(("127.0.0.1", first + 1)),
        ):
            return first


def test_each_server_has_a_port_of_its_own_before_it_listens(settings: HubSettings, devices: Devices) -> None:
    first = free_pair()
    two = Jobs(msgspec.structs.replace(settings, job_ports=range(first, first + 2)), devices)
    for _ in range(2):
        two.train(created(two), Training())
    assert sorted(record.port for record in two.records.values()) == [first, first + 1]
    with refused(409, "all are in use"):
        two.train(created(two), Training())
    assert two.records[3].status == "created"


def test_a_job_whose_server_cannot_be_restarted_fails(settings: HubSettings, devices: Devices) -> None:
    now = 0.0
    jobs = Jobs(settings, devices, clock=lambda: now)
    record, server = training(jobs, settings)
    server.code = -9
    jobs.tick()
    now = 1e6
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        jobs._settings = msgspec.structs.replace(settings, job_ports=range(port, port + 1))
        jobs.tick()
    assert (record.status, "all are in use" in record.reason) == ("failed", True)
