"""The vocabulary of the wire: every message, with the sentence that its sender would say.

Each Struct travels as a msgpack array `[tag, field, field, ...]`; the tag is the frame's message type. An array of
numbers travels as `[dtype, shape, bytes]` (see `codec.py`). `docs/protocol.md` describes the same for other languages.
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from fedlearn.es.digest import DIGEST_BYTES
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.snapshot import Count, Digest, Snapshot
from fedlearn.es.sums.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.sums.moments import NO_MOMENTS, Int64Array
from fedlearn.es.update import Update
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.parts.activations import ActivationCodec

PROTOCOL_VERSION = 29

Float32Array = NDArray[np.float32]
_NO_CONTROL_CHARACTERS = r"\A[^\x00-\x1f\x7f-\x9f]*\Z"
"""Pattern of names and reasons, which are shown on terminals that obey control characters."""

BlockName = Annotated[bytes, Meta(max_length=16)]
"""Name of a block: 16 bytes, empty where a task has no data."""
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
MAX_SEATS = 256
"""The most seats of a crew."""
MAX_REASON_LENGTH = 1000
Reason = Annotated[str, Meta(max_length=MAX_REASON_LENGTH, pattern=_NO_CONTROL_CHARACTERS)]
MAX_NAME_LENGTH = 64
Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH, pattern=_NO_CONTROL_CHARACTERS)]
Nonce = Annotated[bytes, Meta(min_length=32, max_length=32)]
"""Random bytes that serve for one conversation only."""
PublicKey = Annotated[bytes, Meta(min_length=32, max_length=32)]
FarewellKind = Literal["run_ended", "refused", "try_again"]


class Hello(Struct, frozen=True, array_like=True, tag=1):
    """Client: I speak this version of the protocol, and would like to lend my processor."""

    protocol_version: Count
    name: Name
    """Name chosen by the volunteer, shown on the server's terminal."""
    threads: Positive
    public_key: Annotated[bytes, Meta(max_length=32)] = b""
    """The volunteer's identity, an Ed25519 key of 32 bytes; empty from older versions, which had none."""
    nonce: Annotated[bytes, Meta(max_length=32)] = b""
    """Random bytes, 32, which the proof covers."""


class Proof(Struct, frozen=True, array_like=True, tag=7):
    """Client: the key of my Hello is mine, and I know the token; see `proof.py` for what is signed."""

    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]
    token_proof: Annotated[bytes, Meta(max_length=32)] = b""
    """HMAC-SHA-256 with the token; empty unless the Challenge asks for it."""
    held_step: Count = 0
    held_digest: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""
    """Digest of the weights before `held_step` that I hold from an earlier conversation; empty where I hold none."""
    golden_step: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""
    """The digest that my machine computes in the golden step: another one's arithmetic is another version's."""
    memory_bytes: Count = 0
    """Memory that I lend, in bytes: where a whole replica takes more, I hold a part of one. 0: enough for any."""
    listens_at: Annotated[int, Meta(ge=0, le=65535)] = 0
    """The port of this machine on which I accept a neighbour in a crew, which also means that I am willing to call one;
    0: neither."""


class Ready(Struct, frozen=True, array_like=True, tag=2):
    """Client: I hold the weights of this step; here is their digest."""

    step: Count
    digest: Digest


class Result(Struct, frozen=True, array_like=True, tag=3, eq=False):
    """Client: these members of my lease had these losses, at weights with this digest.

    Where the perturbation is summed, or the Assignment has a shaping, `estimate` is these members' part of the gradient
    estimate.
    """

    step: Count
    first_member: Count
    losses: Float32Array
    digest: Digest
    estimate: CodedEstimate = NO_ESTIMATE
    busy_s: float = 0.0
    """Seconds from the arrival of the Assignment to this Result; the rest of the time went to the line. 0: unknown."""
    variance_left: float | None = None
    """Share of these losses' variance that control variates left; None where there are none."""
    n_machines: Positive = 1
    """Number of machines that compute groups of this lease side by side; a relay has several."""
    moments: Int64Array = NO_MOMENTS
    """Moments of what the members of each group observed, group after group; empty where nothing is normalised so."""


class Goodbye(Struct, frozen=True, array_like=True, tag=4):
    """Client: I am leaving; count what I have sent."""

    reason: Reason


class Ping(Struct, frozen=True, array_like=True, tag=5):
    """Either side: I am still here, are you?"""


class Pong(Struct, frozen=True, array_like=True, tag=6):
    """Either side: yes."""


class Challenge(Struct, frozen=True, array_like=True, tag=23):
    """Server: prove who you are; before that I say nothing about the run."""

    nonce: Nonce
    needs_token: bool


class Welcome(Struct, frozen=True, array_like=True, tag=16):
    """Server: you are in; this is the run, and its task. A block of data and the weights follow."""

    run: str
    invitation: Invitation


class Start(Struct, frozen=True, array_like=True, tag=22):
    """Server: begin with the first weights, which you can make, or with those that you said you hold; take the Updates
    that follow, and answer with Ready at `step`."""

    digest: Digest
    """Digest of the weights to begin with; a volunteer with others must be sent a Snapshot."""
    first_step: Count
    """The step before which those weights stand."""
    step: Count
    keeps_start: bool
    """Whether the first weights are kept as a slot, for a weight decay towards them."""


class DataBlock(Struct, frozen=True, array_like=True, tag=18, eq=False):
    """Server: this is a block of data to evaluate on, named by the hash of its content."""

    block: BlockName
    columns: bytes
    """Named arrays as safetensors bytes."""


class Assignment(Struct, frozen=True, array_like=True, tag=19):
    """Server: the step is open; evaluate whole groups of your lease until the quota or the time is used up."""

    step: Count
    block: BlockName
    perturbation: Perturbation
    group_size: Positive
    first_member: Count
    quota: Count
    """Members wanted, a multiple of `group_size`: the length of the lease."""
    time_left_s: float
    shaping: Shaping | None = None
    """How losses become utilities, where each Result brings the exact sum of its members; None: losses are enough."""


class Seat(Struct, frozen=True, array_like=True, tag=25):
    """Server: hold this part of the model, whose weights follow; you are a crew together with others."""

    crew: Count
    """Number of the crew, for people."""
    cuts: Annotated[tuple[Count, ...], Meta(max_length=MAX_SEATS - 1)]
    """Pieces of the graph behind which it is cut; there is one more part than cuts."""
    shards: Positive
    """Shards into which the rows of its vocabulary were divided before; 1: none."""
    place: Count
    """Number of your part: the first receives nothing from others, the last gives losses."""
    wire: ActivationCodec
    """Codec of activations that travel."""
    batch: Positive
    """The most members in one Activations."""
    window: Positive
    """The most messages that may be in flight from the first seat to the last."""
    member_bytes: Count
    """Bytes of one member's activations, as they leave you."""
    group_bytes: Count
    """Bytes that leave you once a group, beside its members' activations."""
    received_bytes: Count = 0
    """Bytes of one member's cotangents, as they leave you for the seat before; 0 where nothing goes back."""


class Activations(Struct, frozen=True, array_like=True, tag=33, dict=True):
    """Either side: the activations of these members of its crew's lease, which a seat computed for the next one; or,
    backward, their cotangents, for the one before.

    The copy for the server has no payload where that went straight to the neighbour.
    """

    step: Count
    first_member: Count
    n_members: Positive
    digest: Digest
    """Digest of the part of the weights that the members passed last."""
    payload: bytes
    backward: bool = False
    """Whether these are the derivatives of the losses by the activations that the receiver has sent of the members."""


class NextSeat(Struct, frozen=True, array_like=True):
    """The address at which the next seat listens, and the key that it proves to have."""

    host: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH, pattern=_NO_CONTROL_CHARACTERS)]
    port: Annotated[int, Meta(ge=1, le=65535)]
    public_key: PublicKey


class SeatBefore(Struct, frozen=True, array_like=True):
    """The key that the previous seat proves to have, and the sizes of its messages, as its own Seat says."""

    public_key: PublicKey
    batch: Positive
    member_bytes: Count
    group_bytes: Count


class Neighbours(Struct, frozen=True, array_like=True, tag=27):
    """Server: from now on send your activations straight to the next seat, and accept the previous seat and nobody
    else.

    Where a neighbour is None, activations that cross that cut go through me.
    """

    line: Count
    """Number of these connections, which both ends sign."""
    next: NextSeat | None
    before: SeatBefore | None


class Unreachable(Struct, frozen=True, array_like=True, tag=8):
    """Client: my connection to a neighbour can't be used; pass on the activations of that cut yourself."""

    is_next: bool
    """Whether the neighbour is the next seat; else it is the previous one."""
    reason: Reason


class Signature(Struct, frozen=True, array_like=True, tag=34):
    """Either seat, to the other: this connection is with me; see `introduction.py` for the signed bytes."""

    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


class Taken(Struct, frozen=True, array_like=True, tag=26):
    """The seat at which members end, about a group that is not whole yet, or without noise about a lease: all members
    before this one are through me. It is the last seat, without noise the first.

    Server, to the first seat: they are through your crew; others may follow.
    """

    step: Count
    next_member: Count


class Resync(Struct, frozen=True, array_like=True, tag=20):
    """Server: your digest differs, or you are far behind; your Results do not count until you hold the Snapshot that
    follows."""

    reason: Reason


class News(Struct, frozen=True, array_like=True):
    """The state of the run, for the person who lends the machine; it is not needed to take part."""

    steps: Count
    """The step at which the run ends; 0: it has no such end."""
    left_s: float | None
    """Seconds of training that are left; None where training has no time limit."""
    volunteers: Count
    """Number of volunteers that hold the weights, the receiver among them."""
    loss: float | None
    """Mean over the members of the last step, in the task's unit; None where it is not finite."""
    shown: tuple[Name, float] | None = None
    """The loss as the run's owner sees it: its name, such as `bits_per_character`, and its value."""


class Credit(Struct, frozen=True, array_like=True, tag=24):
    """Server: this is what your identity has contributed to this run, over all its connections."""

    members: Count
    """Members that counted in steps."""
    work: Count
    """Work of their trials, in the task's unit."""
    seconds: Count
    """Seconds from the opening of a step to the identity's last Result in it, summed over steps."""
    agreed: Count
    """Groups that were computed again and agreed."""
    caught: Count
    """Results that were found false."""
    news: News | None = None


class Farewell(Struct, frozen=True, array_like=True, tag=21):
    """Server: we part, and this is why; come back only for `try_again`."""

    kind: FarewellKind
    reason: Reason


FromClient = Hello | Proof | Ready | Result | Activations | Taken | Unreachable | Goodbye | Ping | Pong
FromServer = (
    Challenge
    | Welcome
    | Seat
    | Snapshot
    | Start
    | DataBlock
    | Assignment
    | Activations
    | Neighbours
    | Taken
    | Update
    | Resync
    | Credit
    | Farewell
    | Ping
    | Pong
)
FromSeatBefore = Hello | Signature | Activations | Goodbye | Ping | Pong
"""Messages on a connection between two seats from the one that called."""
FromNextSeat = Challenge | Signature | Activations | Farewell | Ping | Pong
"""Messages on a connection between two seats from the one that was called."""
Message = FromClient | FromServer | FromSeatBefore | FromNextSeat
