"""Servers are small scripts here: how they end is what counts."""

import os
import signal
import sys
from collections.abc import Sequence

import msgspec
import pytest

from fedlearn.server.supervision import Serving, Supervisor, tell
from fedlearn.system import children
from fedlearn.system.children import MOST_AT_ONCE
from fedlearn.system.signals import STOP_SIGNALS

SERVING = Serving("/runs/1", 4711)
TELLS = "import os, sys; os.write(int(sys.argv[1]), bytes.fromhex(sys.argv[2])); os.close(int(sys.argv[1]));"


class Servers:
    """Ends as scripts say, one after the other, the last one again and again."""

    def __init__(self, *scripts: str) -> None:
        self.scripts = list(scripts)
        self.given: list[Serving | None] = []
        self.said: list[str] = []

    def command(self, begun: Serving | None, descriptor: int) -> Sequence[str]:
        self.given.append(begun)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        return [sys.executable, "-S", "-c", script, str(descriptor), msgspec.json.encode(SERVING).hex()]

    def run(self) -> int:
        return Supervisor(self.command, say=self.said.append).run()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "FIRST_PAUSE_S", 0.0)


def test_server_that_ends_properly_is_not_started_again() -> None:
    servers = Servers(f"{TELLS} sys.exit(0)")
    assert servers.run() == 0
    assert (servers.given, servers.said) == ([None], [])


def test_server_that_was_killed_goes_on_with_its_run() -> None:
    servers = Servers(f"{TELLS} os.kill(os.getpid(), 9)", f"{TELLS} sys.exit(7)", "")
    assert servers.run() == 0
    assert servers.given == [None, SERVING, SERVING]
    assert servers.said == [
        "the server was ended by SIGKILL; it is restarted in 0 s, and the run goes on",
        "the server ended with exit code 7; it is restarted in 0 s, and the run goes on",
    ]


@pytest.mark.parametrize("code", [1, 2])
def test_server_that_could_not_begin_is_not_started_again(code: int) -> None:
    servers = Servers(f"import sys; sys.exit({code})")
    assert servers.run() == code
    assert len(servers.given) == 1


def test_server_that_fails_at_once_again_and_again_is_given_up() -> None:
    servers = Servers(f"{TELLS} sys.exit(1)")
    assert servers.run() == 1
    assert len(servers.given) == MOST_AT_ONCE
    assert servers.said[-1] == "the server ended with exit code 1 again and again; it is not restarted any more"


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signal_is_for_the_server_which_is_not_started_again(number: signal.Signals) -> None:
    # A supervisor that has not heard of its process yet sends SIGTERM, whatever came.
    hears = [int(each) for each in STOP_SIGNALS]
    # They are blocked until the server waits for one: one that came just before a pause would never end that.
    blocks = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {hears});"
    waits = f"{TELLS} {blocks} os.kill(os.getppid(), {number}); signal.sigwait({hears})"
    servers = Servers(waits)
    before = signal.getsignal(number)
    assert servers.run() == 0
    assert len(servers.given) == 1
    assert signal.getsignal(number) == before


def test_signal_ends_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "FIRST_PAUSE_S", 60.0)
    servers = Servers(f"{TELLS} sys.exit(1)")

    def interrupt(text: str) -> None:
        servers.said.append(text)
        os.kill(os.getpid(), signal.SIGINT)

    assert Supervisor(servers.command, say=interrupt).run() == 0
    assert len(servers.said) == 1


def test_what_is_told_is_read() -> None:
    read, write = os.pipe()
    tell(write, SERVING)
    with os.fdopen(read, "rb") as stream:
        assert msgspec.json.decode(stream.read(), type=Serving) == SERVING
