"""The server's half of the work: its own replica, the journal, checkpoints and metrics of one run."""

import time
from random import SystemRandom
from typing import Self, final

from fedlearn.config import to_json
from fedlearn.coordination.admission import AdmissionRules
from fedlearn.coordination.audit import Claim, Verdict, judge
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.credit import Entry
from fedlearn.coordination.effects import StepReport
from fedlearn.coordination.plan import Plan
from fedlearn.es.replica import START, Replica
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.trials import TrialResults
from fedlearn.es.update import Update, elapsed_s_after
from fedlearn.server.history import check_origin, follow_journal
from fedlearn.server.ledger import read_credit, standings_of
from fedlearn.server.run import Run
from fedlearn.storage.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint, set_aside_checkpoints
from fedlearn.storage.durable import StorageError, write_durably
from fedlearn.storage.journal import Journal, read_journal
from fedlearn.storage.lines import append_line
from fedlearn.storage.metrics import MetricsLog, StepMetrics
from fedlearn.tasks.blocks import encode_block
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.objective import MasksRows
from fedlearn.tasks.strategy import strategy_of
from fedlearn.wire.messages import DataBlock, Message, Start
from fedlearn.wire.parcel import Parcel, pack

Outgoing = tuple[Message, Parcel]
"""A message, and the parcel that everybody is sent."""


@final
class Trainer:
    """Performs what a Coordinator asks for, short of sending."""

    def __init__(self, run: Run, holding: Holding, journal: Journal, last: Update | None, genesis: Snapshot) -> None:
        self.run = run
        self._holding = holding
        self._journal = journal
        self._metrics = MetricsLog(run.folder.metrics)
        self._last = last
        self._began_at = genesis.step
        self._start_digest = genesis.digest
        self._encoded_weights: tuple[int, Outgoing] | None = None
        self._encoded_block: tuple[bytes, Outgoing] | None = None
        self._bytes_in = 0
        self._bytes_out = 0
        self.validation: dict[str, float] = {}
        """Figures of unperturbed weights, for the next line of metrics."""

    @classmethod
    def open(cls, run: Run) -> tuple[Self, list[str]]:
        """The trainer of a run, new or resumed where its journal ends, and what had to be mended on the way.

        Raises StorageError where the run's files can't be used, ConfigError where its settings were changed.
        """
        check_origin(run)
        notices = []
        journal = Journal.open(run.folder.journal)
        try:
            if journal.cut_bytes:
                notices.append(
                    f"journal: a torn last record of {journal.cut_bytes} bytes was cut; its step is repeated"
                )
            genesis = load_checkpoint(run.folder.genesis)
            snapshot, problems = latest_checkpoint(run.folder)
            notices += [f"checkpoint passed over: {problem}" for problem in problems]
            end = genesis.step if journal.next_step is None else journal.next_step
            if snapshot.step > end:
                aside = ", ".join(set_aside_checkpoints(run.folder, after=end))
                notices.append(f"journal: it ends at step {end}, before the newest checkpoint; set aside: {aside}")
                snapshot, _ = latest_checkpoint(run.folder)
            holding = run.holding()
            holding.load(snapshot)
            last = follow_journal(run, holding)
            if last is not None and last.block not in run.prepared.named_blocks:
                raise StorageError(
                    f"{run.folder.data}: expected the block of data {last.block.hex()} that the journal's last update "
                    "names, it is not there; restore the folder from a copy"
                )
        except Exception:
            journal.close()
            raise
        return cls(run, holding, journal, last, genesis), notices

    @property
    def replica(self) -> Replica:
        """The server's own."""
        return self._holding.replica

    def coordinator(self, now: float, rules: AdmissionRules | None = None) -> Coordinator:
        """The coordinator that goes on where this replica stands."""
        config = self.run.config
        plan = Plan(
            run=self.run.folder.path.name,
            invitation=self.run.prepared.invitation,
            layout=self.run.prepared.objective.layout,
            blocks=tuple(self.run.prepared.named_blocks),
            steps_per_block=self.run.prepared.steps_per_block,
            audit=config.server.audit,
            time_per_step=config.strategy.time_per_step,
            checkpoint_time=config.run.checkpoint_time,
            steps=config.run.steps,
            duration_s=config.run.duration,
        )
        return Coordinator(
            plan,
            strategy_of(config),
            step=self.replica.step,
            last=self._last,
            digest=self.replica.digest,
            now=now,
            standings=standings_of(read_credit(self.run.folder)),
            lottery=SystemRandom(),
            rules=rules,
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds of training behind the replica."""
        return elapsed_s_after(self._last)

    def weights_messages(self, *, may_replay: bool) -> list[Outgoing]:
        """What brings a joiner to where the replica is: a Snapshot, or, if those are fewer bytes, Start and Updates."""
        if may_replay and self._can_replay():
            start = Start(self._start_digest, self._began_at, self.replica.step, START in self.replica.slots)
            updates = (update for update in read_journal(self.run.folder.journal) if update.step < self.replica.step)
            messages: list[Message] = [start, *updates]
            return [(message, pack(message)) for message in messages]
        if self._encoded_weights is None or self._encoded_weights[0] != self.replica.step:
            snapshot = self.replica.snapshot()
            self._encoded_weights = (self.replica.step, (snapshot, pack(snapshot)))
        return [self._encoded_weights[1]]

    def _can_replay(self) -> bool:
        prepared, replica = self.run.prepared, self.replica
        # Row masks follow from the data of each step, and a joiner is sent one block of them.
        is_possible = not isinstance(prepared.objective, MasksRows) or len(prepared.blocks) < 2
        snapshot_bytes = replica.weights.nbytes * (1 + len(replica.slots))
        return prepared.is_start_shared and is_possible and self._journal.length_bytes < snapshot_bytes

    def data_block(self, name: bytes) -> Outgoing:
        """A block for whoever lacks it; many lack the same one."""
        if self._encoded_block is None or self._encoded_block[0] != name:
            block = DataBlock(name, encode_block(self._holding.block(name)))
            self._encoded_block = (name, (block, pack(block)))
        return self._encoded_block[1]

    def append(self, update: Update) -> None:
        """Journals the Update. Raises StorageError where the disk refuses."""
        self._journal.append(update)

    def apply(self, update: Update) -> bytes:
        """Takes the step; gives the digest after it."""
        digest = self._holding.apply(update)
        self._last, self._encoded_weights = update, None
        return digest

    def recompute(self, claim: Claim) -> list[TrialResults]:
        """What the claim's trials give here, where the replica must stand before their step; twice if not the claim."""
        first = self._holding.evaluate(claim.trials, claim.block)
        if judge(claim, first, self.run.prepared.objective.layout).is_true:
            return [first]
        return [first, self._holding.evaluate(claim.trials, claim.block)]

    def record_verdict(self, verdict: Verdict) -> None:
        """Writes down that a claim was false."""
        append_line(self.run.folder.audits, verdict)

    def record_credit(self, entry: Entry) -> None:
        """Writes down who did what."""
        append_line(self.run.folder.credit, entry)

    def save_checkpoint(self) -> None:
        """Writes the replica, and in the configuration where the run stands."""
        config = self.run.config.replace({"step_num": self.replica.step})
        save_checkpoint(self.run.folder, self.replica.snapshot(), layout=self.run.layout_json(), config=to_json(config))
        write_durably(self.run.folder.config, to_json(config).encode())

    def record(self, report: StepReport, *, bytes_in: int, bytes_out: int) -> StepMetrics:
        """Writes the step's line of metrics; byte counts are totals from the start to the step's close."""
        finite = report.loss == report.loss
        work = report.members * self.run.prepared.objective.work_per_member
        metrics = StepMetrics(
            step=report.step,
            loss=report.loss if finite else None,
            shown=dict([self.run.prepared.examiner.show(report.loss)]) if finite else {},
            members=report.members,
            work_per_s=work / max(report.duration_s, 1e-6),
            volunteers=report.volunteers,
            bytes_in=bytes_in - self._bytes_in,
            bytes_out=bytes_out - self._bytes_out,
            digest=report.digest.hex(),
            time=time.time(),
            validation=self.validation,
        )
        self._bytes_in, self._bytes_out = bytes_in, bytes_out
        self.validation = {}
        self._metrics.append(metrics)
        return metrics

    def close(self) -> None:
        """Closes the files."""
        self._metrics.close()
        self._journal.close()
