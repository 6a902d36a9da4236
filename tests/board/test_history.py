from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedlearn.board import curve as curve_module
from fedlearn.board.history import History, Validation
from fedlearn.storage.runs import RunFolder
from tests.board.folders import append, metrics_of, write_sample, write_steps


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def everything(history: History) -> Any:  # noqa: ANN401 (as the page reads it)
    return msgspec.json.decode(history.everything())


def test_curve_has_the_axes_and_figures_of_the_steps(folder: RunFolder) -> None:
    write_steps(folder, range(3))
    history = History(folder)
    history.read()
    found = everything(history)
    assert found["shown"] == "bits_per_character"
    assert found["curve"]["axes"] == {"step": [0, 1, 2], "seconds": [0.5, 1.0, 1.5], "work": [512, 1024, 1536]}
    assert found["curve"]["mean"]["shown"] == [5.0, 4.999, 4.998]
    assert found["curve"]["mean"]["loss"] == [4.0, 3.999, 3.998]
    assert found["curve"]["mean"]["volunteers"] == [1, 2, 3]
    assert found["curve"]["mean"]["work_per_s"] == [1000, 1001, 1002]
    assert (found["curve"]["mean"]["bytes_in"], found["curve"]["mean"]["bytes_out"]) == ([100] * 3, [10] * 3)


def test_curve_has_the_variance_left_of_the_steps_that_say_it(folder: RunFolder) -> None:
    append(folder.metrics, [metrics_of(0), metrics_of(1, variance_left=0.25)])
    history = History(folder)
    history.read()
    mean = everything(history)["curve"]["mean"]
    assert mean["variance_left"] == [None, 0.25]
    assert everything(history)["figures"]["variance_left"] == "variance left"
    assert mean["bytes_out"] == [10, 10]


def test_what_is_new_takes_the_place_of_what_was_not_whole(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_module, "CAPACITY", 4)
    write_steps(folder, range(5))
    history = History(folder)
    shown: list[float] = []
    for end in range(6, 40):
        change = history.read()
        assert change is not None
        if "from" in change:
            shown[change["from"] :] = change["curve"]["axes"]["step"]
        else:
            shown = everything(history)["curve"]["axes"]["step"]
        assert shown == everything(history)["curve"]["axes"]["step"]
        assert shown[-1] == end - 2
        assert change["version"] == history.version == end - 5
        write_steps(folder, [end - 1])


def test_nothing_new_is_no_change(folder: RunFolder) -> None:
    history = History(folder)
    assert history.read() is None
    write_steps(folder, range(2))
    assert history.read() is not None
    assert history.read() is None
    assert history.version == 1


def test_steps_that_are_taken_again_take_the_place_of_those_before(folder: RunFolder) -> None:
    write_steps(folder, range(10))
    history = History(folder)
    history.read()
    write_steps(folder, [*range(4, 7), *range(5, 9)])
    change = history.read()
    assert change is not None
    assert "curve" not in change
    found = everything(history)["curve"]["axes"]
    assert found["step"] == list(range(9))
    assert found["work"] == [512 * n for n in range(1, 10)]


def test_metrics_of_another_file_begin_the_curve_anew(folder: RunFolder) -> None:
    write_steps(folder, range(10))
    history = History(folder)
    history.read()
    epoch = everything(history)["epoch"]
    folder.metrics.unlink()
    write_steps(folder, range(2), shown={"accuracy": 0.5})
    history.read()
    found = everything(history)
    assert (found["shown"], found["curve"]["axes"]["step"]) == ("accuracy", [0, 1])
    assert found["epoch"] > epoch


def test_validations_have_their_place_on_each_axis(folder: RunFolder) -> None:
    append(folder.metrics, [metrics_of(0), metrics_of(1, validation={"accuracy": 0.5}), metrics_of(2)])
    history = History(folder)
    change = history.read()
    assert change is not None
    assert change["validation"] == [Validation(1, 1.0, 1024, {"accuracy": 0.5})]
    assert everything(history)["validation"] == msgspec.to_builtins(change["validation"])


def test_step_without_a_loss_is_a_gap(folder: RunFolder) -> None:
    write_steps(folder, [0])
    write_steps(folder, [1], loss=None, shown={})
    history = History(folder)
    history.read()
    loss = everything(history)["curve"]["mean"]["loss"]
    assert loss[0] == 4.0
    assert loss[1] is None


def test_samples_come_once_and_are_kept_in_their_bound(folder: RunFolder) -> None:
    for step in range(3):
        write_sample(folder, step, "x" * 5000)
    history = History(folder)
    change = history.read()
    assert change is not None
    assert [(look.step, len(look.text)) for look in change["samples"]] == [(0, 2000), (1, 2000), (2, 2000)]
    for step in range(3, 1000):
        write_sample(folder, step, "text")
    history.read()
    kept = everything(history)["samples"]
    assert len(kept) <= 201
    assert (kept[0]["step"], kept[-1]["step"]) == (0, 999)


def test_numbers_that_no_curve_holds_are_passed_over(folder: RunFolder) -> None:
    write_steps(folder, [0])
    line = folder.metrics.read_bytes()
    for name in ("step", "volunteers", "bytes_in", "bytes_out", "work"):
        before, _, after = line.partition(b'"%s":' % name.encode())
        with open(folder.metrics, "ab") as file:
            file.write(before + b'"%s":1' % name.encode() + b"0" * 400 + after)
    write_steps(folder, [1])
    history = History(folder)
    history.read()
    assert everything(history)["curve"]["axes"]["step"] == [0, 1]
