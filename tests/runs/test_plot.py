import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fedlearn.runs import plot as module
from fedlearn.runs.plot import Axis, curve_of, figure, plot, smooth, thinned
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.storage.runs import RunFolder
from tests.steps import step_metrics

LINE = step_metrics(0, loss=2.0, shown={"bits_per_character": 3.0}, members=8, work_per_s=50.0, work=100)


def line(step: int, **changes: Any) -> StepMetrics:  # noqa: ANN401 (fields of any type)
    return msgspec.structs.replace(LINE, step=step, **changes)


def folder_of(path: Path, *lines: StepMetrics) -> RunFolder:
    path.mkdir()
    log = LineLog(RunFolder(path).metrics)
    for metrics in lines:
        log.append(metrics)
    log.close()
    return RunFolder(path)


@pytest.mark.parametrize(("axis", "x"), [("steps", [3, 5]), ("seconds", [2, 8]), ("work", [100, 350])])
def test_curve_lies_over_its_axis(axis: Axis, x: list[float]) -> None:
    lines = [
        line(5, work=150, elapsed_s=8.0, validation={"bits_per_character": 2.5, "other": 1.0}),
        line(3, elapsed_s=2.0),
        line(4, shown={}, loss=None),
        line(5, shown={"bits_per_character": 9.0}),
    ]
    again = msgspec.structs.replace(lines[0], shown={"bits_per_character": 2.0})
    curve = curve_of("7", [*lines, again], "bits_per_character", axis=axis)
    assert (curve.x.tolist(), curve.y.tolist()) == (x, [3.0, 2.0])
    assert [column.tolist() for column in curve.held_out] == [x[1:], [2.5]]


def test_long_curve_is_thinned_to_the_means_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(7.0)
    assert thinned(x, 2 * x)[1].tolist() == (2 * x).tolist()
    monkeypatch.setattr(module, "MOST_POINTS", 3)
    assert [column.tolist() for column in thinned(x, 2 * x)] == [[0.5, 2.5, 5.0], [1.0, 5.0, 10.0]]


def test_smooth_curve_keeps_lines_and_lies_around_a_jump() -> None:
    assert smooth(np.array([])).size == 0
    assert smooth(np.array([5.0])).tolist() == [5.0]
    for line in (np.array([5.0, 1.0]), np.full(1000, 3.0), np.linspace(9.0, 2.0, 400)):
        np.testing.assert_allclose(smooth(line), line)
    found = smooth(np.concatenate([np.zeros(500), np.ones(500)]))
    assert found[499] + found[500] == pytest.approx(1.0)
    assert 0.4 < found[499] < 0.5
    np.testing.assert_allclose(found[[0, -1]], [0.0, 1.0], atol=1e-6)


def test_smooth_curve_lies_within_a_loss_that_falls() -> None:
    falling = 2.0 + 3.0 * np.exp(-np.arange(1500) / 200)
    noisy = falling + np.random.default_rng(0).normal(0.0, 0.1, falling.size)
    found = smooth(noisy)
    assert abs((found[:300] - falling[:300]).mean()) < 0.02  # a mean of what came before lies 0.2 above
    assert np.abs(found - falling).max() < 0.08
    assert np.abs(np.diff(found)).mean() < 0.1 * np.abs(np.diff(noisy)).mean()


def test_runs_are_drawn_over_each_other(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws with the plot extra")
    first = folder_of(tmp_path / "1", line(0), line(1, validation={"bits_per_character": 2.5}))
    (axes,) = figure([first, folder_of(tmp_path / "2", line(0))], axis="work").axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["run 1", "run 1, held out", "run 2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("work of all trials", "bits per character")


@pytest.mark.parametrize(
    ("losses", "scale"), [([9.0, 0.5, 0.3], "log"), ([8.9, 0.5, 0.3], "linear"), ([8.0, 0.01, 0.0], "linear")]
)
def test_losses_that_fall_to_a_thirtieth_are_drawn_by_powers_of_ten(
    tmp_path: Path, losses: list[float], scale: str
) -> None:
    pytest.importorskip("matplotlib", reason="draws with the plot extra")
    lines = [line(step, shown={"loss": loss}) for step, loss in enumerate(losses)]
    (axes,) = figure([folder_of(tmp_path / "1", line(0, shown={"loss": 7.0})), folder_of(tmp_path / "2", *lines)]).axes
    assert axes.get_yscale() == scale
    smoothed = axes.get_lines()[3].get_ydata()
    expected = np.exp(smooth(np.log(losses))) if scale == "log" else smooth(np.array(losses))
    np.testing.assert_allclose(smoothed, expected)


def test_held_out_losses_of_zero_keep_the_axis_linear(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws with the plot extra")
    lines = [line(0), line(1, shown={"bits_per_character": 0.01}, validation={"bits_per_character": 0.0})]
    (axes,) = figure([folder_of(tmp_path / "1", *lines)]).axes
    assert axes.get_yscale() == "linear"


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_picture_is_written(tmp_path: Path, ending: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib", reason="draws with the plot extra")
    plot([folder_of(tmp_path / "1", line(0), line(1))], tmp_path / f"runs.{ending}")
    assert (tmp_path / f"runs.{ending}").read_bytes().startswith(magic)


def test_what_can_not_be_drawn_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, empty = folder_of(tmp_path / "1", line(0)), folder_of(tmp_path / "2")
    other = folder_of(tmp_path / "3", line(0, shown={"accuracy": 0.5}))
    with pytest.raises(ValueError, match=r"runs\.txt: expected a name that ends in \.png, \.svg, \.pdf"):
        plot([one], tmp_path / "runs.txt")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"expected the package matplotlib.* pip install 'fedlearn\[plot\]'"):
        figure([one])
    monkeypatch.undo()
    pytest.importorskip("matplotlib", reason="draws with the plot extra")
    with pytest.raises(ValueError, match="run 2: expected at least one step, got none"):
        figure([one, empty])
    with pytest.raises(ValueError, match="expected runs with one kind of loss, got bits_per_character of run 1, a"):
        figure([one, other])
