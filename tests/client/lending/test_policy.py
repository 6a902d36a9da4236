import pytest

from fedlearn.client.lending.policy import (
    Facts,
    LendingPolicy,
    format_minute,
    is_within,
    parse_bytes,
    parse_hours,
    parse_share,
    reason_to_pause,
)

AT_HOME = Facts(minute=12 * 60, is_on_battery=False, others_share=0.0)
NIGHT = (22 * 60, 7 * 60)


@pytest.mark.parametrize(
    ("terms", "facts", "reason"),
    [
        (LendingPolicy(), AT_HOME, ""),
        (LendingPolicy(), Facts(0, True, 0.0), "running on battery"),
        (LendingPolicy(on_battery=True), Facts(0, True, 0.0), ""),
        (LendingPolicy(), Facts(0, False, 1.0), ""),
        (LendingPolicy(only_when_idle=True), Facts(0, False, 0.25), ""),
        (LendingPolicy(only_when_idle=True), Facts(0, False, 0.3), "others need 30% of this machine"),
        (LendingPolicy(hours=NIGHT), AT_HOME, "lent from 22:00 to 7:00 only"),
        (LendingPolicy(hours=NIGHT), Facts(23 * 60, False, 0.0), ""),
        (LendingPolicy(hours=NIGHT, only_when_idle=True), Facts(23 * 60, True, 1.0), "running on battery"),
    ],
)
def test_machine_is_lent_while_all_terms_are_kept(terms: LendingPolicy, facts: Facts, reason: str) -> None:
    assert reason_to_pause(terms, facts) == reason


@pytest.mark.parametrize(
    ("minute", "hours", "expected"),
    [
        (22 * 60, NIGHT, True),
        (22 * 60 - 1, NIGHT, False),
        (0, NIGHT, True),
        (7 * 60 - 1, NIGHT, True),
        (7 * 60, NIGHT, False),
        (8 * 60, (8 * 60, 17 * 60), True),
        (17 * 60, (8 * 60, 17 * 60), False),
        (7 * 60, (8 * 60, 17 * 60), False),
        (3, (0, 0), True),
    ],
)
def test_hours_may_cross_midnight(minute: int, hours: tuple[int, int], expected: bool) -> None:
    assert is_within(minute, hours) is expected


@pytest.mark.parametrize(
    ("text", "hours"),
    [("22-7", NIGHT), ("22:30-6:45", (22 * 60 + 30, 6 * 60 + 45)), ("0-24", (0, 0)), (" 8-24 ", (8 * 60, 0))],
)
def test_hours_are_read_as_people_write_them(text: str, hours: tuple[int, int]) -> None:
    assert parse_hours(text) == hours


@pytest.mark.parametrize("text", ["", "22", "25-7", "22-24:01", "22:60-7", "7-22:99", "-7-8", "22-7 Uhr"])
def test_hours_that_there_are_none_of_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"--hours: expected FROM-TO, e\.g\. 22-7"):
        parse_hours(text)


@pytest.mark.parametrize("text", ["7-7", "22:30-22:30", "0-0", "24-0"])
def test_hours_that_end_when_they_begin_are_refused_since_they_name_none(text: str) -> None:
    with pytest.raises(ValueError, match=f"--hours: expected two different times, got '{text}', .*; leave it out"):
        parse_hours(text)


def test_share_is_of_all_processors() -> None:
    assert [parse_share(text) for text in ("50%", "100", "12.5%")] == [0.5, 1.0, 0.125]
    for text in ("0%", "101%", "half", "-5%", ""):
        with pytest.raises(ValueError, match="--max-cpu: expected a share from 1% to 100%"):
            parse_share(text)


def test_memory_is_a_size_or_a_share_of_what_is_free() -> None:
    texts = ("50%", "300%", "4GB", "1.5 MB", "2GiB", "7kB", "1TB")
    expected = [500, 1000, 4 * 10**9, 1_500_000, 2 * 2**30, 7000, 10**12]
    assert [parse_bytes(text, free=1000) for text in texts] == expected
    for text in ("4", "GB", "-1GB", "4GBs", ""):
        with pytest.raises(ValueError, match="--max-memory: expected a size or a share"):
            parse_bytes(text, free=1000)


def test_minutes_are_shown_as_a_clock_does() -> None:
    assert [format_minute(minute) for minute in (0, 7 * 60 + 5, 23 * 60 + 59)] == ["0:00", "7:05", "23:59"]
