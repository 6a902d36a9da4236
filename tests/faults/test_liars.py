"""A volunteer's process that lies to a real server."""

import json
import re
from pathlib import Path

from tests.end_to_end.processes import ended_at_exit, fedlearn, metrics_of, output_of, start, wait_for
from tests.faults.callers import serving, volunteer
from tests.faults.hatchery import LIAR
from tests.faults.measures import until_volunteers
from tests.patience import LIMIT_S

HONEST_RESULTS = 30
"""Of the liar, before it begins: enough to be trusted."""


def test_liar_is_named_and_sent_away_and_an_honest_one_stays(tmp_path: Path) -> None:
    with serving(tmp_path, "--volunteers", "1", "--population-limit", "512", "--learning-rate", "1e-4") as (
        server,
        address,
    ):
        flags = ["--task", "fit.py:task", "--server", address, "--once", "--name", "Mallory"]
        honest = volunteer(tmp_path, "--server", address, "--name", "Ada", XDG_CONFIG_HOME=str(tmp_path / "honest"))
        with ended_at_exit(honest):
            wait_for(server, "Ada joined")
            wait_for(server, r"^step +\d")
            until_volunteers(tmp_path, 2)
            liar = start(
                str(LIAR), str(HONEST_RESULTS), *flags, folder=tmp_path, XDG_CONFIG_HOME=str(tmp_path / "liars")
            )
            with ended_at_exit(liar):
                reason, _ = wait_for(server, r"Mallory left: it was sent away: (.*)")
                shown, _ = liar.communicate(timeout=LIMIT_S)
            n_steps = len(metrics_of(tmp_path))
            assert liar.returncode == 1
            assert "refused: results of step" in shown
            assert "were false" in reason
            server.terminate()
            rest = output_of(server).read()
            assert honest.wait(timeout=LIMIT_S) in (0, 1)
    audits = [json.loads(line) for line in (tmp_path / "trainingRuns/1/audits.jsonl").read_text().splitlines()]
    assert {audit["name"] for audit in audits} == {"Mallory"}
    assert len(audits) == 3
    assert "Ada" not in re.findall(r"(\w+): results of step", rest)
    table = fedlearn("runs", "--credit", "latest", folder=tmp_path).splitlines()
    credit = {line.split()[1]: line.split() for line in table}
    print(f"after {HONEST_RESULTS} honest results: gone by step {n_steps}; checked of Ada: {credit['Ada'][-2]}")
    assert credit["Mallory"][-1] == "3"
    assert int(credit["Ada"][-2]) > 0
    assert int(credit["Ada"][2]) > 0
