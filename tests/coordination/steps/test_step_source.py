from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.steps.step_source import OwnSteps
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Strategy, ask
from fedlearn.es.sums.estimate import decode_estimate, encode_estimate

LAYOUT = ParameterLayout((TensorSpec("w", (20, 30)),))
GRADIENTS = Strategy(
    perturbation=Perturbation(0.0, 0, "nothing"),
    group_size=1,
    population_limit=1,
    optimizer=Sgd(0.1, 0.0),
    fitness_shaping="normalized",
)


def closed(steps: OwnSteps, number: int, length: float, *, local_steps: int = 1) -> float:
    """The length of a step's total, of which one volunteer sent a sum that is so long."""
    population = ask(msgspec.structs.replace(GRADIENTS, local_steps=local_steps), number, None)
    step = OpenStep(population, opened_at=0.0, deadline=9.0, first_member=0, layout=LAYOUT)
    unit = 2.0**-population.perturbation.unit_bits
    numbers = np.full(LAYOUT.size, length / np.sqrt(LAYOUT.size) / unit).astype(np.int64)
    losses = np.ones(local_steps, dtype=np.float32)
    assert not step.lease(local_steps).take(0, losses, encode_estimate(LAYOUT, numbers), population.group_size)
    update = steps.close(step, 1.0).update
    return float(np.linalg.norm(decode_estimate(LAYOUT, update.estimate) * unit))


def test_a_way_of_local_steps_is_as_long_as_it_is_however_short_gradients_were() -> None:
    steps = OwnSteps(Mock(), GRADIENTS)
    assert [closed(steps, n, 1.0) for n in range(3)] == pytest.approx([1.0, 1.0, 1.0], rel=0.02)
    assert [closed(steps, n, 30.0, local_steps=8) for n in range(3, 5)] == pytest.approx([30.0, 30.0], rel=0.02)
    # Each is measured against its like.
    assert closed(steps, 5, 30.0) == pytest.approx(4.0, rel=0.02)
    assert closed(steps, 6, 200.0, local_steps=8) == pytest.approx(120.0, rel=0.02)
