"""Effects: actions that the pure machines ask for, as values that a shell performs in order.

Effects with an answer (`ApplyUpdate` on the server, every `Compute` on a client) are performed one at a time; the shell
reports their end to the machine that asked.
"""

import msgspec

from fedlearn.coordination.audits.audit import Claim, Verdict
from fedlearn.coordination.people.credit import Entry
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.tasks.parts.computation import Pass
from fedlearn.wire.messages import Activations, DataBlock, Farewell, Message, Neighbours, Seat, Start, Welcome

Peer = int
"""The number that the shell gives to a connection."""


class Send(msgspec.Struct, frozen=True):
    """Server: send this message to a peer."""

    peer: Peer
    message: Message


class Broadcast(msgspec.Struct, frozen=True):
    """Server: send this message to all of these peers; it is encoded once."""

    peers: tuple[Peer, ...]
    message: Message


class SendWeights(msgspec.Struct, frozen=True):
    """Server: bring a peer up to date, by a Snapshot or by the journal's Updates."""

    peer: Peer
    may_replay: bool
    """Whether a Start may be sent to the peer now."""
    held: Held | None = None
    """The weights that the peer says it holds, where a Start may be sent."""


class DigestParts(msgspec.Struct, frozen=True):
    """Server: digest these parts of the replica, then call `Coordinator.digested`."""

    parts: tuple[tuple[str, ...], ...]
    """Names of the tensors of each part."""


class SendPart(msgspec.Struct, frozen=True):
    """Server: send a peer the weights of some tensors as the replica has them, with what the optimizer remembers."""

    peer: Peer
    tensors: tuple[str, ...]


class SendBlock(msgspec.Struct, frozen=True):
    """Server: send the block of data of this name."""

    peer: Peer
    block: bytes


class Dismiss(msgspec.Struct, frozen=True):
    """Server: say farewell to a peer and close the connection once it is sent."""

    peer: Peer
    farewell: Farewell


class AppendToJournal(msgspec.Struct, frozen=True):
    """Server: append the Update to the journal before anything that follows."""

    update: Update


class ApplyUpdate(msgspec.Struct, frozen=True):
    """Server: take the step with the replica, then call `Coordinator.applied`."""

    update: Update


class Recompute(msgspec.Struct, frozen=True):
    """Server: run the trials of the claim with the server's own replica, then call `Coordinator.recomputed`.

    It comes before any later ApplyUpdate: the replica must stand where the claim's members stood.
    """

    claim: Claim


class RecordVerdict(msgspec.Struct, frozen=True):
    """Server: write down the verdict on a claim that was false."""

    verdict: Verdict


class RecordCredit(msgspec.Struct, frozen=True):
    """Server: write down what identities contributed."""

    entry: Entry


class SaveCheckpoint(msgspec.Struct, frozen=True):
    """Server: write the replica as it is now."""


class Notice(msgspec.Struct, frozen=True):
    """Either side: show this to the person at the terminal."""

    text: str


class Joined(msgspec.Struct, frozen=True):
    """Server: a volunteer holds the weights for the first time."""

    name: str
    is_local: bool = False
    """The server started it itself."""


class Left(msgspec.Struct, frozen=True):
    """Server: a volunteer that had joined is gone."""

    name: str
    reason: str


class EndRun(msgspec.Struct, frozen=True):
    """Server: everything is sent and written; stop."""

    reason: str


ServerEffect = (
    Send
    | Broadcast
    | SendWeights
    | SendPart
    | DigestParts
    | SendBlock
    | Dismiss
    | AppendToJournal
    | ApplyUpdate
    | Recompute
    | RecordVerdict
    | RecordCredit
    | SaveCheckpoint
    | StepReport
    | Notice
    | Joined
    | Left
    | EndRun
)


class Reply(msgspec.Struct, frozen=True):
    """Client: send this message to the server."""

    message: Message


class Build(msgspec.Struct, frozen=True):
    """Client: build the objective of this run."""

    welcome: Welcome


class StoreBlock(msgspec.Struct, frozen=True):
    """Client: keep this block, and of the earlier ones the last."""

    block: DataBlock


class Load(msgspec.Struct, frozen=True):
    """Client: replace the replica; the result is its digest."""

    snapshot: Snapshot


class Begin(msgspec.Struct, frozen=True):
    """Client: make the replica that the run began with; the result is its digest."""

    start: Start


class Apply(msgspec.Struct, frozen=True):
    """Client: take the step; the result is the digest after it."""

    update: Update


class Evaluate(msgspec.Struct, frozen=True):
    """Client: run these trials; the result is their losses."""

    trials: Trials
    block: bytes


class TakeSeat(msgspec.Struct, frozen=True):
    """Client: hold this part of the model from now on; its weights follow."""

    seat: Seat


class Link(msgspec.Struct, frozen=True):
    """Client: have these lines to neighbours from now on, new ones, and no others.

    The shell calls `Worker.linked` when the next seat is reached, `Worker.unlinked` when a line can't be used, and
    `Worker.heard` with what the seat before sends.
    """

    neighbours: Neighbours


class Forward(msgspec.Struct, frozen=True):
    """Client: send this straight to the next seat, or cotangents to the one before."""

    activations: Activations


class Leave(msgspec.Struct, frozen=True):
    """Client: the conversation is over; come back only if `is_welcome_back`."""

    reason: str
    is_welcome_back: bool
    is_refusal: bool


Compute = Build | TakeSeat | StoreBlock | Load | Begin | Apply | Evaluate | Pass
ClientEffect = Reply | Compute | Notice | Link | Forward | Leave
