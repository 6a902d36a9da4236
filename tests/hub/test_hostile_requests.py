"""Requests as no client of ours makes them: whatever comes, it is answered by a sentence, and the hub goes on."""

import json
import random
from collections import Counter
from typing import Any

import pytest
from starlette.testclient import TestClient

from fedlearn.hub import app as module
from fedlearn.hub.settings import HubSettings
from tests.hub.conftest import LAYERS, PORT, TEXT

N_REQUESTS = 600

STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**70, 1e308, -0.0, 0.5, "", "x", "\x00", "..", "../../../etc/passwd"),
    *("/etc/passwd", "text.txt", "text.txt/..", "a" * 600, "\ud800", "\u202e", "file:///etc/passwd", "mine.py:task"),
    *("http://", "http://[", "mlp", "transformer", "task", "MNIST", [], [[]], {}, [784, 10], [0], ["784"], {"": {}}),
)
PATHS = (
    *("/api/jobs", "/api/jobs/{}", "/api/jobs/{}/log", "/api/jobs/{}/model", "/api/jobs/{}/none"),
    *("/api/network/initialize/{}", "/api/network/train/{}", "/api/network/stop/{}", "/api/network/{}/1"),
    *("/api/devices/register", "/api/devices", "/api/devices/{}", "/api/devices/{}/work", "/api/devices/teraflops"),
    *("/api/files", "/api/runs", "/api/runs/{}", "/api/runs/{}/weights", "/{}", "/api/{}"),
)
NUMBERS = ("1", "2", "0", "-1", "1e3", "٣", "9" * 30, "..", "%2e%2e%2fhub-token", "..%2f..%2fetc%2fpasswd", "%00", "")
HEADERS: tuple[dict[str, str], ...] = (
    *({}, {}, {}, {"Content-Type": "text/plain"}, {"Content-Type": "application/json; charset=utf-7"}),
    *({"Content-Length": "-1"}, {"Transfer-Encoding": "chunked"}, {"Last-Event-ID": "9" * 400}, {"Range": "bytes=9-1"}),
)
STRANGERS: tuple[dict[str, str], ...] = (
    *({"Host": "evil.example.org"}, {"Host": ""}, {"Host": f"localhost:{PORT}@evil.example.org"}),
    *({"Origin": "http://evil.example.org"}, {"X-Forwarded-For": "127.0.0.1"}, {"Forwarded": "for=localhost"}),
    *({"Host": "hub.example.org", "Authorization": "Bearer "}, {"Host": "hub.example.org", "Cookie": "fedlearn-hub="}),
)
BODIES: tuple[dict[str, Any], ...] = (
    *(TEXT, LAYERS, {"model_config": {"type": "task", "task": "mine.py:task"}}, {"epochs": 10, "learning_rate": 0.1}),
    *({"ip": "10.0.0.1", "port": 5001, "job_id": 1, "name": "ada"}, {"wire": "int8-delta", "quantization_bits": 8}),
)
KEPT = ["data", "device-token", "hub-token", "jobs", "runs", "tasks"]
"""What a hub's folder has in it before and after."""


def changed(value: Any, chance: random.Random) -> Any:  # noqa: ANN401
    """The same with something else in it."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        return {**value, (key if chance.random() < 0.9 else f"{key}x"): changed(value[key], chance)}
    return chance.choice(STRANGE)


def body_from(chance: random.Random) -> bytes:
    chosen = chance.choice(BODIES)
    body = json.dumps(chosen if chance.random() < 0.3 else changed(chosen, chance)).encode()
    kind = chance.random()
    if kind < 0.1:
        return body[: chance.randrange(len(body) + 1)]
    return b"[" * 20_000 if kind < 0.12 else b"\xff\xfe" + body if kind < 0.15 else body


@pytest.fixture
def watched(client: TestClient, monkeypatch: pytest.MonkeyPatch, settings: HubSettings) -> TestClient:
    """A hub with two jobs, whose devices are answered at once."""
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    monkeypatch.setattr("fedlearn.hub.tokens.GUESSES_PER_MINUTE", 10**9)
    (settings.tasks / "mine.py").write_text("task = 1")
    for body in (TEXT, LAYERS):
        assert client.post("/api/jobs", json=body).status_code == 201
    return client


@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_is_sent_is_answered_by_a_sentence(watched: TestClient, settings: HubSettings, seed: int) -> None:
    chance, statuses = random.Random(seed), Counter[int]()
    secrets = (settings.operator_token, settings.device_token, str(settings.folder), "root:")
    for _ in range(N_REQUESTS):
        method = chance.choice(("GET", "POST", "POST", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"))
        path = chance.choice(PATHS).format(chance.choice(NUMBERS))
        headers = {"Content-Type": "application/json", **chance.choice(HEADERS)}
        content = body_from(chance) if method != "GET" else b""
        answer = watched.request(method, path, content=content, headers=headers, follow_redirects=False)
        statuses[answer.status_code] += 1
        said = f"{method} {path} {content[:200]!r} {headers}: {answer.status_code} {answer.text[:200]}"
        assert answer.status_code < 500, said
        assert not any(secret in answer.text for secret in secrets), said
        path = answer.request.url.path  # without its dots
        if answer.status_code >= 400 and path.startswith("/api/") and not path.startswith("/api/runs"):
            assert list(answer.json()) == ["error"], said
    assert watched.get("/api/jobs").status_code == 200
    assert sorted(path.name for path in settings.folder.iterdir()) == KEPT
    assert {200, 201, 400, 404, 405, 409, 415} <= set(statuses), statuses
    print(f"{N_REQUESTS} requests, answered by {dict(sorted(statuses.items()))}")


@pytest.mark.parametrize("headers", STRANGERS, ids=str)
def test_strangers_change_nothing_whatever_they_send(watched: TestClient, headers: dict[str, str]) -> None:
    chance, before = random.Random(7), watched.get("/api/jobs").json()
    for _ in range(100):
        path = chance.choice([path for path in PATHS if path.startswith("/api/")]).format(chance.choice(NUMBERS))
        sent = {"Content-Type": "application/json", **headers}
        answer = watched.request(chance.choice(("POST", "DELETE")), path, content=body_from(chance), headers=sent)
        assert answer.status_code in (400, 401, 404, 405, 421), f"{path}: {answer.status_code} {answer.text[:200]}"
    assert watched.get("/api/jobs").json() == before
