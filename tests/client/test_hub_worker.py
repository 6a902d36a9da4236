"""A device between a scripted hub and volunteers that are other programs."""

import io
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fedlearn.client import hub_worker as module
from fedlearn.client.hub_line import AskedVerb, HubAwayError, HubError, Work
from fedlearn.client.hub_worker import HubWorker
from fedlearn.client.verbs import Verbs
from fedlearn.system.children import NO_ANSWER
from fedlearn.system.waiting import WaitingProcess
from fedlearn.terminal import Terminal
from tests.patience import LIMIT_S

if sys.platform == "win32":
    pytest.skip("signals of other systems", allow_module_level=True)

VOLUNTEER = """
import json, signal, sys, time
line = sys.stdin.readline()
if not line:
    sys.exit()
sys.argv[2:] = json.loads(line)["arguments"]
with open(sys.argv[1], "a") as log:
    log.write(f"joined {sys.argv[2]}\\n")
print("it says hello", flush=True)
if sys.argv[2] == "companion":
    sys.stdin.read()
    with open(sys.argv[1], "a") as log:
        log.write("is alone\\n")
    sys.exit()
if sys.argv[2] == "ends":
    sys.exit()
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "stubborn" else lambda *_: sys.exit())
with open(sys.argv[1], "a") as log:
    log.write(f"works for {sys.argv[2]}\\n")
time.sleep(60)
"""


class Hub:
    """Says one thing after another, each once its condition is true; then nothing more."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)
        self.calls: list[str] = []
        self.silence = threading.Event()

    def register(self, name: str, job_id: int | None, verbs: Sequence[str] = (), port: int = 0) -> int:
        self.calls.append(" ".join(["register", name, str(job_id), *verbs, *([str(port)] if port else [])]))
        return self._next() if self.script and isinstance(self.script[0], int) else 7  # type: ignore[return-value]

    def work(self, device: int, *, has: str) -> Work:
        self.calls.append(f"work {device} {has}")
        found = self._next()
        assert isinstance(found, Work)
        return found

    def answer(self, device: int, call: int, *, code: int | None, output: str) -> None:
        self.calls.append(f"answer {device} {call} {code} {output}")

    def say(self, device: int, lines: Sequence[str]) -> None:
        self.calls.append(f"say {device} {' | '.join(lines)}")

    def unregister(self, device: int, *, timeout_s: float) -> None:
        self.calls.append(f"unregister {device}")
        assert timeout_s < 5

    def _next(self) -> object:
        while True:
            if not self.script:
                self.silence.wait()
                raise HubAwayError("silent")
            found = self.script.pop(0)
            if callable(found):
                found()
            elif isinstance(found, Exception):
                raise found
            else:
                return found


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.05)
    monkeypatch.setattr(module, "LOOK_S", 0.01)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "volunteer.py").write_text(VOLUNTEER)
    return tmp_path / "log"


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def once(log: Path, line: str, count: int = 1) -> Callable[[], None]:
    """Waits until the volunteers wrote a line so often."""

    def wait() -> None:
        ticks = threading.Event()
        for _ in range(int(LIMIT_S / 0.01)):
            if lines(log).count(line) >= count:
                return
            ticks.wait(0.01)
        raise AssertionError(f"{line} never came: {lines(log)}")

    return wait


def run(
    hub: Hub,
    log: Path,
    *,
    job_id: int | None = 1,
    port: int = 0,
    verbs: Verbs | None = None,
    shares_log: bool = False,
    give_up_s: float = math.inf,
) -> tuple[int, str]:
    said = io.StringIO()

    def prepare() -> WaitingProcess:
        hub.calls.append("prepare")
        pipe = {"stdout": subprocess.PIPE} if shares_log else {}
        return WaitingProcess.start(command=[sys.executable, str(log.parent / "volunteer.py"), str(log)], **pipe)

    device = HubWorker(
        hub,  # type: ignore[arg-type]
        name="ada",
        job_id=job_id,
        port=port,
        arguments=lambda server: [server],
        prepare=prepare,
        terminal=Terminal(stream=said, plain=True),
        verbs=verbs,
        shares_log=shares_log,
        give_up_s=give_up_s,
    )
    try:
        return device.run(), said.getvalue()
    finally:
        hub.silence.set()


JOIN = Work("join", 1, "one")
LEAVE = Work("leave", 1)


def test_it_joins_what_the_hub_names_and_leaves_with_its_job(log: Path) -> None:
    hub = Hub(Work("wait"), JOIN, once(log, "works for one"), LEAVE)
    code, said = run(hub, log)
    assert code == 0
    assert hub.calls[0] == "register ada 1"
    assert hub.calls[-1] == "unregister 7"
    assert "work 7 one" in hub.calls
    assert lines(log) == ["joined one", "works for one"]
    assert "registered as device 7" in said
    assert "job 1 has ended" in said


def test_a_volunteer_imports_what_it_needs_before_there_is_work(log: Path) -> None:
    hub = Hub()

    def is_prepared(count: int) -> Callable[[], None]:
        def wait() -> None:
            ticks = threading.Event()
            while hub.calls.count("prepare") < count:
                ticks.wait(0.01)

        return wait

    hub.script = [
        is_prepared(1),
        Work("wait"),
        JOIN,
        once(log, "works for one"),
        Work("wait", 1),
        is_prepared(2),
        LEAVE,
    ]
    assert run(hub, log)[0] == 0
    assert lines(log) == ["joined one", "works for one"]
    assert hub.calls.count("prepare") == 2


def answered(hub: Hub, count: int) -> Callable[[], None]:
    def wait() -> None:
        ticks = threading.Event()
        for _ in range(int(LIMIT_S / 0.01)):
            if len([call for call in hub.calls if call.startswith("answer")]) >= count:
                return
            ticks.wait(0.01)
        raise AssertionError(f"no answer: {hub.calls}")

    return wait


def test_verbs_that_the_hub_asks_for_are_called_and_answered_while_a_volunteer_works(log: Path, tmp_path: Path) -> None:
    (tmp_path / "verbs").mkdir(mode=0o755)
    (tmp_path / "verbs" / "say").write_text("#!/bin/sh\ncat\nexit 4\n")
    (tmp_path / "verbs" / "say").chmod(0o755)
    calls = (AskedVerb(1, "say", {"a": 1}), AskedVerb(2, "../say", {}), AskedVerb(3, "none", {}))
    hub = Hub(JOIN, once(log, "works for one"), Work("join", 1, "one", calls))
    hub.script += [answered(hub, 3), LEAVE]
    code, said = run(hub, log, verbs=Verbs(tmp_path / "verbs"))
    assert code == 0
    assert hub.calls[0] == "register ada 1 say"
    first, second, third = [call for call in hub.calls if call.startswith("answer")]
    assert first == 'answer 7 1 4 {"a":1}'
    assert second.startswith("answer 7 2 None verb: expected a name of small letters")
    assert third.startswith("answer 7 3 None verb none: expected one of say")
    assert lines(log) == ["joined one", "works for one"]
    assert "the hub calls say" in said


def test_what_a_volunteer_prints_is_shown_and_sent_where_its_owner_shares_it(log: Path) -> None:
    hub = Hub(JOIN, once(log, "works for one"), LEAVE)
    code, said = run(hub, log, shares_log=True)
    assert code == 0
    assert "it says hello" in said
    assert [call for call in hub.calls if call.startswith("say")] == ["say 7 it says hello"]
    assert hub.calls[-1] == "unregister 7"


def test_a_verb_ends_with_its_device(log: Path, tmp_path: Path) -> None:
    (tmp_path / "verbs").mkdir(mode=0o755)
    (tmp_path / "verbs" / "wait").write_text(f"#!/bin/sh\necho begun > {log}\nsleep 1000\n")
    (tmp_path / "verbs" / "wait").chmod(0o755)
    hub = Hub(Work("wait", calls=(AskedVerb(1, "wait", {}),)), once(log, "begun"), LEAVE)
    verbs = Verbs(tmp_path / "verbs", limit_s=LIMIT_S)
    assert run(hub, log, verbs=verbs)[0] == 0
    assert verbs._running is None or verbs._running.poll() is not None
    assert subprocess.run(["pgrep", "-f", str(tmp_path / "verbs")], capture_output=True, check=False).stdout == b""


def test_a_device_whose_owner_offers_none_calls_none(log: Path) -> None:
    hub = Hub(Work("wait", calls=(AskedVerb(1, "say", {}),)))
    hub.script += [answered(hub, 1), LEAVE]
    assert run(hub, log)[0] == 0
    assert "answer 7 1 None verb: expected none, since this device's owner offers none with --verbs" in hub.calls


def test_it_moves_on_when_the_hub_names_another_server(log: Path) -> None:
    other = Work("join", 2, "two")
    hub = Hub(JOIN, once(log, "works for one"), other, once(log, "works for two"), LEAVE)
    assert run(hub, log)[0] == 0
    assert lines(log) == ["joined one", "works for one", "joined two", "works for two"]


def test_a_volunteer_that_ended_is_started_again_while_its_server_is_named(log: Path) -> None:
    hub = Hub(Work("join", 1, "ends"), once(log, "joined ends", 3), LEAVE)
    assert run(hub, log)[0] == 0


def test_a_volunteer_that_does_not_leave_is_killed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTING_S", 0.1)
    hub = Hub(Work("join", 1, "stubborn"), once(log, "works for stubborn"), LEAVE)
    assert run(hub, log)[0] == 0


def test_a_hub_that_is_away_is_asked_again_and_the_work_goes_on(log: Path) -> None:
    hub = Hub(HubAwayError("no hub answers"), JOIN, once(log, "works for one"), HubAwayError("gone"), JOIN, LEAVE)
    code, said = run(hub, log)
    assert (code, lines(log)) == (0, ["joined one", "works for one"])
    assert "no hub answers; asking again" in said


def test_the_silence_of_a_hub_is_told_once_until_it_answers(log: Path) -> None:
    away = [HubAwayError("no hub answers")] * 3
    hub = Hub(*away, HubAwayError("nothing comes back"), JOIN, once(log, "works for one"), *away, JOIN, LEAVE)
    code, said = run(hub, log)
    assert (code, said.count("no hub answers"), said.count("nothing comes back")) == (0, 2, 1)


@pytest.mark.parametrize(("script", "expected"), [((), NO_ANSWER), ((Work("wait"),), 0)])
def test_a_device_gives_up_on_a_hub_that_is_silent_for_long(
    script: tuple[Work, ...], expected: int, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(*script, *[HubAwayError("no hub answers")] * 9)
    if not script:
        monkeypatch.setattr(hub, "register", lambda *_: hub.work(0, has=""))
    code, said = run(hub, log, give_up_s=0.1)
    assert code == expected
    assert said.endswith("no hub answers; gave up after 0 s without an answer\n")
    assert 0 < len(hub.script) < 8, "one silent moment is no reason"


def test_a_hub_that_was_started_again_is_registered_with_anew_by_the_same_number(log: Path) -> None:
    hub = Hub(JOIN, once(log, "works for one"), HubError(404, "device 7: none"), 8, JOIN, LEAVE)
    assert run(hub, log, port=5001)[0] == 0
    assert lines(log) == ["joined one", "works for one"]
    assert [call for call in hub.calls if call.startswith("register")] == ["register ada 1 5001"] * 2
    assert hub.calls[-1] == "unregister 8"


def test_a_refusal_ends_it(log: Path) -> None:
    code, said = run(Hub(HubError(401, "expected a token")), log)
    assert (code, "refused: expected a token" in said) == (1, True)


def test_a_job_that_is_not_there_ends_it(log: Path) -> None:
    hub = Hub()

    def unknown(name: str, job_id: int | None, verbs: Sequence[str] = (), port: int = 0) -> int:
        assert (len(verbs), port) == (0, 0)
        raise HubError(404, f"job {job_id}: there is none for {name}")

    hub.register = unknown  # type: ignore[method-assign]
    code, said = run(hub, log, job_id=9)
    assert (code, "refused: job 9" in said) == (1, True)
    assert hub.calls == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_wants_the_machine_back_gets_it_and_the_hub_knows(log: Path, number: int) -> None:
    hub = Hub(JOIN, once(log, "works for one"), lambda: os.kill(os.getpid(), number))
    assert run(hub, log)[0] == 0
    assert hub.calls[-1] == "unregister 7"
    assert subprocess.run(["pgrep", "-f", str(log)], capture_output=True, check=False).stdout == b""


ALONE = """
import sys
from fedlearn.client.hub_worker import HubWorker
from fedlearn.system.waiting import WaitingProcess
from fedlearn.client.hub_line import Work
from fedlearn.terminal import Terminal


class Hub:
    def register(self, name, job_id, verbs=(), port=0):
        return 7

    def work(self, device, *, has):
        return Work("join", 1, "companion")


prepare = lambda: WaitingProcess.start(command=[sys.executable, *sys.argv[1:]])
arguments = lambda server: [server]
HubWorker(Hub(), name="ada", job_id=1, arguments=arguments, prepare=prepare, terminal=Terminal(plain=True)).run()
"""


def test_what_it_started_is_told_when_it_is_killed(log: Path) -> None:
    command = [sys.executable, "-c", ALONE, str(log.parent / "volunteer.py"), str(log)]
    device = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        once(log, "joined companion")()
        assert "is alone" not in lines(log)
    finally:
        device.kill()
        device.wait()
    once(log, "is alone")()
