import io
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.numpy

import fedlearn
from fedlearn.library.trained import Trained, load
from fedlearn.storage.durable import StorageError
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.terminal.bars import Bar
from tests.library.test_training import SETTINGS, TEXT_SETTINGS
from tests.run_folders import fit_task, write_text


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model that writes, badly."""
    folder = tmp_path_factory.mktemp("written")
    text = write_text(folder / "text.txt")
    return fedlearn.train(data=str(text), steps=2, runs=folder / "runs", **TEXT_SETTINGS)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("fitted")
    return fedlearn.train(fit_task().task, steps=3, runs=folder, **SETTINGS)


@pytest.mark.parametrize("named", [lambda run: run.folder, lambda _: "latest", lambda _: 1, lambda _: "1"])
def test_a_run_is_found_by_path_number_and_as_the_latest(written: Trained, named: Any) -> None:  # noqa: ANN401
    found = load(named(written), runs=written.folder.parent)
    assert (found.folder, found.step) == (written.folder, 2)
    for name, array in written.weights.items():
        np.testing.assert_array_equal(found.weights[name], array)
    assert found.figures == written.figures
    assert found.settings == {**written.settings, "run": {**written.settings["run"], "step_num": 2}}


def test_weights_of_an_earlier_step_are_had_and_exported(written: Trained, tmp_path: Path) -> None:
    earlier = load(written.folder, step=1)
    assert earlier.step == 1
    assert earlier.digest != written.digest
    one, two = earlier.export(tmp_path / "1.safetensors"), written.export(tmp_path / "2.safetensors")
    assert one.read_bytes() != two.read_bytes()


def test_the_weights_that_python_holds_are_exported_without_the_files_of_the_run(
    written: Trained, tmp_path: Path
) -> None:
    copy = tmp_path / written.folder.name
    shutil.copytree(written.folder, copy)
    held = load(copy)
    for path in (copy / "genesis.safetensors", copy / "checkpoints", copy / "journal"):
        path.unlink() if path.is_file() else shutil.rmtree(path)
    paths = held.export(tmp_path / "held.safetensors"), written.export(tmp_path / "written.safetensors")
    found, expected = map(safetensors.numpy.load_file, paths)
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def test_the_best_step_of_a_run_that_looked_at_nothing_is_refused(fitted: Trained, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(fitted.folder, copy)
    (copy / "samples.jsonl").unlink(missing_ok=True)
    with pytest.raises(ValueError, match="got no figures; give the number of a step"):
        load(copy, step="best")


def test_replay_of_the_last_steps_is_shown_where_it_is_wanted(
    fitted: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, stream, asked = tmp_path / "copy", io.StringIO(), threading.Event()
    shutil.copytree(fitted.folder, copy)
    shutil.rmtree(copy / "checkpoints")
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("fedlearn.terminal.bars.APPEARS_S", 0.0)
    assert load(copy).step == 3
    assert stream.getvalue() == ""

    def slow_reach(bar: Bar, done: float, total: float | None = None) -> None:
        reach(bar, done, total)
        for _ in range(1000):
            if f"replaying the journal: {done:g} of {total:g} steps" in stream.getvalue():
                return asked.set()
            threading.Event().wait(0.01)
        raise AssertionError(stream.getvalue())

    reach = Bar.reach
    monkeypatch.setattr(Bar, "reach", slow_reach)
    assert load(copy, progress=True).step == 3
    assert asked.is_set()


def test_run_that_is_not_there_is_refused_with_those_that_are(written: Trained) -> None:
    with pytest.raises(StorageError, match=r"run '7': expected .* runs in .*: 1"):
        load(7, runs=written.folder.parent)


def test_figures_of_ones_own_task_are_there_if_it_is_given(fitted: Trained) -> None:
    assert load(fitted.folder).figures == {}
    assert load(fitted.folder, task=fit_task().task).figures == fitted.figures
    assert list(fitted.figures) == ["loss"]


def test_damage_that_was_passed_over_is_a_warning(fitted: Trained, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(fitted.folder, copy)
    (checkpoint,) = (copy / "checkpoints").iterdir()
    checkpoint.write_bytes(b"nonsense")
    with pytest.warns(UserWarning, match="checkpoint skipped"):
        assert load(copy).step == 3


def test_text_begins_with_the_prompt_and_is_the_same_for_a_seed(written: Trained) -> None:
    first, same, other = (written.sample("the ", length=40, seed=seed, temperature=1.0) for seed in (1, 1, 2))
    assert first == same
    assert first != other
    assert first.startswith("the ")
    assert len(first) == 44


def test_beams_find_a_text_that_is_no_more_unlikely_than_greed_does(written: Trained) -> None:
    assert written.sample("the ", beams=1, length=9, no_repeat_ngram=0) == written.sample(
        "the ", temperature=0, length=9
    )
    assert written.sample("the ", beams=4, length=9) == written.sample("the ", beams=4, length=9)
    circles = written.sample("the ", beams=4, length=60, no_repeat_ngram=0)
    assert circles != written.sample("the ", beams=4, length=60)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"temprature": 1.0}, "temprature: expected one of temperature, .* without beams"),
        ({"beams": 4, "temperature": 1.0}, "temperature: expected one of length_penalty, .* with beams"),
        ({"temperature": -1.0}, "temperature: expected 0 or more"),
    ],
)
def test_arguments_that_say_nothing_are_refused(written: Trained, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        written.sample(**arguments)


def test_model_that_does_not_write_says_so(fitted: Trained) -> None:
    with pytest.raises(ValueError, match="expected a model that writes text, got another"):
        fitted.sample()


def test_step_that_was_taken_again_has_one_loss(fitted: Trained) -> None:
    before, path = fitted.losses, fitted.folder / "metrics.jsonl"
    written = path.read_text()
    again = msgspec.structs.replace(msgspec.json.decode(written.splitlines()[1], type=StepMetrics), loss=7.0)
    path.write_text(written + msgspec.json.encode(again).decode() + "\n")
    assert fitted.losses == [before[0], 7.0, before[2]]
    path.write_text(written)


def test_metrics_and_curve_come_from_the_folder(fitted: Trained) -> None:
    assert np.asarray(fitted.metrics()["step"]).tolist() == [0, 1, 2]
    assert np.asarray(fitted.metrics()["loss"]).tolist() == pytest.approx(fitted.losses)
    assert len(fitted.losses) == 3
    pytest.importorskip("matplotlib")
    curve: Any = fitted.plot(over="seconds")
    assert curve.axes[0].get_xlabel() == "seconds of training"
    assert curve._repr_png_().startswith(b"\x89PNG")


def test_weights_and_figures_are_exported_and_what_is_to_be_known_is_a_warning(
    written: Trained, fitted: Trained, tmp_path: Path
) -> None:
    assert written.export(tmp_path / "weights.safetensors").stat().st_size > 1000
    assert (tmp_path / "weights.safetensors").is_file()
    assert written.export(str(tmp_path / "figures.csv")).read_text().count("\n") == 3
    with pytest.warns(UserWarning, match="the task's code was not named"):
        load(fitted.folder).export(tmp_path / "other", "safetensors")
