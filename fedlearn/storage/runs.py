"""The folders of runs: numbered from 1 under one root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

import msgspec

from fedlearn.storage.durable import StorageError
from fedlearn.system.files import lock_file


@final
class _Inside:
    """The path of something in a run's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: "RunFolder", kind: type["RunFolder"]) -> Path:
        return run.path / self._name


class RunFolder(msgspec.Struct, frozen=True):
    """The folder of one run, with the paths of what is in it."""

    path: Path

    config = _Inside("config.json")
    """The RunConfig as JSON; a folder is a run once it has this file."""
    genesis = _Inside("genesis.safetensors")
    """The checkpoint that the run started from."""
    checkpoints = _Inside("checkpoints")
    """Folder of the newest checkpoints."""
    origin = _Inside("origin.json")
    """The facts of the run that never change, as JSON; written once."""
    journal = _Inside("journal")
    """Folder of the journal's segments."""
    metrics = _Inside("metrics.jsonl")
    status = _Inside("status.json")
    """The present state of the run, for viewers."""
    samples = _Inside("samples.jsonl")
    """Figures and texts of the unperturbed weights, a line for each time that they were evaluated."""
    reasons = _Inside("reasons.json")
    """The reasons for the values that the run chose itself, as a JSON array."""
    changes = _Inside("changes.jsonl")
    """Settings that an operator changed while the run went on."""
    orders = _Inside("orders")
    """Folder in which a running server looks for its operator's orders."""
    credit = _Inside("credit.jsonl")
    """The contributions of each identity, in lines of some steps each."""
    audits = _Inside("audits.jsonl")
    """Results that were found false, one a line."""
    local_identity = _Inside("identity.pem")
    """The private key of the server's own volunteers."""
    data = _Inside("data")
    """Folder of the files that the task keeps: its data and tokenizer."""


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
        StorageError: there is no such run, which the message answers with those that there are, or half of one.
    """
    runs = list_runs(root)
    if text == "latest" and runs:
        return runs[-1]
    path = root / str(int(text)) if text.isdecimal() else Path(text)
    if text != "latest" and RunFolder(path).config.is_file():
        return RunFolder(path)
    if _is_half_made(root, path):
        is_damaged = any(place.exists() for place in (RunFolder(path).origin, RunFolder(path).genesis))
        remedy = "restore it from a copy" if is_damaged else "the run has not begun; remove the folder if it never will"
        raise StorageError(f"run {text!r}: expected config.json in {path}, got none; {remedy}")
    around = [folder for folder in path.parents if RunFolder(folder).config.is_file()] if path.exists() else []
    existing = ", ".join(run.path.name for run in runs) or "none"
    remedy = f"that is within the run {str(around[0])!r}" if around else f"runs in {root}: {existing}"
    raise StorageError(f"run {text!r}: expected a run folder's path, its number or 'latest'; {remedy}")


def _is_half_made(root: Path, path: Path) -> bool:
    """Whether this is a run's folder, by where it is or by what it has, although it is no run."""
    return path.is_dir() and (path.resolve().parent == root.resolve() or RunFolder(path).checkpoints.is_dir())


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
