from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import es_core
from fedlearn.tasks.blocks import (
    MAX_HEADER_BYTES,
    NO_BLOCK,
    Columns,
    block_name,
    column_of,
    cut,
    decode_arrays,
    decode_block,
    encode_block,
    group_words,
    n_rows,
    row_numbers,
)

TOKENS: Columns = {"tokens": np.array([0, 1, 258, 65_534], dtype=np.uint16)}
PICTURES: Columns = {
    "pixels": np.arange(24, dtype=np.uint8).reshape(4, 2, 3),
    "label": np.array([3, 1, 2, 0]),
    "weight": np.linspace(0, 1, 4, dtype=np.float32),
}


def name_of(columns: Columns) -> str:
    return block_name(columns).hex()


def test_names_are_the_known_ones() -> None:
    assert name_of({"x": np.array([[1, 2], [3, 4]], np.uint8), "y": np.array([1.5, -2], np.float32)}) == (
        "1f96a7fb5922d0b2bfa3efc64f6a2650"
    )
    assert name_of(TOKENS) == "7ad5882e7d5b43e1a3f3023794b712b3"


def test_a_name_is_the_hash_of_what_the_documentation_says() -> None:
    content = b"tokens\0<u2\0(4,)\0" + TOKENS["tokens"].astype("<u2").tobytes()
    assert block_name(TOKENS) == blake3(content).digest(16)


def test_without_data_there_is_no_name() -> None:
    assert block_name({}) == NO_BLOCK == b""


def test_neither_the_order_of_columns_nor_that_of_bytes_nor_the_layout_in_memory_counts() -> None:
    assert name_of({name: PICTURES[name] for name in reversed(list(PICTURES))}) == name_of(PICTURES)
    swapped = {name: column.astype(column.dtype.newbyteorder(">")) for name, column in PICTURES.items()}
    assert name_of(swapped) == name_of(PICTURES)
    spread = {name: np.repeat(column, 2, axis=0)[::2] for name, column in PICTURES.items()}
    assert name_of(spread) == name_of(PICTURES)
    turned = {"pixels": np.asfortranarray(PICTURES["pixels"]), "label": PICTURES["label"], "weight": PICTURES["weight"]}
    assert name_of(turned) == name_of(PICTURES)


def test_names_types_shapes_and_numbers_count() -> None:
    tokens = TOKENS["tokens"]
    others: list[Columns] = [
        {},
        {"token": tokens},
        {"tokens": tokens.astype(np.int16)},
        {"tokens": tokens.reshape(2, 2)},
        {"tokens": tokens[:3]},
        {"tokens": tokens + np.uint16(1)},
        {"tokens": tokens, "also": tokens},
    ]
    assert len({name_of(columns) for columns in [TOKENS, *others]}) == 8


def test_a_block_comes_back_equal_under_its_name() -> None:
    came = decode_block(encode_block(PICTURES))
    assert {name: (column.dtype, column.tolist()) for name, column in came.items()} == {
        name: (column.dtype, column.tolist()) for name, column in PICTURES.items()
    }
    assert block_name(came) == block_name(PICTURES)


def test_columns_of_another_byte_order_or_layout_travel_as_their_numbers() -> None:
    turned = np.asfortranarray(PICTURES["pixels"])
    came = decode_block(encode_block({"label": PICTURES["label"].astype(">i8")[::-1], "pixels": turned}))
    assert came["label"].tolist() == [0, 2, 1, 3]
    np.testing.assert_array_equal(came["pixels"], PICTURES["pixels"])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x93nonsense that is no safetensors",
        b"\xff" * 32,
        encode_block(PICTURES)[:-1],
        encode_block(PICTURES) + b"\0",
        b'\x48\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}  \0\0\0\0',
        b'\x38\0\0\0\0\0\0\0{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}  \0\0\0\0',
    ],
    ids=["empty", "text", "ones", "cut", "more", "huge", "bfloat16"],
)
def test_anything_else_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="block: expected safetensors bytes, got something else"):
        decode_block(payload)


def test_names_of_columns_without_end_are_refused_before_they_are_read() -> None:
    names = b"{" + b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(10**5)) + b"}"
    with pytest.raises(ValueError, match=f"a header of {len(names)} bytes"):
        decode_block(len(names).to_bytes(8, "little") + names)
    at_most = b"{" + b" " * (MAX_HEADER_BYTES - 2) + b"}"
    assert decode_block(len(at_most).to_bytes(8, "little") + at_most) == {}


def test_a_block_whose_columns_differ_in_length_is_refused() -> None:
    payload = safetensors.numpy.save({"x": np.zeros(3, np.float32), "y": np.zeros(4, np.float32)})
    with pytest.raises(ValueError, match=r"data: expected columns of one length, got x: 3, y: 4; give every column"):
        decode_block(payload)


def test_arrays_that_are_no_columns_come_back_in_any_shapes() -> None:
    arrays = {"running_mean": np.ones(3, np.float32), "weight": np.ones((4, 2), np.float32)}
    came = decode_arrays(encode_block(arrays))
    assert {name: array.tolist() for name, array in came.items()} == {n: a.tolist() for n, a in arrays.items()}
    with pytest.raises(ValueError, match="got something else: a header of"):
        decode_arrays(b"\xff" * 32)


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_junk_raises_nothing_but_value_errors(junk: bytes, place: int, byte: int) -> None:
    whole = bytearray(encode_block(PICTURES))
    whole[place % len(whole)] = byte
    for payload in (junk, bytes(whole), len(junk).to_bytes(8, "little") + junk):
        try:
            block_name(decode_block(payload))
        except ValueError:
            continue


@pytest.mark.parametrize(("columns", "expected"), [({}, 0), (TOKENS, 4), (PICTURES, 4), ({"x": np.zeros((0, 3))}, 0)])
def test_rows_are_those_of_every_column(columns: Columns, expected: int) -> None:
    assert n_rows(columns) == expected


def test_a_column_that_is_one_number_has_no_rows() -> None:
    with pytest.raises(ValueError, match=r"expected columns of one length, got x: 4, y: 0"):
        n_rows({"x": np.zeros(4), "y": np.array(1.0)})


def test_a_column_that_is_missing_is_named_with_those_that_are_there() -> None:
    assert column_of(PICTURES, "label") is PICTURES["label"]
    with pytest.raises(ValueError, match="data: expected a column 'tokens', got label, pixels, weight"):
        column_of(PICTURES, "tokens")
    with pytest.raises(ValueError, match="data: expected a column 'tokens', got none"):
        column_of({}, "tokens")


@given(st.integers(1, 40), st.integers(0, 8), st.integers(9, 400))
def test_data_are_cut_into_as_few_pieces_of_nearly_one_size_as_may_be(rows: int, width: int, max_bytes: int) -> None:
    columns = {"x": np.arange(rows * width, dtype=np.uint8).reshape(rows, width), "y": np.zeros(rows, np.uint8)}
    pieces = cut(columns, max_bytes)
    rows_a_piece = max_bytes // (width + 1)
    assert len(pieces) == -(-rows // rows_a_piece)
    assert max(n_rows(piece) for piece in pieces) <= rows_a_piece
    for name, column in columns.items():
        np.testing.assert_array_equal(np.concatenate([piece[name] for piece in pieces]), column)
    lengths = [n_rows(piece) for piece in pieces]
    assert max(lengths) - min(lengths) <= 1


def test_data_that_fit_are_one_piece_and_no_data_none() -> None:
    (piece,) = cut(PICTURES)
    assert name_of(piece) == name_of(PICTURES)
    assert cut({}) == cut({"x": np.zeros((0, 3))}) == []
    assert len(cut({"x": np.zeros((5, 0))}, 8)) == 1


def test_rows_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="data: expected rows of at most 8 bytes, got 9; make them smaller"):
        cut({"x": np.zeros((3, 9), np.uint8)}, 8)


def test_a_groups_first_word_is_its_seed_and_the_others_choose_rows() -> None:
    words = group_words(5, 7, 2**33, 3, 4)
    assert words.dtype == np.uint64
    np.testing.assert_array_equal(words, es_core.random_words(5, 7, 2**33, 3, 5))
    expected = [[int(word) * 10 // 2**32 for word in group[1:]] for group in words.tolist()]
    assert row_numbers(words, 10).tolist() == expected


def test_the_words_of_a_group_do_not_depend_on_who_asks_for_which_others() -> None:
    together = group_words(5, 7, 10, 6, 4)
    np.testing.assert_array_equal(group_words(5, 7, 13, 2, 4), together[3:5])
    np.testing.assert_array_equal(group_words(5, 7, 10, 6, 2), together[:, :3])


def test_rows_are_drawn_evenly_with_replacement() -> None:
    numbers = row_numbers(group_words(1, 2, 0, 2000, 8), 5)
    assert numbers.shape == (2000, 8)
    shares = np.bincount(numbers.reshape(-1), minlength=5) / numbers.size
    np.testing.assert_allclose(shares, 0.2, atol=0.02)
    assert any(len(set(group)) < 8 for group in numbers.tolist())


def test_the_highest_word_gives_the_last_row() -> None:
    words: NDArray[Any] = np.array([[0, 0, 2**32 - 1]], dtype=np.uint64)
    assert row_numbers(words, 7).tolist() == [[0, 6]]
    assert row_numbers(words, 2**31).tolist() == [[0, 2**31 - 1]]
