"""One example of every message, the larger ones of more than one chunk."""

import numpy as np
import pytest

from fedlearn.es.attempts import Attempt
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.sums.moments import Renormalization
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns, block_name, encode_block
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.messages import (
    PROTOCOL_VERSION,
    Activations,
    Assignment,
    Challenge,
    Credit,
    DataBlock,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Neighbours,
    News,
    NextSeat,
    Ping,
    Pong,
    Proof,
    Ready,
    Result,
    Resync,
    Seat,
    SeatBefore,
    Signature,
    Start,
    Taken,
    Unreachable,
    Welcome,
)
from fedlearn.wire.states import MessageType

DIGEST = bytes(range(8))
COLUMNS: Columns = {"tokens": np.arange(50_000, dtype=np.uint16), "weight": np.linspace(0, 1, 50_000, dtype=np.float32)}
BLOCK = block_name(COLUMNS)
ESTIMATE = CodedEstimate(np.array([-127, 0, 127], dtype=np.int8), np.array([0, 24], dtype=np.uint8))
LOSSES = np.array([1.5, np.nan, np.inf, -0.0], dtype=np.float32)
MOMENTS = np.array([2**36, -5, 2**62], dtype=np.int64)
RENORMALIZATION = Renormalization(np.array([0.5], dtype=np.float32), np.array([2.0], dtype=np.float32), 1024.0)
WEIGHTS = np.linspace(-1, 1, 50_000, dtype=np.float32)

EXAMPLES: dict[MessageType, Message] = {
    type(message): message
    for message in (
        Hello(PROTOCOL_VERSION, "Ada's laptop ⚙", 8, bytes(range(32)), bytes(range(32, 64))),
        Challenge(bytes(range(64, 96)), True),
        Proof(bytes(range(64)), bytes(32), 12, DIGEST, DIGEST, 2**33, 55552),
        Ready(12, DIGEST),
        Result(
            12, 640, np.array([1.5, np.nan, np.inf, -0.0], dtype=np.float32), DIGEST, ESTIMATE, 0.5, 0.25, 3, MOMENTS
        ),
        Goodbye("the volunteer pressed Ctrl-C"),
        Ping(),
        Pong(),
        Credit(4096, 2**40, 3600, 12, 1, News(3000, 240.0, 5, 1.625, ("bits_per_character", 2.5))),
        Welcome(
            "0007",
            Invitation(
                "rnn",
                2**63 - 1,
                {"hidden_size": 64, "embedding_scale": 10.0, "precision": "int8", "is_tied": True},
                {"layout": "00ff"},
                bytes(70_000),
            ),
        ),
        Snapshot(
            12,
            DIGEST,
            WEIGHTS,
            {"first_moment": WEIGHTS * 2, "second_moment": WEIGHTS**2},
            {"beta1_power": 0.9**12, "beta2_power": 0.999**12},
            {"second_moment": [0, 2]},
        ),
        Start(DIGEST, 0, 12, True),
        DataBlock(BLOCK, encode_block(COLUMNS)),
        Assignment(12, BLOCK, Perturbation(0.02, 1, "activations", "closed-form", 0.05, 0.8), 64, 640, 1280, 0.25),
        Seat(3, (2, 5), 2, 1, "int8-delta", 16, 4, 300, 1024),
        Activations(12, 640, 16, DIGEST, bytes(70_000)),
        Neighbours(3, NextSeat("192.0.2.7", 55552, bytes(range(32))), SeatBefore(bytes(32), 16, 300, 1024)),
        Unreachable(True, "nobody answers at 192.0.2.7:55552"),
        Signature(bytes(range(64))),
        Taken(12, 704),
        Resync("digest differs after step 11"),
        Farewell("try_again", "the server restarts"),
        Update(
            12,
            BLOCK,
            ((0, 64), (640, 128)),
            np.arange(-96, 96, dtype=np.int8),
            1,
            64,
            0.003,
            Adam(0.01, 0.9, 0.999, 1e-8),
            True,
            0.01,
            "start",
            30.5,
            0.05,
            ESTIMATE,
            RENORMALIZATION,
            Attempt(2, 50, 5.5, 4.5, 4.75, 4.25, "anew"),
        ),
    )
}


@pytest.fixture
def examples() -> dict[MessageType, Message]:
    return EXAMPLES


@pytest.fixture(params=EXAMPLES.values(), ids=[kind.__name__ for kind in EXAMPLES])
def message(request: pytest.FixtureRequest) -> Message:
    example: Message = request.param
    return example
