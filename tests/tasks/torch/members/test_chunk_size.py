import pytest

from fedlearn.tasks.torch.members.chunk_size import ENOUGH_SAMPLES, ChunkSize

MANY = 1024


def run(pace: ChunkSize, seconds: dict[int, float], n_pieces: int, n_members: int = MANY) -> list[int]:
    """Sizes of pieces one after another, where a member takes so many seconds by size."""
    sizes = []
    for _ in range(n_pieces):
        sizes.append(pace.size(n_members))
        pace.record(sizes[-1], seconds[sizes[-1]])
    return sizes


def test_pieces_double_while_that_is_faster() -> None:
    pace = ChunkSize(MANY)
    seconds = {8: 5.0, 16: 3.0, 32: 2.0, 64: 2.5, 128: 2.6}
    assert run(pace, seconds, 12) == [8, 8, 16, 16, 32, 32, 64, 64, 128, 128, 32, 32]
    assert pace.best == (2.0, 32)


def test_one_slower_size_does_not_end_the_search() -> None:
    pace = ChunkSize(MANY)
    run(pace, {8: 5.0, 16: 5.1, 32: 2.0, 64: 3.0, 128: 3.0}, 10)
    assert pace.size(MANY) == 32


def test_patience_begins_anew_with_every_gain() -> None:
    pace = ChunkSize(MANY)
    run(pace, {8: 5.0, 16: 5.1, 32: 2.0, 64: 2.1, 128: 1.0, 256: 1.0, 512: 1.0}, 14)
    assert pace.size(MANY) == 128


def test_a_gain_within_noise_is_none() -> None:
    pace = ChunkSize(MANY)
    run(pace, {8: 5.0, 16: 4.9, 32: 4.9}, 6)
    assert pace.size(MANY) == 8


def test_the_faster_of_two_pieces_counts() -> None:
    pace = ChunkSize(MANY)
    pace.record(8, 9.0)
    pace.record(8, 1.0)
    assert pace.best == (1.0, 8)


def test_no_piece_is_larger_than_memory_holds() -> None:
    assert ChunkSize(5).size(MANY) == 5
    pace = ChunkSize(24)
    assert run(pace, {8: 3.0, 16: 2.0, 24: 1.0}, 8) == [8, 8, 16, 16, 24, 24, 24, 24]


def test_the_last_size_is_the_whole_population() -> None:
    pace = ChunkSize(MANY)
    seconds = {8: 4.0, 16: 3.0, 32: 2.0, 64: 1.0}
    assert run(pace, seconds, 8, n_members=20) == [8, 8, 16, 16, 32, 32, 32, 32]
    assert pace.size(32) == 32
    assert pace.size(MANY) == 64  # Where there are more, the search goes on.


def test_a_time_is_sure_after_enough_pieces() -> None:
    pace = ChunkSize(8)
    for n in range(ENOUGH_SAMPLES):
        assert not pace.is_sure(MANY)
        pace.record(8, 2.0 - n / 100)
    assert pace.is_sure(MANY)
    assert pace.best is not None
    assert pace.best[0] == pytest.approx(1.93)


def test_a_search_that_goes_on_is_not_sure() -> None:
    pace = ChunkSize(MANY)
    run(pace, dict.fromkeys((8, 16, 32), 1.0), 5)
    for _ in range(ENOUGH_SAMPLES):
        pace.record(8, 1.0)
    assert not pace.is_sure(MANY)
    assert pace.is_sure(16)


def test_pieces_of_other_sizes_tell_nothing() -> None:
    pace = ChunkSize(MANY)
    pace.record(64, 0.1)
    assert pace.best is None
    assert pace.size(MANY) == 8


def test_too_much_for_memory_is_halved_for_good() -> None:
    pace = ChunkSize(MANY)
    run(pace, {8: 5.0, 16: 3.0}, 4)
    pace.shrink(32)
    assert run(pace, {16: 3.0}, 4) == [16] * 4
    pace.shrink(16)
    assert pace.size(MANY) == 8
    pace.shrink(1)
    assert pace.size(MANY) == 1
