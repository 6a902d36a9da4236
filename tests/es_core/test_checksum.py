import zlib

import numpy as np
import pytest

import es_core

DATA = np.random.default_rng(0).integers(0, 256, 70_000, dtype=np.uint8).tobytes()

needs_products = pytest.mark.skipif(not es_core.has_crc32(), reason="this processor does not multiply polynomials")


@needs_products
@pytest.mark.parametrize("value", [0, 1, 0x80000000, 0xFFFFFFFF])
def test_checksums_are_zlibs_for_every_length_and_place_in_memory(value: int) -> None:
    view = memoryview(DATA)
    lengths = [*range(300), 1023, 1024, 65_519, 65_536]
    for length in lengths:
        first = length % 19
        data = view[first : first + length]
        assert es_core.crc32(data, value) == zlib.crc32(data, value), length


@needs_products
def test_checksums_of_zeros_and_of_ones_are_zlibs() -> None:
    for data in (bytes(5000), b"\xff" * 5000):
        assert es_core.crc32(data, 0) == zlib.crc32(data)


@needs_products
def test_the_known_answer_of_the_catalogue_of_checksums() -> None:
    assert es_core.crc32(b"123456789", 0) == 0xCBF43926


@needs_products
def test_what_goes_on_is_what_comes_at_once() -> None:
    assert es_core.crc32(DATA[777:], es_core.crc32(DATA[:777], 0)) == es_core.crc32(DATA, 0)


@needs_products
@pytest.mark.parametrize("data", [memoryview(DATA)[::2], np.zeros(8, dtype=np.float32), np.zeros((2, 2), np.uint8)])
def test_what_is_not_bytes_one_after_another_is_refused(data: memoryview) -> None:
    with pytest.raises(ValueError, match="data: expected bytes one after another"):
        es_core.crc32(data, 0)
