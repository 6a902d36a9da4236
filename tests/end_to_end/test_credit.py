"""What a volunteer is told of its own work, by real processes, beside what the server writes down."""

import re
from pathlib import Path

from tests.end_to_end.processes import ended_at_exit, fedlearn, output_of, start, wait_for
from tests.faults.callers import FIT
from tests.patience import LIMIT_S

FLAGS = ["--task", "fit.py:task", "--volunteers", "0", "--port", "0", "--sample-time", "0", "--group-size", "8"]
SIZES = ["--population-limit", "64", "--time-per-step", "1"]


def lend(folder: Path, *arguments: str) -> str:
    """What the volunteer's terminal says of a server that runs to its end."""
    server = start("server.py", *arguments, folder=folder)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on \S+:(\d+)")
        client = start("client.py", f"127.0.0.1:{port}", "--task", "fit.py:task", "--name", "Ada", folder=folder)
        with ended_at_exit(client):
            said = output_of(client).read()
            assert client.wait(LIMIT_S) == 0
        assert server.wait(LIMIT_S) == 0
    return said


def test_volunteer_is_told_at_the_end_what_its_identity_earned_over_all_its_connections(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(FIT.format(n_parameters=20, trial_s=0.0))
    for steps, more in (
        ("30", [*FLAGS, *SIZES]),
        ("50", ["--resume", "latest", "--task", "fit.py:task", "--port", "0", "--volunteers", "0"]),
    ):
        said = lend(tmp_path, *more, "--steps", steps)
        (last,) = re.findall(r"its identity is credited with ([\d.k]+) members, .* in all; ", said)
        table = fedlearn("runs", "--credit", "latest", folder=tmp_path).splitlines()
        (line,) = [line.split() for line in table if " Ada " in line]
        print(said.splitlines()[-1])
        members = 64 * int(steps)
        assert int(line[2]) == members
        assert last == f"{members / 1e3:.3g}k"
