import argparse
from typing import Any

import msgspec
import pytest

from fedlearn.config import (
    AUTOMATIC_KEYS,
    KEYS,
    RESUMABLE_KEYS,
    ConfigError,
    RunConfig,
    add_config_flags,
    load_config,
    resume_config,
    to_json,
)

CAMEL_CASE = {
    "timePerStep": ("time_per_step", 2.5),
    "learningRate": ("learning_rate", 0.25),
    "hiddenSize": ("hidden_size", 8),
    "vocabSize": ("vocab_size", 99),
    "nLayers": ("n_layers", 3),
    "stepNum": ("step_num", 7),
    "checkPointTime": ("checkpoint_time", 9.0),
    "newTokensInterval": ("new_tokens_interval", 4),
    "batchSize": ("batch_size", 2),
}
FIELDS = {field.name: field for field in msgspec.structs.fields(RunConfig)}


def parse(*arguments: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    add_config_flags(parser)
    return vars(parser.parse_args(arguments))


def refusal(toml: str = "", environ: dict[str, str] | None = None, *flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(("run.toml", toml), environ or {}, parse(*flags))
    return str(caught.value)


def test_nothing_given_means_the_defaults() -> None:
    assert load_config(None, {}, {}) == RunConfig()


def test_defaults_lie_within_their_own_ranges() -> None:
    for field in FIELDS.values():
        assert msgspec.convert(field.default, field.type) == field.default


def test_flags_outrank_environment_and_environment_outranks_file() -> None:
    file = ("run.toml", "sigma = 0.1\nrank = 2\nseed = 3")
    config = load_config(file, {"FEDLEARN_RANK": "4", "FEDLEARN_SEED": "5"}, parse("--seed", "6"))
    assert (config.sigma, config.rank, config.seed) == (0.1, 4, 6)


def test_every_key_has_a_flag_and_a_variable() -> None:
    for key in KEYS:
        text = str(FIELDS[key].default)
        assert parse(f"--{key.replace('_', '-')}", text)[key] == text
        assert load_config(None, {f"FEDLEARN_{key.upper()}": text}, {}) == RunConfig()


def test_camel_case_is_accepted_in_files() -> None:
    for camel, (key, value) in CAMEL_CASE.items():
        assert getattr(load_config(("run.toml", f"{camel} = {value}"), {}, {}), key) == value


def test_both_spellings_of_one_key_are_refused() -> None:
    assert "n_layers: expected one spelling of n_layers, got two" in refusal("nLayers = 1\nn_layers = 1")


def test_json_file_is_read_by_its_suffix() -> None:
    assert load_config(("run.JSON", '{"sigma": 0.5}'), {}, {}).sigma == 0.5


def test_written_configuration_reads_back_equal() -> None:
    config = RunConfig(sigma=0.1 + 0.2, seed=2**63 - 1, data="Überfluß", optimizer="sgd", time_per_step=3)
    assert load_config(("config.json", to_json(config)), {}, {}) == config


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("sigmaa = 1", ["sigmaa", "run.toml", "did you mean sigma?"]),
        ("batchsize = 1", ["batchsize", "did you mean batch_size?"]),
        ("qqq = 1", ["qqq", "--help"]),
        ("sigma = -1.0", ["sigma", "at least 0", "-1.0", "run.toml"]),
        ("logit_sigma = 0.0", ["logit_sigma", "above 0", "0.0", "run.toml"]),
        ("sigma = '0.1'", ["sigma", "a number", "'0.1'"]),
        ("rank = 1.5", ["rank", "a whole number", "at most 8", "1.5"]),
        ("rank = true", ["rank", "a whole number", "True"]),
        ("beta1 = 1", ["beta1", "below 1"]),
        ("antithetic = 1", ["antithetic", "true or false", "got 1"]),
        ("population_limit = -1", ["population_limit", "at least 0", "got -1"]),
        ("population_limit = 16000001", ["population_limit", "at most 16000000"]),
        ("step_num = 4294967296", ["step_num", "at most 4294967295"]),
        ("steps = 4294967296", ["steps", "at most 4294967295"]),
        ("optimizer = 'adamw'", ["optimizer", "one of adam, sgd", "'adamw'"]),
        ("data = ''", ["data", "text that is not empty", "''"]),
        ("[training]\nsigma = 1", ["training", "a table", "run.toml"]),
        ("sigma = ", ["run.toml", "valid TOML"]),
    ],
)
def test_wrong_entry_of_a_file_is_named_with_what_was_expected(text: str, parts: list[str]) -> None:
    message = refusal(text)
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(("name", "text"), [("run.yaml", "a: 1"), ("toml", "a"), ("a.json", "[1]"), ("a.json", "{")])
def test_file_of_another_form_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: expected"):
        load_config((name, text), {}, {})


def test_wrong_value_names_its_variable_or_flag() -> None:
    assert "'x' from environment variable FEDLEARN_PORT" in refusal("", {"FEDLEARN_PORT": "x"})
    assert "'-1' from flag --time-per-step" in refusal("", {}, "--time-per-step", "-1")


def test_wrong_value_is_refused_even_when_a_later_source_overrides_it() -> None:
    assert "run.toml" in refusal("sigma = -1", {}, "--sigma", "0.1")


def test_unknown_variable_is_refused_with_the_nearest() -> None:
    assert "did you mean FEDLEARN_SIGMA?" in refusal("", {"FEDLEARN_SIGMAA": "1"})
    assert "did you mean FEDLEARN_SERVER?" in refusal("", {"FEDLEARN_SERVR": "1"})


def test_variables_of_other_programs_are_ignored() -> None:
    others = {"FEDLEARN_SERVER": "a:1", "FEDLEARN_ISA": "base", "FEDLEARN_NAME": "me", "PATH": "/bin"}
    assert load_config(None, others, {}) == RunConfig()


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_no_number_may_be_infinite_or_missing(value: str) -> None:
    floats = [key for key in KEYS if isinstance(FIELDS[key].default, float)]
    assert len(floats) == 12
    for key in floats:
        assert f"{key}: expected a number" in refusal(f"{key} = {value}")


@pytest.mark.parametrize("key", ["population_limit", "max_population"])
def test_population_smaller_than_a_group_is_refused(key: str) -> None:
    assert f"{key}: expected a group or more (64 members), got 63" in refusal(f"{key} = 63\ngroup_size = 64")
    assert f"{key}: expected a group or more (2 members), got 1" in refusal(f"{key} = 1")


def test_a_population_may_only_grow() -> None:
    load_config(("run.toml", "population_limit = 640\nmax_population = 640"), {}, {})
    message = refusal("population_limit = 641\nmax_population = 640")
    assert "max_population: expected population_limit (641) or more" in message


def test_what_a_run_may_choose_is_open_unless_it_is_given() -> None:
    assert not any(getattr(RunConfig(), key) for key in AUTOMATIC_KEYS)
    assert load_config(("run.toml", "hidden_size = 0\nlearning_rate = 0"), {"FEDLEARN_SIGMA": "0"}, {}) == RunConfig()
    given: dict[str, Any] = dict.fromkeys(AUTOMATIC_KEYS, 2)
    assert RunConfig(**given).is_settled
    for key in AUTOMATIC_KEYS:
        assert not RunConfig(**given | {key: 0}).is_settled
        assert "0 = chosen when the run begins" in FIELDS[key].type.__metadata__[0].description


@pytest.mark.parametrize("key", ["hidden_size", "group_size"])
def test_one_unit_or_member_is_not_enough(key: str) -> None:
    assert f"{key}: expected 2 or more, or 0" in refusal(f"{key} = 1")


def test_what_was_chosen_stays_when_a_run_is_resumed() -> None:
    base = RunConfig(hidden_size=8, learning_rate=0.5, population_limit=64, max_population=128)
    assert resume_config(base, ("run.toml", "hidden_size = 0\nlearning_rate = 0"), {}, {}) == base
    assert resume_config(base, None, {}, parse("--population-limit", "0")) == base


def test_a_population_that_is_given_to_a_resumed_run_does_not_grow() -> None:
    base = RunConfig(population_limit=64, max_population=128)
    for flags, expected in (
        (["--population-limit", "96"], (96, 0)),
        (["--population-limit", "96", "--max-population", "100"], (96, 100)),
        (["--max-population", "0"], (64, 0)),
        (["--max-population", "100"], (64, 100)),
    ):
        config = resume_config(base, None, {}, parse(*flags))
        assert (config.population_limit, config.max_population) == expected


def test_antithetic_is_given_in_words() -> None:
    for text, value in (("true", True), ("false", False)):
        assert load_config(None, {}, parse("--antithetic", text)).antithetic is value
        assert load_config(("run.toml", f"antithetic = {text}"), {}, {}).antithetic is value
    assert "true or false, got 'perhaps'" in refusal("", {}, "--antithetic", "perhaps")


def test_antithetic_pairs_need_even_groups() -> None:
    load_config(("run.toml", "group_size = 63"), {}, {})
    message = "group_size: expected an even number with antithetic pairs, got 63"
    assert message in refusal("group_size = 63\nantithetic = true")


@pytest.mark.parametrize("key", ["learning_rate_schedule", "sigma_schedule"])
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_that_ends_needs_an_end(key: str, schedule: str) -> None:
    message = refusal(f"{key} = '{schedule}'")
    assert f"{key}: expected steps or duration with {schedule}, got neither" in message
    for end in ("steps = 9", "duration = 0.5"):
        assert getattr(load_config(("run.toml", f"{key} = '{schedule}'\n{end}"), {}, {}), key) == schedule


def test_a_resumed_run_may_not_lose_the_end_that_its_schedule_needs() -> None:
    with pytest.raises(ConfigError, match="expected steps or duration with linear, got neither"):
        resume_config(RunConfig(learning_rate_schedule="linear", steps=9), None, {}, parse("--steps", "0"))


def test_a_step_may_not_take_all_of_the_weights() -> None:
    load_config(("run.toml", "learning_rate = 0.5\nweight_decay = 1.9"), {}, {})
    assert "weight_decay: expected less than 1 / learning_rate (2)" in refusal("learning_rate = 0.5\nweight_decay = 2")


def test_block_smaller_than_a_window_is_refused_when_blocks_change() -> None:
    load_config(("run.toml", "block_tokens = 48"), {}, {})
    assert "+ 1 = 49), got 48" in refusal("block_tokens = 48\nnew_tokens_interval = 1")


def test_help_shows_meaning_unit_default_and_choices() -> None:
    parser = argparse.ArgumentParser(formatter_class=lambda prog: argparse.HelpFormatter(prog, width=300))
    add_config_flags(parser)
    text = parser.format_help()
    assert "--checkpoint-time NUMBER" in text
    assert "s between checkpoints (default: 60.0)" in text
    assert "--optimizer {adam,sgd}" in text


def test_resumed_run_keeps_its_configuration_and_takes_what_may_change() -> None:
    base = RunConfig(hidden_size=8, sigma=0.5, steps=20)
    config = resume_config(base, ("run.toml", "hidden_size = 8"), {"FEDLEARN_SIGMA": "0.25"}, {"steps": "40"})
    assert config == RunConfig(hidden_size=8, sigma=0.25, steps=40)


def test_resumed_run_refuses_another_model() -> None:
    with pytest.raises(ConfigError, match=r"hidden_size: expected 8 as in the run.*got 16 from flag --hidden-size"):
        resume_config(RunConfig(hidden_size=8), None, {}, parse("--hidden-size", "16"))


def test_resumable_keys_are_keys() -> None:
    assert set(KEYS) >= RESUMABLE_KEYS


def test_population_must_fit_the_gradient_estimate_at_its_rank() -> None:
    populations: list[dict[str, Any]] = [{"population_limit": 3_000_000}, {"max_population": 3_000_000}]
    for population in populations:
        (key,) = population
        with pytest.raises(ConfigError, match=f"{key}: expected at most 2113665 with rank 8"):
            RunConfig(rank=8, **population)
