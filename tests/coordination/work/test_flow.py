"""How far the first seat of a crew may be ahead of the others."""

import pytest

from fedlearn.coordination.work.flow import MOST_MESSAGES, SHARES, WAY_BYTES, fitting_batch, fitting_window, reach

MB = 10**6


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize(("batch", "group_size"), [(5, 8), (64, 2), (3, 3), (4, 12), (2, 9)])
def test_a_window_has_so_many_messages_each_of_one_group(batch: int, group_size: int, window: int) -> None:
    ends = [0]
    while len(ends) < 30:
        ends.append(ends[-1] + min(batch, group_size - ends[-1] % group_size))
    reached = [reach(end, window=window, batch=batch, group_size=group_size) for end in ends[:20]]
    assert reached == ends[window : 20 + window]
    assert all(
        reach(end - 1, window=window, batch=batch, group_size=group_size) <= ends[window + n]
        for n, end in enumerate(ends[:20])
        if end
    ), "a message that is not whole is still on its way"


def test_where_memory_is_not_scarce_the_longest_message_decides() -> None:
    assert fitting_window(64, [(0, 4, 0), (0, 8, 0)]) == MOST_MESSAGES
    assert fitting_window(1, [(0, MB, 0), (0, 2 * MB, 100)]) == WAY_BYTES // (2 * MB + 100)
    assert fitting_window(1, [(0, WAY_BYTES, 0)] * 3) == 8, "each seat has one to compute and one that waits"
    assert fitting_window(1, []) == MOST_MESSAGES


@pytest.mark.parametrize("lent", [3 * MB, 10 * MB, 100 * MB])
def test_nobody_is_sent_more_than_its_share_of_what_it_lends(lent: int) -> None:
    receivers = [(0, 9 * MB, 0), (lent, 50_000, 10_000), (2 * lent, 200_000, 0)]
    batch = fitting_batch(8, receivers)
    window = fitting_window(batch, receivers)
    used = [(window * (batch * member + group), lends // SHARES) for lends, member, group in receivers if lends]
    assert all(n_bytes <= most for n_bytes, most in used)
    assert (batch == 8) == (lent >= 10 * MB)


def test_something_is_always_sent() -> None:
    assert fitting_batch(8, [(100, 1000, 1000)]) == 1
    assert fitting_window(1, [(100, 1000, 1000)]) == 1


@pytest.mark.parametrize("group_bytes", [10_000, 200_000])
def test_a_message_fits_where_another_one_waits(group_bytes: int) -> None:
    batch = fitting_batch(64, [(0, MB, 0), (10 * MB, 50_000, group_bytes)])
    share = 10 * MB // SHARES
    assert 2 * (batch * 50_000 + group_bytes) <= share < 2 * ((batch + 1) * 50_000 + group_bytes)
