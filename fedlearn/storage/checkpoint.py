"""Checkpoints: each is a Snapshot in a safetensors file, which anything that reads safetensors can open.

The weights are the tensors of the layout, under their names and in their shapes; the optimizer's slots are flat and
named `optimizer/<slot>`, without what a condensed Snapshot leaves out of them. The header's metadata holds the rest as
text: step, digest (hexadecimal), numbers (JSON, each exact by `float.hex`), what is left out of the slots, layout,
config and the run's origin (JSON), the last Update without its members (hexadecimal; empty before the first step), and
a checksum of everything, since safetensors has none.
"""

from pathlib import Path

import msgspec
import numpy as np
from blake3 import blake3
from safetensors import SafetensorError, safe_open

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.es.update import Update
from fedlearn.storage.durable import PARTIAL_SUFFIX, StorageError
from fedlearn.storage.named_tensors import read_tensors, write_tensors
from fedlearn.storage.runs import RunFolder
from fedlearn.wire.encoding.codec import decode, encode
from fedlearn.wire.errors import RemoteProtocolError

KEPT_CHECKPOINTS = 3

_SUFFIX = ".safetensors"
_CHECKSUM_BYTES = 16
_UNREADABLE = (
    OSError,
    SafetensorError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    RemoteProtocolError,
)
"""Errors that reading a damaged or foreign file may raise."""


class Context(msgspec.Struct, frozen=True):
    """The facts about the run that each of its checkpoints has, as JSON texts."""

    layout: str
    """The parameter layout."""
    config: str
    """The configuration at the time of the checkpoint."""
    origin: str
    """The content of `origin.json`."""


class Checkpoint(msgspec.Struct, frozen=True, eq=False):
    """The state from which a run goes on."""

    path: Path
    snapshot: Snapshot
    last: Update | None
    """The Update of the step before, without its members, from which the strategy goes on; None before the first step.
    """
    origin: str
    """The content of `origin.json`, as in `Context`."""

    @property
    def step(self) -> int:
        return self.snapshot.step


def write_checkpoint(path: Path, snapshot: Snapshot, last: Update | None, context: Context) -> None:
    """Writes a checkpoint of a snapshot, from which nothing is left out, as a whole or not at all.

    Raises:
        StorageError: the disk refuses.
    """
    layout = _layout_of(context.layout)
    snapshot = snapshot.condensed(layout)
    # The file gets the bytes as they lie in memory, which is the wrong order for a reversed view, for instance.
    weights, *slots = [np.ascontiguousarray(array) for array in (snapshot.weights, *snapshot.slots.values())]
    named = dict(zip(snapshot.slots, slots, strict=True))
    metadata = {
        "step": str(snapshot.step),
        "digest": snapshot.digest.hex(),
        "numbers": msgspec.json.encode({name: number.hex() for name, number in snapshot.numbers.items()}).decode(),
        "zeros": msgspec.json.encode(snapshot.zeros).decode(),
        "is_start": msgspec.json.encode(snapshot.is_start).decode(),
        "last": encode(_without_members(last)).hex() if last is not None else "",
        **msgspec.structs.asdict(context),
    }
    metadata["checksum"] = _checksum(metadata, weights, named)
    write_tensors(path, layout, weights, metadata, slots=named)


def save_checkpoint(run: RunFolder, snapshot: Snapshot, last: Update | None, context: Context) -> Path:
    """Writes a checkpoint of the run and deletes all but the newest KEPT_CHECKPOINTS; gives its path.

    Raises:
        StorageError: the disk refuses; the older checkpoints then stay.
    """
    path = checkpoint_at(run, snapshot.step)
    write_checkpoint(path, snapshot, last, context)
    outdated = checkpoints_in(run)[:-KEPT_CHECKPOINTS]
    for leftover in [*outdated, *run.checkpoints.glob(f"*{PARTIAL_SUFFIX}")]:
        leftover.unlink()
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file, to the bit.

    Raises:
        StorageError: the file is missing, damaged or no checkpoint of this version.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
        layout = _layout_of(metadata["layout"])
        weights, slots = read_tensors(path, layout)
        checksum = metadata.pop("checksum")
        if checksum != _checksum(metadata, weights, slots):
            raise StorageError(
                f"{path}: expected checksum {checksum}, but the content has another; the file is damaged"
            )
        numbers = msgspec.json.decode(metadata["numbers"], type=dict[str, str])
        snapshot = Snapshot(
            step=int(metadata["step"]),
            digest=bytes.fromhex(metadata["digest"]),
            weights=weights,
            slots=slots,
            numbers={name: float.fromhex(number) for name, number in numbers.items()},
            zeros=msgspec.json.decode(metadata["zeros"], type=dict[str, list[int]]),
            is_start=msgspec.json.decode(metadata["is_start"], type=bool),
        )
        snapshot.check(layout)
        last = decode(bytes.fromhex(metadata["last"]), Update) if metadata["last"] else None
        return Checkpoint(path, snapshot, last, metadata["origin"])
    except _UNREADABLE as error:
        raise StorageError(f"{path}: expected a checkpoint of this version of fedlearn: {error}") from error


def load_metadata(path: Path, key: str) -> str:
    """A JSON text that a checkpoint was written with: its `config`, `layout` or `origin`.

    Raises:
        StorageError: the file is missing, damaged or no checkpoint.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            return str((file.metadata() or {})[key])
    except (OSError, SafetensorError, KeyError) as error:
        raise StorageError(f"{path}: expected a checkpoint of fedlearn: {error}") from error


def checkpoints_in(run: RunFolder) -> list[Path]:
    """The run's checkpoints by step, without genesis."""
    return sorted(path for path in run.checkpoints.glob(f"*{_SUFFIX}") if path.stem.isdecimal())


def checkpoint_at(run: RunFolder, step: int) -> Path:
    """The path of the checkpoint of a step."""
    return run.checkpoints / f"{step:012d}{_SUFFIX}"


def step_of(path: Path) -> int:
    """The step of a checkpoint, by its file name."""
    return int(path.stem)


def latest_checkpoint(run: RunFolder, *, until: int | None = None) -> tuple[Checkpoint, dict[Path, str]]:
    """The newest readable checkpoint, genesis if there is no other, and a description of what is wrong with each newer
    one.

    Checkpoints of steps later than `until` are passed over.

    Raises:
        StorageError: none can be read.
    """
    problems: dict[Path, str] = {}
    earlier = [path for path in checkpoints_in(run) if until is None or step_of(path) <= until]
    for path in [*reversed(earlier), run.genesis]:
        try:
            return read_checkpoint(path), problems
        except StorageError as error:
            problems[path] = str(error)
    raise StorageError(
        f"{run.path}: expected a readable checkpoint, got none: {'; '.join(problems.values())}; restore one from a copy"
    )


def _without_members(update: Update) -> Update:
    return msgspec.structs.replace(update, spans=(), utilities=update.utilities[:0], estimate=NO_ESTIMATE)


def _layout_of(text: str) -> ParameterLayout:
    return msgspec.json.decode(text, type=ParameterLayout)


def _checksum(metadata: dict[str, str], weights: Float32Array, slots: dict[str, Float32Array]) -> str:
    content = blake3(max_threads=blake3.AUTO)
    content.update(repr(sorted(metadata.items())).encode())
    content.update(weights.view(np.uint8).data)
    for name in sorted(slots):
        content.update(name.encode())
        content.update(slots[name].view(np.uint8).data)
    return content.digest(_CHECKSUM_BYTES).hex()
