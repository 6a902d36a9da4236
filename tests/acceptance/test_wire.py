"""What a crew of real processes sends at its cuts with each codec, as `fedlearn traffic` prints it."""

import json
from pathlib import Path

import pytest

from fedlearn.tasks.parts.activations import BLOCK, CODECS, ActivationCodec, needs_base
from tests.acceptance.crews import write_task
from tests.end_to_end.processes import ended_at_exit, fedlearn, output_of, start

pytest.importorskip("torch")

NUMBERS = 8 * 64 * 2
"""That cross each cut: of 8 rows, what a layer of 64 made, and what the first one did."""
GROUP_SIZE = 128
SHARES = {"float32": 1.0, "float16": 0.5, "int8-delta": 0.27, "int4-delta": 0.15}
FLAGS = (
    *("--task", "task.py:task", "--port", "0", "--seats", "3", "--volunteers", "3", "--steps", "2"),
    *("--population-limit", "256", "--group-size", f"{GROUP_SIZE}", "--time-per-step", "60"),
    *("--audit", "0", "--sample-time", "0"),
)


def bytes_a_member(wire: ActivationCodec) -> float:
    """By the table of docs/protocol.md, with its member's part of what goes once a group."""
    blocks = 4 * -(-NUMBERS // BLOCK)
    one = {"float32": 4 * NUMBERS, "float16": 2 * NUMBERS, "int8-delta": NUMBERS + blocks}
    return one.get(wire, -(-NUMBERS // 2) + blocks) + (4 * NUMBERS / GROUP_SIZE if needs_base(wire) else 0)


@pytest.mark.long
def test_bytes_of_each_codec_are_those_of_the_formula(tmp_path: Path) -> None:
    found: dict[str, float] = {}
    for wire in CODECS:
        folder = tmp_path / wire
        folder.mkdir()
        write_task(folder)
        server = start("server.py", *FLAGS, "--wire", wire, folder=folder, limit_s=400.0)
        with ended_at_exit(server):
            said = output_of(server).read()
            assert server.wait() == 0, said
        traffic = json.loads(fedlearn("traffic", "1", "--json", folder=folder))
        for cut in traffic["cuts"].values():
            assert cut["members"] == 512
            assert cut["bytes_per_member"] == bytes_a_member(wire)
        sent = traffic["kinds"]["activations"]
        payloads = sum(cut["bytes"] for cut in traffic["cuts"].values())
        assert payloads < sent["received"] == sent["sent"] < 1.01 * payloads + 5000
        found[wire] = bytes_a_member(wire) / bytes_a_member("float32")
    assert found == pytest.approx(SHARES, abs=0.01)
    print(", ".join(f"{wire} {share:.3f} of float32's bytes" for wire, share in found.items()))
