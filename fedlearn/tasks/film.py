"""A film of what trained weights do, frame by frame."""

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray


class Picture(msgspec.Struct, frozen=True, eq=False):
    """A frame of a film, and what the episode has returned until then."""

    pixels: NDArray[np.uint8]
    """The pixels, [height, width, 3]."""
    total: float
    """The sum of rewards so far."""


class Film(msgspec.Struct, frozen=True, eq=False):
    """The frames of an episode, each of which is drawn when it is asked for."""

    fps: float
    """Frames per second, as the environment names them."""
    frames: Iterator[Picture]
