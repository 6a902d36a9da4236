import math

import pytest

from fedlearn.config import RunConfig
from fedlearn.runs.best import best_step, number_of
from fedlearn.runs.run import Run
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.samples import Sample
from tests.commands.recorded_run import recorded_run


@pytest.fixture
def run(config: RunConfig) -> Run:
    """A run whose weights nobody has looked at."""
    return recorded_run(config)


def look(run: Run, *figures: dict[str, float | None]) -> None:
    """Adds the figures that were measured after step 1, 2 and so on."""
    log = LineLog(run.folder.samples)
    for step, found in enumerate(figures, start=1):
        log.append(Sample(step=step, time=0.0, figures=found, text=""))
    log.close()


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("return", [-300.0, -150.0, -200.0], 2),
        ("accuracy", [0.5, 0.75, 0.75], 3),
        ("accuracy", [None, 0.25, math.inf], 2),
        ("bits_per_character", [3.0, 2.5, 2.6], 2),
        ("loss", [0.3, 0.2, 0.4], 2),
        ("loss", [0.2, 0.2, math.nan], 2),
    ],
)
def test_the_best_weights_have_the_best_figure_and_of_equal_ones_the_newest(
    run: Run, name: str, values: list[float | None], expected: int
) -> None:
    look(run, *({name: value} for value in values))
    assert best_step(run) == number_of(run, "best") == expected


def test_accuracy_decides_before_a_loss(run: Run) -> None:
    look(run, {"loss": 0.5, "accuracy": 0.75}, {"loss": 0.25, "accuracy": 0.5})
    assert best_step(run) == 1


def test_the_newest_step_and_a_number_need_no_figures(run: Run) -> None:
    assert (number_of(run, None), number_of(run, 3)) == (None, 3)


@pytest.mark.parametrize(("figures", "found"), [([], "no figures"), ([{"f1": 0.5}, {"loss": None}], "f1, loss")])
def test_a_run_without_a_figure_that_tells_the_best_is_refused(
    run: Run, figures: list[dict[str, float | None]], found: str
) -> None:
    look(run, *figures)
    with pytest.raises(ValueError, match=f"one of return, accuracy, .* got {found}; give the number of a step"):
        best_step(run)
