from typing import Any

import pytest

from fedlearn.terminal.figures import (
    counted,
    format_bytes,
    format_count,
    format_duration,
    format_figures,
    format_share,
    format_step,
)
from tests.steps import step_metrics


def test_figures_are_named_and_rates_have_their_unit() -> None:
    figures = {"bits_per_character": 2.3456, "top_5_accuracy": 0.91234, "loss": -1e6}
    assert format_figures(figures) == "2.346 bits/character, top 5 accuracy 0.9123, loss -1e+06"
    assert format_figures({}) == ""


def test_counts_and_durations_are_said_in_their_largest_unit() -> None:
    counts = [0.1234, 999, 1e3, 12345, 4.56e6, 7.89e9, 1e13]
    assert [format_count(number) for number in counts] == ["0.123", "999", "1k", "12.3k", "4.56M", "7.89G", "1e+04G"]
    durations = [0.4, 119, 120, 7199, 7200, 172800]
    assert [format_duration(seconds) for seconds in durations] == ["0 s", "119 s", "2 min", "120 min", "2 h", "2 d"]
    sizes = [0, 512, 1000, 1.234e6, 5e9]
    assert [format_bytes(size) for size in sizes] == ["0 B", "512 B", "1 kB", "1.23 MB", "5 GB"]


@pytest.mark.parametrize(
    ("number", "count", "size"),
    [
        *((999.4, "999", "999 B"), (999.5, "1k", "1 kB"), (999_499, "999k", "999 kB"), (999_600, "1M", "1 MB")),
        *((999_499_999, "999M", "999 MB"), (999_500_000, "1G", "1 GB")),
    ],
)
def test_a_number_that_rounds_to_a_thousand_is_said_in_the_next_unit(number: float, count: str, size: str) -> None:
    assert (format_count(number), format_bytes(number)) == (count, size)


def test_small_shares_have_a_digit_more() -> None:
    assert [format_share(share) for share in (0.0, 0.0034, 0.414, 1.0)] == ["0 %", "0.3 %", "41 %", "100 %"]


def test_one_of_something_is_no_plural() -> None:
    assert [counted(number, "volunteer") for number in (0, 1, 2)] == ["0 volunteers", "1 volunteer", "2 volunteers"]


def test_line_of_a_step_says_the_variance_left_where_it_is_known() -> None:
    assert format_step(step_metrics(7), None, "tokens") == (
        "step     7  3.600 bits/character  1 volunteer     1k trial-tokens/s"
    )
    assert format_step(step_metrics(7, variance_left=0.008), 600.0, "tokens") == (
        "step     7  3.600 bits/character  variance left 0.8 %  1 volunteer     1k trial-tokens/s  10 min left"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shown": {"return": 212.0}, "loss": -212.0, "loss_spread": 35.264}, "return 212 ± 35.26"),
        ({"shown": {"return": 0.0}, "loss": 0.0, "loss_spread": 1.5}, "return 0 ± 1.5"),
        ({"shown": {"return": 212.0}, "loss": -212.0}, "return 212"),
        ({"shown": {"loss": 0.5}, "loss": 0.5, "loss_spread": 0.1}, "loss 0.5"),
        ({"shown": {"bits_per_character": 3.6}, "loss": 2.5, "loss_spread": 0.1}, "3.600 bits/character"),
        ({"shown": {}, "loss": None, "loss_spread": 0.1}, "no loss"),
    ],
)
def test_a_return_has_its_spread_with_it(changes: dict[str, Any], said: str) -> None:
    assert f"  {said}  1 volunteer" in format_step(step_metrics(7, **changes), None, "episodes")
