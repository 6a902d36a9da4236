"""Calls of verbs: by an operator, through a hub, to a device and back."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from fedlearn.hub import app as module
from fedlearn.hub import calls as calls_module
from fedlearn.hub.app import Hub
from fedlearn.hub.settings import HubSettings
from tests.hub.conftest import PORT

VERBS = {"name": "ada", "verbs": ["restart", "say"]}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.0)


def asked(client: TestClient, verb: str = "say", body: Any = None, device: int = 1) -> Any:  # noqa: ANN401
    return client.post(f"/api/devices/{device}/verbs/{verb}", json={"n": 1} if body is None else body)


def test_a_call_reaches_its_device_once_and_its_answer_comes_back(client: TestClient) -> None:
    client.post("/api/devices/register", json=VERBS)
    client.post("/api/devices/register", json=VERBS)
    assert asked(client).json() == {"message": "Device 1 is asked", "call_id": 1}
    assert client.get("/api/devices/1/calls/1").json()["state"] == "waiting"
    assert client.get("/api/devices/2/work?has=").json()["calls"] == []
    told = {"call_id": 1, "verb": "say", "arguments": {"n": 1}}
    assert client.get("/api/devices/1/work?has=").json()["calls"] == [told]
    assert client.get("/api/devices/1/work?has=").json()["calls"] == []
    assert client.get("/api/devices/1/calls/1").json()["state"] == "running"
    assert client.post("/api/devices/1/calls/1", json={"code": 4, "output": "done"}).status_code == 200
    assert client.get("/api/devices/1/calls/1").json() == {**told, "state": "done", "code": 4, "output": "done"}
    again = client.post("/api/devices/1/calls/1", json={"code": 0, "output": ""})
    assert (again.status_code, again.json()["error"]) == (409, "call 1: expected one that runs, it is done")


def test_a_device_may_refuse(client: TestClient) -> None:
    client.post("/api/devices/register", json=VERBS)
    asked(client)
    client.get("/api/devices/1/work?has=")
    client.post("/api/devices/1/calls/1", json={"code": None, "output": "verb say: expected an executable"})
    found = client.get("/api/devices/1/calls/1").json()
    assert (found["state"], found["code"], found["output"]) == ("refused", None, "verb say: expected an executable")


def test_what_a_device_does_not_offer_is_not_asked_of_it(client: TestClient) -> None:
    client.post("/api/devices/register", json=VERBS)
    client.post("/api/devices/register", json={"name": "bob"})
    found = asked(client, "reboot")
    assert found.status_code == 404
    assert found.json()["error"] == "verb: expected one that device 1 has, got 'reboot': restart, say"
    assert "none; its owner names a folder of them with join --verbs" in asked(client, device=2).json()["error"]
    assert asked(client, device=3).status_code == 404
    for verb in ("..%2fsay", "%2e%2e", "say;id", "say%20x", "say/x"):
        assert asked(client, verb).status_code in (404, 405), verb


@pytest.mark.parametrize("body", ["text", [1], 7])
def test_arguments_are_an_object(client: TestClient, body: object) -> None:
    client.post("/api/devices/register", json=VERBS)
    assert asked(client, body=body).status_code == 400
    assert client.post("/api/devices/1/verbs/say", content=b"{}").status_code == 415
    assert client.get("/api/devices/1/calls/1").status_code == 404


@pytest.mark.parametrize("verb", ["", "../sh", "Say", "a" * 65, "say x", "-rf", "say\n"])
def test_a_registration_with_what_is_no_name_is_refused(client: TestClient, verb: str) -> None:
    assert client.post("/api/devices/register", json={"verbs": [verb]}).status_code == 400
    assert client.post("/api/devices/register", json={"verbs": ["a"] * 65}).status_code == 400


@pytest.mark.parametrize("answer", [{"code": 999}, {"code": "0"}, {"output": "x" * 70_000}, {"more": 1}])
def test_an_answer_has_a_code_and_a_text(client: TestClient, answer: dict[str, Any]) -> None:
    client.post("/api/devices/register", json=VERBS)
    asked(client)
    client.get("/api/devices/1/work?has=")
    assert client.post("/api/devices/1/calls/1", json=answer).status_code == 400
    assert client.get("/api/devices/1/calls/1").json()["state"] == "running"


def test_calls_that_wait_are_bounded_and_old_ones_are_forgotten(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "MAX_WAITING", 2)
    monkeypatch.setattr(calls_module, "MAX_KEPT", 3)
    client.post("/api/devices/register", json=VERBS)
    assert [asked(client).status_code for _ in range(3)] == [201, 201, 409]
    client.get("/api/devices/1/work?has=")
    assert asked(client).status_code == 409
    for call in (1, 2):
        client.post(f"/api/devices/1/calls/{call}", json={"code": 0})
    assert [asked(client).status_code for _ in range(2)] == [201, 201]
    assert "the last 3 are kept" in client.get("/api/devices/1/calls/1").json()["error"]
    client.delete("/api/devices/1")
    client.post("/api/devices/register", json=VERBS)  # another one, of that number
    assert client.get("/api/devices/1/calls/4").status_code == 404
    assert client.get("/api/devices/1/work?has=").json()["calls"] == []


def test_only_an_operator_calls_and_a_device_only_answers(hub: Hub, settings: HubSettings) -> None:
    base, far = f"http://hub.example.org:{PORT}", ("192.0.2.1", 50000)
    with TestClient(hub.app(), base_url=base, client=far) as client:
        device = {"Authorization": f"Bearer {settings.device_token}"}
        operator = {"Authorization": f"Bearer {settings.operator_token}"}
        assert client.post("/api/devices/register", json=VERBS, headers=device).status_code == 201
        call = "/api/devices/1/verbs/say"
        assert client.post(call, json={}).status_code == 401
        assert client.post(call, json={}, headers=device).status_code == 401
        assert client.post(call, json={}, headers=operator).status_code == 201
        assert client.get("/api/devices/1/calls/1", headers=device).status_code == 401
        client.get("/api/devices/1/work?has=", headers=device)
        assert client.post("/api/devices/1/calls/1", json={"code": 0}).status_code == 401
        assert client.post("/api/devices/1/calls/1", json={"code": 0}, headers=device).status_code == 200
