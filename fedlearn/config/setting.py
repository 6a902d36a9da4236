"""How a setting is declared, once, at its field: its range, its help, and whether it may be chosen or changed."""

from collections.abc import Collection
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Meta
from msgspec.inspect import Metadata, type_info

AUTOMATIC = "chosen when the run begins, unless it is given"


class ConfigError(ValueError):
    """A key, type or value that a run cannot have; the message names the key, its source and the remedy."""


def setting(
    description: str,
    *,
    automatic: bool = False,
    resumable: bool = False,
    of_start: bool = False,
    common: bool = False,
    choices: Collection[str] = (),
    **bounds: Any,  # noqa: ANN401 (ge, gt, le, lt, min_length, as msgspec's Meta has them)
) -> Meta:
    """The annotation of a key, whose help is `description`.

    `automatic`: 0 or `auto` means that the value is chosen when the run begins. `resumable`: a resumed run may
    change it, since it travels in each Update or affects no number of the run. `of_start`: it says how one server
    process runs, and not what the run is, so that a resumed run does not take it over: a port is opened only when
    asked. `common`: people change it first, and `--help` shows it. `choices` are the texts that it may be, where they
    come from a registry.
    """
    text = f"{description}; {AUTOMATIC}" if automatic else description
    return Meta(
        description=text,
        extra={
            "automatic": automatic,
            "resumable": resumable or of_start,
            "of_start": of_start,
            "common": common,
            "choices": tuple(choices),
        },
        **bounds,
    )


def is_open(value: object) -> bool:
    """Whether this value of an automatic key means that one is still to be chosen."""
    return not value or value == "auto"


Mark = Literal["automatic", "resumable", "of_start", "common"]
"""A property of keys; `setting` explains each."""


@cache
def keys_with(group: type[msgspec.Struct], mark: Mark) -> tuple[str, ...]:
    """Keys of a group that are declared with this mark."""
    described = {field.name: type_info(field.type) for field in msgspec.structs.fields(group)}
    return tuple(key for key, info in described.items() if isinstance(info, Metadata) and (info.extra or {}).get(mark))
