from typing import final

import numpy as np
import pytest

from fedlearn.config import RunConfig
from fedlearn.es.layout import Float32Array
from fedlearn.server import history
from fedlearn.server.examination import SAMPLE_TOKENS, Agenda, Examination, examine
from tests.runs import created


@final
class Figures:
    """An examiner of models that write nothing."""

    def show(self, loss: float) -> tuple[str, float]:
        return "loss", loss

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        return {"mean": float(weights.mean()), "threads": threads}


def test_first_look_comes_early_and_one_follows_every_interval() -> None:
    agenda = Agenda()
    looks = [now for now in range(100, 300) if agenda.is_due(float(now), 30.0)]
    assert looks == [110, 140, 170, 200, 230, 260, 290]


def test_late_look_moves_the_next_one_on() -> None:
    agenda = Agenda()
    assert [agenda.is_due(now, 30.0) for now in (0.0, 50.0, 79.0, 80.0)] == [False, True, False, True]


def test_no_look_is_due_where_none_is_wanted() -> None:
    agenda = Agenda()
    assert not any(agenda.is_due(float(now), 0.0) for now in range(100))


def test_another_interval_counts_from_the_last_look() -> None:
    agenda = Agenda()
    assert [now for now in range(100, 120) if agenda.is_due(float(now), 30.0)] == [110]
    assert [now for now in range(120, 140) if agenda.is_due(float(now), 15.0)] == [125]
    assert not agenda.is_due(300.0, 0.0)
    assert agenda.is_due(300.0, 15.0)


def test_look_is_due_once_after_every_so_many_steps() -> None:
    agenda = Agenda()
    looks = [step for step in range(12) for _ in range(2) if agenda.is_due(0.0, 0.0, step=step, every=5)]
    assert looks == [5, 10]


def test_look_by_steps_counts_for_the_interval() -> None:
    agenda = Agenda()
    looks = [now for now in range(100) if agenda.is_due(float(now), 30.0, step=now, every=25)]
    assert looks == [10, 25, 50, 75]


def test_look_at_a_model_that_writes_keeps_the_lines_of_its_text(config: RunConfig) -> None:
    run = created(config)
    weights = history.replay(run).holding.replica.weights
    found = examine(run.prepared.examiner, weights)
    assert found.figures == pytest.approx(run.prepared.examiner.validate(weights, threads=1))
    assert 0 < len(found.sample) <= SAMPLE_TOKENS
    assert found.sample == found.sample.strip()


def test_look_at_any_other_model_has_its_figures() -> None:
    found = examine(Figures(), np.array([1.0, 2.0], dtype=np.float32))
    assert found == Examination({"mean": 1.5, "threads": 1}, "")
