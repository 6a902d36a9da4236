import time
from pathlib import Path

import pytest

from fedlearn.wire.encoding.frames import CHUNK_BYTES, headers
from tests.end_to_end.processes import wait_for
from tests.faults.callers import OPEN, Caller, serving
from tests.faults.measures import longest_pause_s, peak_memory_mb, until_more, until_step

MIB = 2**20


@pytest.mark.parametrize("has_lease", [False, True])
def test_nested_result_of_35_mib_costs_the_others_nothing(tmp_path: Path, has_lease: bool) -> None:
    listed = bytes([0x95, 3, 1, 0]) + b"\xdd" + (35 * MIB).to_bytes(4, "big") + b"\x90" * (35 * MIB)
    cut = headers(listed, message_type=3, stream=1)
    with serving(tmp_path, *OPEN) as (server, address), Caller(address) as eve:
        until_step(tmp_path, 2)
        if has_lease:
            eve.join()
        else:
            eve.enter()
        before, began = peak_memory_mb(server.pid), time.time()
        for number, header in enumerate(cut):
            eve.send(header + listed[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES])
        while eve.hear() is not None:
            pass
        until_more(tmp_path, 2)
        grown, pause_s = peak_memory_mb(server.pid) - before, longest_pause_s(tmp_path, began)
        reason, _ = wait_for(server, r"(?:Ada|connection \d+) left: (.*)")
    print(f"memory +{grown:.1f} MB, longest pause {pause_s:.2f} s; {reason}")
    assert grown < 20.0


def test_nested_result_within_its_limit_is_refused_for_what_it_is(tmp_path: Path) -> None:
    nested = bytes([0x95, 3, 1, 0]) + b"\xdc\x0f\x00" + b"\x90" * 0xF00
    with serving(tmp_path, *OPEN) as (server, address), Caller(address) as eve:
        eve.join()
        (header,) = headers(nested, message_type=3, stream=1)
        eve.send(header + nested)
        assert "Result: Expected `str`, got `array`" in wait_for(server, r"Ada left: (.*)")[0]
        until_more(tmp_path, 2)
