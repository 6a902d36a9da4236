import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fedlearn.client.hub_line import HubAwayError, HubError, HubLine, Work, hub_url
from tests.http_answering import answering


class Scene:
    """A hub that answers what a test wants."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, str, Any, dict[str, str]]] = []
        self.url = ""

    def say(self, content: object, status: int = 200) -> None:
        self.status, self.body = status, json.dumps(content).encode()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            scene.asked.append((self.command, self.path, json.loads(body or b"null"), dict(self.headers)))
            self.send_response(scene.status)
            for name, value in scene.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(scene.body)))
            self.end_headers()
            self.wfile.write(scene.body)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            return

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as scene.url:
        yield scene


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:4000", "http://localhost:4000"),
        ("http://hub/", "http://hub"),
        ("https://hub.example.org/fedlearn/", "https://hub.example.org/fedlearn"),
        ("localhost", "http://localhost:4000"),
        ("10.0.0.1:5000", "http://10.0.0.1:5000"),
    ],
)
def test_a_hub_is_named_as_people_name_it(text: str, url: str) -> None:
    assert hub_url(text) == url


@pytest.mark.parametrize(
    "text", ["ftp://hub", "http://", "http://me:secret@hub", "http://hub?a=1", "hub:none", "file:///x"]
)
def test_what_is_no_hub_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--hub: expected a URL"):
        hub_url(text)


def test_a_device_registers_works_and_leaves(scene: Scene) -> None:
    line = HubLine(scene.url, b"device's")
    scene.say({"message": "Device registered", "device_id": 7})
    assert line.register("ada", 1) == 7
    assert line.register("ada", None, port=7) == 7
    scene.say({"state": "join", "job_id": 1, "server": "127.0.0.1:5001"})
    assert line.work(7, has="a b&c") == Work("join", 1, "127.0.0.1:5001")
    line.unregister(7, timeout_s=5)
    assert [(method, path, body) for method, path, body, _ in scene.asked] == [
        ("POST", "/api/devices/register", {"name": "ada", "job_id": 1}),
        ("POST", "/api/devices/register", {"name": "ada", "port": 7}),
        ("GET", "/api/devices/7/work?has=a+b%26c", None),
        ("DELETE", "/api/devices/7", None),
    ]
    assert {headers["Authorization"] for *_, headers in scene.asked} == {"Bearer device's"}


def test_no_token_is_sent_where_none_is_known(scene: Scene) -> None:
    scene.say({"device_id": 1})
    HubLine(scene.url, b"").register("ada", None)
    assert "Authorization" not in scene.asked[0][3]


def test_a_refusal_is_the_hubs_sentence(scene: Scene) -> None:
    scene.say({"error": "job 9: there is none"}, status=404)
    with pytest.raises(HubError, match="job 9: there is none") as refused:
        HubLine(scene.url, b"").register("ada", 9)
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"device_id": "1"}'),
        (200, b"[" * 9000),
        (404, b"<html>"),
        (404, b"[]"),
        (502, b'{"error": "x"}'),
        (500, b'{"error": "x"}'),
        (200, b" " * 100_000),
    ],
)
def test_any_other_answer_is_as_none(scene: Scene, status: int, body: bytes) -> None:
    scene.status, scene.body = status, body
    with pytest.raises(HubAwayError):
        HubLine(scene.url, b"").register("ada", None)


@pytest.mark.parametrize(
    "work",
    [
        {"state": "run", "server": "127.0.0.1:5001"},
        {"state": "join", "server": "--task=/home/ada/mine.py:task"},
        {"state": "join", "server": "127.0.0.1"},
        {"state": "join", "server": 5001},
    ],
)
def test_work_of_another_shape_is_as_none(scene: Scene, work: dict[str, Any]) -> None:
    scene.say(work)
    with pytest.raises(HubAwayError):
        HubLine(scene.url, b"").work(1, has="")


def test_what_becomes_an_argument_is_an_address_and_no_flag(scene: Scene) -> None:
    scene.say({"state": "join", "server": "-x:1"})
    assert HubLine(scene.url, b"").work(1, has="").server == "fedlearn://-x:1"


def test_a_token_is_not_carried_elsewhere(scene: Scene) -> None:
    scene.status, scene.headers = 302, {"Location": f"{scene.url}/elsewhere"}
    with pytest.raises(HubAwayError):
        HubLine(scene.url, b"device's").work(1, has="")
    assert len(scene.asked) == 1


def test_nobody_at_home_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(HubAwayError, match=f"no hub answers at http://.*:{port}: nothing listens at 127.0.0.1:{port}$"):
        HubLine(f"http://127.0.0.1:{port}", b"").register("ada", None)


def test_this_machine_is_asked_without_a_proxy(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    scene.say({"device_id": 1})
    assert HubLine(scene.url, b"").register("ada", None) == 1
