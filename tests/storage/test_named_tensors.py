import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.storage.durable import StorageError
from fedlearn.storage.named_tensors import read_tensors, write_tensors


def layout_of(**shapes: tuple[int, ...]) -> ParameterLayout:
    return ParameterLayout(tuple(TensorSpec(name, shape) for name, shape in shapes.items()))


LAYOUT = layout_of(b=(2, 3), a=(), empty=(0,), c=(2,))
WEIGHTS = np.arange(9, dtype=np.float32)


def test_flat_weights_are_read_back_from_their_tensors(tmp_path: Path) -> None:
    slots = {"second": WEIGHTS * 2, "first": WEIGHTS * 3, "shorter": WEIGHTS[:4], "of nothing": WEIGHTS[:0]}
    write_tensors(tmp_path / "file", LAYOUT, WEIGHTS, {"step": "7"}, slots=slots)
    weights, found = read_tensors(tmp_path / "file", LAYOUT)
    assert weights.tolist() == WEIGHTS.tolist()
    assert {name: slot.tolist() for name, slot in found.items()} == {name: s.tolist() for name, s in slots.items()}


def test_other_programs_read_each_tensor(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", LAYOUT, WEIGHTS, {"step": "7"}, slots={"first": WEIGHTS})
    tensors = safetensors.numpy.load_file(tmp_path / "file")
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "b": (2, 3),
        "a": (),
        "empty": (0,),
        "c": (2,),
        "optimizer/first": (9,),
    }
    assert (tensors["a"].item(), tensors["c"].tolist()) == (6.0, [7.0, 8.0])


def test_bytes_begin_at_a_multiple_of_eight(tmp_path: Path) -> None:
    for length in range(8):
        write_tensors(tmp_path / "file", LAYOUT, WEIGHTS, {"name": "x" * length})
        size = int.from_bytes((tmp_path / "file").read_bytes()[:8], "little")
        assert size % 8 == 0
        assert json.loads((tmp_path / "file").read_bytes()[8 : 8 + size])["__metadata__"] == {"name": "x" * length}


def test_large_weights_are_written_without_a_copy(tmp_path: Path) -> None:
    weights = np.zeros(10**6, np.float32)
    tracemalloc.start()
    write_tensors(tmp_path / "file", layout_of(a=(1000, 1000)), weights, {}, slots={"first": weights})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < weights.nbytes / 4


@pytest.mark.parametrize("name", ["__metadata__", "optimizer/first"])
def test_name_that_the_file_needs_itself_is_refused(tmp_path: Path, name: str) -> None:
    layout = layout_of(**{name: (9,)})
    with pytest.raises(StorageError, match=f"expected another name than '{name}' for a tensor; rename it"):
        write_tensors(tmp_path / "file", layout, WEIGHTS, {}, slots={"first": WEIGHTS})
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({"a": np.zeros((3, 1), np.float32)}, r"a: expected F32 \[3\], got F32 \[3, 1\]"),
        ({"a": np.zeros(3)}, r"a: expected F32 \[3\], got F64 \[3\]"),
        ({"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float32)}, "b: expected a tensor of the layout"),
        ({"a": np.zeros(3, np.float32), "optimizer/b": np.zeros(4, np.float32)}, r"optimizer/b: expected F32 \[3\]"),
        ({"a": np.zeros(3, np.float32), "optimizer/b": np.zeros((1, 2), np.float32)}, r"b: expected F32 \[3\]"),
        ({"a": np.zeros(3, np.float32), "optimizer/b": np.zeros((), np.float32)}, r"b: expected F32 \[3\]"),
        ({"a": np.zeros(3, np.float32), "optimizer/b": np.zeros(3)}, r"b: expected F32 \[3\], got F64"),
    ],
)
def test_other_tensors_than_the_layouts_are_refused(
    tmp_path: Path, tensors: dict[str, "np.typing.NDArray[np.floating]"], problem: str
) -> None:
    safetensors.numpy.save_file(tensors, tmp_path / "file")
    with pytest.raises(ValueError, match=problem):
        read_tensors(tmp_path / "file", layout_of(a=(3,)))
