from typing import Annotated

import msgspec
import pytest
from msgspec.inspect import BoolType, FloatType, IntType, LiteralType, StrType

from fedlearn.config import ConfigError, RunSettings, Schema, StrategySettings, setting
from fedlearn.es.optimizers import OPTIMIZERS, defaults
from fedlearn.tasks.user.task_options import TaskOptions


class Clash(msgspec.Struct):
    sigma: Annotated[float, setting("again", ge=0, le=1)] = 0.5


def test_keys_are_those_of_every_run_and_of_the_kind(schema: Schema) -> None:
    assert list(schema.groups) == ["run", "strategy", "optimizer", "server", "volunteers", "options"]
    assert schema.group_of["seed"] == "run"
    assert schema.group_of["sigma"] == "strategy"
    assert schema.group_of["beta1"] == "optimizer"
    assert schema.group_of["volunteers"] == "volunteers"
    assert schema.group_of["width"] == "options"
    assert set(schema.fields) == set(schema.group_of)
    assert "hidden_size" not in schema.fields


@pytest.mark.parametrize("name", ["schema", "rnn_schema"])
def test_defaults_lie_within_their_own_ranges(name: str, request: pytest.FixtureRequest) -> None:
    schema: Schema = request.getfixturevalue(name)
    for key, field in schema.fields.items():
        assert schema.checked(key, field.default, "here", strict=True) == field.default


def test_every_key_says_what_it_is() -> None:
    for key in Schema(TaskOptions).fields:
        assert len(Schema(TaskOptions).help_of(key)) > 3


def test_a_key_stands_in_one_group_only() -> None:
    with pytest.raises(AssertionError, match="sigma stands in two groups"):
        Schema(Clash)


def test_automatic_and_resumable_keys_are_those_of_all_groups(schema: Schema) -> None:
    assert set(schema.automatic) == {
        "perturb",
        "head",
        "sigma",
        "group_size",
        "population_limit",
        "time_per_step",
        "learning_rate",
        "width",
    }
    assert {"shape", "sigma", "steps", "weight_decay", "port", "threads"} <= schema.resumable
    assert schema.resumable.isdisjoint({"width", "seed", "rank", "group_size", "optimizer", "weight_decay_towards"})


def test_what_leaves_an_automatic_key_open_is_within_its_range(rnn_schema: Schema) -> None:
    for key in rnn_schema.automatic:
        is_open = rnn_schema.fields[key].default
        assert rnn_schema.checked(key, is_open, "here", strict=True) == is_open
        assert "chosen when the run begins, unless it is given" in rnn_schema.help_of(key)


def test_a_configuration_is_built_from_keys_of_any_group(schema: Schema) -> None:
    config = schema.build({"sigma": 0.5, "seed": 7, "width": 3})
    assert config.run == RunSettings(seed=7)
    assert config.strategy == StrategySettings(sigma=0.5)
    assert msgspec.structs.asdict(config.options) == {"width": 3, "shape": "round", "note": "none"}


def test_hyperparameters_have_the_range_of_their_optimizers_and_may_change_in_a_resumed_run(schema: Schema) -> None:
    assert {"beta1", "beta2"} <= schema.resumable
    with pytest.raises(ConfigError, match="beta2: expected a number, at least 0 and below 1, got 1 from flag"):
        schema.checked("beta2", 1, "flag", strict=False)


def test_defaults_of_hyperparameters_are_those_of_the_optimizer(schema: Schema) -> None:
    for name, optimizer in OPTIMIZERS.items():
        config = schema.build({"optimizer": name})
        assert {key: config.get(key) for key in defaults(optimizer)} == defaults(optimizer)
    assert schema.build({"optimizer": "sgd", "beta1": 0.5}).get("beta1") == 0.5


def test_types_of_keys_are_told(schema: Schema) -> None:
    types = {"seed": IntType, "sigma": FloatType, "antithetic": BoolType, "note": StrType, "shape": LiteralType}
    assert {key: type(schema.type_of(key)) for key in types} == types


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("0", 0)])
def test_text_becomes_a_number_only_where_that_is_allowed(schema: Schema, text: str, value: int) -> None:
    assert schema.checked("width", text, "a flag", strict=False) == value
    with pytest.raises(ConfigError, match=f"width: expected a whole number, .* got '{text}' from a file"):
        schema.checked("width", text, "a file", strict=True)


@pytest.mark.parametrize(
    ("text", "number"), [(".5", 0.5), ("5.", 5.0), ("1e-3", 0.001), (" 2 ", 2.0), ("+1", 1.0), ("1_0", 10.0)]
)
def test_text_that_python_reads_as_a_number_is_one(schema: Schema, text: str, number: float) -> None:
    assert schema.checked("learning_rate", text, "flag", strict=False) == number


@pytest.mark.parametrize("text", ["", "nan", "inf", "-inf", "1,5", "x"])
def test_text_that_is_no_finite_number_is_named(schema: Schema, text: str) -> None:
    with pytest.raises(ConfigError, match=f"learning_rate: expected a number, .* got '{text}' from flag"):
        schema.checked("learning_rate", text, "flag", strict=False)


def test_keys_that_people_change_first_are_the_fewer_ones(rnn_schema: Schema) -> None:
    assert {"rank", "beta1", "logit_sigma", "block_tokens"} <= rnn_schema.advanced
    assert rnn_schema.advanced.isdisjoint({"data", "hidden_size", "learning_rate", "host", "duration"})
