"""A seat that lies is found by what it was sent and what it sent; the others of its crew keep their standing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

from fedlearn.coordination.audits.audit import Verdict
from fedlearn.coordination.effects import Compute
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.es.trials import TrialResults
from fedlearn.simulation.swarm import Participant
from fedlearn.tasks.parts.computation import Pass, Passed
from tests.simulation.swarm.stage import Stage, StageOf
from tests.simulation.swarm.test_crews import exported_once, run_of

SEATS = 3

Answer = bytes | TrialResults | Passed | None
Lie = Callable[[Participant, Pass, Answer], Answer]


@pytest.fixture(autouse=True, scope="module")
def _exported_once() -> Iterator[None]:
    with exported_once():
        yield


def of_other_members(liar: Participant, order: Pass, _: Answer) -> Answer:
    """What is right for the members of another group, and so has the right form."""
    trials = msgspec.structs.replace(order.trials, first_member=order.trials.first_member + 2**20)
    return type(liar.volunteer).perform(liar.volunteer, Pass(trials, order.block, order.payload))


def no_numbers(_: Participant, __: Pass, answer: Answer) -> Answer:
    assert isinstance(answer, Passed)
    results = None if answer.results is None else TrialResults(np.full_like(_losses(answer), np.nan))
    return Passed(b"\xff" * len(answer.payload), results)


def flipped(_: Participant, __: Pass, answer: Answer) -> Answer:
    """The best members become the worst."""
    losses = _losses(answer)
    return Passed(results=TrialResults(2 * losses.mean() - losses))


def _losses(answer: Answer) -> Any:  # noqa: ANN401 (an array of its own)
    assert isinstance(answer, Passed)
    assert answer.results is not None
    return answer.results.losses


def lies(liar: Participant, lie: Lie) -> None:
    """From now on, about everything that it computes."""
    perform = liar.volunteer.perform

    def perform_falsely(compute: Compute) -> Answer:
        answer = perform(compute)
        return lie(liar, compute, answer) if isinstance(compute, Pass) else answer

    liar.volunteer.perform = perform_falsely  # type: ignore[method-assign]


def verdicts_of(stage: Stage) -> list[Verdict]:
    path = stage.run.folder.audits
    return [msgspec.json.decode(line, type=Verdict) for line in path.read_bytes().splitlines()] if path.exists() else []


def reputations_of(stage: Stage) -> dict[str, Reputation]:
    return {volunteer.name: volunteer.reputation for volunteer in stage.swarm.coordinator.roster.volunteers.values()}


@pytest.mark.parametrize(
    ("place", "lie", "wire"),
    [
        (0, of_other_members, "float32"),
        (1, of_other_members, "int4-delta"),
        (2, flipped, "float16"),
        (1, no_numbers, "float32"),
        (0, no_numbers, "int8-delta"),
    ],
)
def test_the_seat_that_lies_is_sent_away_and_nobody_else(
    tmp_path: Path, stage_of: StageOf, place: int, lie: Lie, wire: str
) -> None:
    stage = stage_of(run_of(tmp_path, seats=SEATS, steps=12, wire=wire, audit=0.02))
    for number in range(SEATS + 1):
        joined = stage.join()
        if number == place:
            lies(joined, lie)
    stage.settle()
    assert stage.swarm.reason == "all 12 steps are done"
    liar = stage.participants[place]
    assert liar.left_by is not None
    assert liar.left_by.is_refusal
    verdicts = verdicts_of(stage)
    assert [(verdict.name, verdict.place) for verdict in verdicts] == [(f"volunteer {place}", place)] * 3
    reputations = reputations_of(stage)
    honest = [reputations[f"volunteer {number}"] for number in range(SEATS + 1) if number != place]
    assert [reputation.n_caught for reputation in honest] == [0] * SEATS
    assert all(reputation.is_trusted for reputation in honest)
    print(f"{wire}, seat {place}: off by {verdicts[0].difference:.3g}")
