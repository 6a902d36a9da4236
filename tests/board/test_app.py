import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fedlearn.board import app as module
from fedlearn.board.app import Board
from fedlearn.board.generation import Abilities, TextDelta
from fedlearn.runs.run import KIND_FILE, Run
from fedlearn.storage.checkpoint import checkpoint_at
from tests.board.conftest import ADDRESS, NAMES
from tests.board.folders import made_anew, show_status, write_sample, write_steps


def test_page_and_its_parts_come_from_here_alone(client: TestClient) -> None:
    answer = client.get("/")
    assert (answer.status_code, "fedlearn" in answer.text) == (200, True)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for path in sorted(module.STATIC.iterdir()):
        assert client.get(f"/{path.name}").status_code == 200
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="):
            assert unsafe not in text, path


def test_runs_are_listed_newest_first(client: TestClient, root: Path, run: Run) -> None:
    (root / "2").mkdir()
    (root / "2" / "config.json").write_text("{}")
    assert [found["name"] for found in client.get("/api/runs").json()] == ["2", "1"]
    write_steps(run.folder, range(3))
    assert [found["step"] for found in client.get("/api/runs").json()] == [0, 3]


def test_run_is_described_with_its_status(client: TestClient, run: Run) -> None:
    show_status(run)
    found = client.get("/api/runs/1").json()
    assert (found["task"], found["status"]["step"]) == ("rnn", 12)


def test_history_grows_with_the_run(client: TestClient, run: Run) -> None:
    write_steps(run.folder, range(3))
    write_sample(run.folder, 2, "<b>text</b>")
    first = client.get("/api/runs/1/history").json()
    assert (first["curve"]["axes"]["step"], first["samples"][0]["text"]) == ([0, 1, 2], "<b>text</b>")
    write_steps(run.folder, range(3, 5))
    second = client.get("/api/runs/1/history").json()
    assert (second["curve"]["axes"]["step"], second["version"]) == ([0, 1, 2, 3, 4], first["version"] + 1)


@pytest.mark.parametrize("name", ["2", "01", "-1", "..", "%2e%2e", "..%2f1", "1%2f..%2f1", "latest", "1" * 4000])
@pytest.mark.parametrize("what", ["", "/history", "/weights", "/abilities"])
def test_only_runs_by_their_numbers_are_found(client: TestClient, name: str, what: str) -> None:
    assert client.get(f"/api/runs/{name}{what}").status_code == 404


def test_damaged_run_is_told_without_its_path(client: TestClient, run: Run, tmp_path: Path) -> None:
    run.folder.config.write_text("{")
    answer = client.get("/api/runs/1")
    assert answer.status_code == 503
    assert str(tmp_path) not in answer.text
    (run.folder.data / KIND_FILE).write_text("transformer")
    assert client.get("/api/runs/1").status_code == 503


def test_newest_checkpoint_is_downloaded_as_it_is(client: TestClient, run: Run) -> None:
    answer = client.get("/api/runs/1/weights")
    assert answer.content == run.folder.genesis.read_bytes()
    assert "fedlearn-run1-genesis.safetensors" in answer.headers["Content-Disposition"]
    for step in (5, 40):
        checkpoint_at(run.folder, step).write_bytes(b"%d" % step)
    answer = client.get("/api/runs/1/weights")
    assert answer.content == b"40"
    assert "fedlearn-run1-step40.safetensors" in answer.headers["Content-Disposition"]


@pytest.mark.skipif(sys.platform == "win32", reason="links take a privilege there")
def test_link_to_another_file_is_no_download(client: TestClient, run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    checkpoint_at(run.folder, 5).symlink_to(tmp_path / "secret")
    assert client.get("/api/runs/1/weights").status_code == 404
    checkpoint_at(run.folder, 5).unlink()
    run.folder.genesis.unlink()
    assert client.get("/api/runs/1/weights").status_code == 404


def test_downloads_at_once_are_few(board: Board, client: TestClient) -> None:
    for _ in range(module.DOWNLOADS_OF_ONE + 1):
        assert client.get("/api/runs/1/weights").status_code == 200
    for _ in range(module.DOWNLOADS_OF_ONE):
        assert board._downloads.take("testclient")
    assert client.get("/api/runs/1/weights").status_code == 429
    board._downloads.free("testclient")
    assert client.get("/api/runs/1/weights").status_code == 200


def test_texts_at_once_are_few(board: Board, client: TestClient) -> None:
    for _ in range(module.TEXTS_OF_ONE):
        assert board._texts.take("testclient")
    assert client.post("/api/runs/1/write", json={}).status_code == 429


def test_text_comes_in_pieces_as_the_model_writes_it(client: TestClient) -> None:
    generation = {"prompt": "the ", "length": 20, "temperature": 0.5}
    answer = client.post("/api/runs/1/write", json=generation)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    text = ""
    for line in lines[1:]:
        text = text[: line.get("keep", 0)] + line.get("add", "")
    assert lines[0] == {"step": 0}
    assert lines[-1]["done"]
    assert len(lines) > 10
    assert 10 < len(text) <= 20
    searched = client.post("/api/runs/1/write", json={"beams": 3, "length": 8}).text.splitlines()
    assert json.loads(searched[-1]) == {"keep": 8, "done": True}


@pytest.mark.parametrize(
    "generation",
    [
        b"",
        b"[",
        b"[]",
        b'{"length": 501}',
        b'{"length": 0}',
        b'{"beams": 17}',
        b'{"temperature": -1}',
        b'{"temperature": 1e99}',
        b'{"folder": "/etc"}',
        b'{"prompt": "' + b"x" * 2001 + b'"}',
        b"[" * 9000,
    ],
)
def test_generation_out_of_range_is_refused(client: TestClient, generation: bytes) -> None:
    answer = client.post("/api/runs/1/write", content=generation, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def test_generation_that_another_page_could_send_unasked_is_refused(client: TestClient) -> None:
    assert client.post("/api/runs/1/write", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    large = client.post("/api/runs/1/write", content=b"x" * 20000, headers={"Content-Type": "application/json"})
    assert large.status_code == 413


@pytest.mark.parametrize(
    "content_type", ["text/plain; application/json", "application/jsonp", "", "multipart/form-data"]
)
def test_nothing_but_json_counts_as_json(client: TestClient, content_type: str) -> None:
    answer = client.post("/api/runs/1/write", content=b"{}", headers={"Content-Type": content_type})
    assert answer.status_code == 415


def test_one_address_has_few_generations_a_minute(client: TestClient) -> None:
    codes = [
        client.post("/api/runs/1/write", content=b"").status_code for _ in range(module.GENERATIONS_PER_MINUTE + 1)
    ]
    assert codes == [415] * module.GENERATIONS_PER_MINUTE + [429]


def test_abilities_are_asked_for_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board, asked = Board(root, token="", names=NAMES), []
    with TestClient(board.app(), ADDRESS) as client:
        found = client.get("/api/runs/1/abilities").json()
        assert found["writes"]
        assert list(found["baselines"]) == ["unigram", "bigram", "trigram", "4-gram"]

        async def never(*_: object) -> AsyncIterator[TextDelta]:
            asked.append(1)
            yield TextDelta(done=True)

        monkeypatch.setattr(board, "_asked", never)
        assert client.get("/api/runs/1/abilities").json() == found
    assert asked == []


def test_abilities_are_asked_for_again_of_another_run_and_of_one_that_could_not_be_loaded(
    root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, answers = Board(root, token="", names=NAMES), [None, Abilities(True, {}), Abilities(False, {})]

    async def asked(*_: object) -> AsyncIterator[TextDelta]:
        yield TextDelta(abilities=answers.pop(0), done=True)

    monkeypatch.setattr(board, "_asked", asked)
    with TestClient(board.app(), ADDRESS) as client:
        assert [client.get("/api/runs/1/abilities").json() for _ in range(2)] == [None, None]
        monkeypatch.setattr(module, "AGAIN_S", 0.0)
        assert [client.get("/api/runs/1/abilities").json()["writes"] for _ in range(2)] == [True, True]
        made_anew(run)
        assert not client.get("/api/runs/1/abilities").json()["writes"]
    assert answers == []


def test_model_that_can_not_be_loaded_is_told_without_its_path(client: TestClient, run: Run, tmp_path: Path) -> None:
    (run.folder.data / "train.npy").unlink()
    assert client.get("/api/runs/1/abilities").json() is None
    answer = client.post("/api/runs/1/write", json={})
    assert "can't be used here" in answer.text
    assert str(tmp_path) not in answer.text


def test_viewers_are_bounded_and_ask_for_runs_there_are(board: Board, client: TestClient) -> None:
    assert client.get("/api/events?runs=7").status_code == 404
    for _ in range(module.STREAMS_OF_ONE):
        assert board._streams.take("testclient")
    assert client.get("/api/events?runs=1").status_code == 429


def test_prometheus_is_told_of_runs_that_go_on(client: TestClient, run: Run) -> None:
    write_steps(run.folder, range(3))
    assert 'run="1"' not in client.get("/metrics").text
    show_status(run, figures={"variance_left": 0.25})
    lines = client.get("/metrics").text.splitlines()
    assert 'fedlearn_step{run="1"} 12' in lines
    assert 'fedlearn_volunteers{run="1"} 1' in lines
    assert 'fedlearn_work_per_second{run="1"} 960.0' in lines
    assert 'fedlearn_variance_left{run="1"} 0.25' in lines
    assert 'fedlearn_figure{run="1",name="bits_per_character",source="validation"} 3.5' in lines
    assert "# TYPE fedlearn_step gauge" in lines


def test_requests_of_one_address_are_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlearn.web.guards.RequestGuard.__init__.__kwdefaults__", {"requests_per_minute": 3})
    with TestClient(Board(root, token="", names=NAMES).app(), ADDRESS) as client:
        answers = [client.get("/api/runs") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * 3 + [429]
    assert "Content-Security-Policy" in answers[-1].headers


def test_page_of_another_name_reads_nothing(client: TestClient) -> None:
    for path in ("/", "/api/runs", "/api/runs/1/weights", "/metrics"):
        answer = client.get(path, headers={"Host": "evil.example"})
        assert answer.status_code == 421
        assert "start it with: fedlearn board --public-host evil.example" in answer.text
        assert "Content-Security-Policy" in answer.headers
