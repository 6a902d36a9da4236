import threading

import pytest
from starlette.testclient import TestClient

from fedlearn.hub import app
from fedlearn.hub.app import Hub
from fedlearn.hub.devices import Devices
from fedlearn.hub.jobs.jobs import Jobs
from fedlearn.hub.settings import HubSettings
from tests.hub.conftest import TEXT, Scripted, ended


def test_a_job_that_has_ended_is_forgotten_and_its_run_stays(
    client: TestClient, hub: Hub, settings: HubSettings
) -> None:
    client.post("/api/jobs", json=TEXT)
    client.post("/api/network/train/1", json={})
    server = Scripted.started[-1]
    run = server.begin(settings)
    hub.jobs.tick()
    refused = client.delete("/api/jobs/1")
    assert (refused.status_code, "POST /api/network/stop/1" in refused.json()["error"]) == (409, True)
    client.post("/api/network/stop/1")
    ended(run, step=50)
    assert client.delete("/api/jobs/1").json() == {
        "message": "Job deleted; its run 1 stays in the hub's folder of runs"
    }
    assert run.path.is_dir()
    assert client.get("/api/jobs").json() == {"jobs": []}
    assert [client.get("/api/jobs/1").status_code, client.delete("/api/jobs/1").status_code] == [404, 404]


@pytest.mark.parametrize("ask", ["delete", "train"])
def test_a_server_that_was_told_to_stop_is_awaited(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    client.post("/api/jobs", json=TEXT)
    client.post("/api/network/train/1", json={})
    server = Scripted.started[-1]
    monkeypatch.setattr(server, "terminate", lambda: None)
    client.post("/api/network/stop/1")

    def asked() -> tuple[int, bool]:
        told = client.delete("/api/jobs/1") if ask == "delete" else client.post("/api/network/train/1", json={})
        return told.status_code, "still ending; try again" in told.text

    with monkeypatch.context() as patched:
        patched.setattr(app, "ENDING_S", 0.1)
        assert asked() == (409, True)
    threading.Timer(0.3, setattr, (server, "code", 0)).start()
    assert asked() == (200, False)


def test_nobody_else_gets_the_number_of_a_job_that_was_deleted(client: TestClient, settings: HubSettings) -> None:
    for number in (1, 2):
        assert client.post("/api/jobs", json=TEXT).json()["job_id"] == str(number)
        assert client.delete(f"/api/jobs/{number}").json() == {"message": "Job deleted"}
    assert Jobs(settings, Devices()).records == {}
    assert [list(path.iterdir()) for path in settings.jobs.iterdir()] == [[], []]


def test_a_device_leaves_when_its_job_is_deleted(client: TestClient) -> None:
    client.post("/api/jobs", json=TEXT)
    client.post("/api/devices/register", json={"job_id": 1})
    client.delete("/api/jobs/1")
    assert client.get("/api/devices/1/work", params={"has": ""}).json()["state"] == "leave"
