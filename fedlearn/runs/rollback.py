"""Takes a run back to an earlier step: what is later is set aside."""

import shlex

from fedlearn.runs.history import StepDone, rebuilt_at
from fedlearn.runs.run import Run
from fedlearn.storage.aside import Aside
from fedlearn.storage.checkpoint import checkpoint_at, checkpoints_in, step_of, write_checkpoint
from fedlearn.storage.durable import write_durably
from fedlearn.storage.journal.cutting import cut_journal, cut_lines
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.metrics import StepMetrics, each_once
from fedlearn.system.invocation import invocation


def roll_back(run: Run, step: int, *, progress: StepDone | None = None) -> Aside:
    """Takes a run back to stand before `step`; gives what was set aside. The caller holds the run's lock.

    If it is killed on the way, the run stands at this or a later step.

    Raises:
        StorageError: the step cannot be rebuilt, and nothing has changed; or the disk refuses.
    """
    rebuilt = rebuilt_at(run, step, progress=progress)
    aside, context = Aside(run.folder.path), run.context(step=step)
    if rebuilt.begun.step != step:
        snapshot = rebuilt.holding.replica.snapshot()
        write_checkpoint(checkpoint_at(run.folder, step), snapshot, rebuilt.last, context)
    for path in checkpoints_in(run.folder):
        if step_of(path) > step:
            aside.move(path)
    cut_journal(run.folder.journal, step, aside)
    for path in sorted(run.folder.path.glob("*.jsonl")):
        # A look at weights has the number of the step that comes next, all others that of a step that was taken.
        cut_lines(path, step + 1 if path == run.folder.samples else step, aside)
    write_durably(run.folder.config, context.config.encode())
    return aside


def way_back(run: Run) -> str:
    """The command that takes a run back to the step with the lowest loss."""
    found = ((m.loss, m.step) for m in each_once(read_lines(run.folder.metrics, StepMetrics)) if m.loss is not None)
    best = min(found, default=(0.0, 0))[1]
    return f"{invocation('rollback')} {shlex.quote(str(run.folder.path))} {best}"
