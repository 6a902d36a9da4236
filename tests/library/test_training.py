import argparse
import io
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlearn
from fedlearn.callback import Callback
from fedlearn.commands.look.replay import replay_command
from fedlearn.config import ConfigError
from fedlearn.coordination.status import RunStatus
from fedlearn.coordination.steps.divergence import LOST_STEPS
from fedlearn.library import training
from fedlearn.runs.creation import create
from fedlearn.runs.run import Run
from fedlearn.simulation.kept import Kept
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.storage.status import read_status
from fedlearn.text.source import Progress
from tests.run_folders import TARGET, fit_task, write_text

SETTINGS: dict[str, Any] = {
    "group_size": 8,
    "population_limit": 64,
    "sigma": 0.05,
    "learning_rate": 0.1,
    "time_per_step": 60.0,
    "threads": 1,
}
TEXT_SETTINGS: dict[str, Any] = {**SETTINGS, "hidden_size": 8, "context": 4, "sequence_length": 8}
FILE = """
import fedlearn

def loss(arrays):
    return float(((arrays["vector"] - 1.0) ** 2).mean())

task = fedlearn.function(loss, {"vector": [0.0, 0.0]}, covariance=False)
"""


class Ending(Callback):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def on_end(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_task_is_trained_here_and_gives_weights_losses_and_figures(tmp_path: Path) -> None:
    told = Kept()
    trained = fedlearn.train(fit_task().task, steps=30, runs=tmp_path, callbacks=[told], **SETTINGS)
    np.testing.assert_allclose(trained.weights["vector"], TARGET, atol=0.2)
    assert len(trained.losses) == len(told.metrics) == trained.step == 30
    assert trained.losses[-1] < trained.losses[0]  # type: ignore[operator]
    assert trained.figures["loss"] == pytest.approx(-1.0, abs=0.05)
    assert "30 steps, 6 parameters" in repr(trained)


def test_its_folder_is_a_run_like_any_other(tmp_path: Path) -> None:
    trained = fedlearn.train(fit_task().task, steps=3, runs=tmp_path, **SETTINGS)
    assert trained.folder == tmp_path / "1"
    assert replay_command(argparse.Namespace(run="1", runs=str(tmp_path), step=None)) == 0
    status = read_status(trained.folder / "status.json", RunStatus)
    assert status is not None
    assert (status.state, status.reason) == ("ended", "all 3 steps are done")


def test_without_a_folder_for_runs_a_temporary_one_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trained = fedlearn.train(fit_task().task, steps=1, runs=None, **SETTINGS)
    assert trained.folder.parent.parent == tmp_path


def test_a_text_is_learned_without_a_task(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    ended = Ending()
    trained = fedlearn.train(data=text, steps=2, runs=tmp_path / "runs", callbacks=[ended], **TEXT_SETTINGS)
    assert trained.settings["options"]["data"] == (str(text),)
    assert "embedding.weight" in trained.weights
    assert trained.settings["server"]["audit"] == 0.0
    assert ended.reasons == ["all 2 steps are done"]


def test_a_file_names_the_task_or_the_settings(tmp_path: Path) -> None:
    (tmp_path / "near_one.py").write_text(FILE)
    entry = f"{tmp_path / 'near_one.py'}:task"
    named = fedlearn.train(entry, steps=1, runs=tmp_path / "runs", **SETTINGS)
    (tmp_path / "near_one.toml").write_text(f'task = "{entry}"\nsteps = 2\nsigma = 0.5\nlearning_rate = 0.5\n')
    written = fedlearn.train(tmp_path / "near_one.toml", runs=tmp_path / "runs", **SETTINGS)
    assert [run.settings["run"]["task"] for run in (named, written)] == [entry] * 2
    assert [run.step for run in (named, written)] == [1, 2]
    assert written.settings["strategy"]["sigma"] == SETTINGS["sigma"]


def test_numbers_may_be_numpys(tmp_path: Path) -> None:
    given = {**SETTINGS, "sigma": np.float32(0.25), "seed": np.int64(7), "group_size": np.uint8(8)}
    trained = fedlearn.train(fit_task().task, steps=np.int64(2), runs=tmp_path, **given)  # type: ignore[arg-type]
    settings = trained.settings
    found = settings["strategy"]["sigma"], settings["run"]["seed"], settings["strategy"]["group_size"]
    assert (trained.step, *found) == (2, 0.25, 7, 8)


@pytest.mark.parametrize(("given", "error"), [("CartPole-v1", ValueError), (Ending, TypeError), (3, TypeError)])
def test_what_is_no_task_is_refused_with_what_makes_one(given: Any, error: type[Exception]) -> None:  # noqa: ANN401
    with pytest.raises(error, match=r"task: expected .*FILE.py:NAME .* fedlearn.environment, .* `data`") as caught:
        fedlearn.train(given, steps=1, runs=None)
    assert "server" not in str(caught.value)


def test_training_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps, duration: expected one of them"):
        fedlearn.train(fit_task().task, runs=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("settings", [{"sigma": 0.1}, ["sigma"]])
def test_settings_in_one_keyword_are_refused_with_the_remedy(settings: Any, tmp_path: Path) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match=r"^settings: expected each .* got .*sigma.*; write \*\* before a dictionary"):
        fedlearn.train(fit_task().task, steps=1, runs=tmp_path, settings=settings)


def test_a_setting_of_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^sigma: expected a number, .* got None from the call's keywords"):
        fedlearn.train(fit_task().task, steps=1, runs=tmp_path, sigma=None)  # type: ignore[arg-type]


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sigmaa"):
        fedlearn.train(fit_task().task, steps=1, runs=tmp_path, sigmaa=1.0)


def test_held_out_data_are_looked_at_along_the_way(tmp_path: Path) -> None:
    trained = fedlearn.train(fit_task().task, steps=5, runs=tmp_path, sample_time=1e-9, **SETTINGS)
    assert np.isfinite(np.asarray(trained.metrics()["validation_loss"])[1:]).all()


def test_ctrl_c_ends_the_training_between_two_steps(tmp_path: Path) -> None:
    class Impatient(Callback):
        def on_step(self, metrics: StepMetrics) -> None:
            if metrics.step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    before, ended = signal.getsignal(signal.SIGINT), Ending()
    trained = fedlearn.train(fit_task().task, steps=999, runs=tmp_path, callbacks=[Impatient(), ended], **SETTINGS)
    assert 3 <= trained.step < 999
    assert ended.reasons == ["interrupted"]
    assert signal.getsignal(signal.SIGINT) is before


def test_what_a_task_raises_reaches_callbacks_as_the_end_and_whoever_called(tmp_path: Path) -> None:
    calls: list[object] = []

    def loss(arrays: object) -> float:
        calls.append(arrays)
        if len(calls) > 100:
            raise ZeroDivisionError("no such loss")
        return float(len(calls))

    ended = Ending()
    with pytest.raises(ZeroDivisionError):
        fedlearn.train(fit_task(loss=loss).task, steps=9, runs=tmp_path, callbacks=[ended], **SETTINGS)
    assert ended.reasons == ["ZeroDivisionError: no such loss"]


def test_a_callback_that_raises_is_named_in_a_warning_with_its_hook_and_line(tmp_path: Path) -> None:
    class Broken(Callback):
        n_told = 0

        def on_step(self, metrics: StepMetrics) -> None:
            self.n_told += 1
            raise ValueError(f"no step {metrics.step}")

    broken, line = Broken(), Broken.on_step.__code__.co_firstlineno + 2
    with pytest.warns(UserWarning, match=r"Broken\.on_step: ValueError: no step 0 \(") as told:
        trained = fedlearn.train(fit_task().task, steps=3, runs=tmp_path, callbacks=[broken], **SETTINGS)
    assert (trained.step, broken.n_told, len(told)) == (3, 1, 1)
    assert f"({__file__}:{line})" in str(told[0].message)
    assert told[0].filename == __file__


def test_a_callback_that_raises_in_the_end_is_named_too(tmp_path: Path) -> None:
    class Late(Callback):
        def on_end(self, reason: str) -> None:
            raise KeyError(reason)

    with pytest.warns(UserWarning, match=r"Late\.on_end: KeyError: ") as told:
        fedlearn.train(fit_task().task, steps=1, runs=tmp_path, callbacks=[Late()], **SETTINGS)
    assert told[0].filename == __file__


@pytest.mark.parametrize(("given", "remedy"), [(Ending, r"; make one of it: Ending\(\)"), (print, "; derive a class")])
def test_what_is_no_callback_is_refused_before_the_run(tmp_path: Path, given: Any, remedy: str) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=f"callbacks: expected objects .* fedlearn.Callback, got .*{remedy}"):
        fedlearn.train(fit_task().task, steps=1, runs=tmp_path, callbacks=[given], **SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    class VeryImpatient(Callback):
        def on_step(self, metrics: StepMetrics) -> None:  # noqa: ARG002
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # shells take it away from what they start in the background
    before, ended = signal.getsignal(signal.SIGINT), Ending()
    with pytest.raises(KeyboardInterrupt):
        fedlearn.train(fit_task().task, steps=9, runs=tmp_path, callbacks=[VeryImpatient(), ended], **SETTINGS)
    assert ended.reasons[0].startswith("KeyboardInterrupt")
    assert signal.getsignal(signal.SIGINT) is before


def test_how_things_stand_is_told_from_the_beginning(tmp_path: Path) -> None:
    class Watch(Callback):
        def __init__(self) -> None:
            self.states: list[str] = []

        def on_status(self, status: RunStatus) -> None:
            self.states.append(status.state)

    watch = Watch()
    fedlearn.train(fit_task().task, steps=1, runs=tmp_path, callbacks=[watch], **SETTINGS)
    assert watch.states[0] in ("waiting", "running")
    assert watch.states.count("ended") == 1
    assert watch.states[-1] == "ended"


def test_progress_is_shown_where_it_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedlearn.train(fit_task().task, steps=2, runs=tmp_path, **SETTINGS)
    assert capsys.readouterr().out == ""
    fedlearn.train(fit_task().task, steps=2, runs=tmp_path, progress=True, **SETTINGS)
    last = capsys.readouterr().out.split("\r")[-1]
    assert last.startswith("step 2/2  loss ")
    assert last.endswith("all 2 steps are done\n")


def test_progress_of_the_preparation_is_shown_in_the_same_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, text = io.StringIO(), tmp_path / "a.txt"
    write_text(text)

    def slow_create(*arguments: Any, progress: Progress, **settings: Any) -> Run:  # noqa: ANN401
        progress.begin("waiting", "bytes")
        progress.reach(5, 10)
        for _ in range(1000):
            if "waiting: 5 B of 10 B" in stream.getvalue():
                return create(*arguments, progress=progress, **settings)
            threading.Event().wait(0.01)
        raise AssertionError(stream.getvalue())

    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("fedlearn.terminal.bars.APPEARS_S", 0.0)
    monkeypatch.setattr(training, "create", slow_create)
    fedlearn.train(data=text, steps=1, runs=tmp_path / "runs", progress=True, **TEXT_SETTINGS)
    shown = stream.getvalue().split("\r")
    assert any(line.startswith("waiting: 5 B of 10 B") for line in shown)
    assert shown[-1].startswith("step 1/1")


def test_several_texts_may_be_paths_or_names(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        write_text(tmp_path / name)
    names: list[str | Path] = [tmp_path / "a.txt", str(tmp_path / "b.txt")]
    given: list[Sequence[str | Path]] = [names, tuple(names)]
    for data in given:
        trained = fedlearn.train(data=data, steps=1, runs=tmp_path / "runs", **TEXT_SETTINGS)
        assert trained.settings["options"]["data"] == tuple(map(str, names))
    with pytest.raises(ConfigError, match=r"learning_rate: expected a number, .* got \['1'\] from the call's keywords"):
        fedlearn.train(learning_rate=[1], steps=1, runs=None)  # type: ignore[list-item]


@pytest.mark.parametrize("shaping", ["normalized", "centered-ranks"])
def test_a_loss_of_billions_is_learned_as_a_small_one_is(tmp_path: Path, shaping: str) -> None:
    def losses_of(factor: float) -> list[float]:
        def loss(arrays: dict[str, np.ndarray]) -> float:
            return factor * float(((arrays["a"] - 1.0) ** 2).sum())

        task = fedlearn.function(loss, {"a": np.zeros(4)}, covariance=False)
        given = {**SETTINGS, "fitness_shaping": shaping}
        trained = fedlearn.train(task, steps=20, runs=tmp_path, **given)
        return [loss for loss in trained.losses if loss is not None]

    small, large = losses_of(1.0), losses_of(2.0**30)
    assert small[-1] < 0.5 * small[0]
    np.testing.assert_allclose(np.divide(large, 2.0**30), small, rtol=1e-4)


@pytest.mark.parametrize("steps", [1, 20])
def test_a_run_without_a_finite_loss_raises_after_a_few_steps_and_says_why(tmp_path: Path, steps: int) -> None:
    rows, ending = {"x": np.array([1.0, np.nan], np.float32)}, Ending()
    task = fedlearn.function(lambda arrays, rows: arrays["a"] * rows["x"][0] * np.nan, {"a": 1.0}, rows)
    why = "losses are NaN, and the data hold NaN or infinity: x in 1 of 2 rows"
    with pytest.raises(ValueError, match=f"no loss is finite in the first {min(steps, LOST_STEPS)} steps?: {why}"):
        fedlearn.train(task, steps=steps, runs=tmp_path, callbacks=[ending], **SETTINGS)
    assert why in ending.reasons[0]


def test_a_run_that_diverged_is_given_with_a_warning_that_says_how_to_go_back(tmp_path: Path) -> None:
    task = fedlearn.function(lambda arrays: float((arrays["a"] ** 2).sum()), {"a": np.ones(4)}, covariance=False)
    with pytest.warns(UserWarning, match="the run diverged: .*; go back to its best step with: .* rollback ") as told:
        trained = fedlearn.train(task, steps=999, runs=tmp_path, **{**SETTINGS, "learning_rate": 100.0})
    assert trained.step < 999
    best = min((loss, step) for step, loss in enumerate(trained.losses) if loss is not None)[1]
    assert str(told[0].message).endswith(f"{trained.folder} {best}")
    assert told[0].filename == __file__
