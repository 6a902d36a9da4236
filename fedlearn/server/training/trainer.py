"""The server's half of the work: its own replica, and the journal, checkpoints and metrics of a run."""

import time
from functools import cached_property
from pathlib import Path
from random import SystemRandom
from typing import Self, final

import msgspec

from fedlearn.callback import Begun
from fedlearn.config import journal_bytes_kept
from fedlearn.coordination.audits.audit import Verdict
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.crews.planning import CrewPlanner, crew_planner_of, undivided_of
from fedlearn.coordination.effects import ServerEffect
from fedlearn.coordination.operator import RunOperator
from fedlearn.coordination.people.authentication import AuthenticationRules
from fedlearn.coordination.people.credit import Entry
from fedlearn.coordination.people.roster import KEPT_BLOCKS, Held
from fedlearn.coordination.steps.divergence import NO_LOSS
from fedlearn.coordination.steps.plan import RunPlan
from fedlearn.coordination.steps.report import StepReport
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.es.layout import Float32Array
from fedlearn.es.replica import Replica
from fedlearn.es.strategy import search_end
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update, elapsed_s_after
from fedlearn.net.address import Address, is_loopback
from fedlearn.runs.history import Rebuilt, StepDone, rebuilt_at
from fedlearn.runs.ledger import read_credit, reputations_of
from fedlearn.runs.run import Run
from fedlearn.server.training.changing import changed, changes_of, settings_of_end, told
from fedlearn.server.training.examination import Examination, examine
from fedlearn.server.training.feed import Feed
from fedlearn.server.training.figures import step_metrics
from fedlearn.server.training.keeper import Keeper
from fedlearn.server.training.no_loss import cause
from fedlearn.server.training.order_inbox import OrderInbox
from fedlearn.server.training.recent import Outgoing, has_masks_of_all_steps
from fedlearn.storage.aside import Aside
from fedlearn.storage.checkpoint import checkpoints_in, save_checkpoint, step_of
from fedlearn.storage.durable import StorageError, write_durably
from fedlearn.storage.journal.journal import Journal, read_records
from fedlearn.storage.journal.segment import Header
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.metrics import StepMetrics, StepTraffic
from fedlearn.storage.logs.samples import Sample
from fedlearn.system.invocation import invocation
from fedlearn.tasks.blocks import Columns, block_name, encode_block
from fedlearn.tasks.strategy import strategy_of
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.messages import DataBlock, Message, Start


@final
class Trainer(Keeper):
    """The server's replica, and the journal, checkpoints and metrics of a run; performs what a Coordinator asks for,
    except for sending."""

    def __init__(
        self, run: Run, rebuilt: Rebuilt, journal: Journal, digest: bytes, *, feed: Feed | None = None
    ) -> None:
        super().__init__(rebuilt.holding, run.prepared.invitation)
        self.run = run
        self._digest = digest
        """Digest of the present replica."""
        self._journal = journal
        self._metrics = LineLog(run.folder.metrics)
        self._samples = LineLog(run.folder.samples)
        self._credit = LineLog(run.folder.credit)
        self._audits = LineLog(run.folder.audits)
        self._changes = LineLog(run.folder.changes)
        self._last = rebuilt.last
        self._steps: OwnSteps | None = None
        self._encoded_block: tuple[bytes, Outgoing] | None = None
        self._feed, self._blocks = feed, tuple(run.prepared.named_blocks)
        if feed is not None:
            self._holding.kept = KEPT_BLOCKS
        self.validation: dict[str, float] = {}
        """Figures of the unperturbed weights, for the next line of metrics."""

    @classmethod
    def open(cls, run: Run, *, progress: StepDone | None = None, feed: Feed | None = None) -> tuple[Self, list[str]]:
        """The trainer of a run, new or resumed from its newest good state, and texts about what was repaired.

        Files that the run cannot go on with are set aside. With a `feed` each step waits for the data that it brings.

        Raises:
            StorageError: the run's files cannot be used.
        """
        rebuilt = rebuilt_at(run, progress=progress)
        replica, aside, notices = rebuilt.holding.replica, Aside(run.folder.path), list(rebuilt.problems)
        # Only the newest few checkpoints are kept: damaged ones would replace good ones.
        for path in checkpoints_in(run.folder):
            if step_of(path) > rebuilt.begun.step:
                aside.move(path)
        digest = replica.digest
        header = Header(run.origin.identity, replica.step, digest)
        journal = Journal.open(run.folder.journal, header, keep_bytes=journal_bytes_kept(run.config.run), aside=aside)
        if journal.cut_bytes:
            notices.append(
                f"journal: an incomplete last record of {journal.cut_bytes} bytes was removed; its step is repeated"
            )
        if not journal.is_joined and replica.step > run.origin.step:
            notices.append(f"journal: it ends before step {replica.step}; a new segment begins there")
        if aside.names:
            notices.append(f"set aside in {aside.folder}: {', '.join(aside.names)}")
        return cls(run, rebuilt, journal, digest, feed=feed), notices

    @property
    def replica(self) -> Replica:
        return self._holding.replica

    @property
    def run_name(self) -> str:
        return self.run.folder.path.name

    @property
    def sample_time(self) -> float:
        return self.run.config.run.sample_time

    @property
    def sample_every(self) -> int:
        return self.run.config.run.sample_every

    def examine(self, weights: Float32Array) -> Examination:
        """Examines these weights and writes down the result; the next line of metrics has its figures, too.

        Raises:
            StorageError: the disk refuses.
        """
        found, step = examine(self.run.prepared.examiner, weights), self.replica.step
        self.validation = found.figures
        text = found.sample.encode(errors="replace").decode()  # a model may write what cannot be encoded
        self._samples.append(Sample(step=step, time=time.time(), figures=dict(found.figures), text=text))
        return found

    def invitation(self, address: Address) -> str:
        prepared = self.run.prepared
        entry = f" --task {prepared.entry}" if prepared.needs_task else ""
        return f"{invocation('join', is_elsewhere=not is_loopback(address.host))}{entry} {address}"

    def begun(self) -> Begun:
        groups = msgspec.to_builtins(self.run.config)
        return Begun(
            run=self.run_name,
            folder=self.run.folder.path,
            unit=self.run.prepared.objective.unit,
            step=self.replica.step,
            n_parameters=self.layout.n_trained,
            settings={key: value for group in groups.values() for key, value in group.items()},
        )

    @property
    def step(self) -> int:
        """The step before which the replica stands."""
        return self.replica.step

    def order_inbox(self, coordinator: Coordinator) -> OrderInbox:
        assert self._steps is not None, "orders to a coordinator of this trainer"
        return OrderInbox(self.run.folder.orders, self, RunOperator(coordinator, self._steps), self._feed)

    def change(self, operator: RunOperator, key: str, text: str, now: float) -> str:
        """Goes on with another value of a setting, which the next checkpoint has too; gives a sentence about it.

        Raises:
            ConfigError: the setting cannot be changed.
            StorageError: the change cannot be written down.
        """
        before = self.run.config
        config = changed(before, key, text)
        name = key.replace("-", "_")
        changes = changes_of(before, config, name, step=self.step, time=time.time())
        for change in changes:
            self._changes.append(change)
        self.run = msgspec.structs.replace(self.run, prepared=msgspec.structs.replace(self.run.prepared, config=config))
        operator.change(self._plan, strategy_of(config), now)
        self._journal.keep(journal_bytes_kept(config.run))
        return told(config, name, changes)

    def finish(self, operator: RunOperator, end: int, more: int | None, now: float) -> int:
        """Ends the run `more` steps after the step `end`, None: as many as suit it; gives the step that it ends at.

        Raises:
            ConfigError: the run has an end already, towards which its rate falls.
            StorageError: a change cannot be written down.
        """
        for key, text in settings_of_end(self.run.config, end, more).items():
            self.change(operator, key, text, now)
        return self.run.config.run.steps

    def feed(self, operator: RunOperator, columns: Columns, n_members: int, now: float) -> list[ServerEffect]:
        """Opens a step of so many members on these data; 0 members: as many as the settings say."""
        name, strategy = block_name(columns), strategy_of(self.run.config)
        self._holding.store(name, columns)
        self._blocks = (name,)
        if n_members:
            strategy = msgspec.structs.replace(strategy, population_limit=n_members)
        return operator.feed(self._plan, strategy, now)

    @property
    def _plan(self) -> RunPlan:
        config = self.run.config
        replica_bytes, undivided = self._undivided
        return RunPlan(
            run=self.run_name,
            invitation=self.run.prepared.invitation,
            layout=self.layout,
            blocks=self._blocks,
            steps_per_block=self.run.prepared.steps_per_block,
            work_per_member=self.run.prepared.objective.work_per_member,
            audit=config.server.audit,
            max_share=config.server.max_share,
            time_per_step=config.strategy.time_per_step,
            checkpoint_time=config.run.checkpoint_time,
            steps=config.run.steps,
            duration_s=config.run.duration,
            seats=config.server.seats,
            show=self.run.prepared.examiner.show,
            replica_bytes=self._crew_planner.replica_bytes if self._crew_planner is not None else replica_bytes,
            undivided=undivided,
        )

    def coordinator(self, now: float, rules: AuthenticationRules | None = None) -> Coordinator:
        plan, earned = self._plan, read_credit(self.run.folder)
        self._steps = OwnSteps(plan, strategy_of(self.run.config), is_fed=self._feed is not None)
        return Coordinator(
            plan,
            self._steps,
            step=self.replica.step,
            last=self._last,
            digest=self.replica.digest,
            now=now,
            reputations=reputations_of(earned),
            earned=earned,
            lottery=SystemRandom(),
            rules=rules,
            planner=self._crew_planner,
            is_direct=self.run.config.server.direct,
        )

    @cached_property
    def _crew_planner(self) -> CrewPlanner | None:
        return crew_planner_of(self.run.prepared.invitation, self.run.config)

    @cached_property
    def _undivided(self) -> tuple[int, str]:
        return undivided_of(self.run.prepared.invitation, self.run.config)

    @property
    def elapsed_s(self) -> float:
        """Seconds of training before the present step."""
        return elapsed_s_after(self._last)

    @property
    def has_all_steps(self) -> bool:
        """True once the run has taken as many steps as it was given."""
        return 0 < self.run.config.run.steps <= self.replica.step

    @property
    def has_all_time(self) -> bool:
        """True once the run has used the training time that it was given."""
        return 0.0 < self.run.config.run.duration <= self.elapsed_s

    @property
    def is_searched(self) -> bool:
        """True once the noise of a function has found all that it finds."""
        return bool(search_end(strategy_of(self.run.config), self._last))

    @property
    def is_complete(self) -> bool:
        """True once the run has reached its end."""
        return self.has_all_steps or self.has_all_time or self.is_searched

    def weights_messages(self, *, may_replay: bool) -> list[Outgoing]:
        """A Snapshot, or the Start and all Updates where those are fewer bytes."""
        if may_replay and self._can_replay() and (updates := self._all_updates()) is not None:
            origin = self.run.origin
            keeps_start = strategy_of(self.run.config).keeps_start
            start = Start(bytes.fromhex(origin.digest), origin.step, self.replica.step, keeps_start)
            messages: list[Message] = [start, *updates]
            return [(message, pack(message)) for message in messages]
        return [self._messages.snapshot(self._digest)]

    def missed(self, held: Held) -> list[Outgoing] | None:
        return self._messages.missed(held, self._digest) if self._has_masks_of_all_steps else None

    def _can_replay(self) -> bool:
        is_possible = self.run.prepared.is_start_shared and self._has_masks_of_all_steps
        return is_possible and self._journal.length_bytes < self.snapshot_bytes

    @property
    def _has_masks_of_all_steps(self) -> bool:
        prepared = self.run.prepared
        return has_masks_of_all_steps(prepared.objective.layout, len(prepared.blocks))

    def _all_updates(self) -> list[Update] | None:
        """The Updates of all steps so far; None where the journal does not have all of them."""
        begun, updates = self.run.origin.step, []
        try:
            for record in read_records(self.run.folder.journal, start=begun):
                if record.step >= self.replica.step:
                    break
                updates.append(record.update)
        except StorageError:
            return None
        return updates if len(updates) == self.replica.step - begun else None

    def data_block(self, name: bytes) -> Outgoing:
        """A block of data, ready to send; it is encoded once for all peers."""
        if self._encoded_block is None or self._encoded_block[0] != name:
            block = DataBlock(name, encode_block(self._holding.block(name)))
            self._encoded_block = (name, (block, pack(block)))
        return self._encoded_block[1]

    def append(self, update: Update) -> Parcel:
        """Appends the Update to the journal; gives its parcel.

        Raises:
            StorageError: the disk refuses.
        """
        assert update.step == self.replica.step, "the digest before a step is known once the one before is taken"
        self._journal.append(update, self._digest)
        parcel = self._messages.add(update, self._digest)
        self.update_bytes = parcel.length_bytes
        return parcel

    def apply(self, update: Update) -> bytes:
        self._digest = self._holding.apply(update)
        self._last = update
        return self._digest

    def record_verdict(self, verdict: Verdict) -> None:
        self._audits.append(verdict)

    def record_credit(self, entry: Entry) -> None:
        self._credit.append(entry)

    def save_checkpoint(self) -> Path:
        """Writes a checkpoint and the step in the configuration, and shortens the journal; gives the checkpoint's path.

        The steps of the journal reach the disk first, since no checkpoint may be ahead of it.
        """
        self._journal.sync()
        context = self.run.context(step=self.replica.step)
        path = save_checkpoint(self.run.folder, self.replica.snapshot(), self._last, context)
        write_durably(self.run.folder.config, context.config.encode())
        self._journal.trim(before=step_of(checkpoints_in(self.run.folder)[0]))
        return path

    def record(self, report: StepReport, traffic: StepTraffic) -> StepMetrics:
        """Writes the step's line of metrics.

        Raises:
            StorageError: the disk refuses.
        """
        show, work = self.run.prepared.examiner.show, self.run.prepared.objective.work_per_member
        metrics = step_metrics(
            report, traffic, show, work, digest=self._digest, elapsed_s=self.elapsed_s, validation=self.validation
        )
        self.validation = {}
        self._metrics.append(metrics)
        return metrics

    def ending(self, reason: str) -> str:
        """The reason why the run ends; where no loss was finite, with the cause that a group of the server's own
        shows."""
        if not reason.startswith(NO_LOSS):
            return reason
        strategy, block = strategy_of(self.run.config), self._plan.block_of(self.step)
        trials = Trials(self.step, strategy.perturbation, strategy.group_size, 0, strategy.group_size)
        losses = self._holding.evaluate(trials, block).losses
        return f"{reason}: {cause(losses, self._holding.block(block), self.layout.split(self.replica.weights))}"

    def close(self) -> None:
        """Closes the files."""
        for log in (self._metrics, self._samples, self._credit, self._audits, self._changes):
            log.close()
        self._journal.close()
