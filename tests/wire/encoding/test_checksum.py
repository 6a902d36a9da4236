import zlib

import numpy as np
import pytest

import es_core
from fedlearn.wire.encoding import checksum
from fedlearn.wire.encoding.checksum import WORTHWHILE_BYTES, crc32

DATA = np.random.default_rng(0).integers(0, 256, 2 * WORTHWHILE_BYTES, dtype=np.uint8).tobytes()


@pytest.mark.parametrize("has_faster", [False, True])
def test_the_checksum_is_zlibs_on_every_processor(monkeypatch: pytest.MonkeyPatch, has_faster: bool) -> None:
    monkeypatch.setattr(checksum, "_HAS_FASTER", has_faster and checksum._HAS_FASTER)
    for length in (0, 20, WORTHWHILE_BYTES - 1, WORTHWHILE_BYTES, 2 * WORTHWHILE_BYTES):
        assert crc32(DATA[:length], 7) == zlib.crc32(DATA[:length], 7)


def test_the_core_is_asked_where_that_is_worth_it_and_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def crc32_of_core(data: bytes, value: int, /) -> int:
        asked.append(len(data))
        return zlib.crc32(data, value)

    monkeypatch.setattr(es_core, "crc32", crc32_of_core)
    for has_faster in (False, True):
        monkeypatch.setattr(checksum, "_HAS_FASTER", has_faster)
        for length in (WORTHWHILE_BYTES - 1, WORTHWHILE_BYTES):
            crc32(DATA[:length], 0)
    assert asked == [WORTHWHILE_BYTES]
