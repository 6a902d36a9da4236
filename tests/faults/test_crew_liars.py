"""A seat's process that lies to a real server: it is found wherever it sits, and its neighbours keep their standing."""

import json
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.crews import write_task
from tests.end_to_end.processes import ended_at_exit, fedlearn, metrics_of, output_of, start, wait_for
from tests.faults.measures import until_step
from tests.patience import LIMIT_S, until

pytest.importorskip("torch")

SEATS = 3
HONEST = ("Ada", "Bob", "Cid")

LIAR = """
import sys
import msgspec
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.commands.command_line import main
from fedlearn.coordination.effects import Pass
from fedlearn.es.trials import TrialResults

perform = VolunteerReplica.perform

def perform_falsely(self, compute):
    if not isinstance(compute, Pass):
        return perform(self, compute)
    trials = msgspec.structs.replace(compute.trials, first_member=compute.trials.first_member + 2**20)
    others = perform(self, msgspec.structs.replace(compute, trials=trials))
    if isinstance(others, bytes):
        return others  # well-formed, but of members that nobody asked for
    honest = perform(self, compute)
    return TrialResults(2 * honest.losses.mean() - honest.losses)

VolunteerReplica.perform = perform_falsely
sys.exit(main(["join", *sys.argv[1:]]))
"""


def n_admitted(folder: Path) -> int:
    """Volunteers of whom the server's status speaks."""
    path = folder / "trainingRuns/1/status.json"
    return len(json.loads(path.read_text())["volunteers"]) if path.exists() else 0


def joined(folder: Path, script: str, name: str, port: str) -> "subprocess.Popen[str]":
    """A volunteer that has come after all others: seats are given in that order."""
    flags = ("--server", f"127.0.0.1:{port}", "--name", name, "--once", "--priority", "normal", "--threads", "1")
    before = n_admitted(folder)
    process = start(script, *flags, folder=folder, limit_s=LIMIT_S, XDG_CONFIG_HOME=str(folder / name))
    until(lambda: n_admitted(folder) != before or process.poll() is not None, f"{name} was never let in")
    assert process.poll() is None, output_of(process).read()
    return process


@pytest.mark.long
@pytest.mark.parametrize(("place", "wire"), [(1, "float32"), (0, "int8-delta"), (2, "float32")])
def test_the_seat_that_lies_is_sent_away_and_its_neighbours_stay(tmp_path: Path, place: int, wire: str) -> None:
    write_task(tmp_path)
    (tmp_path / "liar.py").write_text(LIAR)
    crew = [*HONEST[:place], "Mallory", *HONEST[place:]]
    flags = ("--seats", str(SEATS), "--volunteers", "0", "--port", "0", "--wire", wire, "--audit", "0.02")
    steps = ("--population-limit", "128", "--group-size", "32", "--time-per-step", "60", "--sample-time", "0")
    server = start("server.py", "--task", "task.py:task", *flags, *steps, folder=tmp_path, limit_s=LIMIT_S)
    with ExitStack() as ending:
        ending.enter_context(ended_at_exit(server))
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        clients = {}
        for name in crew:
            script = str(tmp_path / "liar.py") if name == "Mallory" else "client.py"
            clients[name] = joined(tmp_path, script, name, port)
            ending.enter_context(ended_at_exit(clients[name]))
        wait_for(clients["Mallory"], f"this machine holds part {place + 1} of 3")
        shown, _ = clients["Mallory"].communicate(timeout=LIMIT_S)
        n_wasted = len(metrics_of(tmp_path))
        # Whoever waited has the seat now, and steps are taken again.
        until_step(tmp_path, n_wasted + 2)
        assert server.poll() is None
        assert [clients[name].poll() for name in HONEST] == [None] * SEATS
        server.terminate()
        said = output_of(server).read()
    assert "refused: results of step" in shown
    blamed = re.findall(r"^(.*): results of step .* they don't count$", said, flags=re.MULTILINE)
    assert set(blamed) == {"Mallory"}
    audits = [json.loads(line) for line in (tmp_path / "trainingRuns/1/audits.jsonl").read_text().splitlines()]
    # Several claims may wait for their verdicts at once, and on a slow machine the crew may be seated anew meanwhile.
    assert {audit["name"] for audit in audits} == {"Mallory"}
    assert all(audit["place"] is not None for audit in audits)
    table = fedlearn("runs", "--credit", "latest", folder=tmp_path).splitlines()
    caught = {line.split()[1]: line.split()[-1] for line in table if line.split()[1:2] and line.split()[1] in crew}
    assert {name: caught[name] for name in HONEST if name in caught} == dict.fromkeys(HONEST, "0")
    assert int(caught["Mallory"]) == len(audits) >= 3
    print(f"{wire}, seat {place}: gone by step {n_wasted}, off by {audits[0]['difference']:.3g} times the tolerance")
