import time
from pathlib import Path

import pytest

from fedlearn.wire.frames import CHUNK_BYTES, headers
from tests.faults.scenes import Attacker, serving

MIB = 2**20


@pytest.mark.parametrize("has_lease", [False, True])
def test_nested_result_of_35_mib_costs_the_others_nothing(tmp_path: Path, has_lease: bool) -> None:
    listed = bytes([0x95, 3, 1, 0]) + b"\xdd" + (35 * MIB).to_bytes(4, "big") + b"\x90" * (35 * MIB)
    cut = headers(listed, message_type=3, stream=1)
    with serving(tmp_path) as server:
        server.until_step(2)
        eve = Attacker(server.port)
        if has_lease:
            eve.join()
        else:
            eve.hello()
        before, began = server.peak_memory_mb, time.time()
        for number, header in enumerate(cut):
            eve.send(header + listed[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES])
        while not eve.is_cut_off:
            eve.hear()
        server.until_step(len(server.steps()) + 2)
        grown, pause_s = server.peak_memory_mb - before, server.longest_pause_s(began)
        eve.close()
        reason = server.until_said(r"(?:Eve|connection \d+) left: (.*)")
    print(f"memory +{grown:.1f} MB, longest pause {pause_s:.2f} s; {reason}")
    assert grown < 20.0
    assert pause_s < 3.0


def test_nested_result_within_its_limit_is_refused_for_what_it_is(tmp_path: Path) -> None:
    nested = bytes([0x95, 3, 1, 0]) + b"\xdc\x0f\x00" + b"\x90" * 0xF00
    with serving(tmp_path) as server:
        eve = Attacker(server.port)
        eve.join()
        (header,) = headers(nested, message_type=3, stream=1)
        eve.send(header + nested)
        assert "Result: Expected `str`, got `array`" in server.until_said(r"Eve left: (.*)")
        step = len(server.steps())
        server.until_step(step + 2)
        eve.close()
