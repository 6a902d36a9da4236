"""Files that describe machines: `{"0": {"IP": "HOST:PORT", "benchmarks": {"ram": 8, "bandwidth": 20}}}`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from fedlearn.graphs.planning.crews import Machine

GFLOPS_PER_GB = 5.0
"""Speed that is assumed for machines that nobody measured, by their memory, as larger machines tend to be faster."""

_UNITS = {"ram": "GB", "bandwidth": "Mbps", "gflops": "GFLOPS"}
_FORM = '{"IP": "HOST:PORT", "benchmarks": {"ram": GB, "bandwidth": Mbps}}'


class Node(Struct, frozen=True):
    """A machine as its owner describes it."""

    name: str
    address: str
    ram_gb: float
    bandwidth_mbps: float
    gflops: float | None = None
    """Speed of the machine; None where nobody measured it."""


def read_nodes(path: Path) -> list[Node]:
    """The nodes of a file, in its order.

    Raises:
        ValueError: the file has another form; the message names it, the node, the key, and what was expected.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a readable JSON file of nodes: {error}") from error
    try:
        found = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON of nodes by their names: {error}") from error
    if not isinstance(found, dict) or not found:
        raise ValueError(f'{path}: expected at least one node by its name, such as {{"0": {_FORM}}}')
    return [_node(f"{path}: node {name}", name, entry) for name, entry in found.items()]


def machines_of(nodes: Sequence[Node]) -> list[Machine]:
    """The machines as a planner sees them; a speed that was not measured is in proportion to the memory."""
    measured = [(node.gflops, node.ram_gb) for node in nodes if node.gflops is not None]
    per_gb = sum(gflops for gflops, _ in measured) / sum(gb for _, gb in measured) if measured else GFLOPS_PER_GB
    return [
        Machine(
            name=node.name,
            memory_bytes=node.ram_gb * 1e9,
            line_bytes_per_s=node.bandwidth_mbps * 1e6 / 8,
            multiply_adds_per_s=(per_gb * node.ram_gb if node.gflops is None else node.gflops) * 1e9 / 2,
        )
        for node in nodes
    ]


def _node(where: str, name: str, entry: Any) -> Node:  # noqa: ANN401 (anything of JSON)
    if not isinstance(entry, dict) or not isinstance(entry.get("benchmarks"), dict):
        raise ValueError(f"{where}: benchmarks: expected {_FORM}, got {_shown(entry)}")
    address, benchmarks = entry.get("IP", ""), entry["benchmarks"]
    if not isinstance(address, str):
        raise ValueError(f"{where}: IP: expected a text such as HOST:PORT, got {_shown(address)}")
    if unknown := sorted(set(benchmarks) - set(_UNITS)):
        raise ValueError(f"{where}: benchmarks: expected {', '.join(_UNITS)} and no other keys, got {unknown[0]}")
    for key in ("ram", "bandwidth"):
        if key not in benchmarks:
            raise ValueError(f"{where}: {key}: expected a number of {_UNITS[key]}, got none")
    numbers = {key: _number(f"{where}: {key}", value, _UNITS[key]) for key, value in benchmarks.items()}
    return Node(name, address, numbers["ram"], numbers["bandwidth"], numbers.get("gflops"))


def _number(where: str, value: object, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9:
        raise ValueError(f"{where}: expected a number of {unit} above 0, got {_shown(value)}")
    return float(value)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"expected names that differ, got {repeated} twice")
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
