"""When a machine is lent, and how much of it: decided from facts that others gather."""

import re

import msgspec

IDLE_SHARE = 0.25
"""Of the machine's processors that others may keep busy while it counts as idle."""

DAY_MIN = 24 * 60

Hours = tuple[int, int]
"""Minutes of the day, from and to; the first may be the later one, across midnight."""


class Terms(msgspec.Struct, frozen=True):
    """What the owner of a machine agrees to."""

    max_cpu: float = 1.0
    """Share of the processor time of all processors, above 0."""
    only_when_idle: bool = False
    on_battery: bool = False
    """Whether to go on without mains."""
    hours: Hours | None = None


class Facts(msgspec.Struct, frozen=True):
    """What the machine is like just now."""

    minute: int
    """Of the day, in local time."""
    is_on_battery: bool
    others_share: float
    """Of the machine's processors that other processes keep busy."""


def reason_to_pause(terms: Terms, facts: Facts) -> str:
    """Why the machine is not lent just now; empty if it is."""
    if terms.hours is not None and not is_within(facts.minute, terms.hours):
        return f"lent from {format_minute(terms.hours[0])} to {format_minute(terms.hours[1])} only"
    if facts.is_on_battery and not terms.on_battery:
        return "running on battery"
    if terms.only_when_idle and facts.others_share > IDLE_SHARE:
        return f"others need {facts.others_share:.0%} of this machine"
    return ""


def is_within(minute: int, hours: Hours) -> bool:
    """Whether a minute of the day lies in there; the last one does not. From and to alike is the whole day."""
    begin, end = hours
    if begin == end:
        return True
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def parse_hours(text: str) -> Hours:
    """The hours of "22-7" or "22:30-6:45". Raises ValueError that shows the form."""
    found = re.fullmatch(r"(\d{1,2})(?::(\d\d))?-(\d{1,2})(?::(\d\d))?", text.strip())
    if found is not None:
        hour, minute, last_hour, last_minute = (int(part or 0) for part in found.groups())
        begin, end = 60 * hour + minute, 60 * last_hour + last_minute
        if max(minute, last_minute) < 60 and max(begin, end) <= DAY_MIN:
            return begin % DAY_MIN, end % DAY_MIN
    raise ValueError(f"--hours: expected FROM-TO, e.g. 22-7 or 22:30-6:45, got {text!r}")


def parse_share(text: str) -> float:
    """The share of "50%". Raises ValueError that shows the form."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%?", text.strip())
    share = float(found.group(1)) / 100 if found else 0.0
    if not 0.0 < share <= 1.0:
        raise ValueError(f"--max-cpu: expected a share from 1% to 100%, got {text!r}")
    return share


def parse_bytes(text: str, free: int) -> int:
    """The bytes of "4GB", "500MB", or "50%" of what is free. Raises ValueError that shows the form."""
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
