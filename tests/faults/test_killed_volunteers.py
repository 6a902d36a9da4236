"""Volunteers that are killed outright in every step, and come back as if nothing had been."""

import random
import signal
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.end_to_end.processes import fedlearn, metrics_of, output_of
from tests.faults.callers import serving
from tests.faults.hatchery import Hatchery, hatching
from tests.faults.measures import until_more, until_volunteers
from tests.patience import LIMIT_S

N_VOLUNTEERS = 10
N_KILLED = 3
FLAGS = ["--volunteers", "0", "--population-limit", "160", "--time-per-step", "2.5", "--audit", "0"]
FLAGS += ["--connections-per-address", "0", "--joins-per-minute", "0"]
TRIAL_S = 0.1
"""Steps of 1.6 s, in which whoever was killed at the beginning is back for the next one."""

LONGEST = 1.2
"""Where it is measured: three steps say little."""


def durations_s(folder: Path, n_steps: int) -> list[float]:
    """Of the last so many steps."""
    times = [line["time"] for line in metrics_of(folder)][-n_steps - 1 :]
    return [after - before for before, after in pairwise(times)]


def kill_some(hatchery: Hatchery, address: str, processes: dict[str, int], choices: random.Random) -> None:
    """Kills a few, and starts them again."""
    for name in choices.sample(sorted(processes), N_KILLED):
        assert hatchery.send(processes[name], signal.SIGKILL)
        processes[name] = hatchery.hatch(name, address)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_phases", "n_steps"), [(1, 3), pytest.param(5, 12, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_killing_30_percent_of_the_volunteers_in_each_step_makes_no_step_longer(
    tmp_path: Path, n_phases: int, n_steps: int
) -> None:
    choices = random.Random(7)
    undisturbed, disturbed = list[float](), list[float]()
    with (
        serving(tmp_path, *FLAGS, trial_s=TRIAL_S if n_phases > 1 else 0.02, limit_s=600.0) as (server, address),
        hatching(tmp_path) as hatchery,
    ):
        processes = {name: hatchery.hatch(name, address) for name in map(str, range(N_VOLUNTEERS))}
        until_volunteers(tmp_path, N_VOLUNTEERS)
        for _ in range(n_phases):
            until_more(tmp_path, n_steps)
            undisturbed += durations_s(tmp_path, n_steps - 1)
            for _ in range(n_steps):
                kill_some(hatchery, address, processes, choices)
                until_more(tmp_path, 1)
            disturbed += durations_s(tmp_path, n_steps)
        server.send_signal(signal.SIGINT)
        said = output_of(server).read()
        assert server.wait(timeout=LIMIT_S) == 0
    ratio = median(disturbed) / median(undisturbed)
    steps = metrics_of(tmp_path)
    print(f"{N_KILLED} of {N_VOLUNTEERS} killed in each of {n_phases * n_steps} steps: x {ratio:.2f}")
    for what, found in (("undisturbed", undisturbed), ("disturbed", disturbed)):
        print(f"{what} {median(found):.2f} s a step, from {min(found):.2f} to {max(found):.2f}")
    assert n_phases == 1 or ratio < LONGEST  # the short one is no measurement
    assert "drifted" not in said
    assert [line["step"] for line in steps] == list(range(len(steps)))
    assert steps[-1]["digest"] in fedlearn("replay", "1", folder=tmp_path)
