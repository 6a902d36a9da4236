"""Settings that may change while a server runs: those that a resumed run may change, and that act on the next step.

Nothing else has to know: every Update carries the rates that it was made with, and checkpoints the settings of the day.
"""

import difflib

from fedlearn.config import ConfigError, RunConfig, Schema, flag_of, resume_config

AT_WORK = frozenset(
    {
        "beta1",
        "beta2",
        "checkpoint_time",
        "duration",
        "exchange",
        "learning_rate",
        "learning_rate_schedule",
        "max_population",
        "population_limit",
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
    """The settings with another value of a key, as a resumed run would have it.

    Raises ConfigError for a key that can't change, or not while the server runs, and for a value that is out of range.
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
            f"{name}: expected a setting that acts on the next step, but this one is read when the server starts; "
            f"stop it, and resume with {flag_of(name)} {text}"
        )
    value = schema.checked(name, text, "the order", strict=False)
    if name in schema.automatic and not value:
        raise ConfigError(f"{name}: expected a value above 0, since a run chooses only when it begins, got {text!r}")
    return resume_config(schema, config, None, {}, {name: value})
