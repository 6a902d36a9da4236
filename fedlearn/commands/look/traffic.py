"""`fedlearn traffic`: what a run sends."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fedlearn.commands.arguments import add_run
from fedlearn.storage.journal.segment import segments_in
from fedlearn.storage.logs.metrics import StepMetrics, each_once, read_last_metrics
from fedlearn.storage.runs import RunFolder, resolve_run
from fedlearn.terminal import counted, format_share, printable
from fedlearn.terminal.figures import format_bytes

ALL = 10**9


def add_traffic(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fedlearn traffic`."""
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="the same for programs")


def traffic_command(options: argparse.Namespace) -> int:
    """`fedlearn traffic RUN`: bytes a step, by what they are, and what a member costs at each cut of a crew."""
    folder = resolve_run(Path(options.runs), options.run)
    steps = each_once(read_last_metrics(folder.metrics, ALL))
    if not steps:
        raise ValueError(f"{folder.metrics}: expected a step that was taken, got none yet")
    found = _found(folder, steps)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return 0
    for line in _lines(found):
        print(printable(line))
    return 0


def _found(folder: RunFolder, steps: Sequence[StepMetrics]) -> dict[str, Any]:
    cuts: dict[str, dict[str, float]] = {}
    kinds: dict[str, dict[str, int]] = {}
    for step in steps:
        for name, (n_members, n_relayed, n_direct) in step.relayed.items():
            cut = cuts.setdefault(name, {"members": 0, "bytes": 0, "direct": 0})
            cut["members"] += n_members
            cut["bytes"] += n_relayed + n_direct
            cut["direct"] += n_direct
        for name, both in step.kinds.items():
            kind = kinds.setdefault(name, {"received": 0, "sent": 0})
            for way, n_bytes in zip(("received", "sent"), both, strict=True):
                kind[way] += n_bytes
    for cut in cuts.values():
        cut["bytes_per_member"] = cut["bytes"] / cut["members"]
    return {
        "steps": len(steps),
        "received": sum(step.bytes_in for step in steps),
        "sent": sum(step.bytes_out for step in steps),
        "kinds": kinds,
        "direct": sum(cut["direct"] for cut in cuts.values()),
        "journal": sum(path.stat().st_size for path in segments_in(folder.journal)),
        "cuts": cuts,
    }


def _lines(found: dict[str, Any]) -> list[str]:
    """What a server received and sent is what all its volunteers sent and received."""
    n_steps = found["steps"]

    def described(way: str) -> str:
        total = found[way]
        kinds = {name: kind[way] for name, kind in found["kinds"].items() if kind[way]}
        largest = sorted(kinds, key=lambda name: -kinds[name])
        parts = ", ".join(f"{name} {format_bytes(kinds[name])}" for name in largest)
        return f"the server {way} {format_bytes(total)}, {format_bytes(total / n_steps)} a step" + (
            f": {parts}" if parts else ""
        )

    lines = [f"{counted(n_steps, 'step')}; the Updates take {format_bytes(found['journal'])} for each who follows them"]
    lines += [described("received"), described("sent")]
    for name, cut in found["cuts"].items():
        member, total = format_bytes(cut["bytes_per_member"]), format_bytes(cut["bytes"])
        direct = f", {format_share(cut['direct'] / cut['bytes'])} of it not through the server" if cut["direct"] else ""
        lines.append(f"{name}: {member} a member, {total} for {counted(cut['members'], 'member')}{direct}")
    return lines
