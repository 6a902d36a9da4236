"""Coverage-guided fuzzing of whoever reads from a stranger: frames, messages, both ends of a connection, the server's
coordinator and the volunteer's worker. No case may end otherwise than in a protocol error of the peer.

pip install atheris
python fuzz/frames.py connection --minutes 12

The first byte of a case says what was said before, the second how the bytes arrive; then pieces follow, each a kind,
two bytes of length and so many bytes: a message of a type, whose frames get a right header, or bytes as they are.
A signature is taken for right, since no mutation would ever hit one.
"""

import argparse
import struct
from collections.abc import Callable

import numpy as np
from fuzzer import add_arguments, fuzz, instrumented

INSTRUMENTED = ["fedlearn.wire", "fedlearn.coordination"]

with instrumented(INSTRUMENTED):
    from conversations import CREDENTIALS, DIGEST, LAYOUT, NONCE, framed

    import fedlearn.coordination.people.authentication
    import fedlearn.coordination.work.worker
    from fedlearn.coordination.coordinator import Coordinator
    from fedlearn.coordination.effects import ApplyUpdate, Send, SendWeights, ServerEffect
    from fedlearn.coordination.steps.plan import RunPlan
    from fedlearn.coordination.steps.step_source import OwnSteps
    from fedlearn.coordination.work.worker import Worker
    from fedlearn.es.golden import GOLDEN_STEP
    from fedlearn.es.optimizers import Adam
    from fedlearn.es.perturbation import Perturbation
    from fedlearn.es.snapshot import Snapshot
    from fedlearn.es.strategy import Strategy
    from fedlearn.es.sums.estimate import CodedEstimate
    from fedlearn.es.update import Update
    from fedlearn.tasks.blocks import NO_BLOCK
    from fedlearn.tasks.invitation import Invitation
    from fedlearn.wire.connection import Connection
    from fedlearn.wire.encoding.codec import encode
    from fedlearn.wire.errors import RemoteProtocolError
    from fedlearn.wire.messages import (
        PROTOCOL_VERSION,
        Activations,
        Assignment,
        Challenge,
        DataBlock,
        Farewell,
        Goodbye,
        Hello,
        Message,
        Ping,
        Pong,
        Proof,
        Ready,
        Result,
        Resync,
        Seat,
        Start,
        Taken,
        Welcome,
    )
    from fedlearn.wire.states import State

MEMORY_MB = 256
"""Megabytes that the process may take: the fuzzer's own 80, and what a conversation of 1 MiB may hold."""

PIECES = (1, 7, 24, 25, 300, *(2**16 for _ in range(11)))
"""Bytes that arrive at a time."""

AS_THEY_ARE, TIME_PASSES = 0xFF, 0xFE

TYPES: tuple[type[Message], ...] = (
    *(Hello, Proof, Ready, Result, Goodbye, Ping, Pong),
    *(Challenge, Welcome, Snapshot, Start, DataBlock, Assignment, Resync, Farewell, Update),
    *(Seat, Activations, Taken),
)
HELLO = Hello(PROTOCOL_VERSION, "Eve", 1, CREDENTIALS.identity.public_key, NONCE)
OPENING: list[Message] = [HELLO, Proof(bytes(64), bytes(32), golden_step=GOLDEN_STEP), Ready(0, DIGEST)]
FROM_SERVER: list[Message] = [
    Challenge(NONCE, needs_token=False),
    Welcome("1", Invitation("rnn", 1, {"hidden_size": 8}, {})),
    Start(DIGEST, 0, 0, keeps_start=False),
    Assignment(0, NO_BLOCK, Perturbation(0.01, 1), 4, 0, 8, 1.0),
]
ANSWERS: dict[type[Message], Message] = {Challenge: OPENING[1], Start: OPENING[2]}
STATES = tuple(State)

vars(fedlearn.coordination.people.authentication).update(is_signed=lambda *_: True)
vars(fedlearn.coordination.work.worker).update(prove=lambda *_: OPENING[1])


def strategy(*, is_summed: bool) -> Strategy:
    """A strategy of one rule or the other for what a Result brings."""
    return Strategy(
        perturbation=Perturbation(sigma=0.01, rank=1, space="activations" if is_summed else "weights"),
        group_size=4,
        population_limit=64,
        optimizer=Adam(0.01),
        fitness_shaping="normalized",
    )


STRATEGIES = (strategy(is_summed=False), strategy(is_summed=True))
PLAN = RunPlan("1", Invitation("rnn", 1, {}, {}), LAYOUT, (NO_BLOCK,), 0, 1e6, 1e6, 0)


class Server:
    """A server's connection and coordinator, with a volunteer that is honest and one that is not."""

    def __init__(self, choice: int) -> None:
        self.now = 0.0
        self.coordinator = Coordinator(
            PLAN, OwnSteps(PLAN, STRATEGIES[choice % 2]), step=0, last=None, digest=DIGEST, now=0.0
        )
        n_bytes = LAYOUT.size + len(LAYOUT.row_lengths)
        self.connection = Connection("server", now=0.0, estimate_bytes=n_bytes)
        for peer in (0, 1):
            self.follow(self.coordinator.connected(peer, 0.0, nonce=NONCE))
        for message in OPENING:
            self.follow(self.coordinator.received(0, message, 0.0))
        for message in OPENING[: choice // 2 % 4]:
            self.receive(framed(type(message), encode(message)))

    def receive(self, data: bytes) -> None:
        for message in self.connection.receive_data(data, self.now):
            self.follow(self.coordinator.received(1, message, self.now))

    def tick(self) -> None:
        self.now += 7.0
        self.connection.tick(self.now)
        self.follow(self.coordinator.tick(self.now))

    def left(self) -> None:
        self.follow(self.coordinator.disconnected(1, "it broke the protocol", self.now))

    def follow(self, effects: list[ServerEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(1, message):
                    self.send(message)
                case SendWeights(1):
                    self.send(Snapshot(0, DIGEST, np.zeros(LAYOUT.size, np.float32), {}, {}))
                case ApplyUpdate():
                    self.follow(self.coordinator.applied(DIGEST, self.now))

    def send(self, message: Message) -> None:
        if not self.connection.has_parted:
            self.connection.send(message)
            self.connection.data_to_send(2**30)


class Client:
    """A volunteer's connection and worker, and a server that is not honest."""

    def __init__(self, choice: int) -> None:
        self.now = 0.0
        self.connection = Connection("client", now=0.0, max_snapshot_bytes=2**20)
        self.worker = Worker(name="Ada", threads=1, credentials=CREDENTIALS)
        self.connection.send(HELLO)
        self.worker.start(nonce=NONCE)
        for message in FROM_SERVER[: choice % 5]:
            self.receive(framed(type(message), encode(message)))
            if (answer := ANSWERS.get(type(message))) is not None:
                self.connection.send(answer)
                self.connection.data_to_send(2**30)

    def receive(self, data: bytes) -> None:
        for message in self.connection.receive_data(data, self.now):
            self.worker.received(message, self.now)

    def tick(self) -> None:
        self.now += 7.0
        self.connection.tick(self.now)

    def left(self) -> None:
        """Nothing is left of the conversation."""


class Bare:
    """A connection alone, in any state."""

    def __init__(self, choice: int) -> None:
        self.now = 0.0
        self.connection = Connection("server" if choice % 2 else "client", now=0.0)
        self.connection.state = STATES[choice // 2 % len(STATES)]

    def receive(self, data: bytes) -> None:
        self.connection.receive_data(data, self.now)

    def tick(self) -> None:
        self.now += 7.0
        self.connection.tick(self.now)

    def left(self) -> None:
        """Nobody is told."""


Reader = Callable[[int], Server | Client | Bare]
READERS: dict[str, Reader] = {"connection": Bare, "server": Server, "volunteer": Client}


def try_one(read: Reader, data: bytes) -> None:
    """One case. Raises whatever must not be raised."""
    if len(data) < 2:
        return
    reader = read(data[0])
    length = PIECES[data[1] % len(PIECES)]
    at = 2
    try:
        while at + 3 <= len(data):
            kind, n_bytes = struct.unpack_from("<BH", data, at)
            piece = data[at + 3 : at + 3 + n_bytes]
            at += 3 + n_bytes
            if kind == TIME_PASSES:
                reader.tick()
            elif piece:
                sent = piece if kind == AS_THEY_ARE else framed(TYPES[kind % len(TYPES)], piece)
                for start in range(0, len(sent), length):
                    reader.receive(sent[start : start + length])
    except RemoteProtocolError:
        reader.left()


def seeds() -> list[bytes]:
    """Conversations as they should be, with every message in them."""
    estimate = CodedEstimate(np.ones(LAYOUT.size, np.int8), np.zeros(len(LAYOUT.row_lengths), np.uint8))
    losses = np.linspace(0.0, 1.0, 4, dtype=np.float32)
    few = np.zeros(LAYOUT.size, np.float32)
    update = Update(0, NO_BLOCK, ((0, 8),), np.zeros(8, np.int8), 1, 4, 0.1, Adam(0.01), True, 0.0, "zero", 0.0, 1.0)
    results = [Result(0, 0, losses, DIGEST), Result(0, 0, losses, DIGEST, estimate), Result(0, 32, losses, DIGEST)]
    said: list[list[Message]] = [[*OPENING, result, Ping(), Pong(), Goodbye("enough")] for result in results]
    said += [[result] for result in results]
    served = [*FROM_SERVER, DataBlock(bytes(16), bytes(9)), update, Resync("drifted")]
    said += [
        [*served, Snapshot(0, DIGEST, few, {"momentum_buffer": few}, {"power": 0.5}), Farewell("try_again", "soon")]
    ]
    seated: list[Message] = [
        Seat(1, (2,), 1, 1, "int8-delta", 8, 4, 16, 64),
        Activations(0, 0, 4, DIGEST, bytes(64)),
        Taken(0, 4),
    ]
    said += [[*FROM_SERVER[:2], *seated[:1], Snapshot(0, DIGEST, few, {}, {}), FROM_SERVER[3], *seated[1:]]]
    cases = []
    for messages in [*said, *([message] for message in {repr(m): m for some in said for m in some}.values())]:
        for choice in range(16):
            pieces = [(TYPES.index(type(message)), encode(message)) for message in messages]
            pieces += [(AS_THEY_ARE, framed(type(messages[0]), encode(messages[0]))), (TIME_PASSES, b"")]
            packed = b"".join(struct.pack("<BH", kind, len(piece)) + piece for kind, piece in pieces)
            cases.append(bytes([choice, choice]) + packed)
    return cases


def main() -> None:
    """Fuzzes for a while; the fuzzer ends the process."""
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing of frames and messages.")
    parser.add_argument("reader", choices=READERS, help="who reads; a connection alone is tried far more often")
    add_arguments(parser, minutes=12.0, length=512)
    options = parser.parse_args()
    read = READERS[options.reader]
    fuzz(lambda data: try_one(read, data), seeds(), options, memory_mb=MEMORY_MB)


if __name__ == "__main__":
    main()
