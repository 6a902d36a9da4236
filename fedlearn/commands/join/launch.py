"""`fedlearn launch`: many volunteers at once."""

import argparse
import os
from collections.abc import Callable

import msgspec

from fedlearn.client.lending.policy import parse_bytes
from fedlearn.commands.arguments import addresses_of
from fedlearn.commands.join.join import add_join
from fedlearn.commands.parser import Parser
from fedlearn.launch.k8s import DEFAULT_IMAGE, deployment
from fedlearn.launch.local import Children
from fedlearn.launch.on_ray import ray
from fedlearn.launch.slurm import job_array
from fedlearn.launch.spec import LaunchSpec
from fedlearn.launch.torchrun import torchrun_line
from fedlearn.net.address import parse_address
from fedlearn.system.processes import program

Launch = Callable[[LaunchSpec, argparse.Namespace], int]


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn launch`."""
    places = parser.add_subparsers(title="places", required=True, metavar="PLACE")
    for name, launch, description in PLACES:
        place = places.add_parser(name, help=description, description=description)
        place.set_defaults(launch=launch, parser=place)
        place.add_argument("--count", type=int, required=True, metavar="N", help="how many volunteers")
        place.add_argument("--server", required=True, metavar="ADDRESS", help="the server that they join")
        place.add_argument("--cpus", type=int, default=1, metavar="N", help="threads of each (default: 1)")
        if name in ("slurm", "k8s", "ray"):
            place.add_argument("--memory", metavar="SIZE", help="memory to reserve for each, such as 4GB")
        if name in ("torchrun", "ray"):
            needs = name == "torchrun"
            place.add_argument("--task", required=needs, metavar="FILE.py:NAME", help="the task that the server trains")
        if name == "k8s":
            place.add_argument("--image", default=DEFAULT_IMAGE, metavar="NAME", help="default: fedlearn")
        if name == "ray":
            place.add_argument(
                "--cluster", metavar="ADDRESS", help="of Ray (default: the one it finds, else a new one)"
            )
        else:
            whose = "server" if name == "torchrun" else "join"
            place.add_argument("flags", nargs="*", metavar="-- FLAGS", help=f"more flags, of `fedlearn {whose}`")


def launch_command(options: argparse.Namespace) -> int:
    """`fedlearn launch PLACE`: starts volunteers, or prints what starts them."""
    if options.count < 1 or options.cpus < 1:
        raise ValueError(f"launch: expected a count and cpus above 0, got {options.count} and {options.cpus}")
    parse_address(options.server)
    memory = getattr(options, "memory", None)
    order = LaunchSpec(
        count=options.count,
        server=options.server,
        cpus=options.cpus,
        memory_bytes=_size(memory) if memory else 0,
        flags=tuple(getattr(options, "flags", ())),
    )
    launch: Launch = options.launch
    return launch(order, options)


def _local(order: LaunchSpec, options: argparse.Namespace) -> int:
    del options
    _check_flags(order)
    commands = [
        (
            name := f"local-{number}",
            program([*order.join("--quiet", "--max-memory", f"{90 / order.count:.2f}%"), "--name", name]),
        )
        for number in range(1, order.count + 1)
    ]
    return Children(commands, say=lambda line: print(line, flush=True)).run()


def _slurm(order: LaunchSpec, options: argparse.Namespace) -> int:
    del options
    _check_flags(order)
    print(job_array(order), end="")
    return 0


def _k8s(order: LaunchSpec, options: argparse.Namespace) -> int:
    _check_flags(order)
    manifest = msgspec.json.encode(deployment(order, image=options.image))
    print(msgspec.json.format(manifest, indent=2).decode())
    return 0


def _torchrun(order: LaunchSpec, options: argparse.Namespace) -> int:
    print(torchrun_line(order, options.task))
    return 0


def _ray(order: LaunchSpec, options: argparse.Namespace) -> int:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked Ray to report this machine
    codes = ray(
        count=order.count,
        server=order.server,
        cpus=order.cpus,
        memory_bytes=order.memory_bytes,
        task=options.task,
        address=options.cluster,
    )
    return max(codes)


PLACES: tuple[tuple[str, Launch, str], ...] = (
    ("local", _local, "start volunteers here, and again when they die"),
    ("slurm", _slurm, "print a job array for sbatch"),
    ("k8s", _k8s, "print a Deployment for kubectl apply -f -"),
    ("ray", _ray, "start volunteers as actors of a Ray cluster"),
    ("torchrun", _torchrun, "print the line that starts a server with its volunteers"),
)


def _check_flags(order: LaunchSpec) -> None:
    """Refuses before anything is started or printed what `fedlearn join` would refuse later."""
    parser = Parser(prog="fedlearn join")
    add_join(parser)
    addresses_of(parser.parse_args(order.join()[1:]))


def _size(text: str) -> int:
    if "%" in text:
        raise ValueError(f"--memory: expected a size such as 4GB, got {text!r}")
    return parse_bytes(text, 0)
