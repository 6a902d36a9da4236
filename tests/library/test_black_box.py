import json
import linecache
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

import fedlearn
from fedlearn.library.black_box import MOST_FAILED_IN_A_ROW, BlackBox, Counts, EvaluationError, executable, http_service
from tests.http_answering import answering
from tests.patience import LIMIT_S, until

Answer = tuple[int, bytes]
X = np.array([[1.0, 2.0]], dtype=np.float32)


class Service(ThreadingHTTPServer):
    """A service that gives these answers one after another, and the last one for ever."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/loss"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.headers.append(dict(self.headers))
        status, body = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        if not status:  # the line breaks
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def service(*answers: Answer) -> Iterator[Service]:
    listening = Service(answers)
    with answering(listening):
        yield listening


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlearn.library.black_box.PAUSE_S", 0.0)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import json, sys, time\n{code}"]


def test_arrays_are_posted_by_name_with_the_rows() -> None:
    with service((200, b"0.5")) as there:
        loss = http_service(there.url, headers={"Authorization": "Bearer secret"})
        assert loss({"w": X, "b": np.float32(3)}, {"t": np.array([1, 2])}) == 0.5
        assert loss(X[0]) == 0.5
    assert there.asked == [{"w": [[1.0, 2.0]], "b": 3.0, "rows": {"t": [1, 2]}}, {"x": [1.0, 2.0]}]
    assert there.headers[0]["Authorization"] == "Bearer secret"
    assert there.headers[0]["Content-Type"] == "application/json"
    assert loss.counts == Counts(evaluations=2)


def test_a_service_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    with service((200, b"0.5")) as there:
        assert http_service(there.url, attempts=1)(X) == 0.5


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"3", 3.0),
        (b'{"loss": -1.5, "log": []}', -1.5),
        (b'{"loss": 2}', 2.0),
        (b" 2e3\n", 2e3),
        (b"inf", math.inf),
        (b"-Infinity", -math.inf),
        (b'{"loss": Infinity}', math.inf),
        (b'{"loss": ' + 5000 * b"9" + b"}", math.inf),
    ],
)
def test_answers_are_numbers_or_objects_with_a_loss(answer: bytes, expected: float) -> None:
    with service((200, answer)) as there:
        assert http_service(there.url)(X) == expected


@pytest.mark.parametrize("answer", [b"nan", b"NaN", b'{"loss": NaN}'])
def test_nan_is_an_answer(answer: bytes) -> None:
    with service((200, answer)) as there:
        loss = http_service(there.url)
        assert math.isnan(loss(X))
    assert loss.counts.failed == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"true",
        b'"0.5"',
        b'{"reward": 1}',
        b'{"loss": true}',
        b"[1.0]",
        b"null",
        b"<html>" + 999 * b"x",
        9999 * b"[",
    ],
)
def test_another_answer_is_an_error_that_says_what_came(answer: bytes) -> None:
    with service((200, answer)) as there, pytest.raises(EvaluationError, match="loss: expected JSON such as") as failed:
        http_service(there.url)(X)
    assert answer.decode()[:100] in str(failed.value)
    assert len(str(failed.value)) < 300
    assert len(there.asked) == 1


@pytest.mark.parametrize("status", [0, 408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int) -> None:
    with service((status, b"busy"), (status, b"busy"), (200, b"0.5")) as there:
        loss = http_service(there.url)
        assert loss(X) == 0.5
    assert loss.counts == Counts(evaluations=1, repeated=2)
    assert there.asked == 3 * [{"x": X.tolist()}]


@pytest.mark.parametrize("body", [b"1", b""])
def test_an_answer_that_is_cut_short_is_tried_again(body: bytes) -> None:
    class Breaking(Handler):
        def do_POST(self) -> None:
            if len(self.server.answers) == 1:
                super().do_POST()
                return
            self.server.answers.pop(0)
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(body)

    with service((200, body), (200, b"0.5")) as there:
        there.RequestHandlerClass = Breaking
        loss = http_service(there.url)
        assert loss(X) == 0.5
    assert loss.counts == Counts(evaluations=1, repeated=1)
    with service((200, body), (200, body), (200, b"0.5")) as there:
        there.RequestHandlerClass = Breaking
        missing = 1000 - len(body)
        with pytest.warns(RuntimeWarning, match=f"cut short, with {missing} bytes missing; the loss does not count"):
            assert math.isnan(http_service(there.url, attempts=1)(X))


def test_no_more_than_an_answers_length_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlearn.library.black_box.MAX_ANSWER_BYTES", 100)
    with service((200, 100 * b"1")) as there:
        assert http_service(there.url)(X) == float(100 * "1")
    with (
        service((200, 101 * b"1")) as there,
        pytest.raises(EvaluationError, match=r"at most 100 bytes, got more, .*'111"),
    ):
        http_service(there.url)(X)
    assert len(there.asked) == 1


def test_an_error_whose_text_does_not_come_is_tried_again() -> None:
    class Breaking(Handler):
        def do_POST(self) -> None:
            self.send_response(503)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nbu")

    with service((503, b"")) as there:
        there.RequestHandlerClass = Breaking
        with pytest.warns(RuntimeWarning, match="answered 503 .*; the loss does not count"):
            assert math.isnan(http_service(there.url, attempts=2)(X))


def test_a_loss_that_no_attempt_gave_does_not_count() -> None:
    with service((503, b"busy"), (503, b"busy"), (200, b"0.5")) as there:
        loss = http_service(there.url, attempts=2)
        with pytest.warns(RuntimeWarning, match=r"/loss: answered 503 .*: busy; the loss does not count"):
            assert math.isnan(loss(X))
        assert loss(X) == 0.5
    assert loss.counts == Counts(evaluations=2, repeated=1, failed=1)


def test_a_warning_points_at_the_line_that_made_the_loss_also_from_a_thread() -> None:
    with service((503, b"busy")) as there, ThreadPoolExecutor(1) as threads:
        loss = http_service(there.url, attempts=1)
        with pytest.warns(RuntimeWarning, match="the loss does not count") as told:
            threads.submit(loss, X).result()
    assert told[0].filename == __file__
    assert linecache.getline(__file__, told[0].lineno).strip().startswith("loss = http_service(")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_service_that_is_gone_is_an_error_soon() -> None:
    with service((500, b"")) as there:
        pass
    loss = http_service(there.url, attempts=1)
    for _ in range(MOST_FAILED_IN_A_ROW - 1):
        loss(X)
    with pytest.raises(EvaluationError, match=r"refused.*10 evaluations failed one after another: is it there\?"):
        loss(X)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_failures_between_losses_are_no_such_row() -> None:
    answers = (MOST_FAILED_IN_A_ROW - 1) * [(503, b"")] + [(200, b"1")]
    with service(*answers, *answers, (200, b"1")) as there:
        loss = http_service(there.url, attempts=1)
        for _ in range(2 * MOST_FAILED_IN_A_ROW):
            loss(X)
    assert loss.counts.failed == 2 * MOST_FAILED_IN_A_ROW - 2


def test_a_request_that_is_refused_is_not_repeated() -> None:
    with service((404, b"no such model")) as there, pytest.raises(EvaluationError, match=r"404 .*: no such model"):
        http_service(there.url)(X)
    assert len(there.asked) == 1


def test_a_service_that_is_silent_is_not_waited_for() -> None:
    silence = threading.Event()

    class Silent(Handler):
        def do_POST(self) -> None:
            silence.wait(LIMIT_S)

    with service((200, b"1")) as there:
        there.RequestHandlerClass = Silent
        loss = http_service(there.url, timeout=0.05, attempts=1)
        with pytest.warns(RuntimeWarning, match="timed out; the loss does not count"):
            loss(X)
        silence.set()


def test_a_service_whose_answer_has_no_end_is_not_waited_for() -> None:
    class Slow(Handler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:  # until nobody listens
                    self.wfile.write(b" ")
                    time.sleep(0.01)

    with service((200, b"1")) as there:
        there.RequestHandlerClass = Slow
        loss = http_service(there.url, timeout=0.05, attempts=1)
        with pytest.warns(RuntimeWarning, match="timed out in the middle of its answer; the loss does not count"):
            loss(X)


def test_pauses_double(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr("fedlearn.library.black_box.PAUSE_S", 0.5)
    # The sleep of this module alone: other threads of the process pause, too.
    own = SimpleNamespace(sleep=paused.append, monotonic=time.monotonic)
    monkeypatch.setattr("fedlearn.library.black_box.time", own)
    with service((500, b""), (500, b""), (500, b""), (200, b"1")) as there:
        http_service(there.url, attempts=4)(X)
    assert paused == [0.5, 1.0, 2.0]


def test_a_program_reads_arrays_and_prints_the_loss_last() -> None:
    loss = executable(python("print('simulating'); print(sum(json.load(sys.stdin)['x'][0]))"))
    assert loss(X) == 3.0


def test_a_program_that_fails_is_tried_as_often_as_asked(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'runs')!r}, 'a').write('.'); sys.exit('out of fuel')"
    loss = executable(python(code), attempts=2)
    with pytest.warns(RuntimeWarning, match="ended with code 1: out of fuel; the loss does not count"):
        assert math.isnan(loss(X))
    assert (tmp_path / "runs").read_text() == ".."


def test_a_program_that_takes_too_long_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, communicate = tmp_path / "started", subprocess.Popen.communicate

    def expires(process: subprocess.Popen[bytes], _: bytes = b"", timeout: float = 0.0) -> tuple[bytes, bytes]:
        if not timeout:
            return communicate(process)
        until(started.exists)
        raise subprocess.TimeoutExpired("simulate", timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", expires)
    child = [sys.executable, "-c", "import time; time.sleep(600)"]
    loss = executable(
        python(
            f"import os, subprocess; child = subprocess.Popen({child})\n"
            f"open('{started}.new', 'w').write(str(child.pid)); os.rename('{started}.new', '{started}')\n"
            "time.sleep(600)"
        ),
        timeout=7.0,
    )
    with pytest.warns(RuntimeWarning, match="it was not done after 7 s; the loss does not count"):
        assert math.isnan(loss(X))
    until(lambda: not psutil.pid_exists(int(started.read_text())))


def test_a_program_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="could not be started"):
        executable([str(tmp_path / "simulate")])(X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: http_service("h:8000"), r"url: expected http://HOST:PORT/PATH or https://, got 'h:8000'"),
        (lambda: http_service("ftp://host/x"), "url: expected"),
        (lambda: http_service("http://host", timeout=0), "timeout: expected seconds above 0, got 0"),
        (lambda: http_service("http://host", attempts=0), "attempts: expected 1 or more, got 0"),
        (lambda: executable("./simulate --quiet"), "arguments: expected a list such as"),
        (lambda: executable([]), "arguments: expected a list such as"),
        (lambda: executable(["x"], timeout=-1), "timeout: expected seconds above 0"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=message):
        make()


def test_an_array_named_rows_is_refused_where_there_are_rows() -> None:
    loss = BlackBox(lambda _: b"1", attempts=1)
    assert loss({"rows": X}) == 1.0
    with pytest.raises(ValueError, match="expected another name than rows"):
        loss({"rows": X}, {"t": X})


def test_a_search_asks_a_service() -> None:
    loss = BlackBox(lambda body: json.dumps(sum((x - 3) ** 2 for x in json.loads(body)["x"])).encode(), attempts=1)
    found = fedlearn.minimize(loss, [0.0, 0.0], workers=4)
    assert found.nfev == loss.counts.evaluations
    np.testing.assert_allclose(found.x, [3.0, 3.0], atol=1e-4)


def test_a_run_asks_a_service(tmp_path: Path) -> None:
    loss = BlackBox(lambda body: json.dumps(sum((x - 3) ** 2 for x in json.loads(body)["x"])).encode(), attempts=1)
    task = fedlearn.function(loss, {"x": np.zeros(2)}, workers=4, settings={"sigma": 0.1})
    run = fedlearn.train(task, runs=tmp_path, steps=3)
    assert loss.counts.evaluations >= 3 * task.usual_population
    assert run.figures["loss"] < 18.0
