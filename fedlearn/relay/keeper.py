"""The state that a relay serves to its volunteers: the replica that it keeps as a volunteer, and recent messages."""

from collections import OrderedDict
from random import SystemRandom
from typing import final

import msgspec

from fedlearn.callback import Begun
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.coordination.people.roster import KEPT_BLOCKS, Held
from fedlearn.coordination.relay.upstream_steps import UpstreamSteps
from fedlearn.coordination.steps.plan import RunPlan
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.update import Update
from fedlearn.net.address import Address, is_loopback
from fedlearn.server.training.figures import step_metrics
from fedlearn.server.training.keeper import Keeper
from fedlearn.server.training.recent import Outgoing, has_masks_of_all_steps
from fedlearn.storage.logs.metrics import StepMetrics, StepTraffic
from fedlearn.system.invocation import invocation
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.messages import DataBlock, Welcome


@final
class Blocks:
    """The latest blocks of data, which are passed on as they came."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Outgoing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, block: DataBlock) -> None:
        """Keeps a block; beyond KEPT_BLOCKS the oldest is dropped."""
        self._kept[block.block] = (block, pack(block))
        self._kept.move_to_end(block.block)
        while len(self._kept) > KEPT_BLOCKS:
            self._kept.popitem(last=False)

    def find(self, name: bytes) -> Outgoing:
        """The block of that name.

        Raises:
            ValueError: it is not among the latest.
        """
        if name not in self._kept:
            raise ValueError(f"block {name.hex()}: expected one that came lately, got a name without data")
        return self._kept[name]


class RelaySettings(msgspec.Struct, frozen=True):
    """The choices of a relay's owner, and the servers above."""

    above: tuple[Address, ...]
    audit: float = 0.0
    """Share of the groups that the relay recomputes."""
    entry: str = ""
    """The task's file and name, where volunteers must name the task themselves."""


@final
class RelayKeeper(Keeper):
    """Serves from a volunteer's replica, which stands before `step` at first; the server above keeps the run, takes its
    orders, credits the relay, and examines the weights."""

    def __init__(
        self,
        volunteer: VolunteerReplica,
        blocks: Blocks,
        welcome: Welcome,
        settings: RelaySettings,
        *,
        step: int,
        digest: bytes,
    ) -> None:
        super().__init__(volunteer.holding, welcome.invitation)
        self.steps = UpstreamSteps(self.layout)
        self._blocks = blocks
        self._welcome = welcome
        self._settings = settings
        self._begun = (step, digest)

    @property
    def run_name(self) -> str:
        return self._welcome.run

    def coordinator(self, now: float, rules: AuthenticationRules | None = None) -> Coordinator:
        welcome, (step, digest) = self._welcome, self._begun
        plan = RunPlan(
            run=welcome.run,
            invitation=welcome.invitation,
            layout=self.layout,
            blocks=(),
            steps_per_block=0,
            time_per_step=0.0,
            checkpoint_time=float("inf"),
            steps=0,
            work_per_member=self._holding.objective.work_per_member,
            audit=self._settings.audit,
        )
        lottery = SystemRandom()
        return Coordinator(plan, self.steps, step=step, last=None, digest=digest, now=now, lottery=lottery, rules=rules)

    def invitation(self, address: Address) -> str:
        """The command for volunteers; it names the servers above as well, for when the relay is gone."""
        entry = f" --task {self._settings.entry}" if self._settings.entry else ""
        join = invocation("join", is_elsewhere=not is_loopback(address.host))
        return " ".join([f"{join}{entry} {address}", *map(str, self._settings.above)])

    def weights_messages(self, *, may_replay: bool) -> list[Outgoing]:  # noqa: ARG002 (the journal is the server's)
        return [self._messages.snapshot(self.steps.digest)]

    def missed(self, held: Held) -> list[Outgoing] | None:
        has_masks = has_masks_of_all_steps(self.layout, len(self._blocks))
        return self._messages.missed(held, self.steps.digest) if has_masks else None

    def data_block(self, name: bytes) -> Outgoing:
        return self._blocks.find(name)

    def append(self, update: Update) -> Parcel:
        parcel = self._messages.add(update, self.steps.digest)
        self.update_bytes = parcel.length_bytes
        return parcel

    def apply(self, update: Update) -> bytes:
        raise AssertionError(f"step {update.step}: it is taken as a volunteer's")

    def record(self, report: StepReport, traffic: StepTraffic) -> StepMetrics:  # noqa: ARG002 (not kept)
        """The figures of the step; its loss is that of the members that went up from here."""
        work = self._holding.objective.work_per_member
        return step_metrics(report, StepTraffic(), lambda loss: ("loss", loss), work, digest=self.steps.digest)

    def begun(self) -> Begun:
        """The facts that callbacks are told first; the run's folder and settings are at the server above."""
        unit, step = self._holding.objective.unit, self._begun[0]
        return Begun(self.run_name, folder=None, unit=unit, step=step, n_parameters=self.layout.size, settings={})
