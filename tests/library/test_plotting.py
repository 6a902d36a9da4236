from pathlib import Path

import numpy as np
import pytest

from fedlearn.library.columns import Columns
from fedlearn.library.plotting import plot, quantity_of, smoothed

pytest.importorskip("matplotlib")


def columns_with(**figures: list[float]) -> Columns:
    return {"step": np.arange(len(figures["loss"])), **{name: np.array(column) for name, column in figures.items()}}


def test_a_run_has_its_steps_their_mean_and_what_was_held_out(tmp_path: Path) -> None:
    columns = columns_with(loss=[3.0, 2.0], bits_per_character=[4.0, 3.0], validation_bits_per_character=[np.nan, 3.5])
    figure = plot({"7": columns})
    (axes,) = figure.axes
    assert [line.get_ydata().tolist() for line in axes.lines[:2]] == [[4.0, 3.0]] * 2
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["run 7", "run 7, held out"]
    assert axes.get_ylabel() == "bits/character"
    figure.savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_several_runs_lie_over_each_other_in_colours_of_their_own() -> None:
    figure = plot({"1": columns_with(loss=[3.0]), "2": columns_with(loss=[2.0, 1.0]), "3": columns_with(loss=[])})
    assert [line.get_color() for line in figure.axes[0].lines] == ["C0", "C0", "C1", "C1"]


def test_what_is_drawn_is_what_the_run_shows() -> None:
    assert quantity_of(columns_with(loss=[1.0])) == "loss"
    assert quantity_of(columns_with(loss=[1.0], validation_accuracy=[1.0], accuracy=[0.5])) == "accuracy"


def test_a_smoothed_value_is_the_mean_of_its_neighbours_that_are_numbers() -> None:
    values = np.array([0.0, 2.0] * 100)
    values[50] = np.nan
    even = smoothed(values)
    assert len(even) == len(values)
    np.testing.assert_allclose(even[10:40], 1.0)
    assert np.isfinite(even).all()
    assert smoothed(np.array([np.nan, 1.0])).tolist()[1] == 1.0


def test_run_without_a_step_can_not_be_drawn() -> None:
    with pytest.raises(ValueError, match="expected a run with at least one step, got none of 7"):
        plot({"7": columns_with(loss=[])})


def test_missing_matplotlib_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'fedlearn\[plot\]'"):
        plot({"7": columns_with(loss=[1.0])})
