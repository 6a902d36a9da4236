import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.tasks.parts.activations import BLOCK, CODECS, ActivationCodec, decode, encode, member_bytes, needs_base

Float32Array = NDArray[np.float32]

SHAPES = ((2, 3, 64), (129,), (3, 7, 5), (1,), ())
DELTAS: tuple[ActivationCodec, ...] = ("int8-delta", "int4-delta")


def near_members(shape: tuple[int, ...], *, n_members: int = 4, sigma: float = 1e-3) -> tuple[Float32Array, ...]:
    """Values of some members, and the unperturbed ones that they differ from by `sigma`."""
    rng = np.random.default_rng(3)
    base = rng.standard_normal(shape, dtype=np.float32)
    values = base + np.float32(sigma) * rng.standard_normal((n_members, *shape), dtype=np.float32)
    return values, np.asarray(base)


def there_and_back(codec: ActivationCodec, values: Float32Array, base: Float32Array) -> Float32Array:
    return decode(codec, encode(codec, values, base), len(values), base.shape, base)


@pytest.mark.parametrize(
    ("codec", "size", "n_bytes"),
    [
        ("float32", 100, 400), ("float16", 100, 200), ("int8-delta", 100, 108), ("int4-delta", 100, 58),
        ("int8-delta", 64, 68), ("int4-delta", 64, 36), ("int8-delta", 65, 73), ("int4-delta", 65, 41),
    ],
)  # fmt: skip
def test_a_member_takes_as_many_bytes_as_the_protocol_says(codec: ActivationCodec, size: int, n_bytes: int) -> None:
    assert member_bytes(codec, (size,)) == n_bytes


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_sent_is_as_long_as_was_said(codec: ActivationCodec, shape: tuple[int, ...]) -> None:
    values, base = near_members(shape)
    assert len(encode(codec, values, base)) == 4 * member_bytes(codec, shape)
    assert there_and_back(codec, values, base).shape == values.shape


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_comes_back_to_the_bit(shape: tuple[int, ...]) -> None:
    values, base = near_members(shape)
    values.flat[0] = np.nan
    assert there_and_back("float32", values, base).tobytes() == values.tobytes()


def test_halves_come_back_as_the_nearest_half() -> None:
    values = np.array([[1.0, 1.0004, -1e5, np.nan]], dtype=np.float32)
    np.testing.assert_array_equal(there_and_back("float16", values, values[0]), [[1.0, 1.0, -np.inf, np.nan]])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("codec", "top"), [("int8-delta", 127), ("int4-delta", 7)])
def test_a_difference_is_off_by_half_a_scale_at_most(codec: ActivationCodec, top: int, shape: tuple[int, ...]) -> None:
    values, base = near_members(shape)
    error = np.abs(there_and_back(codec, values, base) - values).reshape(4, -1)
    differences = np.abs(values - base).reshape(4, -1)
    for first in range(0, differences.shape[1], BLOCK):
        block = slice(first, first + BLOCK)
        scale = differences[:, block].max(axis=1) / top
        assert (error[:, block].max(axis=1) <= 0.501 * scale + 3e-7).all()
    assert differences.shape[1] < BLOCK or error.max() > 0


@pytest.mark.parametrize("codec", DELTAS)
def test_members_are_scaled_apart_and_so_are_blocks(codec: ActivationCodec) -> None:
    values, base = near_members((2 * BLOCK,))
    values[1, :BLOCK] += 1000
    values[1, BLOCK:] = base[BLOCK:]
    got = there_and_back(codec, values, base)
    np.testing.assert_array_equal(got[[0, 2, 3]], there_and_back(codec, values[[0, 2, 3]], base))
    np.testing.assert_array_equal(got[1, BLOCK:], base[BLOCK:])


def test_numbers_come_before_scales_little_endian_and_the_first_in_the_lower_half() -> None:
    values = np.array([[7.0, -7.0, 3.0], [0.0, 0.0, 14.0]], dtype=np.float32)
    scales = np.array([1.0, 2.0], dtype="<f4").tobytes()
    assert encode("int4-delta", values, np.zeros(3, dtype=np.float32)) == bytes([0x97, 0x03, 0x00, 0x07]) + scales
    scales = np.array([7 / 127, 14 / 127], dtype="<f4").tobytes()
    numbers = np.array([127, -127, 54, 0, 0, 127], dtype=np.int8).tobytes()
    assert encode("int8-delta", values, np.zeros(3, dtype=np.float32)) == numbers + scales


@pytest.mark.parametrize("codec", DELTAS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_no_number_and_its_neighbours_are(codec: ActivationCodec, wrong: float) -> None:
    values, base = near_members((100,))
    expected = there_and_back(codec, np.where(np.arange(100) == 5, base, values).astype(np.float32), base)
    values[:, 5] = wrong
    got = there_and_back(codec, values, base)
    assert np.isnan(got[:, 5]).all()
    np.testing.assert_array_equal(np.delete(got, 5, axis=1), np.delete(expected, 5, axis=1))


@pytest.mark.parametrize("codec", DELTAS)
def test_differences_too_small_for_a_scale_are_none(codec: ActivationCodec) -> None:
    values = np.full((1, 3), 1e-40, dtype=np.float32)
    np.testing.assert_array_equal(there_and_back(codec, values, np.zeros(3, dtype=np.float32)), np.zeros((1, 3)))


def test_eight_bits_of_differences_tell_more_than_eight_bits_of_values() -> None:
    values, base = near_members((64, 64), sigma=1e-3)
    spread = (values - base).std()
    error = (there_and_back("int8-delta", values, base) - values).std() / spread
    of_values = (there_and_back("int8-delta", values, np.zeros_like(base)) - values).std() / spread
    assert error < 0.01
    assert of_values > 5.0
    assert (there_and_back("int4-delta", values, base) - values).std() / spread < 0.15


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("change", [-1, 1, -5])
def test_bytes_of_another_length_are_refused(codec: ActivationCodec, change: int) -> None:
    values, base = near_members((70,))
    data = encode(codec, values, base)
    data = data + bytes(change) if change > 0 else data[:change]
    with pytest.raises(ValueError, match=rf"expected \d+ bytes of {codec} for 4 members of \[70\], got"):
        decode(codec, data, 4, (70,), base)


@pytest.mark.parametrize("codec", DELTAS)
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0])
def test_a_scale_that_is_none_is_refused(codec: ActivationCodec, scale: float) -> None:
    values, base = near_members((70,))
    data = bytearray(encode(codec, values, base))
    data[-4:] = np.array(scale, dtype="<f4").tobytes()
    with pytest.raises(ValueError, match=r"expected finite scales of at least 0, got .* block 1 of member 3"):
        decode(codec, bytes(data), 4, (70,), base)


@pytest.mark.parametrize("codec", DELTAS)
def test_any_numbers_and_any_scale_make_values(codec: ActivationCodec) -> None:
    _, base = near_members((70,))
    largest = np.full(8, np.finfo(np.float32).max, dtype="<f4").tobytes()
    numbers = np.random.default_rng(1).bytes(4 * member_bytes(codec, (70,)) - len(largest))
    assert decode(codec, numbers + largest, 4, (70,), base).shape == (4, 70)


@pytest.mark.parametrize("codec", CODECS)
def test_differences_need_the_unperturbed_values(codec: ActivationCodec) -> None:
    values, base = near_members((70,))
    assert needs_base(codec) == (codec in DELTAS)
    if needs_base(codec):
        data = encode(codec, values, base)
        for other in (None, base[:-1]):
            with pytest.raises(AssertionError, match="differences to"):
                encode(codec, values, other)
            with pytest.raises(AssertionError, match="differences to"):
                decode(codec, data, 4, (70,), other)
