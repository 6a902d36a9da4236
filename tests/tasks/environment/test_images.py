"""Policies that see images through a convolution, by an environment in which a bright patch shows where to go."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import fedlearn  # noqa: E402
from fedlearn.tasks.environment import environment  # noqa: E402

N_STEPS = 8
"""The number of steps of an episode, each of which returns 1 for the right action."""


class Patches(gymnasium.Env[Any, Any]):
    """Images of 8 x 8 pixels, one quarter of which is bright: its number is the right action."""

    action_space = spaces.Discrete(4)

    def __init__(self, *, channels_first: bool) -> None:
        self._axis = 0 if channels_first else 2
        shape = (2, 8, 8) if channels_first else (8, 8, 2)
        self.observation_space = spaces.Box(0, 255, shape, dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._n = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        reward = float(action == self._bright)
        self._n += 1
        return self._next(), reward, self._n == N_STEPS, False, {}

    def _next(self) -> Any:  # noqa: ANN401
        self._bright = int(self.np_random.integers(4))
        image = self.np_random.integers(0, 100, (8, 8, 2), dtype=np.uint8)
        top, left = divmod(self._bright, 2)
        image[4 * top : 4 * top + 4, 4 * left : 4 * left + 4] += 100
        return np.moveaxis(image, 2, self._axis)


class ChannelsFirst(nn.Module):
    """The conversion of images [n, height, width, channels] to those that PyTorch's convolutions take."""

    def forward(self, images: Any) -> Any:  # noqa: ANN401
        return images.permute(0, 3, 1, 2)


def convolution() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 16, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))


@pytest.mark.parametrize("channels_first", [True, False])
def test_a_convolution_learns_from_images(tmp_path: Path, *, channels_first: bool) -> None:
    task = environment(
        lambda: Patches(channels_first=channels_first),
        convolution if channels_first else lambda: nn.Sequential(ChannelsFirst(), *convolution()),
        max_steps=N_STEPS,
    )
    before = task.evaluate(np.concatenate([array.ravel() for array in task.tensors.values()]), threads=1)["return"]
    trained = fedlearn.train(task, steps=15, runs=tmp_path, threads=1, progress=False)
    assert before < 0.5 * N_STEPS < 0.8 * N_STEPS < trained.figures["return"]
