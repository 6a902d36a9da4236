from pathlib import Path

import pytest

from fedlearn.config import ConfigError, Schema
from fedlearn.es.schedules import falling
from fedlearn.server.training.changing import AT_WORK, changed, settings_of_end
from fedlearn.tasks.rnn.options import RnnOptions
from tests.run_folders import rnn_config


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("learning_rate", ".25", {"learning_rate": 0.25, "max_learning_rate": 0.0}),
        ("max_learning_rate", "2", {"max_learning_rate": 2.0}),
        ("learning-rate", "1e-3", {"learning_rate": 0.001, "max_learning_rate": 0.0}),
        ("population_limit", "32", {"population_limit": 32, "max_population": 0}),
        ("steps", "0", {"steps": 0}),
        ("exchange", "sum", {"exchange": "sum"}),
    ],
)
def test_value_is_read_as_a_resumed_runs_flag_would_be(
    tmp_path: Path, key: str, text: str, expected: dict[str, object]
) -> None:
    config = rnn_config(tmp_path, max_population=128, max_learning_rate=1.0, steps=9)
    assert changed(config, key, text) == config.replace(expected)


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("learning_rate", "fast", "learning_rate: expected a number, at least 0.* got 'fast' from the order"),
        ("learning_rate", "-1", "learning_rate: expected a number, at least 0"),
        ("learning_rate", "0", "expected a value above 0, since a run chooses only when it begins, got '0'"),
        ("weight_decay", "1e3", "weight_decay: expected less than 1 / learning_rate"),
        ("learning_rate_schedule", "cosine", "learning_rate_schedule: expected steps or duration with cosine"),
        ("population_limit", "4", "population_limit: expected a group or more"),
        (
            "hidden_size",
            "9",
            "hidden_size: expected a setting that may change, but this one is fixed when a run begins",
        ),
        ("seed", "9", "seed: expected a setting that may change"),
        ("step_num", "9", "step_num: expected a setting that may change"),
        ("port", "9", "port: expected a setting that may change while .* stop it, and resume with --port 9"),
        ("token-file", "x", "token_file: .* resume with --token-file x"),
        ("keep_journal", "much", "keep_journal: expected .* or all, which drops nothing"),
        ("learning_rat", "1", "learning_rat: expected a setting that may change .* did you mean learning_rate?"),
        ("zzz", "1", "zzz: expected a setting that may change .* there are audit, beta1, beta2, checkpoint_time"),
    ],
)
def test_what_can_not_change_is_refused_with_the_reason(tmp_path: Path, key: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        changed(rnn_config(tmp_path), key, text)


@pytest.mark.parametrize(("key", "text"), [("sigma", "0.3"), ("sigma_schedule", "linear"), ("exchange", "sum")])
def test_noise_of_a_run_that_has_none_can_not_change(tmp_path: Path, key: str, text: str) -> None:
    config = rnn_config(tmp_path, measure="gradients", group_size=1, steps=9)
    with pytest.raises(ConfigError, match=f"{key}: expected a run that measures losses, since gradients have no noise"):
        changed(config, key, text)
    assert changed(config, key, str(config.get(key))) == config


@pytest.mark.parametrize(
    ("measure", "end", "more", "expected"),
    [
        ("gradients", 90, None, {"steps": "100", "learning_rate_schedule": "inverse-sqrt"}),
        ("gradients", 1, None, {"steps": "2", "learning_rate_schedule": "inverse-sqrt"}),
        ("losses", 90, 3, {"steps": "93", "learning_rate_schedule": "inverse-sqrt"}),
        ("losses", 90, None, {"steps": "90"}),
        ("gradients", 90, 0, {"steps": "90"}),
    ],
)
def test_a_run_without_an_end_lets_its_rate_fall_before_it_ends(
    tmp_path: Path, measure: str, end: int, more: int | None, expected: dict[str, str]
) -> None:
    config = rnn_config(tmp_path, measure=measure, group_size=1 if measure == "gradients" else 4)
    settings = settings_of_end(config, end, more)
    factors = settings.pop("learning_rate_factors", "")
    assert settings == expected
    assert factors == falling((), end, int(expected["steps"]) - end)


def test_a_run_that_has_an_end_falls_towards_that(tmp_path: Path) -> None:
    config = rnn_config(tmp_path, measure="gradients", group_size=1, steps=500)
    assert settings_of_end(config, 90, None) == settings_of_end(config, 90, 0) == {"steps": "90"}
    with pytest.raises(ConfigError, match=r"finish: expected no further steps in a run whose end is set.*, got 7"):
        settings_of_end(config, 90, 7)


def test_all_that_a_resumed_run_may_change_changes_at_work_but_what_a_server_starts_with() -> None:
    groups = Schema(RnnOptions).group_of
    left = Schema(RnnOptions).resumable - AT_WORK
    assert Schema(RnnOptions).resumable > AT_WORK
    assert {groups[key] for key in left - {"task", "runs"}} == {"server", "volunteers"}
