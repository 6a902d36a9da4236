import pytest

from fedlearn.system.restarts import AT_ONCE_S, LONGEST_PAUSE_S, MOST_AT_ONCE, SOUND_S, Restarts


def test_pauses_double_up_to_a_minute() -> None:
    restarts = Restarts()
    assert [restarts.died(AT_ONCE_S) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert LONGEST_PAUSE_S == 60


def test_process_that_was_sound_is_back_soon() -> None:
    restarts = Restarts()
    assert [restarts.died(lived_s) for lived_s in (20.0, 20.0, SOUND_S, 20.0)] == [1, 2, 1, 2]


def test_process_that_dies_at_once_again_and_again_is_given_up() -> None:
    restarts = Restarts()
    assert [restarts.died(AT_ONCE_S - 0.1) for _ in range(MOST_AT_ONCE)] == [1, 2, 4, 8, None]


@pytest.mark.parametrize("lived_s", [AT_ONCE_S, SOUND_S])
def test_deaths_at_once_count_in_a_row_only(lived_s: float) -> None:
    restarts = Restarts()
    for _ in range(3):
        for _ in range(MOST_AT_ONCE - 1):
            assert restarts.died(0.0) is not None
        assert restarts.died(lived_s) is not None
