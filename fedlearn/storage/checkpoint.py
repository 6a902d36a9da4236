"""Checkpoints: a Snapshot as a safetensors file, readable by anything that reads safetensors.

The tensor `weights` and the optimizer's slots, under their names, are flat float32; the header's metadata holds the
rest as text: step, digest (hexadecimal), numbers (JSON; each by `float.hex`, exact), layout and config (JSON), and a
checksum of everything, since the format has none.

Source: the format, https://huggingface.co/docs/safetensors.
"""

from pathlib import Path

import msgspec
import numpy as np
import safetensors.numpy
from blake3 import blake3
from safetensors import SafetensorError, safe_open

from fedlearn.es.layout import Float32Array
from fedlearn.es.snapshot import Snapshot
from fedlearn.storage.durable import PARTIAL_SUFFIX, StorageError, write_durably
from fedlearn.storage.runs import RunFolder

KEPT_CHECKPOINTS = 3

_SUFFIX = ".safetensors"
_WEIGHTS = "weights"
_CHECKSUM_BYTES = 16


def write_checkpoint(path: Path, snapshot: Snapshot, *, layout: str, config: str) -> None:
    """Writes the snapshot with the JSON texts of the parameter layout and the run's configuration beside it.

    Raises StorageError where the disk refuses; no half-written file stays.
    """
    # safetensors writes the bytes that lie in memory, in the wrong order for e.g. a reversed view.
    tensors = {
        name: np.ascontiguousarray(array) for name, array in {_WEIGHTS: snapshot.weights, **snapshot.slots}.items()
    }
    metadata = {
        "step": str(snapshot.step),
        "digest": snapshot.digest.hex(),
        "numbers": msgspec.json.encode({name: number.hex() for name, number in snapshot.numbers.items()}).decode(),
        "layout": layout,
        "config": config,
    }
    metadata["checksum"] = _checksum(metadata, tensors)
    write_durably(path, safetensors.numpy.save(tensors, metadata))


def save_checkpoint(run: RunFolder, snapshot: Snapshot, *, layout: str, config: str) -> Path:
    """Adds a checkpoint to the run, of which the last KEPT_CHECKPOINTS stay; gives its path.

    Raises StorageError as `write_checkpoint` does; the older ones then stay.
    """
    path = run.checkpoints / f"{snapshot.step:012d}{_SUFFIX}"
    write_checkpoint(path, snapshot, layout=layout, config=config)
    outdated = _newest_first(run)[KEPT_CHECKPOINTS:]
    for leftover in [*outdated, *run.checkpoints.glob(f"*{PARTIAL_SUFFIX}")]:
        leftover.unlink()
    return path


def load_checkpoint(path: Path) -> Snapshot:
    """The snapshot in the file, to the bit. Raises StorageError for a missing, damaged or foreign file."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        checksum = metadata.pop("checksum")
        if checksum != _checksum(metadata, tensors):
            raise StorageError(f"{path}: expected checksum {checksum}, the content has another; it is damaged")
        numbers = msgspec.json.decode(metadata["numbers"], type=dict[str, str])
        return Snapshot(
            step=int(metadata["step"]),
            digest=bytes.fromhex(metadata["digest"]),
            weights=tensors.pop(_WEIGHTS),
            slots=tensors,
            numbers={name: float.fromhex(number) for name, number in numbers.items()},
        )
    except (OSError, SafetensorError, KeyError, ValueError, msgspec.DecodeError) as error:
        raise StorageError(f"{path}: expected a checkpoint of fedlearn: {error}") from error


def load_metadata(path: Path, key: str) -> str:
    """The JSON text that the checkpoint was written with: its `config` or `layout`. Raises StorageError as above."""
    try:
        with safe_open(path, framework="numpy") as file:
            return str((file.metadata() or {})[key])
    except (OSError, SafetensorError, KeyError) as error:
        raise StorageError(f"{path}: expected a checkpoint of fedlearn: {error}") from error


def latest_checkpoint(run: RunFolder) -> tuple[Snapshot, list[str]]:
    """The newest readable checkpoint, if need be genesis, and a message for each newer one that is damaged.

    Raises StorageError where none can be read.
    """
    problems: list[str] = []
    for path in [*_newest_first(run), run.genesis]:
        try:
            return load_checkpoint(path), problems
        except StorageError as error:
            problems.append(str(error))
    raise StorageError(f"{run.path}: expected a readable checkpoint, got none: {'; '.join(problems)}")


def set_aside_checkpoints(run: RunFolder, *, after: int) -> list[str]:
    """Renames the checkpoints of later steps, and gives their new names: the run will take other steps to get there."""
    later = [path for path in sorted(run.checkpoints.glob(f"*{_SUFFIX}")) if int(path.stem) > after]
    return [path.rename(path.with_suffix(".set-aside")).name for path in later]


def _newest_first(run: RunFolder) -> list[Path]:
    return sorted(run.checkpoints.glob(f"*{_SUFFIX}"), reverse=True)


def _checksum(metadata: dict[str, str], tensors: dict[str, Float32Array]) -> str:
    content = blake3(max_threads=blake3.AUTO)
    content.update(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        content.update(name.encode())
        content.update(tensors[name].view(np.uint8).data)
    return content.digest(_CHECKSUM_BYTES).hex()
