"""The vocabulary of the wire: every message, with the sentence its sender would say.

Each Struct travels as a msgpack array `[tag, field, field, ...]`; the tag is the frame's message type. Arrays
travel as `[dtype, shape, bytes]` (see `codec.py`). `docs/protocol.md` describes the same for other languages.
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from fedlearn.es.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.update import Update

PROTOCOL_VERSION = 2

Float32Array = NDArray[np.float32]
TokenArray = NDArray[np.uint16]
_NO_CONTROL_CHARACTERS = r"\A[^\x00-\x1f\x7f-\x9f]*\Z"
"""Names and reasons are shown on terminals, which obey control characters."""

Digest = Annotated[bytes, Meta(min_length=8, max_length=8)]
BlockName = Annotated[bytes, Meta(min_length=16, max_length=16)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Reason = Annotated[str, Meta(max_length=1000, pattern=_NO_CONTROL_CHARACTERS)]
Name = Annotated[str, Meta(max_length=64, pattern=_NO_CONTROL_CHARACTERS)]


class Hello(Struct, frozen=True, array_like=True, tag=1):
    """Client: I speak this version of the protocol, and would like to lend my processor."""

    protocol_version: Count
    name: Name
    """Chosen by the volunteer, shown on the server's terminal; no control characters, at most 64 in all."""
    threads: Positive


class Ready(Struct, frozen=True, array_like=True, tag=2):
    """Client: I hold the weights of this step; here is their digest."""

    step: Count
    digest: Digest


class Result(Struct, frozen=True, array_like=True, tag=3, eq=False):
    """Client: these members of my lease had these losses (nats per token), at weights with this digest.

    Where the perturbation is summed, `estimate` is what they say of the gradient.
    """

    step: Count
    first_member: Count
    losses: Float32Array
    digest: Digest
    estimate: CodedEstimate = NO_ESTIMATE


class Goodbye(Struct, frozen=True, array_like=True, tag=4):
    """Client: I am leaving; count what I have sent."""

    reason: Reason


class Ping(Struct, frozen=True, array_like=True, tag=5):
    """Either side: I am still here, are you?"""


class Pong(Struct, frozen=True, array_like=True, tag=6):
    """Either side: yes."""


class Welcome(Struct, frozen=True, array_like=True, tag=16):
    """Server: you are in; this is the run and the model. A token block and a Snapshot follow."""

    run: str
    seed: int
    model: dict[str, str | int | float]
    """What the objective is built from, e.g. architecture, vocab_size, hidden_size, n_layers."""


class Snapshot(Struct, frozen=True, array_like=True, tag=17, eq=False):
    """Server: the weights and the optimizer's state before this step; answer with Ready."""

    step: Count
    digest: Digest
    weights: Float32Array
    first_moment: Float32Array
    second_moment: Float32Array
    beta1_power: float
    beta2_power: float


class TokenBlock(Struct, frozen=True, array_like=True, tag=18, eq=False):
    """Server: text to evaluate on, named by its content."""

    block: BlockName
    tokens: TokenArray


class Assignment(Struct, frozen=True, array_like=True, tag=19):
    """Server: the step is open; evaluate whole groups of your lease until quota or time is used up."""

    step: Count
    block: BlockName
    perturbation: Perturbation
    group_size: Positive
    first_member: Count
    quota: Count
    """Members wanted, a multiple of `group_size`; the lease goes no further."""
    time_left_s: float


class Resync(Struct, frozen=True, array_like=True, tag=20):
    """Server: your digest differs, your results don't count; a Snapshot follows."""

    reason: Reason


class Farewell(Struct, frozen=True, array_like=True, tag=21):
    """Server: we part, and this is why; come back only for `try_again`."""

    kind: Literal["run_ended", "refused", "try_again"]
    reason: Reason


FromClient = Hello | Ready | Result | Goodbye | Ping | Pong
FromServer = Welcome | Snapshot | TokenBlock | Assignment | Update | Resync | Farewell | Ping | Pong
Message = FromClient | FromServer
