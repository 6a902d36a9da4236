"""One example of every message, the larger ones of more than one chunk."""

import numpy as np
import pytest

from fedlearn.es.estimate import CodedEstimate
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.update import Update
from fedlearn.wire.messages import (
    PROTOCOL_VERSION,
    Assignment,
    Farewell,
    Goodbye,
    Hello,
    Message,
    Ping,
    Pong,
    Ready,
    Result,
    Resync,
    Snapshot,
    TokenBlock,
    Welcome,
)
from fedlearn.wire.states import MessageType

DIGEST = bytes(range(8))
BLOCK = bytes(range(16))
ESTIMATE = CodedEstimate(np.array([-127, 0, 127], dtype=np.int8), np.array([0, 24], dtype=np.uint8))
WEIGHTS = np.linspace(-1, 1, 50_000, dtype=np.float32)

EXAMPLES: dict[MessageType, Message] = {
    type(message): message
    for message in (
        Hello(PROTOCOL_VERSION, "Ada's laptop ⚙", 8),
        Ready(12, DIGEST),
        Result(12, 640, np.array([1.5, np.nan, np.inf, -0.0], dtype=np.float32), DIGEST, ESTIMATE),
        Goodbye("the volunteer pressed Ctrl-C"),
        Ping(),
        Pong(),
        Welcome("0007", 2**63, {"architecture": "rnn", "hidden_size": 64, "dropout": 0.5}),
        Snapshot(12, DIGEST, WEIGHTS, WEIGHTS * 2, WEIGHTS**2, 0.9**12, 0.999**12),
        TokenBlock(BLOCK, np.arange(50_000, dtype=np.uint16)),
        Assignment(12, BLOCK, Perturbation(0.02, 1, "activations", "closed-form", 0.05, 0.8), 64, 640, 1280, 0.25),
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
            "adam",
            0.01,
            0.9,
            0.999,
            1e-8,
            True,
            0.01,
            30.5,
            0.05,
            ESTIMATE,
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
