"""Fixtures of the server's tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedlearn.tasks.user.named_task import NamedTask
from tests.run_folders import created, fit_task, task_config
from tests.server.scene import Scene, SceneOf


@pytest.fixture
def scene_of(tmp_path: Path) -> Iterator[SceneOf]:
    scenes = []

    def opened(task: NamedTask | None = None, **settings: Any) -> Scene:  # noqa: ANN401 (values of any setting)
        task = task or fit_task()
        scenes.append(Scene(created(task_config(tmp_path, volunteers=0, sample_time=0.0), task, **settings), task))
        return scenes[-1]

    yield opened
    for scene in scenes:
        scene.trainer.close()
