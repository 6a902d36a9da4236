"""Numbers that pages for other implementations state, held against the code's."""

import re

from fedlearn.graphs.checks import DEFAULT_LIMITS
from fedlearn.wire.messages import PROTOCOL_VERSION
from tests.docs.pages import REPOSITORY


def page(name: str) -> str:
    return (REPOSITORY / "docs" / name).read_text(encoding="utf-8")


def test_protocol_is_of_the_codes_version_wherever_it_says_so() -> None:
    said = re.findall(
        r"(?m)^# The fedlearn protocol, version (\d+)$|^\| protocol_version \| count \| (\d+) \|$"
        r"|^([0-9a-f]{2}) +protocol_version$",
        page("protocol.md"),
    )
    assert len(said) == 3
    assert {int("".join(numbers), 16 if numbers[2] else 10) for numbers in said} == {PROTOCOL_VERSION}


def test_bounds_of_a_graph_are_those_that_volunteers_check() -> None:
    limits, protocol = page("limits.md"), page("protocol.md")
    assert f"at most {DEFAULT_LIMITS.max_calls:,} calls" in limits
    assert f"at most {DEFAULT_LIMITS.max_calls:,} calls" in protocol
    assert f"at most {DEFAULT_LIMITS.max_kernels:,} operations" in limits
    assert f"{DEFAULT_LIMITS.max_tensors:,} tensors" in limits
