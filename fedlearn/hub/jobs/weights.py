"""The weights of a job's run: as a PyTorch network's state_dict, and at work on one image."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.hub.bodies import Asked, RefusedError
from fedlearn.storage.checkpoint import latest_checkpoint
from fedlearn.storage.runs import RunFolder
from fedlearn.tasks.user.record import TaskRecord
from fedlearn.tasks.user.task_kind import RECORD_FILE


def tensors_of(run: RunFolder) -> dict[str, Float32Array]:
    """The trained tensors of the newest checkpoint, under the names that the network has in PyTorch.

    Raises:
        StorageError: the run has no checkpoint that can be read.
        OSError: the record of its task cannot be read.
    """
    record = msgspec.json.decode((run.data / RECORD_FILE).read_bytes(), type=TaskRecord)
    checkpoint, _ = latest_checkpoint(run)
    return dict(record.layout.split(checkpoint.snapshot.weights))


def state_dict_of(run: RunFolder) -> bytes:
    """The tensors as safetensors, for `load_state_dict`."""
    return safetensors.numpy.save(
        {name: np.ascontiguousarray(a) for name, a in tensors_of(run).items()}, {"format": "pt"}
    )


def recognized(asked: Asked, tensors: Mapping[str, Float32Array], pixels: Sequence[float]) -> dict[str, Any]:
    """The classifier's answer for one image, whose pixels are from 0 to 1; a larger square is shrunk.

    Raises:
        RefusedError: the job is no classifier, or the image has too few pixels.
    """
    if asked.model_config.kind != "mlp":
        raise RefusedError(400, f"recognize: expected a job with layer_sizes, got one of {asked.model_config.kind}")
    weights = [tensor for name, tensor in tensors.items() if name.endswith(".weight")]
    biases = [tensor for name, tensor in tensors.items() if name.endswith(".bias")]
    n_pixels = weights[0].shape[1]
    x: NDArray[np.floating[Any]] = _shrunk(np.array(pixels, dtype=np.float64), n_pixels)
    if (by := asked.dataset_config.normalize) is not None:
        each = n_pixels // len(by.mean)
        x = (x - np.repeat(by.mean, each)) / np.repeat(by.std, n_pixels // len(by.std))
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = weight @ (np.maximum(x, 0.0) if number else x) + bias
    odds = np.exp(x - x.max())
    probabilities = (odds / odds.sum()).tolist()
    return {"class": int(np.argmax(x)), "probabilities": probabilities}


def _shrunk(pixels: NDArray[np.float64], n_pixels: int) -> NDArray[np.float64]:
    """The image with so many pixels: as it is, or means of squares of a larger one.

    Raises:
        RefusedError: it can't be cut into such squares.
    """
    if len(pixels) == n_pixels:
        return pixels
    side, wanted = math.isqrt(len(pixels)), math.isqrt(n_pixels)
    if side**2 != len(pixels) or wanted**2 != n_pixels or side % wanted:
        raise RefusedError(
            400, f"pixels: expected {n_pixels}, as the images that it learned from have, got {len(pixels)}"
        )
    squares = pixels.reshape(wanted, side // wanted, wanted, side // wanted)
    means: NDArray[np.float64] = squares.mean(axis=(1, 3)).reshape(-1)
    return means
