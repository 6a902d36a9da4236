import gzip
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fedlearn.data.exactly import MAX_BYTES
from fedlearn.data.idx import read_idx


def idx(shape: tuple[int, ...], content: bytes, kind: int = 8) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, kind, len(shape), *shape) + content


def test_an_array_is_read_packed_or_not(tmp_path: Path) -> None:
    expected = np.arange(12, dtype=np.uint8).reshape(2, 3, 2)
    payload = idx(expected.shape, expected.tobytes())
    (tmp_path / "images").write_bytes(payload)
    (tmp_path / "images.gz").write_bytes(gzip.compress(payload))
    for name in ("images", "images.gz"):
        assert np.array_equal(read_idx(tmp_path / name), expected)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0\0",
        idx((2,), b"\1"),
        idx((2,), b"\1\2\3"),
        idx((2,), b"\1\2", kind=13),
        b"\1" + idx((2,), b"\1\2")[1:],
        idx((), b""),
        idx((1, 1, 1, 1, 1), b"\1"),
        idx((2**31, 2**31), b""),
        struct.pack(">HBBI", 0, 8, 3, 2),
    ],
)
def test_anything_else_is_refused_with_its_name(tmp_path: Path, payload: bytes) -> None:
    (tmp_path / "images").write_bytes(payload)
    with pytest.raises(ValueError, match="images: expected"):
        read_idx(tmp_path / "images")


def test_what_is_no_gzip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(idx((1,), b"\1"))
    with pytest.raises(ValueError, match=r"images\.gz: expected"):
        read_idx(tmp_path / "images.gz")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(idx((99,), bytes(99)))[:-20])
    with pytest.raises(ValueError, match=r"cut\.gz: expected"):
        read_idx(tmp_path / "cut.gz")


def test_little_memory_is_taken_for_what_does_not_come(tmp_path: Path) -> None:
    said = idx((MAX_BYTES,), bytes(2**20))
    (tmp_path / "images").write_bytes(said)
    (tmp_path / "images.gz").write_bytes(gzip.compress(said))
    for name in ("images", "images.gz"):
        tracemalloc.start()
        with pytest.raises(ValueError, match="were to come"):
            read_idx(tmp_path / name)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2**23


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(idx((99,), bytes(range(99))))
    for number in range(len(whole)):
        (tmp_path / "images.gz").write_bytes(whole[:number] + bytes([whole[number] ^ 0x55]) + whole[number + 1 :])
        with suppress(ValueError):
            read_idx(tmp_path / "images.gz")
