"""The settings of runs that optimizers declare: annotated fields of their structs.

`beta: Annotated[float, Meta(description="decay rate of the mean", ge=0, lt=1)] = 0.9` makes `beta` a setting with this
help, range and default. `msgspec.field(name=...)` gives the setting another name than the field. Optimizers may share a
setting: its range is then the same for all, and its default that of the run's optimizer.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.inspect import FloatType, Metadata, type_info


class Hyperparameter(msgspec.Struct, frozen=True):
    """One setting of an optimizer."""

    key: str
    """The setting's name."""
    description: str
    default: float
    bounds: dict[str, float]
    """The setting's range, by the names of msgspec's Meta: ge, gt, le, lt."""


def hyperparameters(optimizer: type[msgspec.Struct]) -> dict[str, Hyperparameter]:
    """The hyperparameters of an optimizer, by the names of their fields."""
    found = {}
    for field in msgspec.structs.fields(optimizer):
        described = type_info(field.type)
        if isinstance(described, Metadata) and isinstance(described.type, FloatType):
            kind = described.type
            limits = {"ge": kind.ge, "gt": kind.gt, "le": kind.le, "lt": kind.lt}
            found[field.name] = Hyperparameter(
                field.encode_name,
                str((described.extra_json_schema or {})["description"]),
                float(field.default),
                {name: limit for name, limit in limits.items() if limit is not None},
            )
    return found


def shared(optimizers: Mapping[str, type[msgspec.Struct]]) -> dict[str, Hyperparameter]:
    """The hyperparameters of all these optimizers, by key, with the default of the first optimizer that has the key.

    A description explains the key for each optimizer, with the optimizer's own default if it differs.
    """
    merged: dict[str, Hyperparameter] = {}
    for name, optimizer in optimizers.items():
        for own in hyperparameters(optimizer).values():
            first = merged.get(own.key, own)
            assert own.bounds == first.bounds, f"{own.key}: optimizers declare different ranges"
            default = "" if own.default == first.default else f", by default {own.default:g}"
            before = f"{first.description}; " if own.key in merged else ""
            description = f"{before}{name}: {own.description}{default}"
            merged[own.key] = msgspec.structs.replace(first, description=description)
    return merged


def defaults(optimizer: type[msgspec.Struct]) -> dict[str, float]:
    """The defaults of an optimizer's hyperparameters, by their keys."""
    return {own.key: own.default for own in hyperparameters(optimizer).values()}


def values(optimizer: type[msgspec.Struct], settings: Mapping[str, Any]) -> dict[str, float]:
    """The values of an optimizer's fields, except the learning rate, in the settings of a run."""
    return {field: settings[own.key] for field, own in hyperparameters(optimizer).items()}
