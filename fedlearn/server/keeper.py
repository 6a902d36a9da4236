"""What a server serves from: a replica, blocks of data, the Updates of late, and a place for what happened."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fedlearn.callback import Begun
from fedlearn.coordination.admission import AdmissionRules
from fedlearn.coordination.audit import Claim, Finding, Verdict
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.credit import Entry
from fedlearn.coordination.crew import Tensors
from fedlearn.coordination.crews import Crews
from fedlearn.coordination.effects import StepReport
from fedlearn.coordination.roster import Held
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.update import Update
from fedlearn.net.address import Address
from fedlearn.server.desk import Desk
from fedlearn.server.examination import Examination
from fedlearn.server.recent import Outgoing
from fedlearn.storage.metrics import StepMetrics
from fedlearn.wire.parcel import Parcel


class Serves(Protocol):
    """What a performer needs for a coordinator's effects, short of sending."""

    def weights_messages(self, *, may_replay: bool) -> list[Outgoing]:
        """What brings a joiner to where the replica is; from the start where it may be replayed, and that is less."""

    def missed(self, held: Held) -> list[Outgoing] | None:
        """What brings whoever comes back with weights to where the replica is; None where only a Snapshot does."""

    def data_block(self, name: bytes) -> Outgoing:
        """A block for whoever lacks it."""

    def append(self, update: Update) -> Parcel:
        """Keeps the Update that the replica takes next; gives its parcel."""

    def apply(self, update: Update) -> bytes:
        """Takes the step; gives the digest after it."""

    def audit(self, claim: Claim) -> tuple[Finding, Verdict]:
        """What becomes of a claim; the replica must stand before its step."""

    def record_verdict(self, verdict: Verdict) -> None:
        """Writes down that a claim was false."""

    def record_credit(self, entry: Entry) -> None:
        """Writes down who did what."""

    def save_checkpoint(self) -> Path | None:
        """Writes the replica, and gives the file; None where nothing is kept."""

    def record(self, report: StepReport, *, bytes_in: int, bytes_out: int) -> StepMetrics:
        """Writes the step's figures; byte counts are totals from the start to the step's close."""


class Divides(Protocol):
    """What a performer needs for the effects of crews."""

    def part_message(self, tensors: Tensors) -> Outgoing:
        """What brings a seat that holds these tensors to where the replica is."""

    def part_digests(self, parts: Sequence[Tensors]) -> tuple[int, dict[Tensors, bytes]]:
        """The step that the replica stands before, and the digests of some parts of it."""


class Seating(NamedTuple):
    """Crews, and where their parts come from."""

    crews: Crews
    parts: Divides


class Keeper(Serves, Protocol):
    """What a whole server needs."""

    update_bytes: int
    """Of the last Update as it travels."""

    @property
    def layout(self) -> ParameterLayout:
        """Of the weights."""

    @property
    def run_name(self) -> str:
        """Of the run that is served."""

    @property
    def snapshot_bytes(self) -> int:
        """Of the weights and all that travels with them."""

    @property
    def sample_time(self) -> float:
        """Seconds between two looks at what the model can do by now; 0: never."""

    def coordinator(self, now: float, rules: AdmissionRules | None = None) -> Coordinator:
        """The coordinator that goes on where the replica stands."""

    def crews(self, coordinator: Coordinator) -> Seating | None:
        """What seats those who can't hold a whole replica; None where nobody is seated."""

    def begun(self) -> Begun:
        """What callbacks are told first."""

    def desk(self, coordinator: Coordinator) -> Desk | None:
        """Where orders to this coordinator are found; None where nobody gives any."""

    def copy(self) -> Float32Array:
        """The weights as they are, for a look beside the training."""

    def examine(self, weights: Float32Array) -> Examination:
        """What the model can do with these weights."""

    def invitation(self, address: Address) -> str:
        """The command that volunteers of this address are told."""
