"""A run's past: genesis and the Updates of its journal, from which any replica of it can be rebuilt."""

from fedlearn.config import ConfigError, Schema, load_config
from fedlearn.es.update import Update
from fedlearn.server.run import Run, kind_of
from fedlearn.storage.checkpoint import load_checkpoint, load_metadata
from fedlearn.storage.journal import read_journal
from fedlearn.tasks.holding import Holding


def check_origin(run: Run) -> None:
    """Raises StorageError where genesis can't be read, ConfigError where the run was begun with other settings."""
    load_checkpoint(run.folder.genesis)
    schema = Schema(kind_of(run.folder).options)
    file = (f"{run.folder.genesis}: config.json", load_metadata(run.folder.genesis, "config"))
    begun = load_config(schema, file, {}, {})
    for key in schema.fields:
        was, now = begun.get(key), run.config.get(key)
        if was != now and key not in schema.resumable and key != "step_num":
            raise ConfigError(
                f"{key}: expected {was!r}, with which the run was begun, got {now!r} from {run.folder.config}; "
                "put it back, or start a new run"
            )


def replay(run: Run, *, until: int | None = None, threads: int = 0) -> tuple[Holding, Update | None]:
    """The replica rebuilt from genesis and the journal, up to a step, with the last Update it took."""
    holding = run.holding(threads=threads)
    holding.load(load_checkpoint(run.folder.genesis))
    return holding, follow_journal(run, holding, until=until)


def follow_journal(run: Run, holding: Holding, *, until: int | None = None) -> Update | None:
    """Applies the Updates of the journal from the replica's step on; gives the last one before where it ends."""
    last: Update | None = None
    if not run.folder.journal.exists():
        return last
    replica = holding.replica
    for update in read_journal(run.folder.journal):
        if until is not None and update.step >= until:
            break
        last = update
        if update.step >= replica.step:
            replica.apply(update)
    return last
