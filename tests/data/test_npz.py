import io
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fedlearn.data.exactly import MAX_BYTES
from fedlearn.data.npz import read_npz

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([3, 1], dtype=np.uint8)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_bytes_are_read_by_their_names(tmp_path: Path, save: Callable[..., None]) -> None:
    save(tmp_path / "some.npz", labels=LABELS, images=IMAGES)
    images, labels = read_npz(tmp_path / "some.npz", ("images", "labels"))
    assert np.array_equal(images, IMAGES)
    assert np.array_equal(labels, LABELS)


def test_whole_numbers_of_any_size_and_order_of_bytes_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", wide=LABELS.astype(np.int64) - 5, swapped=LABELS.astype(">i4"))
    wide, swapped = read_npz(tmp_path / "some.npz", ("wide", "swapped"))
    assert (wide.tolist(), swapped.tolist()) == ([-2, -4], [3, 1])


def member(header: str, content: bytes) -> bytes:
    """A file as `numpy.save` writes it, with any header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content


def saved(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


HUGE = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({MAX_BYTES + 1},)}}\n"
SHORT = "{'descr': '|u1', 'fortran_order': False, 'shape': (9,)}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (saved(LABELS.astype(np.float64)), "a is of float64; save it as whole numbers"),
        (saved(np.asfortranarray(IMAGES)), "in C order"),
        (saved(np.array([{}], dtype=object)), "a is of object"),
        (member(HUGE, b""), f"a: {MAX_BYTES + 1} bytes are more"),
        (member(SHORT, b"12345678"), "9 bytes of an array .* and 8 or more came"),
        (member(SHORT, b"1234567890"), "9 bytes of an array .* and 10 or more came"),
        (member(SHORT.replace("9", "-2"), bytes(99)), r"a: \(-2, 1\) is no shape"),
        (member("{'shape': (" + "(" * 300 + "\n", b""), "expected an npz file"),
        (member(" {\n  1\n 2", b""), "expected an npz file"),
        (member("'''", b""), "expected an npz file"),
        (b"\x93NUMPY\x03\x00", r"version \(3, 0\)"),
        (b"no array", "expected an npz file"),
        (b"", "expected an npz file"),
    ],
)
def test_another_content_is_told_and_nothing_of_it_is_unpickled(tmp_path: Path, content: bytes, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "some.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(ValueError, match=message):
        read_npz(tmp_path / "some.npz", ("a",))


def test_a_missing_array_and_another_kind_of_file_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", a=LABELS)
    with pytest.raises(ValueError, match="expected arrays named a, b, one is not there"):
        read_npz(tmp_path / "some.npz", ("a", "b"))
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"text.npz: expected an npz file"):
        read_npz(tmp_path / "text.npz", ("a",))
    with pytest.raises(ValueError, match=r"none.npz: expected an npz file"):
        read_npz(tmp_path / "none.npz", ("a",))


def peak_bytes_of(path: Path) -> int:
    """What is set aside to find out that a file is none."""
    tracemalloc.start()
    with pytest.raises(ValueError, match="expected an npz file"):
        read_npz(path, ("a", "b"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("shape", ["-2", str(MAX_BYTES), str(MAX_BYTES + 1)])
def test_little_memory_is_taken_for_what_does_not_come(tmp_path: Path, shape: str) -> None:
    with zipfile.ZipFile(tmp_path / "some.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", member(SHORT.replace("9", shape), bytes(2**24 if shape == "-2" else 2**20)))
    assert peak_bytes_of(tmp_path / "some.npz") < 2**23


def test_arrays_of_one_archive_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlearn.data.npz.MAX_BYTES", 2**22)
    with zipfile.ZipFile(tmp_path / "some.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, length in (("a", 2**22 - 9), ("b", 10)):
            archive.writestr(f"{name}.npy", member(SHORT.replace("9", str(length)), bytes(length)))
    read_npz(tmp_path / "some.npz", ("a",))
    with pytest.raises(ValueError, match="b: 10 bytes are more than 9"):
        read_npz(tmp_path / "some.npz", ("a", "b"))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_archive_is_refused_however_it_is_packed(tmp_path: Path, method: int) -> None:
    path = tmp_path / "some.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.npy", member(SHORT, bytes(9)))
    whole = path.read_bytes()
    for number in range(len(whole)):
        path.write_bytes(whole[:number] + bytes([whole[number] ^ 0x55]) + whole[number + 1 :])
        with suppress(ValueError):
            read_npz(path, ("a",))
