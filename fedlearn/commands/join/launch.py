"""`fedlearn launch`: many volunteers at once."""

import argparse

import msgspec
from msgspec.inspect import IntType, Metadata, type_info

from fedlearn.commands.arguments import addresses_of
from fedlearn.commands.join.join import add_join
from fedlearn.commands.parser import Parser
from fedlearn.launch.launcher import Launcher, launchers
from fedlearn.net.address import parse_address


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn launch`, of which each launcher has its own."""
    places = parser.add_subparsers(title="places", required=True, metavar="PLACE")
    for name, launcher in launchers().items():
        does = (launcher.__doc__ or "").splitlines()[0].rstrip(".")
        does = does[:1].lower() + does[1:]
        place = places.add_parser(name, help=does, description=does)
        place.set_defaults(launcher=launcher, parser=place)
        for field in msgspec.structs.fields(launcher):
            _add_flag(place, field)
        more = f"more flags, of `fedlearn {launcher.flags_of or f'launch {name}'}`"
        place.add_argument("flags", nargs="*", metavar="-- FLAGS", help=more)


def launch_command(options: argparse.Namespace) -> int:
    """`fedlearn launch PLACE`: starts volunteers, or prints what starts them."""
    if not options.launcher.flags_of and options.flags:
        # What follows -- is its own.
        options = options.parser.parse_args([word for word in options.given[2:] if word != "--"])
    if options.count < 1 or options.cpus < 1:
        raise ValueError(f"launch: expected a count and cpus above 0, got {options.count} and {options.cpus}")
    parse_address(options.server)
    kind: type[Launcher] = options.launcher
    launcher = kind(**{name: getattr(options, name) for name in kind.__struct_fields__ if name in options})
    if launcher.flags_of == "join":
        _check_flags(launcher)
    return launcher.launch()


def _add_flag(parser: argparse.ArgumentParser, field: msgspec.structs.FieldInfo) -> None:
    """Gives the parser the flag that a field of a launcher declares; the other fields are none."""
    info = type_info(field.type)
    if isinstance(info, Metadata):
        said = (info.extra_json_schema or {})["description"]
        parser.add_argument(
            f"--{field.name}",
            type=int if isinstance(info.type, IntType) else str,
            required=field.required,
            default=field.default,
            metavar=(info.extra or {})["metavar"],
            help=f"{said} (default: {field.default})" if not field.required and field.default else said,
        )


def _check_flags(launcher: Launcher) -> None:
    """Refuses before anything is started or printed what `fedlearn join` would refuse later."""
    parser = Parser(prog="fedlearn join")
    add_join(parser)
    addresses_of(parser.parse_args(launcher.join()[1:]))
