import io
import math

import pytest
from rich.console import Console
from rich.text import Text

from fedlearn.terminal.curve import RunningCurve
from fedlearn.terminal.drawing import (
    SAMPLE_LINES,
    Goal,
    LiveBlock,
    Loss,
    draw_block,
    draw_sample,
    names_in_words,
    sample_lines,
    work_in_words,
)

SAMPLE = "The quick brown fox\njumps over the lazy dog, again and again and again, until nobody looks any more\n\nEnd."
FACTS = (
    ("speed", work_in_words(3.2e6, "tokens", 12.3)),
    ("machines", "5 volunteers: Ada 50 %, " + ", ".join(f"machine-{number} 10 %" for number in range(5))),
)


def falling() -> RunningCurve:
    curve = RunningCurve()
    for number in range(300):
        curve.add(2.0 + 3.0 * math.exp(-number / 100), float(number))
    return curve


def block(*, title: str = "12", sample: str = SAMPLE) -> LiveBlock:
    goal, loss = Goal(1234, 3000, 240.0, 0.41), Loss("2.345 bits/character", falling())
    return LiveBlock(title, goal, loss, FACTS, sample=sample, sampled="at step 1200: validation 2.411 bits/character")


def shown(text: Text, columns: int) -> list[str]:
    console = Console(width=columns, record=True, file=io.StringIO(), markup=False)
    console.print(text)
    return console.export_text().rstrip("\n").split("\n")


def words_of(text: str) -> set[str]:
    return set(text.split())


@pytest.mark.parametrize("columns", [80, 200])
def test_a_block_says_where_the_run_stands_and_wraps_nothing(columns: int) -> None:
    lines = shown(draw_block(block(), width=columns), columns)
    assert all(len(line) < columns for line in lines)
    labels = [line[:9].strip() for line in lines]
    assert labels == ["run", "loss", "speed", "machines", "writes", *[""] * (len(lines) - 5)]
    assert lines[0].startswith("run      12  step 1234 of 3000  ━━━━")
    assert lines[0].endswith("41 %  4 min left")
    assert "2.345 bits/character  █" in lines[1]
    assert lines[1].endswith("a minute")
    assert lines[2] == "speed    3.2M trial-tokens/s, 12.3 steps/s"
    assert lines[4] == "writes   at step 1200: validation 2.411 bits/character"


@pytest.mark.parametrize("columns", [80, 200])
def test_a_block_cuts_no_word(columns: int) -> None:
    lines = shown(draw_block(block(), width=columns), columns)
    assert words_of(lines[3]) <= words_of(f"machines {FACTS[1][1]}") | {"..."}
    sample = [line.split("│ ", 1)[1] if "│ " in line else "" for line in lines[5:]]
    assert words_of(" ".join(sample)) == words_of(SAMPLE)
    assert sample[0] == "The quick brown fox"  # its own lines


@pytest.mark.parametrize("columns", [1, 9, 20, 40, 79])
def test_a_block_fits_however_narrow_the_terminal_is(columns: int) -> None:
    lines = shown(draw_block(block(), width=columns), columns)
    assert len(lines) <= 5 + SAMPLE_LINES
    assert all(len(line) <= max(columns - 1, 1) for line in lines)


def test_wide_characters_take_two_columns() -> None:
    text = draw_block(block(sample="汉字" * 100), width=80)
    assert max(line.cell_len for line in text.split("\n")) < 80


def test_a_low_terminal_has_no_room_for_the_sample() -> None:
    assert len(shown(draw_block(block(), width=80, height=8), 80)) == 4


@pytest.mark.parametrize("name", ["[red]Ada[/red]", "[bold", ":smile:", "[link=file:///]x[/link]"])
def test_markup_in_a_name_is_text(name: str) -> None:
    said = names_in_words([(name, 1.0)], 60)
    drawn = draw_block(LiveBlock(name, Goal(1), None, (("machines", said),)), width=80)
    assert shown(drawn, 80) == [f"run      {name}  step 1", f"machines {name} 100 %"]


@pytest.mark.parametrize("harmful", ["\x1b[2J", "a\rb", "two\nlines", "\x9b31m"])
def test_nothing_in_a_block_is_obeyed(harmful: str) -> None:
    facts = (("machines", names_in_words([(harmful, 1.0)], 60)), ("credit", harmful))
    drawn = draw_block(
        LiveBlock(harmful, Goal(1), Loss(harmful, falling()), facts, sample=harmful, sampled=harmful), width=80
    )
    assert all(line.plain.isprintable() for line in drawn.split("\n"))
    assert all(line.plain.isprintable() for line in draw_sample(harmful, harmful, width=80).split("\n"))


def test_ascii_alone_where_the_terminal_knows_no_more() -> None:
    assert draw_block(block(), width=80, ascii_only=True).plain.isascii()


def test_a_run_without_an_end_has_no_bar() -> None:
    assert shown(draw_block(LiveBlock("3", Goal(7), None), width=80), 80) == ["run      3  step 7"]
    assert shown(draw_block(LiveBlock("3", Goal(7, left_s=60.0), None), width=80), 80) == [
        "run      3  step 7  60 s left"
    ]


def test_of_a_long_sample_the_beginning_is_shown() -> None:
    lines = sample_lines("\n".join(f"line {number}" for number in range(20)), 70)
    assert lines == [*[f"line {number}" for number in range(SAMPLE_LINES - 1)], "..."]


def test_a_word_longer_than_a_line_is_all_that_is_cut() -> None:
    assert sample_lines("a " + 25 * "x" + " b", 10) == ["a", 10 * "x", 10 * "x", 5 * "x" + " b"]


def test_the_busiest_volunteers_are_named_and_the_others_counted() -> None:
    names = [("Ada", 0.2), ("Bert", 0.5), ("Carl", 0.3)]
    assert names_in_words(names, 60) == "Bert 50 %, Carl 30 %, Ada 20 %"
    assert names_in_words(names, 25) == "Bert 50 % and 2 others"
    assert names_in_words(names[:1], 1) == "Ada 20 %"
    assert names_in_words([], 60) == ""
    assert names_in_words([("\x1b[2J", 1.0)], 60) == "\\x1b[2J 100 %"


def test_long_steps_are_said_in_seconds() -> None:
    said = [work_in_words(1e5, "tokens", rate) for rate in (0.0, 0.25, 12.3)]
    assert said == ["100k trial-tokens/s", "100k trial-tokens/s, 4.0 s a step", "100k trial-tokens/s, 12.3 steps/s"]
