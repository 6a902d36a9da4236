"""The folders of runs: numbered from 1 under one root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fedlearn.storage.durable import StorageError
from fedlearn.system.files import lock_file


class RunFolder(msgspec.Struct, frozen=True):
    """The folder of one run, with the paths of what is in it."""

    path: Path

    @property
    def config(self) -> Path:
        """The RunConfig as JSON; a folder is a run once it has this file."""
        return self.path / "config.json"

    @property
    def genesis(self) -> Path:
        """The checkpoint that the run started from."""
        return self.path / "genesis.safetensors"

    @property
    def checkpoints(self) -> Path:
        """Folder of the newest checkpoints."""
        return self.path / "checkpoints"

    @property
    def origin(self) -> Path:
        """The facts of the run that never change, as JSON; written once."""
        return self.path / "origin.json"

    @property
    def journal(self) -> Path:
        """Folder of the journal's segments."""
        return self.path / "journal"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def status(self) -> Path:
        """The present state of the run, for viewers."""
        return self.path / "status.json"

    @property
    def samples(self) -> Path:
        """Figures and texts of the unperturbed weights, a line for each time that they were evaluated."""
        return self.path / "samples.jsonl"

    @property
    def reasons(self) -> Path:
        """The reasons for the values that the run chose itself, as a JSON array."""
        return self.path / "reasons.json"

    @property
    def changes(self) -> Path:
        """Settings that an operator changed while the run went on."""
        return self.path / "changes.jsonl"

    @property
    def orders(self) -> Path:
        """Folder in which a running server looks for its operator's orders."""
        return self.path / "orders"

    @property
    def credit(self) -> Path:
        """The contributions of each identity, in lines of some steps each."""
        return self.path / "credit.jsonl"

    @property
    def audits(self) -> Path:
        """Results that were found false, one a line."""
        return self.path / "audits.jsonl"

    @property
    def local_identity(self) -> Path:
        """The private key of the server's own volunteers."""
        return self.path / "identity.pem"

    @property
    def data(self) -> Path:
        """Folder of the files that the task keeps: its data and tokenizer."""
        return self.path / "data"


def create_run(root: Path) -> RunFolder:
    """Makes a folder `root/<n>` with empty subfolders; n follows the highest number that is taken.

    Raises:
        StorageError: the folder cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        number = max(_numbers(root), default=0) + 1
        while True:
            try:
                (root / str(number)).mkdir()
                break
            except FileExistsError:
                number += 1
        run = RunFolder(root / str(number))
        run.checkpoints.mkdir()
        run.data.mkdir()
    except OSError as error:
        raise StorageError(
            f"runs: expected a folder for run folders, got {str(root)!r}: {error.strerror}; choose another with --runs"
        ) from error
    return run


def list_runs(root: Path) -> list[RunFolder]:
    """The runs under `root`, by number; none if there is no such folder."""
    folders = [RunFolder(root / str(number)) for number in _numbers(root)]
    return [run for run in folders if run.config.is_file()]


def resolve_run(root: Path, text: str) -> RunFolder:
    """The run that `text` names: a number under `root`, `latest`, or the path of a run folder.

    Raises:
        StorageError: there is no such run; the message lists those that there are.
    """
    runs = list_runs(root)
    if text == "latest" and runs:
        return runs[-1]
    path = root / str(int(text)) if text.isdecimal() else Path(text)
    if text != "latest" and RunFolder(path).config.is_file():
        return RunFolder(path)
    around = [folder for folder in path.parents if RunFolder(folder).config.is_file()] if path.exists() else []
    existing = ", ".join(run.path.name for run in runs) or "none"
    remedy = f"that is within the run {str(around[0])!r}" if around else f"runs in {root}: {existing}"
    raise StorageError(f"run {text!r}: expected a run folder's path, its number or 'latest'; {remedy}")


@contextmanager
def lock_run(run: RunFolder) -> Iterator[None]:
    """Holds the run for this process alone; the lock goes with the process, however it ends.

    Raises:
        StorageError: another process holds the run, or the folder cannot be written.
    """
    path = run.path / "lock"
    try:
        file = open(path, "a+")  # noqa: SIM115 (closed below: an error of the `with` body must not pass as the lock's)
    except OSError as error:
        raise StorageError(
            f"{path}: could not be written: {error.strerror}; check that this user may write to the folder"
        ) from error
    with file:
        if not lock_file(file.fileno()):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise StorageError(
                f"{run.path}: expected a run that no process uses, but process {holder} does; stop it first"
            )
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _numbers(root: Path) -> list[int]:
    """The numbers that are names of folders under `root`, ascending."""
    if not root.is_dir():
        return []
    return sorted(int(path.name) for path in root.iterdir() if path.name.isdecimal() and path.is_dir())
