"""What volunteers that are no help cost those that are: alternating phases of one run, with them and without."""

from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from tests.end_to_end.processes import metrics_of, wait_for
from tests.faults.callers import OPEN, serving
from tests.faults.hatchery import Hatchery, hatching
from tests.faults.measures import pace, until_more
from tests.faults.nuisances import KINDS, nuisance

N_HONEST = 20
N_OF_A_KIND = 2
TRIAL_S = 0.02
FLAGS = [*OPEN, "--volunteers", "0", "--population-limit", "320", "--time-per-step", "1"]
"""16 members each, which take a third of a second of sleep: processors decide little."""


def compared(folder: Path, kinds: list[str], *, n_phases: int, n_steps: int) -> tuple[float, list[float]]:
    """Members a second with some of each kind over those without, of medians; and those without, for their noise."""
    without, beside = list[float](), list[float]()
    with (
        serving(folder, *FLAGS, trial_s=TRIAL_S, limit_s=900.0) as (server, address),
        hatching(folder) as hatchery,
    ):
        for number in range(N_HONEST):
            hatchery.hatch(f"honest {number}", address)
        while not any(line["volunteers"] == N_HONEST for line in metrics_of(folder)[-3:]):
            assert server.poll() is None
            until_more(folder, 1)
        for phase in range(n_phases):
            without.append(pace(folder, n_steps))
            beside.append(beside_them(folder, kinds, hatchery, address, phase, n_steps))
            until_more(folder, 2)
        without.append(pace(folder, n_steps))
        assert server.poll() is None
        wait_for(server, "joined")
    return median(beside) / median(without), without


def beside_them(folder: Path, kinds: list[str], hatchery: Hatchery, address: str, phase: int, n_steps: int) -> float:
    with ExitStack() as held:
        for kind in kinds:
            for number in range(N_OF_A_KIND):
                held.enter_context(nuisance(kind, hatchery, address, f"{kind} {phase} {number}"))
        until_more(folder, 6)  # what each is, it has shown by then
        return pace(folder, n_steps)


@pytest.mark.slow
def test_honest_volunteers_take_steps_beside_bad_ones_of_all_kinds(tmp_path: Path) -> None:
    ratio, without = compared(tmp_path, KINDS, n_phases=1, n_steps=4)
    print(f"{len(KINDS) * N_OF_A_KIND} bad ones of all kinds beside {N_HONEST}: members a second x {ratio:.2f}")
    print(f"without them {min(without):.0f} to {max(without):.0f}")
    assert ratio > 0.0


@pytest.mark.long
@pytest.mark.parametrize("kinds", [*([kind] for kind in KINDS), KINDS], ids=[*KINDS, "all"])
def test_bad_volunteers_cost_the_honest_ones_a_tenth_at_most(tmp_path: Path, kinds: list[str]) -> None:
    ratio, without = compared(tmp_path, kinds, n_phases=5, n_steps=12)
    noise = (max(without) - min(without)) / median(without)
    print(
        f"{kinds}: members a second x {ratio:.3f}; without them {median(without):.0f}, from least to most {noise:.0%}"
    )
    assert ratio > 0.9
