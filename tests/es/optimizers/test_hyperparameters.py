from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from fedlearn.es.optimizers.hyperparameters import Hyperparameter, defaults, hyperparameters, shared, values


class Fast(msgspec.Struct):
    learning_rate: float
    beta: Annotated[float, Meta(description="decay", ge=0, lt=1)] = 0.5
    epsilon: float = 1e-8


class Slow(msgspec.Struct):
    learning_rate: float
    momentum: Annotated[float, Meta(description="momentum", ge=0, lt=1)] = msgspec.field(default=0.75, name="beta")
    rho: Annotated[float, Meta(description="radius", gt=0, le=2)] = 1.0


class Foreign(msgspec.Struct):
    beta: Annotated[float, Meta(description="decay", ge=0, le=1)] = 0.5


def test_a_field_with_a_description_is_a_setting_under_its_own_or_another_name() -> None:
    assert hyperparameters(Fast) == {"beta": Hyperparameter("beta", "decay", 0.5, {"ge": 0.0, "lt": 1.0})}
    assert hyperparameters(Slow) == {
        "momentum": Hyperparameter("beta", "momentum", 0.75, {"ge": 0.0, "lt": 1.0}),
        "rho": Hyperparameter("rho", "radius", 1.0, {"gt": 0.0, "le": 2.0}),
    }


def test_a_shared_setting_says_what_each_optimizer_takes_it_for() -> None:
    merged = shared({"fast": Fast, "slow": Slow})
    assert list(merged) == ["beta", "rho"]
    assert merged["beta"].description == "fast: decay; slow: momentum, by default 0.75"
    assert merged["beta"].default == 0.5
    assert merged["rho"] == Hyperparameter("rho", "slow: radius", 1.0, {"gt": 0.0, "le": 2.0})


def test_a_shared_setting_has_one_range() -> None:
    with pytest.raises(AssertionError, match="beta: optimizers declare different ranges"):
        shared({"fast": Fast, "foreign": Foreign})


def test_defaults_are_by_key_and_values_by_field() -> None:
    assert defaults(Slow) == {"beta": 0.75, "rho": 1.0}
    assert values(Slow, {"beta": 0.25, "rho": 2.0, "sigma": 0.1}) == {"momentum": 0.25, "rho": 2.0}
