import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlearn
from fedlearn.commands.replay import replay_command
from fedlearn.config import ConfigError
from fedlearn.simulation.kept import Kept
from tests.runs import TARGET, fit_task

SETTINGS: dict[str, Any] = {
    "group_size": 8,
    "population_limit": 64,
    "sigma": 0.05,
    "learning_rate": 0.1,
    "time_per_step": 60.0,
}


def test_a_task_is_trained_here_and_gives_weights_losses_and_figures(tmp_path: Path) -> None:
    told = Kept()
    trained = fedlearn.train(fit_task().task, steps=30, runs=tmp_path, threads=1, callbacks=[told], **SETTINGS)
    np.testing.assert_allclose(trained.weights["vector"], TARGET, atol=0.2)
    assert len(trained.losses) == len(told.metrics) == 30
    assert trained.losses[-1] < trained.losses[0]  # type: ignore[operator]
    assert trained.figures["loss"] == pytest.approx(-1.0, abs=0.05)
    assert "30 steps" in repr(trained)


def test_its_folder_is_a_run_like_any_other(tmp_path: Path) -> None:
    trained = fedlearn.train(fit_task().task, steps=3, runs=tmp_path, threads=1, **SETTINGS)
    assert trained.folder == tmp_path / "1"
    assert replay_command(argparse.Namespace(run="1", runs=str(tmp_path), step=None)) == 0


def test_training_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="steps, duration: expected one of them"):
        fedlearn.train(fit_task().task)


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sigmaa"):
        fedlearn.train(fit_task().task, steps=1, runs=tmp_path, sigmaa=1.0)
