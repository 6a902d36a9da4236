"""Blocks at the bottom of a terminal, drawn from figures alone."""

import math
from typing import TYPE_CHECKING

import msgspec

from fedlearn.terminal.curve import ASCII_BLOCKS, BLOCKS, RunningCurve, sparkline, trend_in_words
from fedlearn.terminal.figures import counted, format_count, format_duration, format_share
from fedlearn.terminal.guards import escape, printable
from fedlearn.terminal.screen import Screen

if TYPE_CHECKING:
    from rich.text import Text

LABEL_COLUMNS = 9
LEAST_CURVE_COLUMNS = 8
MOST_CURVE_COLUMNS = 60
LEAST_BAR_COLUMNS = 10
MOST_BAR_COLUMNS = 40
SAMPLE_LINES = 5


class Goal(msgspec.Struct, frozen=True):
    """The progress of a run, and the time that it has left."""

    step: int
    steps: int = 0
    """The step at which the run ends; 0 means never."""
    left_s: float = math.inf
    """Seconds that are left; infinite if they are not known, or the run has no end."""
    share: float | None = None
    """The share of the run that is done; None if the run has no end."""


class Loss(msgspec.Struct, frozen=True, eq=False):
    """A loss as people read it, over time."""

    said: str
    """The last loss, in words."""
    curve: RunningCurve


class LiveBlock(msgspec.Struct, frozen=True, eq=False):
    """What a block shows, from the first line to the last; a part that is empty has no line."""

    title: str
    goal: Goal
    loss: Loss | None
    facts: tuple[tuple[str, str], ...] = ()
    """Lines, each of a label and a text."""
    sample: str = ""
    sampled: str = ""
    """When the sample was written, and how good the model was then."""


def show_block(screen: Screen, block: LiveBlock) -> None:
    """Shows the block at the bottom of the screen."""
    width, height = screen.console.size
    screen.show(draw_block(block, width=width, height=height, ascii_only=not screen.can_draw_blocks))


def draw_block(block: LiveBlock, *, width: int, height: int = 25, ascii_only: bool = False) -> "Text":
    """The block on so many columns: a line each, cut where it is too long, and the sample with its own lines."""
    from rich.text import Text

    room = max(width - LABEL_COLUMNS - 1, 1)  # a line that fills the terminal wraps on some
    lines = [_labelled("run", _head(block, room, ascii_only=ascii_only))]
    if block.loss is not None:
        lines.append(_labelled("loss", _loss(block.loss, room, ascii_only=ascii_only)))
    lines += [_labelled(label, Text(_shortened(escape(said), room))) for label, said in block.facts]
    if block.sample and height > len(block.facts) + SAMPLE_LINES + 4:
        lines.append(_labelled("writes", Text(_shortened(escape(block.sampled), room))))
        margin = ("| " if ascii_only else "│ ", "dim")
        lines += [_labelled("", Text.assemble(margin, line)) for line in sample_lines(block.sample, room - 2)]
    for line in lines:
        line.truncate(max(width - 1, 1), overflow="ellipsis")
    return Text("\n").join(lines)


def _labelled(label: str, said: "Text") -> "Text":
    from rich.text import Text

    return Text.assemble((label.ljust(LABEL_COLUMNS), "dim"), said)


def draw_sample(sampled: str, sample: str, *, width: int) -> "Text":
    """A sample that stays, with when it was written."""
    from rich.text import Text

    text = Text(escape(sampled))
    for line in sample_lines(sample, width - 2) if sample else []:
        text.append(f"\n  {line}", style="dim")
    return text


def sample_lines(sample: str, width: int, *, n_lines: int = SAMPLE_LINES) -> list[str]:
    """A sample's own lines, wrapped between words; of a long one its beginning."""
    from rich.cells import cell_len, chop_cells

    lines, width = [], max(width, 2)  # a wide character takes two columns
    for paragraph in printable(sample.strip("\n")).split("\n"):
        line = ""
        for word in paragraph.split(" "):
            if line and cell_len(f"{line} {word}") > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
            if cell_len(line) > width:  # one word is longer than a line
                *full, line = chop_cells(line, width)
                lines += full
        lines.append(line)
    if len(lines) > n_lines:
        lines = [*lines[: n_lines - 1], "..."]
    return lines


def _head(block: LiveBlock, room: int, *, ascii_only: bool) -> "Text":
    from rich.cells import cell_len
    from rich.text import Text

    goal = block.goal
    step = f"step {goal.step} of {goal.steps}" if goal.steps else f"step {goal.step}"
    title = escape(block.title)
    left = f"{format_duration(goal.left_s)} left" if math.isfinite(goal.left_s) else ""
    text = Text()
    text.append(title, style="bold").append(f"  {step}")
    if goal.share is None:
        return text.append(f"  {left}") if left else text
    said = f"{format_share(min(max(goal.share, 0.0), 1.0))}"
    columns = min(room - cell_len(f"{title}  {step}    {said}  {left}"), MOST_BAR_COLUMNS)
    if columns >= LEAST_BAR_COLUMNS:
        text.append("  ").append_text(draw_bar(goal.share, columns, ascii_only=ascii_only))
    text.append(f"  {said}")
    return text.append(f"  {left}") if left else text


def draw_bar(share: float, columns: int, *, ascii_only: bool) -> "Text":
    from rich.text import Text

    full = round(min(max(share, 0.0), 1.0) * columns)
    done, open_ = ("#", ".") if ascii_only else ("━", "─")
    return Text.assemble((done * full, "green"), (open_ * (columns - full), "dim"))


def _loss(loss: Loss, room: int, *, ascii_only: bool) -> "Text":
    from rich.cells import cell_len
    from rich.text import Text

    trend = trend_in_words(loss.curve.per_minute())
    said = escape(loss.said)
    columns = min(room - cell_len(f"{said}    {trend}"), MOST_CURVE_COLUMNS)
    text = Text()
    text.append(said, style="bold")
    if columns >= LEAST_CURVE_COLUMNS and (points := loss.curve.shape(columns)):
        text.append("  ").append(sparkline(points, blocks=ASCII_BLOCKS if ascii_only else BLOCKS), style="cyan")
    return text.append(f"  {trend}") if trend else text


def _shortened(said: str, room: int) -> str:
    """The text, cut between words if it is too long."""
    from rich.cells import cell_len

    words, cut = said.split(" "), said
    while len(words) > 1 and cell_len(cut) > room:
        words.pop()
        cut = f"{' '.join(words).rstrip(',;:')} ..."
    return cut


def names_in_words(names: list[tuple[str, float]], room: int) -> str:
    """Volunteers with their shares of the work, the busiest first, as many as there is room for."""
    ordered = sorted(names, key=lambda one: -one[1])
    said: list[str] = []
    for number, (name, share) in enumerate(ordered):
        one = f"{escape(name)} {format_share(share)}"
        others = f"and {counted(len(ordered) - number, 'other')}"
        rest = f", {others}" if len(ordered) - number > 1 else ""
        if said and len(", ".join([*said, one])) + len(rest) > room:
            return f"{', '.join(said)} {others}"
        said.append(one)
    return ", ".join(said)


def work_in_words(work_per_s: float, unit: str, steps_per_s: float) -> str:
    """Throughput: 3.21M trial-tokens/s, 12.3 steps/s; of long steps how many seconds one takes."""
    said = f"{format_count(work_per_s)} trial-{unit}/s"
    if steps_per_s <= 0.0:
        return said
    return (
        f"{said}, {format_count(steps_per_s)} steps/s"
        if steps_per_s >= 1
        else f"{said}, {1 / steps_per_s:.1f} s a step"
    )
