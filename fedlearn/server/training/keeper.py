"""The state that a server serves: a replica, blocks of data, the latest Updates, and a place to record events."""

from pathlib import Path
from typing import Protocol

from fedlearn.callback import Begun
from fedlearn.coordination.audits.audit import Claim, Finding, Verdict
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.coordination.people.credit import Entry
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.update import Update
from fedlearn.net.address import Address
from fedlearn.server.training.examination import Examination
from fedlearn.server.training.order_inbox import OrderInbox
from fedlearn.server.training.parts import ReplicaParts
from fedlearn.server.training.recent import Outgoing
from fedlearn.storage.logs.metrics import StepMetrics, StepTraffic
from fedlearn.wire.encoding.parcel import Parcel


class Keeper(Protocol):
    """The source that a server serves from: a run's own replica and files, or a relay's replica."""

    update_bytes: int
    """Length of the last Update on the wire."""

    @property
    def layout(self) -> ParameterLayout:
        """The layout of the weights."""

    @property
    def parts(self) -> ReplicaParts:
        """Parts of the replica, for crews."""

    @property
    def run_name(self) -> str:
        """The name of the run that is served."""

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the weights and of everything that travels with them."""

    @property
    def sample_time(self) -> float:
        """Seconds after which the model is looked at again; 0: never."""

    @property
    def sample_every(self) -> int:
        """Steps after which the model is looked at as well; 0: never."""

    def coordinator(self, now: float, rules: AuthenticationRules | None = None) -> Coordinator:
        """A coordinator that goes on at the replica's step."""

    def begun(self) -> Begun:
        """The facts that callbacks are told first."""

    def order_inbox(self, coordinator: Coordinator) -> OrderInbox | None:
        """The inbox of orders for this coordinator; None where there are no orders."""

    def copy(self) -> Float32Array:
        """A copy of the weights, which can be looked at while training goes on."""

    def examine(self, weights: Float32Array) -> Examination:
        """Measures the model with these weights."""

    def invitation(self, address: Address) -> str:
        """The command with which volunteers join at this address."""

    def weights_messages(self, *, may_replay: bool) -> list[Outgoing]:
        """The messages that bring a new volunteer up to date: weights, or, where they may be replayed and are shorter,
        all Updates."""

    def missed(self, held: Held) -> list[Outgoing] | None:
        """The messages that bring a volunteer up to date that returns with weights; None where it needs a Snapshot."""

    def data_block(self, name: bytes) -> Outgoing:
        """A block of data, ready to send."""

    def append(self, update: Update) -> Parcel:
        """Keeps the Update of the replica's next step; gives its parcel."""

    def apply(self, update: Update) -> bytes:
        """Takes the step; gives the digest after it."""

    def audit(self, claim: Claim) -> tuple[Finding, Verdict]:
        """Checks a claim; the replica must stand before its step."""

    def record_verdict(self, verdict: Verdict) -> None:
        """Records that a claim was false."""

    def record_credit(self, entry: Entry) -> None:
        """Records the contributions of identities."""

    def save_checkpoint(self) -> Path | None:
        """Writes a checkpoint of the replica, and gives its path; None where none is kept."""

    def record(self, report: StepReport, traffic: StepTraffic) -> StepMetrics:
        """Writes the figures of a step."""

    def ending(self, reason: str) -> str:
        """The reason why the run ends, with what can be found out about it here."""
