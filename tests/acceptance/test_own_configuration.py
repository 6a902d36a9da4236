"""A text trainer's own configuration file, started as its users start it."""

import shutil
from pathlib import Path
from statistics import mean

import pytest

from tests.acceptance.originals import CONFIG
from tests.end_to_end.processes import ended_at_exit, metrics_of, output_of, start


@pytest.mark.slow
def test_its_config_json_trains_below_three_bits_and_what_it_leaves_out_is_said(tmp_path: Path) -> None:
    shutil.copy(CONFIG, tmp_path)
    flags = ("--steps", "150", "--port", "0", "--board", "0", "--plain")
    process = start("server.py", "config.json", *flags, folder=tmp_path, limit_s=400)
    with ended_at_exit(process):
        said = output_of(process).read()
        assert process.wait(60) == 0, said
    assert "config.json: stepNum is left out" in said
    losses = [line["loss"] for line in metrics_of(tmp_path)[-10:]]
    print(f"{mean(losses):.3f} nats")
    assert mean(losses) < 3.0 * 0.6931
