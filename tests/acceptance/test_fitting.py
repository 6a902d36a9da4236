"""A model whose head is larger than any volunteer's memory, as real processes on loopback."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.crews import STEPS_BY_MEMBERS
from tests.end_to_end.processes import ended_at_exit, fedlearn, free_port, metrics_of, start, wait_for
from tests.patience import LIMIT_S

pytest.importorskip("torch")

TASK = """
import numpy as np
from torch import nn

import fedlearn

WORDS = 2048


def model():
    return nn.Sequential(nn.Embedding(WORDS, 64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, WORDS))


def loss(model, rows):
    logits = model(rows["tokens"][:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), rows["tokens"][:, 1:].flatten())


tokens = np.random.default_rng(0).zipf(1.5, (64, 9)).clip(0, WORDS - 1)
task = fedlearn.supervised(model, loss, {"tokens": tokens}, batch_size=2, settings={"sigma": 0.02})
"""

LENT_MB = (7, 5, 5)
"""The head takes 8.4 MB, half of it 4.3 MB; no two of them hold what is left of the model beside a shard."""


def status_of(folder: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((folder / "trainingRuns/1/status.json").read_text())
    return status


@pytest.mark.long
def test_a_head_that_no_volunteer_holds_is_cut_by_itself_and_trained(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(TASK)
    port = str(free_port())
    flags = ("--task", "words.py:task", "--port", port, "--volunteers", "0", "--population-limit", "64")
    server = start("server.py", *flags, *STEPS_BY_MEMBERS[2:], folder=tmp_path, limit_s=240)
    with ended_at_exit(server):
        wait_for(server, r"listening on ")
        memory = [("--max-memory", f"{lent}MB", "--threads", "1", "--priority", "normal") for lent in LENT_MB]
        join = ("--server", f"127.0.0.1:{port}", "--name")
        clients = [
            start("client.py", *join, f"v{n}", *memory[n], folder=tmp_path, limit_s=240) for n in range(len(memory))
        ]
        with ended_at_exit(*clients):
            said, _ = wait_for(server, r"the rows of the vocabulary are cut into (\d) shards, since .*")
            deadline = time.monotonic() + LIMIT_S
            found: list[dict[str, Any]] = []
            while len(metrics_of(tmp_path)) < 3 or {one["digest"] for one in found} != {"equal"}:
                assert time.monotonic() < deadline, f"no three steps by parts that are the server's: {found}"
                time.sleep(0.05)
                found = status_of(tmp_path)["volunteers"] if metrics_of(tmp_path) else []
            assert "steps are done" in fedlearn("finish", "1", folder=tmp_path)
            assert server.wait(timeout=LIMIT_S) == 0
    held = {volunteer["name"]: volunteer["tensors"] for volunteer in found}
    print(f"{said} shards: {held}; losses {[round(step['loss'], 3) for step in metrics_of(tmp_path)]}")
    assert int(said) == 2
    assert sorted(name for names in held.values() for name in names if "3.weight" in name) == [
        "3.weight[0:1024]", "3.weight[1024:2048]",
    ]  # fmt: skip
    assert all(step["members"] == 64 for step in metrics_of(tmp_path))
