import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.costs import Costs, LinkSpeeds
from fedlearn.simulation.timed_swarm import TimedSwarm
from fedlearn.storage.journal.journal import read_journal
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.wire.encoding.parcel import pack
from tests.run_folders import created, fit_task, rnn_config, task_config
from tests.simulation.swarm.stage import Stage

MEMBERS = 64
FREE = LinkSpeeds(up_mbit=math.inf, down_mbit=math.inf, latency_s=0.0)
COSTS = Costs(member_s=1e-3, noise_s=1e-5, step_s=0.02, take_s=3e-3, close_s=4e-3, send_s=1e-3)

SwarmOf = Callable[..., TimedSwarm]


@pytest.fixture
def swarm_of(tmp_path: Path) -> Iterator[SwarmOf]:
    """Swarms on runs of 12 steps of a network's, to the end."""
    trainers: list[Trainer] = []

    def trained(n_volunteers: int, costs: Costs, lines: LinkSpeeds, **settings: Any) -> TimedSwarm:  # noqa: ANN401
        config = rnn_config(tmp_path, **{"steps": 12, "population_limit": MEMBERS, **settings})
        trainers.append(Trainer.open(created(config))[0])
        swarm = TimedSwarm(trainers[-1], n_volunteers, costs=costs, lines=lines)
        while swarm.advance():
            pass
        return swarm

    yield trained
    for trainer in trainers:
        trainer.close()


def step_s(swarm: TimedSwarm) -> float:
    """Seconds of the last step."""
    return swarm.metrics[-1].elapsed_s - swarm.metrics[-2].elapsed_s


def sent(metrics: StepMetrics) -> tuple[int, int]:
    """Bytes of Results, and of the Update before them with Assignments."""
    return metrics.bytes_in, metrics.bytes_out


def update_bytes(swarm: TimedSwarm) -> int:
    """Of the last one on the wire."""
    return len(pack(list(read_journal(swarm.folder.journal))[-1]).frame(0))


def test_a_step_of_one_volunteer_takes_what_its_parts_take(swarm_of: SwarmOf) -> None:
    lines = LinkSpeeds(up_mbit=0.8, down_mbit=8.0, latency_s=0.05, server_mbit=1.6)
    swarm = swarm_of(1, COSTS, lines)
    results, orders = sent(swarm.metrics[-1])
    update = update_bytes(swarm)
    step = [
        COSTS.close_s + COSTS.send_s,
        update / 0.2e6 + update / 1e6,  # out of the server, and to the volunteer; the Assignment comes meanwhile
        lines.latency_s,
        COSTS.step_s + MEMBERS * COSTS.noise_s,
        MEMBERS * COSTS.member_s,
        results / 0.1e6 + lines.latency_s + results / 0.2e6,
        COSTS.take_s,
    ]
    assert update < orders < 2 * update
    assert step_s(swarm) == pytest.approx(sum(step))


def test_two_volunteers_halve_the_time_of_trials(swarm_of: SwarmOf) -> None:
    alone, both = (step_s(swarm_of(n, Costs(member_s=1e-3), FREE)) for n in (1, 2))
    assert alone == pytest.approx(MEMBERS * 1e-3)
    assert both == pytest.approx(MEMBERS * 1e-3 / 2)


def test_two_volunteers_send_one_after_another_through_the_line_of_the_server(swarm_of: SwarmOf) -> None:
    lines = LinkSpeeds(up_mbit=math.inf, down_mbit=math.inf, latency_s=0.0, server_mbit=0.8)
    swarm = swarm_of(2, Costs(member_s=1e-9), lines)
    results, orders = sent(swarm.metrics[-1])
    # Both Updates and the first Assignment leave, and while the Results come, the second Assignment.
    assignment = orders / 2 - update_bytes(swarm)
    assert step_s(swarm) == pytest.approx((orders - assignment + results) / 0.1e6, rel=0.01)


def test_the_server_takes_the_step_too_and_makes_its_update_once(tmp_path: Path) -> None:
    trainer, _ = Trainer.open(created(rnn_config(tmp_path, population_limit=MEMBERS)))
    costs = Costs(member_s=0.01, step_s=0.05, close_s=0.025)
    swarm = TimedSwarm(trainer, 2, costs=costs, lines=FREE)
    ends = []
    for _ in range(6):
        swarm.advance()
        ends.append(swarm.now() - swarm.metrics[-1].elapsed_s)
    trainer.close()
    # It begins with its step when the step before is closed, as all others do 25 ms later.
    assert ends == pytest.approx([0.05] * 6)
    assert step_s(swarm) == pytest.approx(0.025 + 0.05 + MEMBERS / 2 * 0.01)


def test_whoever_sums_makes_only_its_own_noise_again(swarm_of: SwarmOf) -> None:
    costs = Costs(member_s=1e-3, noise_s=1e-4)
    times = {way: step_s(swarm_of(2, costs, FREE, exchange=way)) for way in ("replay", "sum")}
    assert times["replay"] == pytest.approx(MEMBERS / 2 * 1e-3 + MEMBERS * 1e-4)
    assert times["sum"] == pytest.approx(MEMBERS / 2 * 1e-3 + MEMBERS / 2 * 1e-4)


@pytest.mark.parametrize("way", ["replay", "sum"])
def test_the_run_learns_what_it_learns_without_time(swarm_of: SwarmOf, tmp_path: Path, way: str) -> None:
    (tmp_path / "other").mkdir()
    stage = Stage(created(rnn_config(tmp_path / "other", steps=12, population_limit=MEMBERS))).train()
    swarm = swarm_of(3, COSTS, LinkSpeeds(), exchange=way)
    assert swarm.reason == "all 12 steps are done"
    assert [metrics.digest for metrics in swarm.metrics] == [metrics.digest for metrics in stage.swarm.metrics]


def test_sums_of_gradients_go_through_virtual_time(swarm_of: SwarmOf) -> None:
    swarm = swarm_of(2, COSTS, LinkSpeeds(), perturb="activations", head="closed-form", control_variates=False)
    assert [metrics.members for metrics in swarm.metrics] == [MEMBERS] * 12
    assert swarm.metrics[-1].volunteers == 2


def test_all_take_part_from_the_second_step_on_and_are_told_of_the_end(swarm_of: SwarmOf) -> None:
    swarm = swarm_of(5, COSTS, LinkSpeeds())
    assert [metrics.volunteers for metrics in swarm.metrics] == [1] + [5] * 11
    while any(volunteer.left_by is None for volunteer in swarm.volunteers.values()):
        swarm.go_on()
    assert {volunteer.worker.n_steps for volunteer in swarm.volunteers.values()} == {12}


def test_a_task_of_a_users_own_is_trained(tmp_path: Path) -> None:
    task = fit_task()
    trainer, _ = Trainer.open(created(task_config(tmp_path, steps=5), task))
    swarm = TimedSwarm(trainer, 2, costs=COSTS, lines=LinkSpeeds(), task=task)
    while swarm.advance():
        pass
    trainer.close()
    assert len(swarm.metrics) == 5
    assert swarm.metrics[-1].loss is not None


def test_audits_are_refused(tmp_path: Path) -> None:
    trainer, _ = Trainer.open(created(rnn_config(tmp_path, audit=0.02)))
    with pytest.raises(ValueError, match=r"audit: expected 0 in virtual time, got 0\.02; set audit = 0"):
        TimedSwarm(trainer, 1, costs=COSTS, lines=FREE)
    trainer.close()
