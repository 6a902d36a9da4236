"""Logs of devices, which their owners share."""

import pytest
from starlette.testclient import TestClient

from fedlearn.hub import device_logs as module
from fedlearn.hub.app import Hub
from fedlearn.hub.device_logs import DeviceLogs
from fedlearn.hub.settings import HubSettings
from tests.hub.conftest import PORT


def test_of_many_lines_the_last_ones_are_kept_and_each_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 3)
    logs = DeviceLogs()
    logs.add(1, ["a", "b"])
    assert logs.since(1, 0) == (["a", "b"], 2)
    assert logs.since(1, 2) == ([], 2)
    logs.add(1, ["c", "d"])
    assert logs.since(1, 2) == (["c", "d"], 4)
    assert logs.since(1, 0) == (["b", "c", "d"], 4)
    assert logs.since(2, 0) == ([], 0)


async def test_whoever_follows_reads_what_is_said_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 0.0)
    logs, read = DeviceLogs(), list[bytes]()
    logs.add(1, ["one"])
    async for piece in logs.follow(1, lambda: len(read) == 2):
        read.append(piece)
        if len(read) == 1:
            logs.add(1, ["two", "three"])
    assert read == [b"one\n", b"two\nthree\n"]


def test_a_device_says_what_an_operator_reads(client: TestClient) -> None:
    client.post("/api/devices/register", json={"name": "ada"})
    assert client.post("/api/devices/1/log", json={"lines": ["joined run 1", "\x1b[2Jstep 3"]}).status_code == 200
    assert client.get("/api/devices/1/log").text == "joined run 1\n [2Jstep 3\n"
    assert client.post("/api/devices/2/log", json={"lines": ["x"]}).status_code == 404
    assert client.get("/api/devices/2/log").status_code == 404
    for wrong in ({"lines": ["x"] * 101}, {"lines": ["x" * 1001]}, {"lines": "x"}, {}):
        assert client.post("/api/devices/1/log", json=wrong).status_code == 400
    client.delete("/api/devices/1")
    client.post("/api/devices/register", json={"name": "bob"})
    assert client.get("/api/devices/1/log").text == ""


def test_a_device_reads_no_log(hub: Hub, settings: HubSettings) -> None:
    base, far = f"http://hub.example.org:{PORT}", ("192.0.2.1", 50000)
    with TestClient(hub.app(), base_url=base, client=far) as client:
        device = {"Authorization": f"Bearer {settings.device_token}"}
        assert client.post("/api/devices/register", json={}, headers=device).status_code == 201
        assert client.post("/api/devices/1/log", json={"lines": ["x"]}).status_code == 401
        assert client.post("/api/devices/1/log", json={"lines": ["x"]}, headers=device).status_code == 200
        assert client.get("/api/devices/1/log", headers=device).status_code == 401
        operator = {"Authorization": f"Bearer {settings.operator_token}"}
        assert client.get("/api/devices/1/log", headers=operator).text == "x\n"
