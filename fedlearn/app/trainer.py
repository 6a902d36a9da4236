"""The server's half of the work: its own replica, the journal, checkpoints and metrics of one run."""

import time
from typing import Self, final

import msgspec

from fedlearn.app.history import check_origin, follow_journal
from fedlearn.app.run import Run, layout_json, strategy_of
from fedlearn.app.snapshots import snapshot_of
from fedlearn.config import to_json
from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import StepReport
from fedlearn.coordination.plan import Plan
from fedlearn.es.replica import Replica
from fedlearn.es.update import Update, elapsed_s_after
from fedlearn.storage.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint, set_aside_checkpoints
from fedlearn.storage.durable import StorageError, write_durably
from fedlearn.storage.journal import Journal
from fedlearn.storage.metrics import StepMetrics, append_metrics
from fedlearn.wire.messages import Snapshot, TokenBlock


@final
class Trainer:
    """Performs what a Coordinator asks for, short of sending."""

    def __init__(self, run: Run, replica: Replica, journal: Journal, last: Update | None) -> None:
        self.run = run
        self.replica = replica
        self._journal = journal
        self._last = last
        self._bytes_in = 0
        self._bytes_out = 0
        self.validation_bits_per_character: float | None = None
        """Set by whoever measured it; goes into the next line of metrics."""

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
            snapshot, problems = latest_checkpoint(run.folder)
            notices += [f"checkpoint passed over: {problem}" for problem in problems]
            end = load_checkpoint(run.folder.genesis).step if journal.next_step is None else journal.next_step
            if snapshot.step > end:
                aside = ", ".join(set_aside_checkpoints(run.folder, after=end))
                notices.append(f"journal: it ends at step {end}, before the newest checkpoint; set aside: {aside}")
                snapshot, _ = latest_checkpoint(run.folder)
            replica, last = follow_journal(run, run.new_replica(snapshot))
            if last is not None and last.block not in run.blocks:
                raise StorageError(
                    f"{run.folder.data}: expected the token block {last.block.hex()} that the journal's last update "
                    "names, it is not there; restore the folder from a copy"
                )
        except Exception:
            journal.close()
            raise
        return cls(run, replica, journal, last), notices

    def coordinator(self, now: float) -> Coordinator:
        """The coordinator that goes on where this replica stands."""
        config = self.run.config
        plan = Plan(
            run=self.run.folder.path.name,
            seed=config.seed,
            model=self.run.model,
            layout=self.run.objective.layout,
            blocks=tuple(self.run.blocks),
            new_tokens_interval=config.new_tokens_interval,
            time_per_step=config.time_per_step,
            checkpoint_time=config.checkpoint_time,
            steps=config.steps,
            duration_s=config.duration,
        )
        return Coordinator(
            plan, strategy_of(config), step=self.replica.step, last=self._last, digest=self.replica.digest, now=now
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds of training behind the replica."""
        return elapsed_s_after(self._last)

    def snapshot(self) -> Snapshot:
        """The replica for a joiner."""
        return snapshot_of(self.replica)

    def token_block(self, name: bytes) -> TokenBlock:
        """A block for whoever lacks it."""
        return TokenBlock(name, self.run.block(name))

    def append(self, update: Update) -> None:
        """Journals the Update. Raises StorageError where the disk refuses."""
        self._journal.append(update)

    def apply(self, update: Update) -> bytes:
        """Takes the step; gives the digest after it."""
        self.replica.apply(update)
        self._last = update
        return self.replica.digest

    def save_checkpoint(self) -> None:
        """Writes the replica, and in the configuration where the run stands."""
        config = msgspec.structs.replace(self.run.config, step_num=self.replica.step)
        save_checkpoint(self.run.folder, self.snapshot(), layout=layout_json(self.run), config=to_json(config))
        write_durably(self.run.folder.config, to_json(config).encode())

    def record(self, report: StepReport, *, bytes_in: int, bytes_out: int) -> StepMetrics:
        """Writes the step's line of metrics; byte counts are totals from the start to the step's close."""
        finite = report.loss == report.loss
        metrics = StepMetrics(
            step=report.step,
            loss=report.loss if finite else None,
            bits_per_character=self.run.bits_per_character(report.loss) if finite else None,
            members=report.members,
            trial_tokens_per_s=report.members * self.run.objective.tokens_per_member / max(report.duration_s, 1e-6),
            volunteers=report.volunteers,
            bytes_in=bytes_in - self._bytes_in,
            bytes_out=bytes_out - self._bytes_out,
            digest=report.digest.hex(),
            time=time.time(),
            validation_bits_per_character=self.validation_bits_per_character,
        )
        self._bytes_in, self._bytes_out = bytes_in, bytes_out
        self.validation_bits_per_character = None
        append_metrics(self.run.folder.metrics, metrics)
        return metrics

    def close(self) -> None:
        """Closes the journal."""
        self._journal.close()
