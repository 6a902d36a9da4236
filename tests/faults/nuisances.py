"""Volunteers that are no help, each for as long as a `with` lasts: slow, silent, stopped, trickling, deaf, babbling,
flooding in three ways, hoarding."""

import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from zlib import crc32

import numpy as np

from fedlearn.es.snapshot import Snapshot
from fedlearn.wire.encoding.frames import headers
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import Assignment, Farewell, Ping, Ready, Result, Start
from tests.faults.callers import Caller
from tests.faults.hatchery import Hatchery
from tests.faults.measures import until_more
from tests.identities import named

SLOW_TRIAL_S = 0.4
TRICKLE_S = 0.02
DEAF_BYTES = 4096

HOARD_PAUSE_S = 10.0

Behaviour = Callable[[Caller, threading.Event], None]
"""What a caller that has joined does until an event."""


@contextmanager
def slow(hatchery: Hatchery, address: str, name: str) -> Iterator[None]:
    """Takes twenty times as long for a trial."""
    process = hatchery.hatch(name, address, TRIAL_S=str(SLOW_TRIAL_S))
    try:
        yield
    finally:
        hatchery.send(process, signal.SIGKILL)


@contextmanager
def stopped(hatchery: Hatchery, address: str, name: str) -> Iterator[None]:
    """Takes part, and then its process stands still."""
    process = hatchery.hatch(name, address)
    until_said(hatchery.folder / f"{name}.out", "joined run")
    hatchery.send(process, signal.SIGSTOP)
    try:
        yield
    finally:
        hatchery.send(process, signal.SIGKILL)


def until_said(output: Path, text: str) -> None:
    for _ in range(3000):
        if output.exists() and text in output.read_text():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"expected {text!r} in {output}")


def be_silent(eve: Caller, _: threading.Event) -> None:
    """Hears everything and answers nothing."""
    while eve.hear() is not None:
        pass


def be_deaf(_: Caller, over: threading.Event) -> None:
    """Reads nothing."""
    over.wait()


def trickle(eve: Caller, over: threading.Event) -> None:
    """Says a Result byte by byte."""
    frame = pack(Result(0, 0, np.zeros(64, np.float32), bytes(8))).frame(0)
    while not eve.is_cut_off and not over.is_set():
        for byte in frame:
            eve.send(bytes([byte]))
            if eve.is_cut_off or over.wait(TRICKLE_S):
                return


def flood(eve: Caller, _: threading.Event) -> None:
    """Says Ping as fast as it can."""
    frame = pack(Ping()).frame(0)
    while not eve.is_cut_off:
        eve.send(frame * 100)


def flood_with_old_results(eve: Caller, _: threading.Event) -> None:
    """Says Results of a step that is over as fast as it can."""
    lease = next(message for message in eve.heard if isinstance(message, Assignment))
    losses = np.zeros(lease.quota, np.float32)
    frame = pack(Result(max(lease.step - 5, 0), lease.first_member, losses, bytes(8))).frame(0)
    while not eve.is_cut_off:
        eve.send(frame * 100)


def drift(eve: Caller, _: threading.Event) -> None:
    """Says with its results, and after all weights that follow, that its own are others."""
    lease = next(message for message in eve.heard if isinstance(message, Assignment))
    eve.say(Result(lease.step, lease.first_member, np.zeros(lease.quota, np.float32), bytes(8)))
    message = eve.hear()
    while message is not None and not isinstance(message, Farewell):
        if isinstance(message, Snapshot | Start):
            eve.say(Ready(0, b"nonsense"))
        message = eve.hear()


def babble(eve: Caller, over: threading.Event) -> None:
    """Says Results of which some bytes are others, or are missing, until it is cut off."""
    choices = random.Random(eve.socket.getsockname()[1])
    while not eve.is_cut_off and not over.is_set():
        losses = np.array([choices.uniform(-1.0, 1.0) for _ in range(choices.randrange(64))], np.float32)
        said = bytearray(pack(Result(choices.randrange(9), choices.randrange(64), losses, bytes(8))).frame(0))
        for _ in range(choices.randrange(4)):
            said[choices.randrange(len(said))] = choices.randrange(256)
        eve.send(bytes(said[: choices.choice([len(said), choices.randrange(len(said))])]))
        over.wait(0.01)


def own_address(name: str) -> str:
    """An address of this machine, since a server refuses for a while all that comes from where it was flooded."""
    return f"127.1.{crc32(name.encode()) % 256}.1"


@contextmanager
def misbehaving(behaviour: Behaviour, address: str, name: str) -> Iterator[None]:
    """A caller that joins, does that, and comes back whenever it is cut off, from an address of its own."""
    source = own_address(name)
    over, current = threading.Event(), list[Caller]()

    def keep_coming() -> None:
        while not over.is_set():
            with (
                suppress(AssertionError, OSError, LocalProtocolError, RemoteProtocolError),
                Caller(address, receive_buffer=DEAF_BYTES if behaviour is be_deaf else 0, source=source) as eve,
            ):
                current[:] = [eve]
                eve.join(named(name), name)
                behaviour(eve, over)
            over.wait(0.05)

    thread = threading.Thread(target=keep_coming, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        for eve in current:
            with suppress(OSError):
                eve.socket.shutdown(socket.SHUT_RDWR)
        thread.join()


BEHAVIOURS: dict[str, Behaviour] = {
    "silent": be_silent,
    "deaf": be_deaf,
    "trickling": trickle,
    "flooding": flood,
    "flooding with old results": flood_with_old_results,
    "drifting": drift,
    "babbling": babble,
}
KINDS = ["slow", "stopped", *BEHAVIOURS]


def hoard(held: ExitStack, folder: Path, address: str, n_silent: int, n_unfinished: int, *, every: int) -> None:
    """Peers that ask for weights and never read, and peers that begin a Result and never end it.

    Every so many ask for the weights of another step.
    """
    unfinished = headers(bytes(4096), message_type=3, stream=1)[0] + bytes(4000)
    for number in range(n_silent + n_unfinished):
        eve = held.enter_context(Caller(address, receive_buffer=4096))
        eve.enter(named(f"hoarder {number}"))
        if number < n_silent:
            begun = eve.until((Snapshot, Start))
            assert isinstance(begun, Snapshot | Start)
            eve.say(Ready(begun.step, b"nonsense"))  # to which the answer is all weights
        else:
            eve.send(unfinished)
        if number % every == 0:
            until_more(folder, 0)


@contextmanager
def nuisance(kind: str, hatchery: Hatchery, address: str, name: str) -> Iterator[None]:
    """One of that kind."""
    process = {"slow": slow, "stopped": stopped}.get(kind)
    if process is not None:
        with process(hatchery, address, name):
            yield
    else:
        with misbehaving(BEHAVIOURS[kind], address, name):
            yield


@contextmanager
def nuisances(hatchery: Hatchery, address: str) -> Iterator[None]:
    """One of each kind, and hoarders now and then."""
    over = threading.Event()

    def keep_hoarding() -> None:
        while not over.wait(HOARD_PAUSE_S):
            with suppress(AssertionError, OSError, LocalProtocolError, RemoteProtocolError), ExitStack() as held:
                hoard(held, hatchery.folder, address, 5, 5, every=20)

    hoarding = threading.Thread(target=keep_hoarding, daemon=True)
    with ExitStack() as held:
        for kind in KINDS:
            held.enter_context(nuisance(kind, hatchery, address, f"nuisance {kind}"))
        hoarding.start()
        try:
            yield
        finally:
            over.set()
            hoarding.join()  # its server has gone by now
