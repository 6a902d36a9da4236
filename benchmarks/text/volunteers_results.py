"""What the benchmark of volunteers found."""

import msgspec

from benchmarks.measure import Machine
from benchmarks.text.learner import Look
from fedlearn.simulation.costs import Costs, LinkSpeeds

Values = dict[str, str | bool | int | float]


class Case(msgspec.Struct, frozen=True):
    """What is run with some numbers of volunteers."""

    space: str
    exchange: str
    """"sum" where activations are perturbed: their gradients can't be replayed."""
    hidden_size: int
    target: float
    """Bits per character at which a run ends."""
    lines: LinkSpeeds
    costs: Costs
    trial_tokens_per_s: float
    """Speed of one core."""
    settings: Values
    """What the run chose, or was given."""

    @property
    def series(self) -> tuple[str, str, int, float]:
        """What tells it from others."""
        return self.space, self.exchange, self.hidden_size, self.target

    @property
    def name(self) -> str:
        """The series in words."""
        way = self.space if self.space == "activations" else f"{self.space}, {self.exchange}"
        return f"{way}, hidden {self.hidden_size}"


class Cell(msgspec.Struct, frozen=True):
    """A run with so many volunteers."""

    case: Case
    volunteers: int
    looks: list[Look]
    """What was seen along the way, at virtual seconds."""
    seconds: float | None
    """Virtual seconds to the target; None where it was not reached."""
    step_s: float
    """Mean of the second half of the steps, like the figures below."""
    members: float
    """Members of a step."""
    evaluating: float
    """Share of its time that a volunteer evaluates members that count."""
    up_bytes_per_s: float
    """Bytes that a volunteer sends."""
    down_bytes_per_s: float


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    text: str
    machine: Machine
    cells: list[Cell]


def seconds_to(target: float, looks: list[Look]) -> float | None:
    """The time at which a run came to the target, between two looks by a straight line; None where it did not."""
    before: Look | None = None
    for look in looks:
        bits = look.validation_bits_per_character
        if bits <= target:
            if before is None:
                return look.seconds
            share = (before.validation_bits_per_character - target) / (before.validation_bits_per_character - bits)
            return before.seconds + share * (look.seconds - before.seconds)
        before = look
    return None


def table(report: Report) -> str:
    """The report for people, a block for each series, by the number of volunteers."""
    lines = [f"{report.text}; {report.machine.processor}"]
    for series in sorted({cell.case.series for cell in report.cells}):
        cells = [cell for cell in report.cells if cell.case.series == series]
        lines += ["", *_block(sorted(cells, key=lambda cell: cell.volunteers))]
    return "\n".join(lines)


def _block(cells: list[Cell]) -> list[str]:
    case = cells[0].case
    head = (
        f"{case.name}: {case.trial_tokens_per_s / 1e6:.3g} million trial-tokens/s a core, {case.lines.up_mbit:g} up "
        f"and {case.lines.down_mbit:g} down Mbit/s, {1e3 * case.lines.latency_s:g} ms"
    )
    columns = (
        f"  {'volunteers':>10} {f's to {case.target:g}':>10} {'times':>6} {'trial-tokens':>12} {'step, s':>8} "
        f"{'members':>8} {'evaluating':>10} {'up kB/s':>8} {'down kB/s':>9} {'last bits':>9}"
    )
    return [head, columns, *(_row(cell, cells[0]) for cell in cells)]


def _row(cell: Cell, first: Cell) -> str:
    last = cell.looks[-1]
    reached = f"> {last.seconds:.0f}" if cell.seconds is None else f"{cell.seconds:.1f}"
    times = f"{first.seconds / cell.seconds:.2f}" if cell.seconds and first.seconds else "-"
    return (
        f"  {cell.volunteers:10} {reached:>10} {times:>6} {last.trial_tokens:12.3g} {cell.step_s:8.3f} "
        f"{cell.members:8.0f} {cell.evaluating:10.1%} {1e-3 * cell.up_bytes_per_s:8.1f} "
        f"{1e-3 * cell.down_bytes_per_s:9.1f} {last.validation_bits_per_character:9.3f}"
    )
