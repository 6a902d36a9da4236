from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import pytest

from fedlearn.config import ConfigError, RunConfig
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.reason import Reasons
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.task import Batch, LossGradients, NoGradientError
from fedlearn.tasks.user.recommendation import settle
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.tasks.counting import CountingTask
from tests.tasks.user.sloping import DATA, SCHEMA, Sloping, settled


class Stopped(Sloping):
    """Its gradient is a tenth of the slope, as where a part is stopped."""

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        found = super().loss_gradients(weights, batch)
        return LossGradients(found.losses, (found.total / 10).astype(np.float32))


class Partial(Sloping):
    """Its gradient is only by the tensors named `x`; its loss does not depend on those named `z`."""

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        parts = self.layout.split(weights)
        loss = 1.0 + sum(part.sum() for name, part in parts.items() if name != "z")
        slopes = [np.full(part.size, name == "x", dtype=np.float32) for name, part in parts.items()]
        return LossGradients(np.full(len(batch.seeds), loss, dtype=np.float32), np.concatenate(slopes))


class Refusing(Sloping):
    """It should have a gradient and has none."""

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:  # noqa: ARG002
        raise NoGradientError("a table decides")


def settled_partial(names: str, **given: str | float) -> tuple[RunConfig, Reasons]:
    """What is settled for tensors of these names."""
    tensors = {name: np.ones((4, 3), dtype=np.float32) for name in names}
    objective = TaskObjective(Partial(tensors, DATA, batch_size=5), seed=1)
    return settle(SCHEMA.build(given), objective, DATA, lambda *_: 1000.0)


def test_a_gradient_that_tells_a_part_of_each_change_is_taken() -> None:
    assert settled(Stopped)[0].strategy.measure == "gradients"


@pytest.mark.parametrize(
    ("names", "told"), [("xy", "y"), ("xyz", "y"), ("xabc", "a, b, c"), ("xabcd", "a, b, c and 1 more")]
)
def test_losses_are_measured_where_they_depend_on_what_has_no_gradient(names: str, told: str) -> None:
    config, reasons = settled_partial(names)
    assert config.strategy.measure == "losses"
    why = f"measure = losses: losses depend on {told}, and the gradient that PyTorch finds says nothing of that"
    assert str(reasons[0]).startswith(f"{why}, as behind rounding")


@pytest.mark.parametrize("every", [1, 7])
def test_a_loss_that_is_another_one_now_and_then_hides_nothing(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, number = Partial.loss_gradients, count()
    monkeypatch.setattr(
        Partial,
        "loss_gradients",
        lambda *given: LossGradients(found(*given).losses + next(number) // every, found(*given).total),
    )
    assert settled_partial("xy")[0].strategy.measure == "gradients"


def test_tensors_that_no_loss_depends_on_need_no_gradient() -> None:
    config, _ = settled_partial("xz")
    assert config.strategy.measure == "gradients"


def test_whether_losses_depend_on_what_has_no_gradient_takes_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    found, steps = Partial.loss_gradients, count()
    monkeypatch.setattr(Partial, "loss_gradients", lambda *given: (next(steps), found(*given))[1])
    settled_partial("xz", learning_rate=0.1)
    assert next(steps) == 2


@pytest.mark.parametrize(
    ("task", "given", "why"),
    [
        (Refusing, {}, "measure = losses: a table decides"),
        (Sloping, {"sigma": 0.5}, "measure = losses: sigma = 0.5 goes with noise"),
        (Sloping, {"group_size": 4}, "measure = losses: group_size = 4 goes with noise"),
        (Sloping, {"antithetic": True}, "measure = losses: antithetic = true goes with noise"),
        (Sloping, {"rank": 0}, "measure = losses: rank = 0 goes with noise"),
        (Sloping, {"sigma": 1.0}, "measure = losses: sigma = 1.0 goes with noise"),
        (
            Sloping,
            {"sigma_schedule": "linear", "steps": 9},
            "measure = losses: sigma_schedule = linear goes with noise",
        ),
    ],
)
def test_losses_are_measured_elsewhere_and_the_reason_is_given(
    task: type[CountingTask], given: Mapping[str, Any], why: str
) -> None:
    config, reasons = settled(task, **given)
    assert config.strategy.measure == "losses"
    assert str(reasons[0]) == why
    assert strategy_of(config).perturbation.space == "weights"


@pytest.mark.parametrize("given", [{"exchange": "auto"}, {"exchange": "sum"}, {"shards": 2}], ids=str)
def test_how_sums_travel_and_what_is_cut_say_nothing_of_noise(given: Mapping[str, Any]) -> None:
    config, _ = settled(Sloping, **given)
    assert config.strategy.measure == "gradients"
    assert strategy_of(config).perturbation.is_summed


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"sigma": 0.5}, "sigma = 0.5"),
        ({"group_size": 4}, "group_size = 4"),
        ({"antithetic": True}, "antithetic = true"),
        ({"fitness_shaping": "sign"}, "fitness_shaping = sign"),
    ],
)
def test_who_wants_both_gradients_and_noise_is_told_so(given: Mapping[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"measure: expected losses with {named}, got gradients, which have no noise"):
        settled(Sloping, measure="gradients", **given)
    with pytest.raises(ConfigError, match="measure: expected losses, got gradients: a task of kind counting gives"):
        settled(CountingTask, measure="gradients", **given)


def test_a_run_that_is_repeated_may_have_the_values_that_stand_for_no_noise() -> None:
    config, _ = settled(Sloping, measure="gradients")
    again, _ = settled(Sloping, measure="gradients", sigma=config.strategy.sigma, group_size=config.strategy.group_size)
    assert again.strategy == config.strategy


def test_nothing_is_said_of_tasks_that_have_no_gradient_at_all() -> None:
    config, reasons = settled(CountingTask)
    assert config.strategy.measure == "losses"
    assert "measure" not in [reason.key for reason in reasons]


def test_who_wants_gradients_gets_those_of_a_surrogate_and_is_refused_where_there_are_none() -> None:
    assert settled(Stopped, measure="gradients")[0].strategy.measure == "gradients"
    assert settled_partial("xy", measure="gradients")[0].strategy.measure == "gradients"
    with pytest.raises(ConfigError, match="measure: expected losses, got gradients: a table decides"):
        settled(Refusing, measure="gradients")
    with pytest.raises(ConfigError, match="measure: expected losses, got gradients: a task of kind counting gives"):
        settled(CountingTask, measure="gradients")


def test_who_wants_losses_gets_them() -> None:
    config, reasons = settled(Sloping, measure="losses")
    assert strategy_of(config).perturbation.space == "weights"
    assert "measure" not in [reason.key for reason in reasons]
