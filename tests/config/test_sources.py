from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fedlearn.config import (
    ConfigError,
    RunConfig,
    Schema,
    ServerSettings,
    flag_of,
    load_config,
    resume_config,
    setting_of,
    task_of,
    to_json,
)

Parse = Callable[..., dict[str, object]]
Refusal = Callable[..., str]

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

FLAT = """{
  "time_per_step": 2.0, "learning_rate": 0.01, "sigma": 0.02, "perturb": "activations", "head": "closed-form",
  "logit_sigma": 0.06, "discount": 0.7, "control_variates": false, "learning_rate_schedule": "linear",
  "sigma_schedule": "cosine", "warmup_steps": 5, "hidden_size": 8, "vocab_size": 99, "n_layers": 2, "optimizer": "sgd",
  "weight_decay": 0.125, "antithetic": false, "beta1": 0.5, "beta2": 0.75, "step_num": 3, "checkpoint_time": 9.0,
  "new_tokens_interval": 4, "batch_size": 2, "seed": 7, "rank": 2, "group_size": 16, "context": 5,
  "sequence_length": 6, "population_limit": 64, "max_population": 128, "steps": 40, "duration": 60.0,
  "data": "corpus.txt", "tokenizer": "bytes", "documents": "blank-lines", "block_tokens": 100,
  "fitness_shaping": "normalized", "embedding_scale": 4.0, "precision": "int8", "host": "0.0.0.0", "port": 1,
  "volunteers": 3, "threads": 2, "runs": "elsewhere", "sample_time": 0.0
}"""
"""A `config.json` of a version that had no groups, every key with another value than its default but one."""


def loaded(schema: Schema, toml: str) -> RunConfig:
    return load_config(schema, ("run.toml", toml), {}, {})


def test_nothing_given_means_the_defaults(rnn_schema: Schema) -> None:
    assert load_config(rnn_schema, None, {}, {}) == rnn_schema.build({})


def test_flags_outrank_environment_and_environment_outranks_file(rnn_schema: Schema, parse: Parse) -> None:
    file = ("run.toml", "sigma = 0.1\nrank = 2\nseed = 3")
    config = load_config(rnn_schema, file, {"FEDLEARN_RANK": "4", "FEDLEARN_SEED": "5"}, parse("--seed", "6"))
    assert [config.get(key) for key in ("sigma", "rank", "seed")] == [0.1, 4, 6]


def test_every_other_source_outranks_the_tasks_own_settings(rnn_schema: Schema, parse: Parse) -> None:
    defaults = {"sigma": 0.25, "rank": 1, "seed": 2, "group_size": 16, "antithetic": True}
    file, environ = ("run.toml", "[strategy]\nrank = 2"), {"FEDLEARN_SEED": "5"}
    config = load_config(rnn_schema, file, environ, parse("--group-size", "8"), defaults=defaults)
    given = [config.get(key) for key in ("sigma", "rank", "seed", "group_size", "antithetic")]
    assert given == [0.25, 2, 5, 8, True]


def test_a_population_that_is_given_to_a_task_with_its_own_bound_does_not_grow(
    rnn_schema: Schema, parse: Parse
) -> None:
    defaults = {"group_size": 8, "population_limit": 8, "max_population": 64}

    def found(*flags: str) -> list[object]:
        config = load_config(rnn_schema, None, {}, parse(*flags), defaults=defaults)
        return [config.get(key) for key in ("population_limit", "max_population")]

    assert found() == [8, 64]
    assert found("--population-limit", "128") == [128, 0]
    assert found("--population-limit", "128", "--max-population", "256") == [128, 256]
    assert found("--max-population", "32") == [8, 32]


@pytest.mark.parametrize(
    ("defaults", "complaint"),
    [
        ({"sigmaa": 1.0}, "sigmaa: expected a known key, got this one from the task's settings; did you mean sigma?"),
        ({"sigma": -1.0}, "sigma: expected a number, at least 0 .* got -1.0 from the task's settings"),
        ({"sigma": "much"}, "sigma: expected a number, .* got 'much' from the task's settings"),
    ],
)
def test_a_tasks_own_settings_are_checked_like_all_others(
    rnn_schema: Schema, defaults: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_config(rnn_schema, None, {}, {"sigma": "0.5"}, defaults=defaults)


def test_every_key_has_a_flag_and_a_variable(rnn_schema: Schema, parse: Parse) -> None:
    for key, field in rnn_schema.fields.items():
        is_list = isinstance(field.default, tuple)
        value: Any = 2 if key in rnn_schema.automatic and not field.default else field.default
        text = str(value[0] if is_list else value)
        assert parse(flag_of(key), text)[key] == ([text] if is_list else text)
        assert load_config(rnn_schema, None, {f"FEDLEARN_{key.upper()}": text}, {}) == rnn_schema.build({key: value})


@pytest.mark.parametrize("key", ["sigma", "learning_rate", "time_per_step"])
def test_zero_that_somebody_types_where_the_run_would_choose_is_refused(rnn_schema: Schema, key: str) -> None:
    complaint = f"^{key}: expected a number above 0, got .0. from .*; leave it out to have it chosen$"
    with pytest.raises(ConfigError, match=complaint):
        load_config(rnn_schema, None, {}, {key: "0"})
    with pytest.raises(ConfigError, match=complaint):
        load_config(rnn_schema, None, {f"FEDLEARN_{key.upper()}": "0"}, {})
    with pytest.raises(ConfigError, match=f"{key}: expected a number above 0, got 0 from the call's keywords"):
        load_config(rnn_schema, None, {}, {}, keywords={key: 0})


def test_population_that_is_no_whole_groups_is_refused_where_somebody_asks_for_it(rnn_schema: Schema) -> None:
    asked = {"group_size": 7, "population_limit": 10}
    complaint = "^population_limit: expected whole groups of 7 members, such as 7 or 14, got 10 from .*"
    with pytest.raises(ConfigError, match=complaint):
        load_config(rnn_schema, None, {}, asked)
    with pytest.raises(ConfigError, match=complaint):
        load_config(rnn_schema, None, {}, {}, keywords=asked)
    with pytest.raises(ConfigError, match=complaint):
        load_config(rnn_schema, ("run.toml", "group_size = 7"), {}, {"population_limit": 10})
    assert load_config(rnn_schema, None, {}, asked | {"population_limit": 14}).get("population_limit") == 14
    # Where the run chose the group, its own file repeats it.
    assert loaded(rnn_schema, "group_size = 7\npopulation_limit = 10").get("population_limit") == 10


def test_keyword_outranks_all_and_is_told_as_one(rnn_schema: Schema) -> None:
    config = load_config(
        rnn_schema, ("run.toml", "sigma = 1"), {}, {"sigma": "2"}, defaults={"sigma": 3}, keywords={"sigma": 4}
    )
    assert config.get("sigma") == 4
    complaint = "^hiden_size: expected a known key, got this one from the call's keywords; did you mean hidden_size"
    with pytest.raises(ConfigError, match=complaint):
        load_config(rnn_schema, None, {}, {}, keywords={"hiden_size": 3})


def test_key_of_several_texts_takes_one_or_a_list_and_its_flag_is_repeated(rnn_schema: Schema, parse: Parse) -> None:
    assert loaded(rnn_schema, "data = 'a'").get("data") == ("a",)
    assert loaded(rnn_schema, "data = ['a', 'b']").get("data") == ("a", "b")
    assert load_config(rnn_schema, None, {}, parse("--data", "a", "--data", "b")).get("data") == ("a", "b")


def test_camel_case_is_accepted_in_files(rnn_schema: Schema) -> None:
    for camel, (key, value) in CAMEL_CASE.items():
        assert loaded(rnn_schema, f"{camel} = {value}").get(key) == value


def test_camel_case_of_keys_that_a_kind_lacks_is_not_known(schema: Schema) -> None:
    assert loaded(schema, "learningRate = 0.5").get("learning_rate") == 0.5
    with pytest.raises(ConfigError, match="hiddenSize: expected a known key"):
        loaded(schema, "hiddenSize = 8")


@pytest.mark.parametrize("second", ["n_layers = 1", "[options]\nn_layers = 1", "[options]\nnLayers = 1"])
def test_both_spellings_of_one_key_are_refused(refusal: Refusal, second: str) -> None:
    assert "expected one spelling of n_layers, got two" in refusal(f"nLayers = 1\n{second}")


def test_keys_stand_in_the_tables_of_their_groups_or_in_none(rnn_schema: Schema) -> None:
    flat = "seed = 7\nsigma = 0.5\noptimizer = 'sgd'\nvolunteers = 3\nport = 1\nhidden_size = 8"
    tables = (
        "[run]\nseed = 7\n[strategy]\nsigma = 0.5\n[optimizer]\noptimizer = 'sgd'\n[volunteers]\nvolunteers = 3\n"
        "[server]\nport = 1\n[options]\nhiddenSize = 8"
    )
    mixed = "seed = 7\nvolunteers = 3\n[optimizer]\noptimizer = 'sgd'\n[strategy]\nsigma = 0.5\n[options]\n"
    expected = rnn_schema.build(
        {"seed": 7, "sigma": 0.5, "optimizer": "sgd", "volunteers": 3, "port": 1, "hidden_size": 8}
    )
    assert loaded(rnn_schema, flat) == loaded(rnn_schema, tables) == expected
    assert loaded(rnn_schema, f"hidden_size = 8\nport = 1\n{mixed}") == expected


def test_file_that_is_nested_deeply_is_refused(refusal: Refusal) -> None:
    assert "run.toml: expected valid TOML: maximum recursion depth exceeded" in refusal("seed = " + "[" * 100_000)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[strategy]\nseed = 7", "seed: expected in the table run of run.toml, got it in strategy"),
        ("[run]\nhiddenSize = 8", "hiddenSize: expected in the table options of run.toml, got it in run"),
        ("[options]\noptimizer = 'sgd'", "optimizer: expected in the table optimizer of run.toml, got it in options"),
        ("[run]\nsseed = 7", "sseed: expected a known key, got this one from run.toml; did you mean seed?"),
        ("[run.seed]\na = 1", "seed: expected a value, got a table from run.toml"),
        ("[training]\nsigma = 1", "tables are run, strategy, optimizer, server, volunteers, options"),
        ("run = 7", "run: expected a known key"),
    ],
)
def test_a_key_in_the_wrong_table_is_refused(refusal: Refusal, text: str, complaint: str) -> None:
    assert complaint in refusal(text)


def test_a_configuration_without_groups_reads_with_every_key_in_its_group(rnn_schema: Schema) -> None:
    config = load_config(rnn_schema, ("config.json", FLAT), {}, {})
    for key, value in (msgspec.json.decode(FLAT) | {"data": ("corpus.txt",)}).items():
        assert config.get(key) == value, key
    new = {"task", "exchange", "device", "cell", "encoding", "weight_decay_towards", "keep_journal", "sample_every"}
    new |= {
        "measure",
        "expected_volunteers",
        "max_learning_rate",
        "learning_rate_factors",
        "correction",
        "matrix_rate",
        "vector_rate",
        "path_share",
        "local_steps",
        "sum_bits",
        "restarts",
        "target_loss",
        "population_warmup",
    }
    new |= {*ServerSettings.__struct_fields__} - {"host", "port"}
    same = {key for key, field in rnn_schema.fields.items() if config.get(key) == field.default}
    assert same == {*new, "fitness_shaping", "antithetic"}


def test_json_file_is_read_by_its_suffix(rnn_schema: Schema) -> None:
    assert load_config(rnn_schema, ("run.JSON", '{"sigma": 0.5}'), {}, {}).strategy.sigma == 0.5


def test_written_configuration_reads_back_equal(rnn_schema: Schema) -> None:
    config = rnn_schema.build(
        {"sigma": 0.1 + 0.2, "seed": 2**63 - 1, "data": ("Überfluß",), "optimizer": "sgd", "time_per_step": 3.0}
    )
    written = to_json(config)
    assert load_config(rnn_schema, ("config.json", written), {}, {}) == config
    assert list(msgspec.json.decode(written)) == list(rnn_schema.groups)


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
        ("optimizer = 'adamw'", ["optimizer", "one of auto, adam, sgd", "'adamw'"]),
        ("weight_decay_towards = 'end'", ["weight_decay_towards", "one of start, zero", "'end'"]),
        ("data = ''", ["data", "texts that are not empty", "''"]),
        ("data = []", ["data", "texts that are not empty", "[]"]),
        ("data = ['a', '']", ["data", "texts that are not empty", "['a', '']"]),
        ("data = 1", ["data", "texts that are not empty", "1"]),
        ("[training]\nsigma = 1", ["training", "a table", "run.toml"]),
        ("sigma = ", ["run.toml", "valid TOML"]),
    ],
)
def test_wrong_entry_of_a_file_is_named_with_what_was_expected(refusal: Refusal, text: str, parts: list[str]) -> None:
    message = refusal(text)
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(("name", "text"), [("run.yaml", "a: 1"), ("toml", "a"), ("a.json", "[1]"), ("a.json", "{")])
def test_file_of_another_form_is_refused_by_name(rnn_schema: Schema, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: expected"):
        load_config(rnn_schema, (name, text), {}, {})


def test_wrong_value_names_its_variable_or_flag(refusal: Refusal) -> None:
    assert "'x' from environment variable FEDLEARN_PORT" in refusal("", {"FEDLEARN_PORT": "x"})
    assert "'-1' from flag --time-per-step" in refusal("", {}, "--time-per-step", "-1")


def test_wrong_value_is_refused_even_when_a_later_source_overrides_it(refusal: Refusal) -> None:
    assert "run.toml" in refusal("sigma = -1", {}, "--sigma", "0.1")


def test_unknown_variable_is_refused_with_the_nearest(refusal: Refusal) -> None:
    assert "did you mean FEDLEARN_SIGMA?" in refusal("", {"FEDLEARN_SIGMAA": "1"})
    assert "did you mean FEDLEARN_SERVER?" in refusal("", {"FEDLEARN_SERVR": "1"})


def test_variables_of_other_programs_are_ignored(rnn_schema: Schema) -> None:
    others = {"FEDLEARN_SERVER": "a:1", "FEDLEARN_ISA": "base", "FEDLEARN_NAME": "me", "PATH": "/bin"}
    others |= {"FEDLEARN_TOKEN": "open sesame", "FEDLEARN_HUB": "/hub"}
    assert load_config(rnn_schema, None, others, {}) == rnn_schema.build({})


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_no_number_may_be_infinite_or_missing(rnn_schema: Schema, refusal: Refusal, value: str) -> None:
    floats = [key for key, field in rnn_schema.fields.items() if isinstance(field.default, float)]
    assert len(floats) == 20
    for key in floats:
        assert f"{key}: expected a number" in refusal(f"{key} = {value}")


def test_antithetic_is_given_in_words(rnn_schema: Schema, parse: Parse, refusal: Refusal) -> None:
    for text, value in (("true", True), ("false", False)):
        assert load_config(rnn_schema, None, {}, parse("--antithetic", text)).strategy.antithetic is value
        assert loaded(rnn_schema, f"antithetic = {text}").strategy.antithetic is value
    assert "true or false, got 'perhaps'" in refusal("", {}, "--antithetic", "perhaps")


def test_what_was_chosen_stays_when_a_run_is_resumed(rnn_schema: Schema, parse: Parse) -> None:
    base = rnn_schema.build({"hidden_size": 8, "learning_rate": 0.5, "population_limit": 64, "max_population": 128})
    zeros = ("run.toml", "hidden_size = 0\nlearning_rate = 0")
    assert resume_config(rnn_schema, base, zeros, {}, {}) == base
    assert resume_config(rnn_schema, base, None, {}, parse("--population-limit", "0")) == base


def test_a_population_that_is_given_to_a_resumed_run_does_not_grow(rnn_schema: Schema, parse: Parse) -> None:
    base = rnn_schema.build({"population_limit": 64, "max_population": 128})
    for flags, expected in (
        (["--population-limit", "96"], (96, 0)),
        (["--population-limit", "96", "--max-population", "100"], (96, 100)),
        (["--max-population", "0"], (64, 0)),
        (["--max-population", "100"], (64, 100)),
    ):
        strategy = resume_config(rnn_schema, base, None, {}, parse(*flags)).strategy
        assert (strategy.population_limit, strategy.max_population) == expected


def test_a_learning_rate_that_is_given_to_a_resumed_run_does_not_grow(rnn_schema: Schema, parse: Parse) -> None:
    base = rnn_schema.build({"learning_rate": 0.25, "max_learning_rate": 0.5})
    for flags, expected in (
        (["--learning-rate", "0.125"], (0.125, 0.0)),
        (["--learning-rate", "0.125", "--max-learning-rate", "1"], (0.125, 1.0)),
        (["--max-learning-rate", "0"], (0.25, 0.0)),
        (["--population-limit", "640"], (0.25, 0.5)),
    ):
        optimizer = resume_config(rnn_schema, base, None, {}, parse(*flags)).optimizer
        assert (optimizer.learning_rate, optimizer.max_learning_rate) == expected


def test_a_resumed_run_may_not_lose_the_end_that_its_schedule_needs(rnn_schema: Schema, parse: Parse) -> None:
    base = rnn_schema.build({"learning_rate_schedule": "linear", "steps": 9})
    with pytest.raises(ConfigError, match="expected steps or duration with linear, got neither"):
        resume_config(rnn_schema, base, None, {}, parse("--steps", "0"))


def test_resumed_run_keeps_its_configuration_and_takes_what_may_change(rnn_schema: Schema) -> None:
    base = rnn_schema.build({"hidden_size": 8, "sigma": 0.5, "steps": 20})
    file, environ = ("run.toml", "hidden_size = 8"), {"FEDLEARN_SIGMA": "0.25"}
    config = resume_config(rnn_schema, base, file, environ, {"steps": "40"})
    assert config == rnn_schema.build({"hidden_size": 8, "sigma": 0.25, "steps": 40})


def test_a_kind_says_which_of_its_keys_a_resumed_run_may_change(schema: Schema) -> None:
    base = schema.build({"width": 8})
    assert resume_config(schema, base, None, {}, {"shape": "square"}).get("shape") == "square"
    with pytest.raises(ConfigError, match=r"note: expected 'none' as in the run .* got 'x' from flag --note"):
        resume_config(schema, base, None, {}, {"note": "x"})


def test_resumed_run_refuses_another_model(rnn_schema: Schema, parse: Parse) -> None:
    base = rnn_schema.build({"hidden_size": 8})
    with pytest.raises(ConfigError, match=r"hidden_size: expected 8 as in the run.*got 16 from flag --hidden-size"):
        resume_config(rnn_schema, base, None, {}, parse("--hidden-size", "16"))


@pytest.mark.parametrize("text", ["task = 'a.py:b'", "[run]\ntask = 'a.py:b'"])
def test_the_task_is_found_before_any_other_key_is_known(text: str) -> None:
    file = ("run.toml", f"nonsense = 1\n{text}")
    assert task_of(file, {}, {}) == "a.py:b"
    assert task_of(file, {"FEDLEARN_TASK": "c.py:d"}, {}) == "c.py:d"
    assert task_of(file, {"FEDLEARN_TASK": "c.py:d"}, {"task": "e.py:f"}) == "e.py:f"


def test_without_a_word_the_task_is_the_rnn() -> None:
    assert task_of(None, {}, {}) == task_of(("run.toml", "run = 7"), {}, {}) == "rnn"


@pytest.mark.parametrize("value", ["7", "''", "[]"])
def test_a_task_that_is_no_text_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="task: expected text that is not empty, got"):
        task_of(("run.toml", f"task = {value}"), {}, {})


def test_the_folder_of_runs_is_found_alike() -> None:
    assert setting_of("runs", ("run.toml", "[run]\nruns = 'there'"), {}) == "there"
    assert setting_of("runs", None, {"FEDLEARN_RUNS": "elsewhere"}) == "elsewhere"
    assert setting_of("runs", None, {}) == "trainingRuns"
