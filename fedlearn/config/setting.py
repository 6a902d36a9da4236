"""How a setting is declared, once, at its field: its range, its help, and whether it may be chosen or changed."""

from collections.abc import Collection
from functools import cache
from typing import Any

import msgspec
from msgspec import Meta
from msgspec.inspect import Metadata, type_info

AUTOMATIC = "0 = chosen when the run begins"


class ConfigError(ValueError):
    """A key, type or value that a run cannot have; the message names the key, its source and the remedy."""


def setting(
    description: str,
    *,
    automatic: bool = False,
    resumable: bool = False,
    common: bool = False,
    choices: Collection[str] = (),
    **bounds: Any,  # noqa: ANN401 (ge, gt, le, lt, min_length, as msgspec's Meta has them)
) -> Meta:
    """The annotation of a key, whose help is `description`.

    `automatic`: 0 means that the value is chosen when the run begins. `resumable`: a resumed run may change it,
    since it travels in each Update or affects no number of the run. `common`: people change it first, and `--help`
    shows it. `choices` are the texts that it may be, where they come from a registry.
    """
    text = f"{description}; {AUTOMATIC}" if automatic else description
    return Meta(
        description=text,
        extra={"automatic": automatic, "resumable": resumable, "common": common, "choices": tuple(choices)},
        **bounds,
    )


@cache
def automatic_keys(group: type[msgspec.Struct]) -> tuple[str, ...]:
    """Keys of a group for which 0 means that the value is chosen when the run begins."""
    return _keys_with(group, "automatic")


@cache
def resumable_keys(group: type[msgspec.Struct]) -> tuple[str, ...]:
    """Keys of a group that a resumed run may change."""
    return _keys_with(group, "resumable")


@cache
def common_keys(group: type[msgspec.Struct]) -> tuple[str, ...]:
    """Keys of a group that people change first."""
    return _keys_with(group, "common")


def _keys_with(group: type[msgspec.Struct], mark: str) -> tuple[str, ...]:
    described = {field.name: type_info(field.type) for field in msgspec.structs.fields(group)}
    return tuple(key for key, info in described.items() if isinstance(info, Metadata) and (info.extra or {}).get(mark))
