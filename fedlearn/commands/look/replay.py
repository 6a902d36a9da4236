"""`fedlearn replay`: rebuild weights from genesis and journal, and compare digests."""

import argparse
from contextlib import suppress

from fedlearn.commands.arguments import add_run
from fedlearn.commands.output import add_output, bars_of
from fedlearn.runs import history
from fedlearn.runs.replaying import replaying
from fedlearn.runs.run import Run, find
from fedlearn.storage.checkpoint import checkpoint_at, latest_checkpoint, read_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.storage.logs.metrics import read_last_metrics
from fedlearn.terminal import printable


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn replay`."""
    add_run(parser)
    parser.add_argument("--step", type=int, metavar="N", help="step to replay up to (default: the last one)")
    add_output(parser)


def replay_command(options: argparse.Namespace) -> int:
    """`fedlearn replay RUN`: 0 when the rebuilt digest equals the recorded one, 1 when it differs.

    Each step on the way must begin with the digest that the journal has of it. Without a step it looks at the whole
    run, and compares the last digest that was recorded; files that can't be used give 1 too.
    """
    chosen = find(options.runs, options.run)
    begun = chosen.origin.step
    if options.step is not None and options.step < begun:
        raise ValueError(f"--step: expected {begun} or more, where the run begins, got {options.step}")
    # Read before the replay: a running server saves newer ones meanwhile.
    newest, unreadable = latest_checkpoint(chosen.folder)
    recorded_step = _last_recorded_step(chosen, begun, newest.step) if options.step is None else options.step
    bars = bars_of(options)
    with replaying(bars, chosen, until=recorded_step) as progress:
        rebuilt = history.replay(chosen, until=recorded_step, progress=progress)
    replica = rebuilt.holding.replica
    if options.step not in (None, replica.step):
        raise ValueError(f"--step: expected at most {replica.step}, where the journal ends, got {options.step}")
    problems = list(dict.fromkeys([*rebuilt.problems, *unreadable.values()]))
    if options.step is None and newest.step > replica.step:
        problems.append(f"{chosen.folder.journal}: it ends at step {replica.step}, before checkpoint {newest.step}")
    for problem in problems:
        print(printable(f"skipped: {problem}"))
    is_equal = _compare(chosen, rebuilt)
    if options.step is None and is_equal is not None:
        compared_step = replica.step
        with replaying(bars, chosen) as progress:
            history.follow_journal(chosen, rebuilt.holding, problems=problems, progress=progress)
        if replica.step > compared_step:
            print(f"the journal goes on to step {replica.step}, whose digest was not recorded when this replay began")
    return 0 if is_equal and (options.step is not None or not problems) else 1


def _compare(chosen: Run, rebuilt: history.Rebuilt) -> bool | None:
    """Compares and prints the digests; gives whether they are equal, None if none is recorded."""
    replica, digest = rebuilt.holding.replica, rebuilt.holding.replica.digest
    is_all = rebuilt.begun.step == chosen.origin.step
    source = "genesis" if is_all else f"checkpoint {rebuilt.begun.step}, before which the journal is not kept or whole,"
    print(f"run {chosen.folder.path.name}, step {replica.step}: digest {digest.hex()} from {source} and journal")
    recorded, place = _recorded_digest(chosen, replica.step)
    if recorded is None:
        print("nothing to compare it with: neither a checkpoint nor the metrics have this step")
        return None
    print(f"{'equal to' if recorded == digest else 'DIFFERENT from'} {recorded.hex()} in {place}")
    return recorded == digest


def _last_recorded_step(chosen: Run, begun: int, checkpoint_step: int) -> int | None:
    """The step of the digest that was recorded last; None if only that of genesis was recorded.

    The journal may go on: a server that was killed, or is at work, has journalled a step before it knows its digest.
    """
    lines = read_last_metrics(chosen.folder.metrics)
    step = max([checkpoint_step, *(line.step + 1 for line in lines)])
    return step if step > begun else None


def _recorded_digest(chosen: Run, step: int) -> tuple[bytes | None, str]:
    for path in [checkpoint_at(chosen.folder, step), chosen.folder.genesis]:
        with suppress(StorageError):
            snapshot = read_checkpoint(path).snapshot
            if snapshot.step == step:
                return snapshot.digest, path.name
    for line in reversed(read_last_metrics(chosen.folder.metrics, 1_000_000)):
        if line.step + 1 == step:
            return bytes.fromhex(line.digest), chosen.folder.metrics.name
    return None, ""
