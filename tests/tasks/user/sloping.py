"""A task with a gradient, for tests of what a run of it chooses."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlearn.config import RunConfig, Schema
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.reason import Reasons
from fedlearn.tasks.task import Batch, LossGradients
from fedlearn.tasks.user.recommendation import settle
from fedlearn.tasks.user.task_objective import TaskObjective
from fedlearn.tasks.user.task_options import TaskOptions
from tests.tasks.counting import CountingTask

SCHEMA = Schema(TaskOptions)

DATA: Columns = {"x": np.arange(10.0)}

TENSORS: Mapping[str, Float32Array] = {"x": np.ones(3, dtype=np.float32)}


class Sloping(CountingTask):
    """A task whose loss is linear in its weights."""

    def losses(self, members: Any, batch: Batch) -> Float32Array:  # noqa: ANN401, ARG002 (as the base has it)
        return np.array([tensors["x"].sum() for tensors in members.each()], dtype=np.float32)

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        losses = np.full(len(batch.seeds), weights.sum(), dtype=np.float32)
        return LossGradients(losses, np.full_like(weights, len(batch.seeds)))


def settled(task: type[CountingTask], **given: Any) -> tuple[RunConfig, Reasons]:  # noqa: ANN401 (values of any key)
    objective = TaskObjective(task(TENSORS, DATA, batch_size=5), seed=1)
    given = {"perturb": "weights", "head": "perturbed", **given}
    return settle(SCHEMA.build(given), objective, DATA, lambda *_: 1000.0)
