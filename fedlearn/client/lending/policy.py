"""Decides from measured facts when a machine is lent, and how much of it."""

import re

import msgspec

IDLE_SHARE = 0.25
"""Share of the machine's processor time that others may take while it counts as idle."""

DAY_MIN = 24 * 60

Hours = tuple[int, int]
"""Minutes of the day at which the hours begin and end; across midnight the first is the later one."""


class LendingPolicy(msgspec.Struct, frozen=True):
    """The conditions under which its owner lends a machine."""

    max_cpu: float = 1.0
    """Share of the time of all processors, above 0."""
    only_when_idle: bool = False
    on_battery: bool = False
    """Whether to continue without mains power."""
    hours: Hours | None = None


class Facts(msgspec.Struct, frozen=True):
    """The state of the machine at present."""

    minute: int
    """Minute of the day, in local time."""
    is_on_battery: bool
    others_share: float
    """Share of the machine's processor time that other processes take."""


def reason_to_pause(terms: LendingPolicy, facts: Facts) -> str:
    """The reason why the machine is not lent at present; empty if it is."""
    if terms.hours is not None and not is_within(facts.minute, terms.hours):
        return f"lent from {format_minute(terms.hours[0])} to {format_minute(terms.hours[1])} only"
    if facts.is_on_battery and not terms.on_battery:
        return "running on battery"
    if terms.only_when_idle and facts.others_share > IDLE_SHARE:
        return f"others need {facts.others_share:.0%} of this machine"
    return ""


def is_within(minute: int, hours: Hours) -> bool:
    """Whether a minute of the day is in these hours, the last one excluded; equal ends mean the whole day."""
    begin, end = hours
    if begin == end:
        return True
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def parse_hours(text: str) -> Hours:
    """The hours of a text such as "22-7" or "22:30-6:45"; "0-24" is the whole day.

    Raises:
        ValueError: the text has another form, or names no hour; the message shows the right one.
    """
    found = re.fullmatch(r"(\d{1,2})(?::(\d\d))?-(\d{1,2})(?::(\d\d))?", text.strip())
    if found is not None:
        hour, minute, last_hour, last_minute = (int(part or 0) for part in found.groups())
        begin, end = 60 * hour + minute, 60 * last_hour + last_minute
        if max(minute, last_minute) < 60 and max(begin, end) <= DAY_MIN:
            if begin % DAY_MIN == end % DAY_MIN and (begin, end) != (0, DAY_MIN):
                raise ValueError(
                    f"--hours: expected two different times, got {text!r}, which names no hour; leave it out to work "
                    "at any hour"
                )
            return begin % DAY_MIN, end % DAY_MIN
    raise ValueError(f"--hours: expected FROM-TO, e.g. 22-7 or 22:30-6:45, got {text!r}")


def parse_share(text: str) -> float:
    """The share of a text such as "50%".

    Raises:
        ValueError: the text has another form, or the share is out of its range.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%?", text.strip())
    share = float(found.group(1)) / 100 if found else 0.0
    if not 0.0 < share <= 1.0:
        raise ValueError(f"--max-cpu: expected a share from 1% to 100%, got {text!r}")
    return share


def parse_bytes(text: str, free: int) -> int:
    """The bytes of a text such as "4GB" or "500MB", or of "50%" of the `free` bytes.

    Raises:
        ValueError: the text has another form; the message shows the right one.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|[kMGT]i?B)", text.strip())
    if found is None:
        raise ValueError(f"--max-memory: expected a size or a share of what is free, e.g. 4GB or 50%, got {text!r}")
    number, unit = float(found.group(1)), found.group(2)
    if unit == "%":
        return int(free * min(number, 100.0) / 100)
    return int(number * (1024 if "i" in unit else 1000) ** (1 + "kMGT".index(unit[0])))


def format_minute(minute: int) -> str:
    """A minute of the day as a clock shows it."""
    return f"{minute // 60}:{minute % 60:02d}"
