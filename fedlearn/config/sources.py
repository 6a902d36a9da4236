"""Sources of settings: defaults of the task, a file, the environment, flags; a later one overrides an earlier one.

Nothing here reads a file: callers bring its text.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.inspect import FloatType

from fedlearn.config.camel_case import SPELLINGS, translated
from fedlearn.config.nearest import did_you_mean
from fedlearn.config.run_config import RunConfig, RunSettings
from fedlearn.config.schema import Schema
from fedlearn.config.setting import ConfigError, is_open
from fedlearn.config.strategy_settings import OF_NOISE_ALONE

SourceFile = tuple[str, str]
"""Name (its suffix, .toml or .json, tells the format) and text of a configuration file."""

Given = dict[str, tuple[Any, str]]
"""Each key that a source gives: its checked value, and the source that won."""

LARGEST_OF = {"population_limit": "max_population", "learning_rate": "max_learning_rate"}
"""The bound of each setting that grows. Whoever gives the setting without the bound, to a run that goes on or to a task
that brings both, wants that value: it does not grow."""

_PREFIX = "FEDLEARN_"
_OF_TASK = "the task's settings"
_OF_CALL = "the call's keywords"
_FOREIGN_VARIABLES = frozenset({"FEDLEARN_SERVER", "FEDLEARN_HUB", "FEDLEARN_ISA", "FEDLEARN_NAME", "FEDLEARN_TOKEN"})
"""Environment variables that other commands read; they are no keys of a run."""


def load_config(
    schema: Schema,
    file: SourceFile | None,
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> RunConfig:
    """The configuration of a new run.

    `defaults` are the task's own settings, `keywords` those of a call from Python, which outrank all others. `flags`
    may be `vars()` of a parser's namespace: a name that is no key belongs to the command and is ignored.

    Raises:
        ConfigError: a key, its type or its range is wrong, or keys contradict each other.
    """
    keys = {key: key for key in schema.fields}
    own = {
        _known(key, keys, _OF_TASK): (schema.checked(key, value, _OF_TASK, strict=False), _OF_TASK)
        for key, value in (defaults or {}).items()
    }
    called = {
        _known(key, keys, _OF_CALL): _typed(schema, key, value, _OF_CALL) for key, value in (keywords or {}).items()
    }
    person = given_settings(schema, file, environ, flags) | called
    for key in person.keys() & LARGEST_OF:
        own.pop(LARGEST_OF[key], None)
    given = own | person
    _check_whole_groups(given, file)
    return schema.build({key: value for key, (value, _) in given.items()})


def started_anew(schema: Schema, base: RunConfig, defaults: Mapping[str, Any] | None = None) -> RunConfig:
    """`base`, the configuration in a run's folder, with what is said anew at each start as a new run has it.

    `defaults` are the task's own settings.
    """
    given = {
        key: schema.checked(key, value, _OF_TASK, strict=False)
        for key, value in (defaults or {}).items()
        if key in schema.of_start
    }
    fresh = schema.build(given)
    return base.replace({key: fresh.get(key) for key in schema.of_start})


def resume_config(
    schema: Schema, base: RunConfig, file: SourceFile | None, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> RunConfig:
    """`base`, the configuration in the run's folder, with the settings that are given now.

    What was chosen when the run began stays, unless a value is given: a population or a learning rate that is given
    does not grow.

    Raises:
        ConfigError: as in `load_config`, or a key that may not be overridden would change.
    """
    given = {
        key: (value, source)
        for key, (value, source) in given_settings(schema, file, environ, flags).items()
        if key not in schema.automatic or not is_open(value)
    }
    for key, largest in LARGEST_OF.items():
        if key in given:
            given.setdefault(largest, (0, ""))
    for key, (value, source) in given.items():
        was = base.get(key)
        if value != was and key not in schema.resumable:
            raise ConfigError(
                f"{key}: expected {was!r} as in the run that is resumed, got {value!r} from {source}; "
                f"leave it out, or start a new run"
            )
        if value != was and key in OF_NOISE_ALONE and base.strategy.measure == "gradients":
            raise ConfigError(
                f"{key}: expected a run that measures losses, since gradients have no noise, got {value!r} for one "
                "that measures gradients; leave it out"
            )
    return base.replace({key: value for key, (value, _) in given.items()})


def to_json(config: RunConfig) -> str:
    """JSON text that `load_config` reads back equal: an object for each group."""
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"


def task_of(file: SourceFile | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> str:
    """The task to train, which has to be known first, since other keys depend on it.

    Raises:
        ConfigError: it is no text.
    """
    return setting_of("task", file, environ, flags)


def setting_of(
    key: str, file: SourceFile | None, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None
) -> str:
    """One setting of the group `run` whose value is text.

    Raises:
        ConfigError: the value is no text.
    """
    entries = _entries(*file) if file else {}
    group = entries.get("run")
    named = entries.get(key, group.get(key) if isinstance(group, dict) else None)
    value = (flags or {}).get(key, environ.get(_PREFIX + key.upper(), named))
    if value is None:
        return str(getattr(RunSettings(), key))
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{key}: expected text that is not empty, got {value!r}")
    return value


def notes_on(schema: Schema, file: SourceFile | None) -> tuple[str, ...]:
    """Sentences about the keys of a file that the run does not follow.

    Raises:
        ConfigError: the file can't be read.
    """
    return translated(file[0], _entries(*file), frozenset(schema.fields)).notes if file else ()


def given_settings(
    schema: Schema, file: SourceFile | None, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> Given:
    """The keys that a person gives in the file, the environment and flags.

    Raises:
        ConfigError: a key, its type or its range is wrong.
    """
    given = _from_file(schema, *file) if file else {}
    variables = {_PREFIX + key.upper(): key for key in schema.fields}
    for name, text in environ.items():
        if name.startswith(_PREFIX) and name not in _FOREIGN_VARIABLES:
            key = _known(name, variables, "the environment", others=_FOREIGN_VARIABLES)
            source = f"environment variable {name}"
            given[key] = _typed(schema, key, text, source)
    for key in schema.fields:
        if key in flags:
            source = f"flag {flag_of(key)}"
            given[key] = _typed(schema, key, flags[key], source)
    return given


def _typed(schema: Schema, key: str, value: object, source: str) -> tuple[Any, str]:
    """What a person gave for a key; a rate, an amount of noise or a time of 0 would mean that the run chooses.

    Raises:
        ConfigError: the value is wrong.
    """
    checked = schema.checked(key, value, source, strict=False)
    if checked == 0 and key in schema.automatic and isinstance(schema.type_of(key), FloatType):
        raise ConfigError(
            f"{key}: expected a number above 0, got {value!r} from {source}; leave it out to have it chosen"
        )
    return checked, source


def _check_whole_groups(given: Given, file: SourceFile | None) -> None:
    """Refuses a population that somebody asked for and that groups of this size can't make.

    A run's own file may hold one: there the group was chosen afterwards, and the population is rounded down.
    """
    (size, size_from), (members, members_from) = (given.get(key, (0, "")) for key in ("group_size", "population_limit"))
    is_of_a_run = file is not None and size_from == members_from == file[0]
    if size > 1 and members > size and members % size and not is_of_a_run:
        less = members - members % size
        raise ConfigError(
            f"population_limit: expected whole groups of {size} members, such as {less} or {less + size}, got "
            f"{members} from {members_from}"
        )


def flag_of(key: str) -> str:
    """The key as a flag."""
    return f"--{key.replace('_', '-')}"


def _from_file(schema: Schema, name: str, text: str) -> Given:
    given: Given = {}
    for entry, value in translated(name, _entries(name, text), frozenset(schema.fields)).entries.items():
        is_group = entry in schema.groups and isinstance(value, dict)
        for spelling, inner in value.items() if is_group else [(entry, value)]:
            _add_entry(schema, given, spelling, inner, name, group=entry if is_group else None)
    return given


def _add_entry(schema: Schema, given: Given, spelling: str, value: object, name: str, *, group: str | None) -> None:
    if isinstance(value, dict):
        raise ConfigError(
            f"{spelling}: expected a value, got a table from {name}; tables are {', '.join(schema.groups)}"
        )
    spellings = {key: key for key in schema.fields} | {c: k for c, k in SPELLINGS.items() if k in schema.fields}
    key = _known(spelling, spellings, name)
    if group not in (None, schema.group_of[key]):
        raise ConfigError(f"{spelling}: expected in the table {schema.group_of[key]} of {name}, got it in {group}")
    if key in given:
        raise ConfigError(f"{spelling}: expected one spelling of {key}, got two from {name}; delete one")
    given[key] = schema.checked(key, value, name, strict=True), name


def _entries(name: str, text: str) -> dict[str, Any]:
    """The entries at the top of a configuration file."""
    suffix = name.lower().rpartition(".")[2]
    decoders: dict[str, Callable[[str], Any]] = {"toml": tomllib.loads, "json": msgspec.json.decode}
    if suffix not in decoders:
        raise ConfigError(f"{name}: expected a file name that ends in .toml or .json")
    try:
        entries = decoders[suffix](text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: expected valid {suffix.upper()}: {error}") from error
    if not isinstance(entries, dict):
        raise ConfigError(f"{name}: expected an object of keys and values, got {text.strip()[:40]!r}")
    return entries


def _known(spelling: str, spellings: Mapping[str, str], source: str, others: Iterable[str] = ()) -> str:
    if spelling in spellings:
        return spellings[spelling]
    remedy = did_you_mean(spelling, [*spellings, *others]) or "--help lists all keys"
    raise ConfigError(f"{spelling}: expected a known key, got this one from {source}; {remedy}")
