"""Crews, which hold one replica between them, beside volunteers that hold whole ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlearn.server.creation import create
from fedlearn.server.run import Run
from fedlearn.tasks.named_task import NamedTask
from fedlearn.tasks.task_kind import SUPERVISED
from tests.runs import named, task_config
from tests.simulation.swarm.stage import Stage, StageOf, journal_of

torch = pytest.importorskip("torch")

STEPS = 6


def residual_task() -> NamedTask:
    """A sine, by layers that read an early value again at the end; the first and the last layer are tied."""
    from torch import nn

    from fedlearn.tasks.torch.supervised import supervised

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 16)
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
            self.last = nn.Linear(16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = hidden = torch.tanh(self.first(x))
            for layer in self.layers:
                hidden = torch.tanh(layer(hidden))
            last: torch.Tensor = self.last(hidden + kept)
            return last

    def loss(model: nn.Module, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        return ((model(rows["x"])[:, 0] - rows["y"]) ** 2).mean()

    x = np.random.default_rng(0).uniform(-1, 1, (256, 4)).astype(np.float32)
    return named(supervised(Residual, loss, {"x": x, "y": np.sin(3 * x[:, 0])}, batch_size=8))


def run_of(folder: Path, **settings: Any) -> Run:  # noqa: ANN401 (values of any setting)
    folder.mkdir(exist_ok=True)
    config = task_config(folder, steps=STEPS, **settings)
    return create(SUPERVISED, config, residual_task())


def test_a_crew_takes_the_steps_of_a_lone_volunteer(tmp_path: Path, stage_of: StageOf) -> None:
    alone, crew = run_of(tmp_path / "alone", seats=1), run_of(tmp_path / "crew", seats=3)
    stage_of(alone).train(volunteers=1)
    stage = stage_of(crew).train(volunteers=3)
    assert journal_of(crew) == journal_of(alone)
    assert [metrics.volunteers for metrics in stage.swarm.metrics] == [1] * STEPS
