"""Who is let in by real servers, and what those who are not hear of the run: nothing."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.encoding.parcel import Parcel
from fedlearn.wire.messages import PROTOCOL_VERSION, Farewell, Hello, Message, Welcome
from fedlearn.wire.proof import prove
from tests.end_to_end.processes import ROOT, ended_at_exit, metrics_of, wait_for
from tests.faults.callers import Caller, refusal_of, serving, volunteer
from tests.identities import ADA, BOB, TOKEN, hello_of

Closed = tuple[Path, str]
INSIDER = msgspec.structs.replace(ADA, token=TOKEN)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    """A closed circle: a folder and the address of its server, which asks for a token and has Ada alone on its list."""
    folder = tmp_path_factory.mktemp("circle")
    (folder / "token").write_bytes(TOKEN + b"\n")
    (folder / "allow").write_text(f"{ADA.identity.public_key.hex()}  # Ada\n")
    with serving(folder, "--volunteers", "0", "--token", "token", "--allow", "allow") as (server, line):
        yield folder, line
        assert server.poll() is None, "the server lives on, whoever came"


def test_member_of_the_circle_is_let_in(closed: Closed) -> None:
    with Caller(closed[1]) as caller:
        assert isinstance(caller.enter(INSIDER), Welcome)


def test_wrong_token_is_refused(closed: Closed) -> None:
    with Caller(closed[1]) as caller:
        caller.enter(msgspec.structs.replace(ADA, token=b"another token"))
        assert caller.refused().startswith("refused: token: expected the server's, got another")


def test_absent_token_is_refused(closed: Closed) -> None:
    with Caller(closed[1]) as caller:
        hello = hello_of()
        challenge = caller.challenge(hello)
        assert challenge.needs_token
        caller.say(prove(ADA, hello, msgspec.structs.replace(challenge, needs_token=False), b""))
        assert caller.refused().startswith("refused: token: expected the server's, got none")


def test_replayed_proof_is_refused(closed: Closed) -> None:
    hello = hello_of()
    with Caller(closed[1]) as first, Caller(closed[1]) as second:
        proof = prove(INSIDER, hello, first.challenge(hello), b"")
        first.say(proof)
        assert isinstance(first.hear(), Welcome)
        second.challenge(hello)
        second.say(proof)
        assert second.refused().startswith("refused: identity: expected this conversation signed")


def test_anothers_identity_is_refused(closed: Closed) -> None:
    thief = msgspec.structs.replace(BOB, token=TOKEN)
    with Caller(closed[1]) as caller:
        hello = hello_of(ADA)
        caller.say(prove(thief, hello, caller.challenge(hello), b""))
        assert caller.refused().startswith("refused: identity: expected this conversation signed")


def test_who_is_not_on_the_list_is_refused(closed: Closed) -> None:
    with Caller(closed[1]) as caller:
        caller.enter(msgspec.structs.replace(BOB, token=TOKEN))
        assert caller.refused().startswith("refused: identity: expected one that the server's owner listed")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (encode(Hello(3, "Ada", 1))[:-4], f"protocol version: expected {PROTOCOL_VERSION}, got 3; install"),
        (
            bytes([0x96, 1, PROTOCOL_VERSION]) + b"\xa2\xff\xfe\x01\xc4\x00\xc4\x00",
            "Hello: name: expected text in UTF-8; choose another",
        ),
        (encode(Hello(PROTOCOL_VERSION, "x" * 65, 1)), "Hello: name: expected text of at most 64 characters; choose"),
        (encode(Hello(PROTOCOL_VERSION, "a\x1bb", 1)), "Hello: name: expected text without control characters; "),
    ],
    ids=["older version", "name not in UTF-8", "long name", "control characters"],
)
def test_hello_that_can_not_be_taken_is_answered_with_the_reason(closed: Closed, payload: bytes, reason: str) -> None:
    with Caller(closed[1]) as caller:
        caller.connection.send(hello_of())
        payload = b"\x94" + payload[1:] if "version" in reason else payload  # as version 3 had it: the tag and 3 fields
        caller.socket.sendall(Parcel(Hello, payload).frame(0))
        assert caller.refused().startswith(f"refused: {reason}")


def test_volunteers_are_told_why_they_are_not_let_in(closed: Closed) -> None:
    folder, line = closed
    (folder / "wrong").write_text("another token")
    reasons = [
        refusal_of(volunteer(folder, line, *flags, **environ))
        for flags, environ in (
            ([], {}),
            (["--token", "wrong"], {}),
            ([], {"FEDLEARN_TOKEN": TOKEN.decode()}),
            (["--token", TOKEN.decode()], {}),
        )
    ]
    assert reasons[0].startswith("refused: token: the server asks for one, none was given; ask its owner")
    assert reasons[1].startswith("refused: token: expected the server's, got another")
    assert reasons[2].startswith("refused: identity: expected one that the server's owner listed")
    assert reasons[3].startswith("client.py: token: expected the name of a file that holds it")
    assert TOKEN.decode() not in reasons[3]


def test_name_that_is_not_utf_8_is_told_before_anybody_is_called(closed: Closed) -> None:
    command: list[str | bytes] = [
        sys.executable,
        str(ROOT / "client.py"),
        closed[1].encode(),
        "--once",
        "--name",
        b"Ad\xe9",
    ]
    done = subprocess.run(command, cwd=closed[0], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "client.py: name: expected text in UTF-8, got 'Ad\\udce9'; choose another with --name\n"


def test_flood_costs_the_flooder_its_connections_and_the_servers_own_volunteer_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "--joins-per-minute", "10", "--connections-per-address", "20") as (server, line):
        wait_for(server, r"^step +\d+")
        before, began = len(metrics_of(tmp_path)), time.monotonic()
        answers: list[Message | None] = []
        for _ in range(100):
            with Caller(line) as caller:
                answers.append(caller.enter())
        let_in = sum(isinstance(answer, Welcome) for answer in answers)
        again = sum(isinstance(answer, Farewell) and answer.kind == "try_again" for answer in answers)
        wait_for(server, r"^step +\d+")
        steps, seconds = len(metrics_of(tmp_path)) - before, time.monotonic() - began
        print(f"100 joins: {let_in} let in, {again} told to try again, {steps / seconds:.0f} steps/s beside them")
        assert 10 <= let_in <= 12
        assert let_in + again == 100
        assert steps > 0
        assert server.poll() is None


def test_connections_of_an_address_beyond_the_limit_are_told_to_try_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--connections-per-address", "3", "--volunteers", "0") as (_, line):
        callers = [Caller(line) for _ in range(3)]
        try:
            assert all(isinstance(caller.enter(), Welcome) for caller in callers)
            with Caller(line) as late:
                late.say(hello_of(BOB))
                assert late.refused().startswith("try_again: connections: expected at most 3 from one address")
        finally:
            for caller in callers:
                caller.socket.close()


def test_list_is_made_of_what_volunteers_see_of_themselves_and_may_change_at_any_time(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": "/usr/bin:/bin"}
    command: list[str | bytes] = [sys.executable, "-m", "fedlearn", "identity"]
    identity = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True).stdout
    (tmp_path / "allow").write_text(identity)
    with serving(tmp_path, "--volunteers", "0", "--allow", "allow") as (server, line):
        joining = volunteer(tmp_path, line, "--name", "listed")
        with ended_at_exit(joining):
            wait_for(server, "listed joined")
            (tmp_path / "allow").write_text("")
            wait_for(server, "listed left: it was sent away: identity: expected one that the server's owner listed")


def test_nobody_who_is_silent_is_heard_of(closed: Closed) -> None:
    host, _, port = closed[1].rpartition(":")
    with socket.create_connection((host, int(port))) as silent:
        silent.settimeout(0.2)
        with pytest.raises(TimeoutError):
            silent.recv(1)
