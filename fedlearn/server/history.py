"""A run's past: its checkpoints and the Updates of its journal, from which any replica of it can be rebuilt."""

from collections.abc import Callable

import msgspec

from fedlearn.es.update import Update
from fedlearn.server.run import Run
from fedlearn.storage.checkpoint import Checkpoint, checkpoints_in, latest_checkpoint, read_checkpoint, step_of
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal import MissingStepsError, Stretch, read_records, stretches_of
from fedlearn.storage.origin import check_same_run
from fedlearn.storage.segment import Record
from fedlearn.tasks.holding import Holding

Progress = Callable[[int], None]
"""Is told each step that was taken again."""


class Rebuilt(msgspec.Struct, frozen=True, eq=False):
    """A replica that was rebuilt."""

    holding: Holding
    last: Update | None
    """Of the step before the replica's; without its members where that step was not taken again."""
    begun: Checkpoint
    """What it was rebuilt from."""
    problems: tuple[str, ...]
    """What had to be passed over."""


def newest(run: Run, *, progress: Progress | None = None) -> Rebuilt:
    """The replica as the journal has it by now, from the newest good checkpoint on.

    Raises StorageError where nothing can be rebuilt, and for files of another run.
    """
    checkpoint, found = latest_checkpoint(run.folder)
    problems = [*run.notices, *(f"checkpoint skipped: {problem}" for problem in found.values())]
    return _rebuilt(run, checkpoint, problems, progress=progress)


def back_to(run: Run, step: int, *, progress: Progress | None = None) -> Rebuilt:
    """The replica at a step, from the newest good checkpoint at or before it.

    Raises StorageError where the step can't be rebuilt.
    """
    if step < run.origin.step:
        raise StorageError(f"step: expected {run.origin.step} or more, where the run begins, got {step}")
    checkpoint, found = latest_checkpoint(run.folder, until=step)
    problems = [*run.notices, *(f"checkpoint skipped: {problem}" for problem in found.values())]
    rebuilt = _rebuilt(run, checkpoint, problems, until=step, progress=progress)
    if (reached := rebuilt.holding.replica.step) != step:
        raise StorageError(
            f"step: expected one that can be rebuilt, at most {reached} from {checkpoint.path}, got {step}"
            f"{''.join(f'; {problem}' for problem in rebuilt.problems)}; choose an earlier one"
        )
    return rebuilt


def replay(run: Run, *, until: int | None = None, threads: int = 0, progress: Progress | None = None) -> Rebuilt:
    """The replica rebuilt from the first checkpoint, genesis if it can be, from which the journal is whole to its end.

    With `until` it is whole up to that step, or to the journal's end where that comes first. Raises StorageError where
    there is no such checkpoint.
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
    progress: Progress | None = None,
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
    run: Run, holding: Holding, *, until: int | None = None, problems: list[str], progress: Progress | None = None
) -> Update | None:
    """Applies the Updates of the journal from the replica's step on, each to the digest that its record names.

    Gives the last one. It ends before steps that are missing or damaged; what was met of these is added to `problems`.
    Raises StorageError where the digests differ, and for segments of another run.
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
