"""Random mutations of valid conversations, against a server's connection and coordinator: no case may end otherwise
than in a protocol error of the peer, however many are tried.

python fuzz/conversations.py --cases 100000 --seed 1
"""

import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
from seeds import chosen_options, seeds_of

from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import Send, SendWeights, ServerEffect
from fedlearn.coordination.steps.plan import RunPlan
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.strategy import Strategy
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.connection import Connection
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.encoding.frames import CHUNK_BYTES, headers
from fedlearn.wire.encoding.parcel import stream_of
from fedlearn.wire.errors import LocalProtocolError, RemoteProtocolError
from fedlearn.wire.messages import (
    PROTOCOL_VERSION,
    Assignment,
    Challenge,
    Goodbye,
    Hello,
    Message,
    Ping,
    Pong,
    Ready,
    Result,
)
from fedlearn.wire.proof import NONCE_BYTES, Credentials, Identity, prove

DIGEST = bytes(8)
LAYOUT = ParameterLayout((TensorSpec("weights", (4, 4)),))
MAX_GROWTH_BYTES = 8 * 2**20
"""Bytes by which a case may grow the process: more than any message of these conversations may hold."""

Change = Callable[[random.Random, bytes], bytes]


def framed(
    message_type: type[msgspec.Struct], payload: bytes, *, tag: int | None = None, stream: int | None = None
) -> bytes:
    """A message as it travels, its header right or not."""
    own = message_type.__struct_config__.tag
    assert isinstance(own, int)
    cut = headers(
        payload,
        message_type=own if tag is None else tag,
        stream=stream_of(message_type) if stream is None else stream,
    )
    return b"".join(
        header + payload[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES] for number, header in enumerate(cut)
    )


def flip(generator: random.Random, data: bytes) -> bytes:
    """Some bytes, each to anything."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        changed[generator.randrange(len(changed))] = generator.randrange(256)
    return bytes(changed)


def cut_out(generator: random.Random, data: bytes) -> bytes:
    """A piece is missing."""
    start = generator.randrange(len(data))
    return data[:start] + data[start + generator.randint(1, 16) :] or b"\xc0"


def put_in(generator: random.Random, data: bytes) -> bytes:
    """A piece is there twice, or something else is."""
    start = generator.randrange(len(data))
    piece = generator.choice([data[start : start + 16], generator.randbytes(9), b"\xdd\x00\xff\xff\xff", b"\x91" * 40])
    return data[:start] + piece + data[start:]


def other_field(generator: random.Random, data: bytes) -> bytes:
    """A value of another kind or size, where the payload is still msgpack."""
    values: list[object] = [
        None,
        -1,
        2**63,
        2**64 - 1,
        1.5,
        float("nan"),
        "",
        "x" * 5000,
        b"",
        bytes(70),
        [],
        [[]],
        {},
        [1] * 999,
    ]
    try:
        fields = msgspec.msgpack.decode(data)
    except msgspec.MsgspecError:
        return data
    if isinstance(fields, list) and fields:
        fields[generator.randrange(len(fields))] = generator.choice(values)
    return msgspec.msgpack.encode(fields)


CREDENTIALS = Credentials(Identity.of_seed(bytes(32)))
NONCE = bytes(NONCE_BYTES)

CHANGES: list[Change] = [flip, cut_out, put_in, other_field]


def opening(name: str) -> list[Message]:
    """What a client says until it may be given a lease."""
    hello = Hello(PROTOCOL_VERSION, name, 1, CREDENTIALS.identity.public_key, NONCE)
    proof = prove(CREDENTIALS, hello, Challenge(NONCE, needs_token=False), b"")
    return [hello, proof, Ready(0, DIGEST)]


OPENING = opening("Eve")


class Scene:
    """A server with one honest volunteer in an open step, and a peer that is fuzzed."""

    def __init__(self, generator: random.Random, *, is_summed: bool) -> None:
        strategy = Strategy(
            perturbation=Perturbation(sigma=0.01, rank=1, space="activations" if is_summed else "weights"),
            group_size=4,
            population_limit=64,
            optimizer=Adam(0.01),
            fitness_shaping="normalized",
        )
        plan = RunPlan("1", Invitation("rnn", 1, {}, {}), LAYOUT, (NO_BLOCK,), 0, 1e6, 1e6, 0)
        self.generator = generator
        self.coordinator = Coordinator(plan, OwnSteps(plan, strategy), step=0, last=None, digest=DIGEST, now=0.0)
        self.server = Connection("server", now=0.0, estimate_bytes=LAYOUT.size + len(LAYOUT.row_lengths))
        self.lease: Assignment | None = None
        for peer in (0, 1):
            self.coordinator.connected(peer, 0.0, nonce=NONCE)
        for message in opening("honest"):
            self.follow(self.coordinator.received(0, message, 0.0))

    def follow(self, effects: list[ServerEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(1, message):
                    if isinstance(message, Assignment):
                        self.lease = message
                    self.send(message)
                case SendWeights(1, _):
                    weights = np.zeros(LAYOUT.size, np.float32)
                    self.send(Snapshot(0, DIGEST, weights, {}, {}))

    def send(self, message: Message) -> None:
        if not self.server.has_parted:
            self.server.send(message)
            self.server.data_to_send(2**30)

    def receive(self, data: bytes) -> None:
        at = 0
        while at < len(data):  # in pieces of any size
            length = self.generator.choice([1, 7, 24, 25, 300, len(data)])
            for message in self.server.receive_data(data[at : at + length], 0.0):
                self.follow(self.coordinator.received(1, message, 0.0))
            at += length

    def said(self) -> list[Message]:
        """What an honest client could say, most of it in the right order."""
        lease = self.lease
        first, quota = (lease.first_member, lease.quota) if lease is not None else (0, 4)
        estimate = CodedEstimate(np.ones(LAYOUT.size, np.int8), np.zeros(len(LAYOUT.row_lengths), np.uint8))
        losses = np.array([self.generator.choice([0.5, np.nan, np.inf, -1e30]) for _ in range(quota)], np.float32)
        summed = lease is not None and lease.perturbation.is_summed
        result = Result(0, first, losses, DIGEST, estimate) if summed else Result(0, first, losses, DIGEST)
        return [result, result, Ping(), Pong(), Ready(0, DIGEST), Goodbye("enough")]


def try_one(generator: random.Random) -> str:
    """One conversation, changed in one place or several; gives how it ended."""
    scene = Scene(generator, is_summed=generator.random() < 0.5)
    n_right = generator.randrange(5)
    try:
        for number in range(generator.randint(1, 7)):
            message = OPENING[number] if number < len(OPENING) else generator.choice(scene.said())
            payload = encode(message)
            if number < n_right:
                scene.receive(framed(type(message), payload))
                continue
            change = generator.choice(CHANGES)
            if generator.random() < 0.7:  # whole frames of a wrong payload, so that the checksum lets it through
                scene.receive(framed(type(message), change(generator, payload) or b"\xc0"))
            elif generator.random() < 0.5:
                scene.receive(
                    framed(type(message), payload, tag=generator.randrange(40), stream=generator.randrange(2))
                )
            else:
                scene.receive(change(generator, framed(type(message), payload)))
    except RemoteProtocolError as error:
        return str(error).partition(":")[0]
    except LocalProtocolError as error:
        return f"ours: {error}"
    return "heard to its end"


def main() -> int:
    """Tries so many cases; gives the exit code."""
    options = chosen_options("Random mutations of valid conversations.", cases=100_000)
    endings: Counter[str] = Counter()
    began = time.monotonic()
    tracemalloc.start()
    for seed in seeds_of(options):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        ending = try_one(random.Random(seed))
        _, peak = tracemalloc.get_traced_memory()
        assert not ending.startswith("ours"), f"seed {seed}: {ending}"
        assert peak - before < MAX_GROWTH_BYTES, f"seed {seed}: {peak - before} bytes"
        endings[ending] += 1
    for ending, count in endings.most_common(20):
        print(f"{count:9} {ending}")
    print(f"{endings.total()} cases from seed {options.seed} in {time.monotonic() - began:.0f} s: no other end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
