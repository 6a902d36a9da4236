from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedlearn.callback import Begun
from fedlearn.library.tensorboard import TensorBoard
from tests.test_callback import METRICS

STEP = msgspec.structs.replace(METRICS, shown={"bits_per_character": 3.5})


def begun(folder: Path | None) -> Begun:
    return Begun("7", folder=folder, unit="tokens", step=0, n_parameters=1, settings={})


def events(folder: Path) -> Any:  # noqa: ANN401 (of a package without types)
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = event_accumulator.EventAccumulator(str(folder))
    found.Reload()
    return found


def test_steps_looks_and_samples_are_there_to_be_read(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    board = TensorBoard()
    board.on_begin(begun(tmp_path))
    board.on_step(STEP)
    board.on_step(msgspec.structs.replace(STEP, step=4, loss=None, shown={}, variance_left=0.25))
    board.on_examined(4, {"bits_per_character": 3.25}, "naïve")
    board.on_examined(5, {"bits_per_character": 3.0}, "")
    board.on_end("done")
    found = events(tmp_path / "tensorboard")
    scalars = {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert scalars == {
        "train/loss": [(4, 2.5)],
        "train/bits_per_character": [(4, 3.5)],
        "train/variance_left": [(5, 0.25)],
        "speed/work_per_s": [(4, 1.0), (5, 1.0)],
        "speed/volunteers": [(4, 1.0), (5, 1.0)],
        "speed/members": [(4, 64.0), (5, 64.0)],
        "validation/bits_per_character": [(4, 3.25), (5, 3.0)],
    }
    (sample,) = found.Tensors("sample")
    assert [text.decode() for text in sample.tensor_proto.string_val] == ["naïve"]


def test_a_folder_of_ones_own_is_taken_and_a_run_without_one_needs_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path / "mine")
    board.on_begin(begun(None))
    board.on_end("done")
    assert len(list((tmp_path / "mine").iterdir())) == 1
    with pytest.raises(ValueError, match="folder: expected one"):
        TensorBoard().on_begin(begun(None))


def test_missing_package_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorboard", "tensorboard.compat.proto"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'fedlearn\[tensorboard\]'"):
        TensorBoard()
