from typing import Any

import msgspec
import pytest

from fedlearn.config import RunConfig, Schema
from fedlearn.es.attempts import Attempts
from fedlearn.es.optimizers import Adam, Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.schedules import Schedule
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.user.task_options import TaskOptions


def config_of(**settings: Any) -> RunConfig:  # noqa: ANN401 (values of any setting)
    return Schema(TaskOptions).build({"perturb": "weights", "head": "perturbed", **settings})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "inverse-sqrt"),
        ({"steps": 5}, "linear"),
        ({"duration": 5.0}, "linear"),
        ({"steps": 5, "learning_rate_schedule": "inverse-sqrt"}, "inverse-sqrt"),
        ({"learning_rate_schedule": "constant"}, "constant"),
    ],
    ids=str,
)
def test_a_run_without_an_end_gets_a_schedule_that_needs_none(changes: dict[str, Any], expected: str) -> None:
    schedule = strategy_of(config_of(**changes)).schedule
    assert schedule.learning_rate == expected
    assert (schedule.steps, schedule.duration_s) == (changes.get("steps", 0), changes.get("duration", 0.0))


def test_the_strategy_takes_every_choice_from_the_configuration() -> None:
    schedule = {"learning_rate": "cosine", "sigma": "linear", "warmup_steps": 3, "steps": 9, "duration_s": 4.5}
    schedule["factors"] = ((0, 1.0), (5, 0.5))
    choices = {
        "group_size": 6,
        "population_limit": 600,
        "max_population": 900,
        "population_warmup": 70,
        "exchange": "sum",
        "fitness_shaping": "sign",
        "weight_decay": 0.125,
        "local_steps": 3,
        "sum_bits": 4,
    }
    again = {"restarts": 2, "target_loss": -8.5}
    noise = {"sigma": 0.5, "rank": 3, "head": "perturbed", "antithetic": True}
    noise |= {"logit_sigma": 0.25, "discount": 0.75, "correction": 0.375}
    config = config_of(
        **choices,
        **noise,
        **again,
        optimizer="sgd",
        learning_rate=0.25,
        max_learning_rate=0.5,
        beta1=0.75,
        weight_decay_towards="start",
        learning_rate_schedule="cosine",
        sigma_schedule="linear",
        learning_rate_factors="0:1 5:0.5",
        warmup_steps=3,
        steps=9,
        duration=4.5,
    )
    assert msgspec.structs.asdict(strategy_of(config)) == {
        **choices,
        "optimizer": Sgd(0.25, 0.75),
        "max_learning_rate": 0.5,
        "most_local_steps": 4,
        "coarse_local_steps": False,
        "decay_towards": "start",
        "attempts": Attempts(**again),  # type: ignore[arg-type]
        "perturbation": Perturbation(space="weights", **noise),  # type: ignore[arg-type]
        "schedule": Schedule(**schedule),  # type: ignore[arg-type]
    }


def test_optimizers_take_the_settings_that_they_have() -> None:
    settings = {"learning_rate": 0.5, "beta1": 0.75, "beta2": 0.25}
    assert strategy_of(config_of(optimizer="adam", **settings)).optimizer == Adam(0.5, 0.75, 0.25)
    assert strategy_of(config_of(optimizer="sgd", **settings)).optimizer == Sgd(0.5, 0.75)


def test_perturbed_activations_are_a_choice() -> None:
    config = config_of(perturb="activations", head="closed-form", sigma=0.5)
    assert strategy_of(config).perturbation.is_summed
