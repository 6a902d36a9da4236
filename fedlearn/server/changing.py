"""Settings that may change while a server runs: of those that a resumed run may change, all but where it listens, whom
it lets in, and the processes that it starts.

What is part of a step acts from the next step on that is opened: the open one ends as it began. Nothing else has to
know: every Update carries the rates that it was made with, and checkpoints the settings of the day.
"""

import difflib

from fedlearn.config import ConfigError, RunConfig, Schema, flag_of, resume_config

AT_WORK = frozenset(
    {
        "audit",
        "beta1",
        "beta2",
        "checkpoint_time",
        "duration",
        "exchange",
        "keep_journal",
        "learning_rate",
        "learning_rate_schedule",
        "max_learning_rate",
        "max_population",
        "population_limit",
        "sample_every",
        "sample_time",
        "sigma",
        "sigma_schedule",
        "steps",
        "time_per_step",
        "warmup_steps",
        "weight_decay",
    }
)


def differing_keys(one: RunConfig, other: RunConfig) -> list[str]:
    """The settings whose values differ."""
    return [key for key in Schema(type(one.options)).fields if one.get(key) != other.get(key)]


def changed(config: RunConfig, key: str, text: str) -> RunConfig:
    """The settings with another value of a key, as a resumed run would have them.

    Raises:
        ConfigError: the key cannot change, or not while the server runs, or the value is out of its range.
    """
    schema, name = Schema(type(config.options)), key.replace("-", "_")
    if name not in schema.fields:
        nearest = difflib.get_close_matches(name, AT_WORK, n=1)
        remedy = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(sorted(AT_WORK))}"
        raise ConfigError(f"{key}: expected a setting that may change while the server runs; {remedy}")
    if name not in schema.resumable:
        raise ConfigError(
            f"{name}: expected a setting that may change, but this one is fixed when a run begins; begin another run"
        )
    if name not in AT_WORK:
        raise ConfigError(
            f"{name}: expected a setting that may change while the server runs, but this one is read when it starts; "
            f"stop it, and resume with {flag_of(name)} {text}"
        )
    value = schema.checked(name, text, "the order", strict=False)
    if name in schema.automatic and not value:
        raise ConfigError(f"{name}: expected a value above 0, since a run chooses only when it begins, got {text!r}")
    return resume_config(schema, config, None, {}, {name: value})
