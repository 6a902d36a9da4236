"""Settings that may change while a server runs: of those that a resumed run may change, all but where it listens, whom
it lets in, and the processes that it starts.

What is part of a step acts from the next step on that is opened: the open one ends as it began. Nothing else has to
know: every Update carries the rates that it was made with, and checkpoints the settings of the day.
"""

from collections.abc import Iterable

from fedlearn.config import LARGEST_OF, ConfigError, RunConfig, Schema, flag_of, resume_config
from fedlearn.config.nearest import did_you_mean
from fedlearn.es.optimizers import HYPERPARAMETERS
from fedlearn.es.schedules import falling
from fedlearn.storage.logs.changes import Change, as_written
from fedlearn.tasks.strategy import strategy_of

AT_WORK = frozenset(
    {
        "audit",
        "checkpoint_time",
        "duration",
        "exchange",
        "keep_journal",
        "learning_rate",
        "learning_rate_factors",
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
        *HYPERPARAMETERS,
    }
)


FALL_OF_PAST = 9
"""Earlier steps for each step in which the rate falls to 0, in a run by sums of gradients that did not know its end."""


def settings_of_end(config: RunConfig, end: int, more: int | None) -> dict[str, str]:
    """The settings by which a run ends `more` steps after the step `end`, and lets its rate fall to 0 in these.

    None stands for as many as suit the run: a tenth of all its steps where sums of gradients had no end to fall
    towards, else 0.

    Raises:
        ConfigError: the run has an end, towards which its rate falls anyway.
    """
    if more and config.has_end:
        raise ConfigError(
            f"finish: expected no further steps in a run whose end is set, towards which its rate falls, got {more}; "
            "change the end with: fedlearn set RUN steps N"
        )
    strategy = strategy_of(config)
    if more is None:
        more = 0 if config.has_end or not strategy.perturbation.is_summed else -(-end // FALL_OF_PAST)
    settings = {"steps": str(end + more)}
    if more:
        # With an end the schedule would be another one, which begins to fall long before.
        settings["learning_rate_schedule"] = strategy.schedule.learning_rate
        settings["learning_rate_factors"] = falling(strategy.schedule.factors, end, more)
    return settings


def changes_of(before: RunConfig, after: RunConfig, ordered: str, *, step: int, time: float) -> list[Change]:
    """The changes that an order for the setting `ordered` made, with those that followed it; `time` is in seconds since
    1970."""
    return [
        Change(
            step=step,
            time=time,
            key=key,
            value=as_written(after.get(key)),
            before=as_written(before.get(key)),
            along_with="" if key == ordered else ordered,
        )
        for key in Schema(type(before.options)).fields
        if before.get(key) != after.get(key)
    ]


def told(config: RunConfig, ordered: str, changes: Iterable[Change]) -> str:
    """A sentence about the new value in `config` of the setting that was ordered, and about each that followed it."""
    by_key = {change.key: change for change in changes}
    was = by_key[ordered].before if ordered in by_key else as_written(config.get(ordered))
    followed = "".join(
        f"; {key} is now {change.value}, it was {change.before}, since {change.along_with} stays as it is set"
        for key, change in by_key.items()
        if change.along_with
    )
    return f"{ordered}: {config.get(ordered)}, it was {was}{followed}"


def bound_of(key: str, config: RunConfig) -> str:
    """The setting that would become 0 if this one were set now; empty where none would."""
    bound = LARGEST_OF.get(key, "")
    return bound if bound and config.get(bound) else ""


def changed(config: RunConfig, key: str, text: str) -> RunConfig:
    """The settings with another value of a key, as a resumed run would have them.

    Raises:
        ConfigError: the key cannot change, or not while the server runs, or the value is out of its range.
    """
    schema, name = Schema(type(config.options)), key.replace("-", "_")
    if name not in schema.fields:
        remedy = did_you_mean(name, AT_WORK) or f"there are {', '.join(sorted(AT_WORK))}"
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
