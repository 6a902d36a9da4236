"""Checkpoints: a Snapshot as a safetensors file, readable by anything that reads safetensors.

Tensors `weights`, `first_moment` and `second_moment` are flat float32; the header's metadata holds the rest
as text: step, digest (hexadecimal), beta1_power and beta2_power (`float.hex`, exact), layout and config
(JSON), and a checksum of everything, since the format has none.

Source: the format, https://huggingface.co/docs/safetensors.
"""

import hashlib
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from fedlearn.storage.durable import PARTIAL_SUFFIX, StorageError, write_durably
from fedlearn.storage.runs import RunFolder
from fedlearn.wire.messages import Float32Array, Snapshot

KEPT_CHECKPOINTS = 3

_SUFFIX = ".safetensors"
_TENSORS = ("weights", "first_moment", "second_moment")


def write_checkpoint(path: Path, snapshot: Snapshot, *, layout: str, config: str) -> None:
    """Writes the snapshot with the JSON texts of the parameter layout and the run's configuration beside it.

    Raises StorageError where the disk refuses; no half-written file stays.
    """
    # safetensors writes the bytes that lie in memory, in the wrong order for e.g. a reversed view.
    tensors = {name: np.ascontiguousarray(getattr(snapshot, name)) for name in _TENSORS}
    metadata = {
        "step": str(snapshot.step),
        "digest": snapshot.digest.hex(),
        "beta1_power": snapshot.beta1_power.hex(),
        "beta2_power": snapshot.beta2_power.hex(),
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
            tensors = {name: file.get_tensor(name) for name in _TENSORS}
        checksum = metadata.pop("checksum")
        if checksum != _checksum(metadata, tensors):
            raise StorageError(f"{path}: expected checksum {checksum}, the content has another; it is damaged")
        return Snapshot(
            step=int(metadata["step"]),
            digest=bytes.fromhex(metadata["digest"]),
            beta1_power=float.fromhex(metadata["beta1_power"]),
            beta2_power=float.fromhex(metadata["beta2_power"]),
            **tensors,
        )
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise StorageError(f"{path}: expected a checkpoint of fedlearn: {error}") from error


def load_checkpoint_config(path: Path) -> str:
    """The JSON text of the configuration that the checkpoint was written with. Raises StorageError as above."""
    try:
        with safe_open(path, framework="numpy") as file:
            return str((file.metadata() or {})["config"])
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
    content = hashlib.blake2b(digest_size=16)
    content.update(repr(sorted(metadata.items())).encode())
    for name in _TENSORS:
        content.update(tensors[name].data)
    return content.hexdigest()
