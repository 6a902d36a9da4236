import sys
import threading
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedlearn.hub import app as module
from fedlearn.hub.app import Hub
from fedlearn.hub.devices import FORGET_S
from fedlearn.hub.settings import HubSettings
from fedlearn.hub.tokens import COOKIE
from fedlearn.storage.durable import StorageError
from tests.board.folders import show_status, volunteer
from tests.hub.conftest import LAYERS, PORT, TEXT, Scripted, ended
from tests.patience import LIMIT_S


def train(client: TestClient, body: dict[str, Any] = TEXT) -> Scripted:
    client.post("/api/jobs", json=body)
    assert client.post("/api/network/train/1", json={}).status_code == 200
    return Scripted.started[-1]


def begin(client: TestClient, hub: Hub, settings: HubSettings) -> Scripted:
    """A job in training, whose server listens."""
    server = train(client)
    server.begin(settings)
    hub.jobs.tick()
    return server


def test_a_job_is_made_and_shown_as_it_was_asked_for(client: TestClient) -> None:
    made = client.post("/api/jobs", json=TEXT)
    assert (made.status_code, made.json()) == (201, {"message": "Job created", "job_id": "1"})
    job = client.get("/api/jobs/1").json()
    assert {key: job[key] for key in ("job_id", "status", "devices", *TEXT)} == {
        "job_id": "1",
        "status": "created",
        "devices": [],
        **TEXT,
    }
    assert client.get("/api/jobs").json() == {"jobs": [job | {"devices": 0}]}
    assert client.get("/api/jobs?details=1").json() == {"jobs": [job]}


@pytest.mark.parametrize(("name", "status"), [("7", 404), ("none", 400), ("-1", 400), ("1.0", 400), ("9" * 40, 400)])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/jobs/{}"),
        ("DELETE", "/api/jobs/{}"),
        ("GET", "/api/jobs/{}/events"),
        ("GET", "/api/jobs/{}/log"),
        ("GET", "/api/jobs/{}/model"),
        ("POST", "/api/network/initialize/{}"),
        ("POST", "/api/network/train/{}"),
        ("POST", "/api/network/stop/{}"),
        ("GET", "/api/devices/{}/work"),
        ("DELETE", "/api/devices/{}"),
    ],
)
def test_what_is_not_there_is_said_to_be_not_there(
    client: TestClient, method: str, path: str, name: str, status: int
) -> None:
    answer = client.request(method, path.format(name))
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


def test_bodies_are_json_of_some_size(client: TestClient) -> None:
    plain = client.post("/api/jobs", content=b"{}", headers={"Content-Type": "text/plain"})
    large = client.post("/api/jobs", content=b" " * 20_000, headers={"Content-Type": "application/json"})
    wrong = client.post("/api/jobs", json={"model_config": 1})
    assert [answer.status_code for answer in (plain, large, wrong)] == [415, 413, 400]
    assert all("expected" in answer.json()["error"] for answer in (plain, large, wrong))


def test_training_says_what_it_begins_with_and_begins_once(client: TestClient) -> None:
    client.post("/api/jobs", json=TEXT)
    begun = client.post("/api/network/train/1", json={"epochs": 3, "learning_rate": 0.5})
    assert begun.json() == {"message": "Training started", "epochs": 3, "learning_rate": 0.5}
    assert client.get("/api/jobs/1").json()["status"] == "training"
    assert client.post("/api/network/train/1", json={}).status_code == 409
    client.post("/api/jobs", json=TEXT)
    assert client.post("/api/network/train/2").json()["epochs"] == 3  # without a body


def test_a_hub_that_fails_says_so_without_a_path(
    hub: Hub, client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("/secret/place: could not be written")

    monkeypatch.setattr(hub.jobs, "create", fail)
    answer = client.post("/api/jobs", json=TEXT)
    assert (answer.status_code, answer.json()) == (500, {"error": "the hub failed; its terminal says why"})
    assert "/secret/place" in capsys.readouterr().err


def test_any_other_error_is_a_sentence_too(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(hub.jobs, "create", fail)
    with TestClient(
        hub.app(), base_url=f"http://localhost:{PORT}", client=("127.0.0.1", 1), raise_server_exceptions=False
    ) as client:
        answer = client.post("/api/jobs", json=TEXT)
    assert (answer.status_code, list(answer.json())) == (500, ["error"])
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/jobs"),
        ("GET", "/api/jobs"),
        ("GET", "/api/jobs/1"),
        ("DELETE", "/api/jobs/1"),
        ("GET", "/api/jobs/1/events"),
        ("GET", "/api/jobs/1/log"),
        ("GET", "/api/jobs/1/model"),
        ("POST", "/api/devices/register"),
        ("GET", "/api/devices"),
        ("GET", "/api/devices/1/work"),
        ("DELETE", "/api/devices/1"),
        ("POST", "/api/network/initialize/1"),
        ("POST", "/api/network/train/1"),
        ("POST", "/api/network/stop/1"),
        ("GET", "/api/teraflops"),
        ("GET", "/api/previous_teraflops"),
        ("POST", "/api/jobs/1/recognize"),
        ("GET", "/api/devices/teraflops"),
        ("GET", "/api/files"),
        ("POST", "/api/session"),
        ("GET", "/api/runs"),
        ("GET", "/api/runs/1/weights"),
        ("GET", "/api/events"),
        ("GET", "/metrics"),
    ],
)
def test_without_a_token_strangers_get_nothing(client: TestClient, method: str, path: str) -> None:
    client.post("/api/jobs", json=TEXT)
    for headers in ({"Host": "hub.example.org"}, {"Host": "evil.example.org"}, {"Origin": "http://evil.example.org"}):
        answer = client.request(method, path, headers=headers)
        assert (answer.status_code, list(answer.json())) == (401, ["error"])
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_device_that_is_told_of_a_token_may_work_and_start_nothing(client: TestClient, settings: HubSettings) -> None:
    far = {"Host": "hub.example.org", "Authorization": f"Bearer {settings.device_token}"}
    assert client.post("/api/devices/register", json={}, headers=far).status_code == 201
    assert client.post("/api/jobs", json=TEXT, headers=far).status_code == 401
    operator = far | {"Authorization": f"Bearer {settings.operator_token}"}
    assert client.post("/api/jobs", json=TEXT, headers=operator).status_code == 201
    assert client.delete("/api/devices/1", headers=far).status_code == 200


def test_a_page_has_a_cookie_that_scripts_and_other_sites_do_not(client: TestClient, settings: HubSettings) -> None:
    far = {"Host": "hub.example.org"}
    given = client.post("/api/session", headers=far | {"Authorization": f"Bearer {settings.operator_token}"})
    cookie = given.headers["Set-Cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    client.cookies.clear()
    assert client.get("/api/jobs", headers=far | {"Cookie": f"{COOKIE}={settings.operator_token}"}).status_code == 200


def test_devices_register_for_a_job_there_is_and_unregister(client: TestClient) -> None:
    client.post("/api/jobs", json=TEXT)
    body = {"ip": "192.168.1.9", "port": 5001, "job_id": 1}
    made = client.post("/api/devices/register", json=body)
    assert (made.status_code, made.json()) == (201, {"message": "Device registered", "device_id": 5001})
    (device,) = client.get("/api/jobs/1").json()["devices"]
    assert (device["ip"], device["port"], device["layers"]) == ("192.168.1.9", 5001, [])
    assert client.post("/api/devices/register", json=body | {"ip": "10.0.0.1"}).status_code == 409
    assert client.post("/api/devices/register", json={"job_id": 7}).status_code == 404
    assert client.delete("/api/devices/5001").json() == {"message": "Device unregistered"}
    assert client.get("/api/devices").json() == []


def work(client: TestClient, device: int = 1, has: str = "") -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/devices/{device}/work", params={"has": has}).json()
    return found


def test_a_device_is_told_where_to_go_and_when_to_leave(client: TestClient, hub: Hub, settings: HubSettings) -> None:
    client.post("/api/jobs", json=TEXT)
    client.post("/api/devices/register", json={"job_id": 1})
    client.post("/api/devices/register", json={})
    client.post("/api/network/train/1", json={})
    server = Scripted.started[-1]
    assert server.arguments[server.arguments.index("--volunteers") + 1] == "0"
    run = server.begin(settings)
    hub.jobs.tick()
    told = {"state": "join", "job_id": 1, "server": "127.0.0.1:5001", "calls": []}
    assert (work(client), work(client, 2)) == (told, told)
    ended(run, step=100)
    server.code = 0
    hub.jobs.tick()
    assert work(client, 1, has="127.0.0.1:5001") == {"state": "leave", "job_id": 1, "server": "", "calls": []}
    assert work(client, 2, has="127.0.0.1:5001")["state"] == "wait"


def test_devices_of_any_job_spread_over_those_that_are_trained(
    client: TestClient, hub: Hub, settings: HubSettings
) -> None:
    for number in (1, 2):
        client.post("/api/jobs", json=TEXT)
        client.post(f"/api/network/train/{number}", json={})
        Scripted.started[-1].begin(settings, run=str(number), port=5000 + number)
    hub.jobs.tick()
    for _ in range(4):
        client.post("/api/devices/register", json={})
    assert [work(client, device)["job_id"] for device in (1, 2, 3, 4)] == [1, 2, 1, 2]


def test_a_device_without_work_is_answered_as_soon_as_there_is_some(
    client: TestClient, hub: Hub, settings: HubSettings
) -> None:
    client.post("/api/devices/register", json={})
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.append(work(client)))
    waiting.start()
    begin(client, hub, settings)
    waiting.join(timeout=module.WAIT_S / 2)
    assert [answer["state"] for answer in found] == ["join"]


def test_a_device_that_comes_later_is_not_given_to_a_job_whose_devices_were_chosen(
    client: TestClient, hub: Hub, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    client.post("/api/jobs", json=LAYERS)
    client.post("/api/devices/register", json={})
    assert client.post("/api/network/initialize/1", json={"devices": [1]}).status_code == 200
    client.post("/api/network/train/1", json={})
    Scripted.started[-1].begin(settings)
    hub.jobs.tick()
    client.post("/api/devices/register", json={})
    assert [work(client, number)["state"] for number in (1, 2)] == ["join", "wait"]


def test_a_device_waits_no_longer_than_proxies_do(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    client.post("/api/devices/register", json={})
    assert work(client) == {"state": "wait", "job_id": None, "server": "", "calls": []}


def test_a_device_that_asks_is_known_and_one_that_is_silent_forgotten(
    client: TestClient, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    for _ in range(2):
        client.post("/api/devices/register", json={})
    for device in hub._devices.all():
        device.seen -= FORGET_S - 10
    work(client)
    assert [time.monotonic() - device.seen < 10 for device in hub._devices.all()] == [True, False]
    hub._devices.get(2).seen -= 10
    ticks = threading.Event()
    while len(client.get("/api/devices").json()) == 2:
        ticks.wait(0.05)
    assert [device["device_id"] for device in client.get("/api/devices").json()] == [1]


def test_a_job_that_is_stopped_keeps_its_device_for_when_it_goes_on(
    client: TestClient, hub: Hub, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post("/api/jobs", json=TEXT)
    client.post("/api/devices/register", json={"job_id": 1})
    client.post("/api/network/train/1", json={})
    Scripted.started[-1].begin(settings)
    hub.jobs.tick()
    assert client.post("/api/network/stop/1").json() == {"message": "Stopping"}
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    assert work(client, has="127.0.0.1:5001")["state"] == "wait"
    assert client.get("/api/jobs/1").json()["status"] == "stopped"


def test_speed_is_that_of_the_trials(client: TestClient, hub: Hub, settings: HubSettings) -> None:
    client.post("/api/devices/register", json={"name": "ada"})
    begin(client, hub, settings)
    run = hub.jobs.run(hub.jobs.get(1))
    assert run is not None
    show_status(run, volunteers=(volunteer("ada", members_per_s=90.0), volunteer("bob", members_per_s=30.0)))
    total = client.get("/api/teraflops").json()["teraflops"]
    assert total > 0
    lines = client.get("/api/devices/teraflops").json()["devices"]
    assert [line["teraflops"] / total for line in lines] == pytest.approx([0.75, 0.25])
    assert [(line["device_id"], line["job_id"]) for line in lines] == [(1, "1"), (None, "1")]
    client.post("/api/network/stop/1")
    assert client.get("/api/teraflops").json() == {"teraflops": 0}
    assert client.get("/api/previous_teraflops").json() == {"previous_teraflops": total}


def test_a_job_is_named_by_text_or_by_a_number(client: TestClient) -> None:
    client.post("/api/jobs", json=TEXT)
    for name in (1, "1"):
        assert client.post("/api/devices/register", json={"job_id": name}).status_code == 201
    assert [device["job_id"] for device in client.get("/api/devices").json()] == ["1", "1"]
    assert client.post("/api/devices/register", json={"job_id": "one"}).status_code == 400
    assert client.post("/api/devices/register", json={"job_id": "2"}).status_code == 404


def test_a_job_that_was_never_trained_has_no_weights(client: TestClient) -> None:
    client.post("/api/jobs", json=TEXT)
    assert client.get("/api/jobs/1/model").status_code == 404
    assert client.post("/api/jobs/1/recognize", json={"pixels": [0.5]}).status_code == 404


def test_the_log_is_read_whole_and_followed_to_its_end(client: TestClient, hub: Hub, settings: HubSettings) -> None:
    server = begin(client, hub, settings)
    assert client.get("/api/jobs/1/log").text == "hub: created\n"
    run = hub.jobs.run(hub.jobs.get(1))
    assert run is not None
    followed: list[str] = []
    reading = threading.Thread(target=lambda: followed.append(client.get("/api/jobs/1/log?follow=1").text))
    reading.start()
    hub.jobs.folder(hub.jobs.get(1)).say("later")
    ended(run, step=100)
    server.code = 0
    reading.join(timeout=LIMIT_S)
    assert followed == ["hub: created\nhub: later\nhub: completed\n"]


def test_readers_are_few(client: TestClient, hub: Hub, settings: HubSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 0)
    client.post("/api/jobs", json=TEXT)
    few = Hub(settings, hub._names)
    with TestClient(few.app(), base_url=f"http://localhost:{PORT}", client=("127.0.0.1", 1)) as crowded:
        assert crowded.get("/api/jobs/1/log").status_code == 429


def test_files_to_choose_from_are_listed(client: TestClient, settings: HubSettings) -> None:
    (settings.tasks / "mine.py").write_text("task = 1")
    (settings.tasks / "notes.txt").write_text("")
    assert client.get("/api/files").json() == {"data": ["text.txt"], "tasks": ["mine.py"]}


def test_pages_come_from_here_alone_and_one_leads_to_the_other(client: TestClient) -> None:
    board, jobs = client.get("/"), client.get("/jobs")
    assert b'href="jobs"' in board.content
    assert "New job" in jobs.text
    for page in (board, jobs):
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    assert "javascript" in client.get("/jobs.js").headers["Content-Type"]
    assert client.get("/board.css").status_code == 200
    for path in sorted(module.STATIC.iterdir()):
        text = path.read_text(encoding="utf-8")
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "http:"):
            assert unsafe not in text, path


@pytest.mark.skipif(sys.platform == "win32", reason="links take a privilege there")
def test_a_text_that_a_link_leads_out_to_is_refused(client: TestClient, settings: HubSettings) -> None:
    (settings.data / "out").symlink_to("/etc")
    answer = client.post("/api/jobs", json={**TEXT, "dataset_config": {"source": "out/passwd"}})
    assert (answer.status_code, "expected a name within" in answer.json()["error"]) == (400, True)
