"""A run's past: genesis and the Updates of its journal, from which any replica of it can be rebuilt."""

from fedlearn.app.run import Run
from fedlearn.config import KEYS, RESUMABLE_KEYS, ConfigError, load_config
from fedlearn.es.replica import Replica
from fedlearn.es.update import Update
from fedlearn.storage.checkpoint import load_checkpoint, load_checkpoint_config
from fedlearn.storage.journal import read_journal


def check_origin(run: Run) -> None:
    """Raises StorageError where genesis can't be read, ConfigError where the run was begun with other settings."""
    load_checkpoint(run.folder.genesis)
    begun = load_config((f"{run.folder.genesis}: config.json", load_checkpoint_config(run.folder.genesis)), {}, {})
    for key in KEYS:
        was, now = getattr(begun, key), getattr(run.config, key)
        if was != now and key not in RESUMABLE_KEYS and key != "step_num":
            raise ConfigError(
                f"{key}: expected {was!r}, with which the run was begun, got {now!r} from {run.folder.config}; "
                "put it back, or start a new run"
            )


def replay(run: Run, *, until: int | None = None, threads: int = 0) -> tuple[Replica, Update | None]:
    """The replica rebuilt from genesis and the journal, up to a step, with the last Update it took."""
    return follow_journal(run, run.new_replica(load_checkpoint(run.folder.genesis)), until=until, threads=threads)


def follow_journal(
    run: Run, replica: Replica, *, until: int | None = None, threads: int = 0
) -> tuple[Replica, Update | None]:
    """Applies the Updates of the journal from the replica's step on; also gives the last one before where it ends."""
    last: Update | None = None
    if not run.folder.journal.exists():
        return replica, last
    for update in read_journal(run.folder.journal):
        if until is not None and update.step >= until:
            break
        last = update
        if update.step >= replica.step:
            replica.apply(update, threads=threads)
    return replica, last
