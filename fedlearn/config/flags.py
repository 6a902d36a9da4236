"""Settings as flags of a command."""

import argparse
from collections.abc import Collection, Mapping

from msgspec.inspect import BoolType, FloatType, IntType, StrType, Type, VarTupleType

from fedlearn.config.schema import Schema
from fedlearn.config.sources import flag_of

_METAVARS: dict[type[Type], str] = {
    FloatType: "NUMBER",
    IntType: "N",
    StrType: "TEXT",
    BoolType: "true|false",
    VarTupleType: "TEXT",
}


def add_config_flags(
    parser: argparse.ArgumentParser,
    schema: Schema,
    *,
    groups: Collection[str] | None = None,
    titles: Mapping[str, str] | None = None,
) -> None:
    """Gives the parser a flag for each key, of all groups or of these, that it does not have yet.

    A flag that is not given leaves no trace in the namespace. `titles` are other headings than the groups' own.
    """
    for name, group in schema.groups.items():
        if groups is not None and name not in groups:
            continue
        heading = (group.__doc__ or "").splitlines()[0].rstrip(".")
        added = parser.add_argument_group((titles or {}).get(name, name), heading)
        for key in group.__struct_fields__:
            if flag_of(key) not in parser._option_string_actions:
                _add_flag(added, schema, key)


def _add_flag(group: argparse._ArgumentGroup, schema: Schema, key: str) -> None:
    kind, choices = schema.type_of(key), schema.choices_of(key)
    default = schema.fields[key].default
    is_list = isinstance(kind, VarTupleType)
    shown = ", ".join(default) if is_list else "none" if default == "" else default
    group.add_argument(
        flag_of(key),
        action="append" if is_list else "store",
        default=argparse.SUPPRESS,
        choices=choices or None,
        metavar=None if choices else _METAVARS.get(type(kind)),
        help=schema.help_of(key) + ("" if key in schema.automatic else f" (default: {shown})"),
    )
