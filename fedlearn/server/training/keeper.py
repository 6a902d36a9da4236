"""The state that a server serves: a replica, blocks of data, the latest Updates, and a place to record events."""

from abc import ABC, abstractmethod
from pathlib import Path

import msgspec

from fedlearn.callback import Begun
from fedlearn.coordination.audits.audit import Claim, Finding, Verdict, compare
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.coordination.people.credit import Entry
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.trials import TrialResults
from fedlearn.es.update import Update
from fedlearn.net.address import Address
from fedlearn.server.training.examination import Examination
from fedlearn.server.training.order_inbox import OrderInbox
from fedlearn.server.training.parts import ReplicaParts
from fedlearn.server.training.recent import Outgoing, ReplicaMessages
from fedlearn.server.training.retracing import Retracer
from fedlearn.storage.logs.metrics import StepMetrics, StepTraffic
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.encoding.parcel import Parcel


class Keeper(ABC):
    """The source that a server serves from: a run's own replica and files, or a relay's replica.

    What only a run's own server keeps has a default here, for which nothing is kept.
    """

    update_bytes: int = 0
    """Length of the last Update on the wire."""

    def __init__(self, holding: Holding, invitation: Invitation) -> None:
        """`invitation` is that of the run's task."""
        self._holding = holding
        self._messages = ReplicaMessages(holding)
        self._retracer = Retracer(holding, invitation)
        self.parts = ReplicaParts(holding)
        """Parts of the replica, for crews."""

    @property
    def layout(self) -> ParameterLayout:
        """The layout of the weights."""
        return self._holding.objective.layout

    @property
    @abstractmethod
    def run_name(self) -> str:
        """The name of the run that is served."""

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of the weights and of everything that travels with them."""
        return self._messages.snapshot_bytes

    @property
    def sample_time(self) -> float:
        """Seconds after which the model is looked at again; 0: never."""
        return 0.0

    @property
    def sample_every(self) -> int:
        """Steps after which the model is looked at as well; 0: never."""
        return 0

    @abstractmethod
    def coordinator(self, now: float, rules: AuthenticationRules | None = None) -> Coordinator:
        """A coordinator that goes on at the replica's step."""

    @abstractmethod
    def begun(self) -> Begun:
        """The facts that callbacks are told first."""

    def order_inbox(self, coordinator: Coordinator) -> OrderInbox | None:  # noqa: ARG002
        """The inbox of orders for this coordinator; None where there are no orders."""
        return None

    def copy(self) -> Float32Array:
        """A copy of the weights, which can be looked at while training goes on."""
        return self._holding.replica.weights.copy()

    def examine(self, weights: Float32Array) -> Examination:  # noqa: ARG002
        """Measures the model with these weights."""
        return Examination({}, "")

    @abstractmethod
    def invitation(self, address: Address) -> str:
        """The command with which volunteers join at this address."""

    @abstractmethod
    def weights_messages(self, *, may_replay: bool) -> list[Outgoing]:
        """The messages that bring a new volunteer up to date: weights, or, where they may be replayed and are shorter,
        all Updates."""

    def missed(self, held: Held) -> list[Outgoing] | None:  # noqa: ARG002
        """The messages that bring a volunteer up to date that returns with weights; None where it needs a Snapshot."""
        return None

    @abstractmethod
    def data_block(self, name: bytes) -> Outgoing:
        """A block of data, ready to send."""

    @abstractmethod
    def append(self, update: Update) -> Parcel:
        """Keeps the Update of the replica's next step; gives its parcel."""

    @abstractmethod
    def apply(self, update: Update) -> bytes:
        """Takes the step; gives the digest after it."""

    def audit(self, claim: Claim) -> tuple[Finding, Verdict]:
        """Checks a claim; the replica must stand before its step."""
        if claim.log is not None:
            return self._retracer.audit(claim)
        return compare(claim, lambda: _own_results(self._holding, claim), self.layout)

    def record_verdict(self, verdict: Verdict) -> None:  # noqa: B027 (a coordinator's notice reports it as well)
        """Records that a claim was false."""

    def record_credit(self, entry: Entry) -> None:  # noqa: B027
        """Records the contributions of identities."""

    def save_checkpoint(self) -> Path | None:
        """Writes a checkpoint of the replica, and gives its path; None where none is kept."""
        return None

    @abstractmethod
    def record(self, report: StepReport, traffic: StepTraffic) -> StepMetrics:
        """Writes the figures of a step."""

    def ending(self, reason: str) -> str:
        """The reason why the run ends, with what can be found out about it here."""
        return reason


def _own_results(holding: Holding, claim: Claim) -> TrialResults:
    found = holding.evaluate(claim.trials, claim.block)
    if (whole := claim.whole) is None:
        return found
    # The sum of the losses that were sent: equal to the last bit, whoever computes it.
    summed = holding.summed(whole.trials, whole.block, whole.losses)
    return msgspec.structs.replace(found, estimate=summed.estimate)
