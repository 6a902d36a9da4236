"""Volunteers that are late, slow, silent or fickle beside four that are not, in virtual time."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedlearn.coordination.effects import ClientEffect, Reply
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.costs import Costs, LinkSpeeds
from fedlearn.simulation.timed_swarm import TimedSwarm
from fedlearn.wire.messages import Result
from tests.run_folders import created, fit_task, task_config

COSTS = Costs(member_s=0.02, take_s=1e-4, close_s=1e-4, send_s=1e-4)
"""Four such volunteers try at most 200 members a second."""

SLOW = msgspec.structs.replace(COSTS, member_s=20 * COSTS.member_s)
SILENT = msgspec.structs.replace(COSTS, member_s=math.inf)
NEAR = LinkSpeeds(up_mbit=100.0, down_mbit=100.0, latency_s=1e-3)
FAR = LinkSpeeds(up_mbit=1.0, down_mbit=1.0, latency_s=0.1)

SwarmOf = Callable[..., TimedSwarm]


@pytest.fixture
def swarm_of(tmp_path: Path) -> Iterator[SwarmOf]:
    """Swarms of four volunteers, and others, on runs of 20 steps."""
    trainers: list[Trainer] = []

    def swarm(lines: LinkSpeeds = NEAR, population: int = 256, **given: Any) -> TimedSwarm:  # noqa: ANN401
        task = fit_task()
        config = task_config(tmp_path, steps=20, population_limit=population, group_size=4, time_per_step=20)
        trainers.append(Trainer.open(created(config, task, max_population=2**14))[0])
        return TimedSwarm(trainers[-1], 4, costs=COSTS, lines=lines, task=task, **given)

    yield swarm
    for trainer in trainers:
        trainer.close()


def members_per_s(swarm: TimedSwarm) -> float:
    """Members that count, once everybody is known: from the third step on."""
    while swarm.advance():
        pass
    _, known, *steps = swarm.metrics
    return float(sum(metrics.members for metrics in steps)) / (steps[-1].elapsed_s - known.elapsed_s)


@pytest.mark.parametrize("others", [3 * [(SLOW, NEAR)], 5 * [(SILENT, NEAR)]], ids=["slow", "silent"])
def test_who_does_not_keep_up_holds_nobody_up(swarm_of: SwarmOf, others: list[tuple[Costs, LinkSpeeds]]) -> None:
    assert members_per_s(swarm_of(others=others)) > 0.995 * 200


def test_who_answers_two_steps_of_three_holds_nobody_up(swarm_of: SwarmOf, monkeypatch: pytest.MonkeyPatch) -> None:
    swarm = swarm_of(others=[(COSTS, NEAR)])
    worker = swarm.volunteers[5].worker
    computed = worker.computed

    def says_less(result: Any, now: float) -> list[ClientEffect]:  # noqa: ANN401
        effects = computed(result, now)
        return [effect for effect in effects if not is_left_out(effect)]

    def is_left_out(effect: ClientEffect) -> bool:
        return isinstance(effect, Reply) and isinstance(effect.message, Result) and effect.message.step % 3 == 0

    monkeypatch.setattr(worker, "computed", says_less)
    assert members_per_s(swarm) > 0.965 * 200


def test_where_all_are_on_bad_lines_the_population_grows_until_they_evaluate(swarm_of: SwarmOf) -> None:
    assert members_per_s(swarm_of(FAR, population=16)) > 0.88 * 200


@pytest.mark.parametrize(("population", "least"), [(256, 0.9), (1024, 0.975)])
def test_who_alone_is_on_a_bad_line_counts_and_more_so_in_long_steps(
    swarm_of: SwarmOf, population: int, least: float
) -> None:
    assert members_per_s(swarm_of(population=population, others=[(COSTS, FAR)])) > least * 250
