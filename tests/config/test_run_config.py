from collections.abc import Callable
from typing import Any

import pytest

from fedlearn.config import ConfigError, RunConfig, Schema, load_config
from fedlearn.tasks.rnn.options import RnnOptions

Refusal = Callable[..., str]


def loaded(schema: Schema, toml: str) -> RunConfig:
    return load_config(schema, ("run.toml", toml), {}, {})


def test_a_key_is_found_in_whichever_group_it_stands(rnn_schema: Schema) -> None:
    config = rnn_schema.build({"seed": 7, "hidden_size": 8})
    assert [config.get(key) for key in ("seed", "hidden_size", "beta2", "volunteers")] == [7, 8, 0.999, 1]
    with pytest.raises(KeyError, match="colour"):
        config.get("colour")


def test_keys_of_several_groups_are_replaced_together(rnn_schema: Schema) -> None:
    config = rnn_schema.build({"seed": 7})
    changed = config.replace({"hidden_size": 8, "sigma": 0.5, "rank": 2})
    assert changed == rnn_schema.build({"seed": 7, "hidden_size": 8, "sigma": 0.5, "rank": 2})
    assert config == rnn_schema.build({"seed": 7})
    assert config.replace({}) == config
    with pytest.raises(KeyError, match="colour"):
        config.replace({"colour": 1})


def test_what_is_replaced_must_go_with_the_rest(rnn_schema: Schema) -> None:
    config = rnn_schema.build({"learning_rate_schedule": "linear", "steps": 9})
    with pytest.raises(ConfigError, match="expected steps or duration"):
        config.replace({"steps": 0})
    with pytest.raises(ConfigError, match="hidden_size: expected 2 or more"):
        config.replace({"hidden_size": 1})


def test_what_a_run_may_choose_is_open_unless_it_is_given(rnn_schema: Schema) -> None:
    default = rnn_schema.build({})
    assert {default.get(key) for key in rnn_schema.automatic} == {0, "auto"}
    assert set(default.open_keys) == set(rnn_schema.automatic)
    zeros = ("run.toml", "hidden_size = 0\nlearning_rate = 0")
    assert load_config(rnn_schema, zeros, {"FEDLEARN_GROUP_SIZE": "0"}, {}) == default
    given: dict[str, Any] = dict.fromkeys(rnn_schema.automatic, 2)
    assert rnn_schema.build(given).is_settled
    for key in rnn_schema.automatic:
        almost = rnn_schema.build(given | {key: default.get(key)})
        assert not almost.is_settled
        assert almost.open_keys == (key,)


@pytest.mark.parametrize(("key", "value"), [("steps", 1), ("duration", 0.5)])
def test_a_run_ends_by_its_steps_or_by_its_time(rnn_schema: Schema, key: str, value: float) -> None:
    assert not rnn_schema.build({}).has_end
    assert rnn_schema.build({key: value}).has_end


@pytest.mark.parametrize("key", ["population_limit", "max_population"])
def test_population_smaller_than_a_group_is_refused(key: str, refusal: Refusal) -> None:
    assert f"{key}: expected a group or more (64 members), got 63" in refusal(f"{key} = 63\ngroup_size = 64")
    assert f"{key}: expected a group or more (2 members), got 1" in refusal(f"{key} = 1")


def test_a_population_may_only_grow(rnn_schema: Schema, refusal: Refusal) -> None:
    loaded(rnn_schema, "population_limit = 640\nmax_population = 640")
    message = refusal("population_limit = 641\nmax_population = 640")
    assert "max_population: expected population_limit (641) or more" in message


def test_a_learning_rate_may_only_grow(rnn_schema: Schema, refusal: Refusal) -> None:
    loaded(rnn_schema, "learning_rate = 0.5\nmax_learning_rate = 0.5")
    message = refusal("learning_rate = 0.5\nmax_learning_rate = 0.25")
    assert "max_learning_rate: expected learning_rate (0.5) or more, or 0" in message
    assert "got 0.25" in message


def test_weight_decay_fits_the_largest_learning_rate(rnn_schema: Schema, refusal: Refusal) -> None:
    loaded(rnn_schema, "learning_rate = 0.25\nweight_decay = 3.9")
    assert "weight_decay: expected less than 1 / max_learning_rate (2)" in refusal(
        "learning_rate = 0.25\nmax_learning_rate = 0.5\nweight_decay = 2"
    )


def test_population_must_fit_the_gradient_estimate_at_its_rank(rnn_schema: Schema) -> None:
    for key in ("population_limit", "max_population"):
        with pytest.raises(ConfigError, match=f"{key}: expected at most 2113665 with rank 8"):
            rnn_schema.build({"rank": 8, key: 3_000_000})


def test_one_member_is_not_enough(refusal: Refusal) -> None:
    assert "group_size: expected 2 or more, or 0" in refusal("group_size = 1")


def test_antithetic_pairs_need_even_groups(rnn_schema: Schema, refusal: Refusal) -> None:
    loaded(rnn_schema, "group_size = 63")
    message = "group_size: expected an even number with antithetic pairs, got 63"
    assert message in refusal("group_size = 63\nantithetic = true")


def test_best_directions_need_antithetic_pairs(rnn_schema: Schema, refusal: Refusal) -> None:
    loaded(rnn_schema, "fitness_shaping = 'best-directions'\nantithetic = true")
    message = "fitness_shaping: expected antithetic = true with best-directions"
    assert message in refusal("fitness_shaping = 'best-directions'")


def test_activations_have_no_antithetic_pairs(refusal: Refusal) -> None:
    message = "antithetic: expected false with perturb = activations, got true; leave it out"
    assert message in refusal("perturb = 'activations'\nantithetic = true")


@pytest.mark.parametrize("summed", ["perturb = 'activations'", "head = 'closed-form'"])
@pytest.mark.parametrize("shaping", ["centered-ranks", "sign"])
def test_sums_of_gradients_are_shaped_in_one_way_only(
    rnn_schema: Schema, refusal: Refusal, summed: str, shaping: str
) -> None:
    loaded(rnn_schema, summed)
    loaded(rnn_schema, f"fitness_shaping = '{shaping}'")
    message = refusal(f"{summed}\nfitness_shaping = '{shaping}'")
    assert "fitness_shaping: expected normalized where volunteers send sums of gradients" in message
    assert f"got {shaping}" in message


@pytest.mark.parametrize("key", ["learning_rate_schedule", "sigma_schedule"])
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_that_ends_needs_an_end(rnn_schema: Schema, refusal: Refusal, key: str, schedule: str) -> None:
    message = refusal(f"{key} = '{schedule}'")
    assert f"{key}: expected steps or duration with {schedule}, got neither" in message
    for end in ("steps = 9", "duration = 0.5"):
        assert loaded(rnn_schema, f"{key} = '{schedule}'\n{end}").get(key) == schedule


def test_factors_on_the_rate_have_steps(rnn_schema: Schema, refusal: Refusal) -> None:
    loaded(rnn_schema, "learning_rate_factors = '0:1 5:0.5'")
    assert "learning_rate_factors: expected STEP:FACTOR" in refusal("learning_rate_factors = '0.5'")


def test_a_step_may_not_take_all_of_the_weights(rnn_schema: Schema, refusal: Refusal) -> None:
    loaded(rnn_schema, "learning_rate = 0.5\nweight_decay = 1.9")
    assert "weight_decay: expected less than 1 / learning_rate (2)" in refusal("learning_rate = 0.5\nweight_decay = 2")


def test_a_configuration_has_the_options_of_its_kind(rnn_schema: Schema) -> None:
    assert rnn_schema.build({"hidden_size": 8}).options == RnnOptions(hidden_size=8)
