"""A run's past: its checkpoints and the Updates of its journal, from which its replica at any step can be rebuilt."""

from collections.abc import Callable

import msgspec

from fedlearn.es.update import Update
from fedlearn.runs.run import Run
from fedlearn.storage.checkpoint import Checkpoint, checkpoints_in, latest_checkpoint, read_checkpoint, step_of
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.journal import MissingStepsError, Stretch, read_records, stretches_of
from fedlearn.storage.journal.segment import Record
from fedlearn.storage.origin import check_same_run
from fedlearn.tasks.holding import Holding

StepDone = Callable[[int], None]
"""Callback with the replica's step after each step that was taken again."""


class Rebuilt(msgspec.Struct, frozen=True, eq=False):
    """A replica that was rebuilt."""

    holding: Holding
    last: Update | None
    """The Update of the step before the replica's; without its members where that step was not taken again."""
    begun: Checkpoint
    """The checkpoint from which it was rebuilt."""
    problems: tuple[str, ...]
    """Descriptions of the files that were passed over."""


def rebuilt_at(run: Run, step: int | None = None, *, progress: StepDone | None = None) -> Rebuilt:
    """The replica at a step, by default at the end of the journal, from the newest good checkpoint that is not later.

    Raises:
        StorageError: it cannot be rebuilt, or files are of another run.
    """
    if step is not None and step < run.origin.step:
        raise StorageError(f"step: expected {run.origin.step} or more, where the run begins, got {step}")
    checkpoint, found = latest_checkpoint(run.folder, until=step)
    problems = [*run.notices, *(f"checkpoint skipped: {problem}" for problem in found.values())]
    rebuilt = _rebuilt(run, checkpoint, problems, until=step, progress=progress)
    if step not in (None, reached := rebuilt.holding.replica.step):
        raise StorageError(
            f"step: expected one that can be rebuilt, at most {reached} from {checkpoint.path}, got {step}"
            f"{''.join(f'; {problem}' for problem in rebuilt.problems)}; choose an earlier one"
        )
    return rebuilt


def replay(run: Run, *, until: int | None = None, threads: int = 0, progress: StepDone | None = None) -> Rebuilt:
    """The replica rebuilt from the first checkpoint, if possible genesis, after which the journal has all steps.

    It is rebuilt up to the journal's end, or up to `until` where that comes first.

    Raises:
        StorageError: there is no such checkpoint.
    """
    problems = list(run.notices)
    stretches = stretches_of(run.folder.journal, problems) or [Stretch(run.origin.step, run.origin.step)]
    end = stretches[-1].end if until is None else min(until, stretches[-1].end)
    for path in [run.folder.genesis, *checkpoints_in(run.folder)]:
        first = run.origin.step if path == run.folder.genesis else step_of(path)
        if first != end and not any(stretch.first <= first <= end <= stretch.end for stretch in stretches):
            continue
        try:
            checkpoint = read_checkpoint(path)
        except StorageError as error:
            problems.append(f"checkpoint skipped: {error}")
            continue
        return _rebuilt(run, checkpoint, problems, until=end, threads=threads, progress=progress)
    known = ", ".join(f"{stretch.first} to {stretch.end}" for stretch in stretches)
    raise StorageError(
        f"{run.folder.path}: expected a checkpoint from which the journal is whole up to step {end}, got none; it has "
        f"steps {known}{''.join(f'; {problem}' for problem in problems)}; choose another step, or restore from a copy"
    )


def _rebuilt(
    run: Run,
    checkpoint: Checkpoint,
    problems: list[str],
    *,
    until: int | None = None,
    threads: int = 0,
    progress: StepDone | None = None,
) -> Rebuilt:
    check_same_run(run.origin, checkpoint.origin, checkpoint.path)
    holding = run.holding(threads=threads)
    digest = holding.load(checkpoint.snapshot)
    is_begin = checkpoint.step == run.origin.step
    expected = bytes.fromhex(run.origin.digest) if is_begin else checkpoint.snapshot.digest
    if digest != expected:
        raise StorageError(
            f"{checkpoint.path}: expected weights of digest {expected.hex()}, got {digest.hex()}; "
            "move it out of the folder, or restore it from a copy"
        )
    last = follow_journal(run, holding, until=until, problems=problems, progress=progress)
    return Rebuilt(holding, last or checkpoint.last, checkpoint, tuple(problems))


def follow_journal(
    run: Run, holding: Holding, *, until: int | None = None, problems: list[str], progress: StepDone | None = None
) -> Update | None:
    """Applies the Updates of the journal from the replica's step on, and compares digests; gives the last Update.

    It ends before steps that are missing or damaged, and describes those in `problems`.

    Raises:
        StorageError: digests differ, or a segment is of another run.
    """
    last: Update | None = None
    digest = holding.replica.digest
    records = read_records(
        run.folder.journal, start=holding.replica.step, identity=run.origin.identity, problems=problems
    )
    try:
        for record in records:
            if until is not None and record.step >= until:
                break
            if record.digest != digest:
                raise StorageError(_unlike(run, record, digest))
            last = record.update
            digest = holding.apply(last)
            if progress is not None:
                progress(holding.replica.step)
    except MissingStepsError as error:
        problems.append(str(error))
    return last


def _unlike(run: Run, record: Record, digest: bytes) -> str:
    return (
        f"{run.folder.journal}: expected step {record.step} to begin with digest {digest.hex()}, as it was rebuilt, "
        f"the journal has {record.digest.hex()}; journal and checkpoints are not of one run: restore both from one copy"
    )
