"""Crews that measure gradients: activations go forward, cotangents come back, and each seat sums its own tensors."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from fedlearn.client.performer import Computed
from fedlearn.config import ConfigError
from fedlearn.coordination.audits.audit import Verdict
from fedlearn.coordination.effects import Compute
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.trials import TrialResults
from fedlearn.runs import history
from fedlearn.runs.creation import create
from fedlearn.runs.run import Run, load, load_run_config
from fedlearn.simulation.swarm import Participant
from fedlearn.tasks.parts.computation import Pass, Passed
from fedlearn.tasks.torch.supervised import Supervised, supervised
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.tasks.user.task_kind import SUPERVISED
from tests.run_folders import reopened, task_config
from tests.simulation.swarm.stage import Stage, StageOf, journal_of
from tests.simulation.swarm.test_crews import N_PARAMETERS, parameters_of, residual_task

STEPS = 4
SETTINGS = {"measure": "gradients", "population_limit": 10, "max_population": 10, "group_size": 0, "sigma": 0}


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.first, self.last = nn.Embedding(40, 24), nn.Linear(24, 32), nn.Linear(32, 24)
        self.head = nn.Linear(24, 40, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(tokens)
        found: torch.Tensor = self.head(hidden + self.last(torch.tanh(self.first(hidden))))
        return found


def next_token(model: nn.Module, rows: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(rows["tokens"][:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), rows["tokens"][:, 1:].flatten())


def tied_task() -> NamedTask:
    tokens = np.random.default_rng(0).integers(0, 40, (64, 9))
    torch.manual_seed(0)
    return NamedTask(supervised(Tied, next_token, {"tokens": tokens}, batch_size=4), "tied.py:task", bytes(16))


class Dropping(nn.Module):
    """Layers that drop, and noise between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(torch.tanh(self.first(self.drop(x))))
        hidden = torch.tanh(self.second(hidden) + torch.rand(16)) + 0.1 * torch.randn_like(hidden)
        found: torch.Tensor = self.last(self.drop(hidden))
        return found


def dropping_task() -> NamedTask:
    x = np.random.default_rng(0).uniform(-1, 1, (256, 4)).astype(np.float32)
    torch.manual_seed(0)
    task = supervised(Dropping, square_error, {"x": x, "y": np.sin(3 * x[:, 0])}, batch_size=8)
    return NamedTask(task, "sine.py:task", bytes(16))


def square_error(model: nn.Module, rows: dict[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(rows["x"])[:, 0], rows["y"])


@cache
def attachment_of(task: Callable[[], NamedTask]) -> bytes:
    """Exporting a task takes longer than training it."""
    return task().task.as_graph()


def run_of(folder: Path, task: Callable[[], NamedTask] = residual_task, **settings: Any) -> Run:  # noqa: ANN401
    folder.mkdir(exist_ok=True)
    attachment = attachment_of(task)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Supervised, "as_graph", lambda *_, **__: attachment)
        return create(SUPERVISED, task_config(folder, **{"steps": STEPS, **SETTINGS, **settings}), task())


@pytest.mark.parametrize("seats", [2, 3, 5])
def test_a_crew_takes_the_steps_of_one_seat_to_the_bit(tmp_path: Path, stage_of: StageOf, seats: int) -> None:
    alone, crew = run_of(tmp_path / "alone", seats=1), run_of(tmp_path / "crew", seats=seats)
    stage_of(alone).train(volunteers=1)
    stage = stage_of(crew).train(volunteers=seats)
    assert journal_of(crew) == journal_of(alone)
    losses = [metrics.loss for metrics in stage.swarm.metrics if metrics.loss is not None]
    assert losses[-1] < losses[0]
    assert sum(parameters_of(stage.participants)) == N_PARAMETERS
    assert history.replay(reopened(crew)).holding.replica.digest == stage.trainer.replica.digest


@pytest.mark.parametrize("settings", [{}, {"sum_bits": 4, "optimizer": "adam"}])
def test_a_tensor_that_two_seats_hold_is_summed_to_the_bit(
    tmp_path: Path, stage_of: StageOf, settings: dict[str, Any]
) -> None:
    runs = [run_of(tmp_path / str(seats), tied_task, seats=seats, **settings) for seats in (1, 3)]
    alone, crew = (stage_of(run).train(volunteers=seats) for run, seats in zip(runs, (1, 3), strict=True))
    assert journal_of(runs[1]) == journal_of(runs[0])
    held = parameters_of(crew.participants)
    assert sum(held) > alone.trainer.layout.size, "the embedding is also the head"


@pytest.mark.parametrize("settings", [{}, {"measure": "losses", "group_size": 10, "sigma": 0.02}])
def test_the_seats_of_a_crew_draw_what_one_seat_draws(
    tmp_path: Path, stage_of: StageOf, settings: dict[str, Any]
) -> None:
    audits = {1: 0.0, 3: 1.0}
    runs = [run_of(tmp_path / str(n), dropping_task, seats=n, audit=audit, **settings) for n, audit in audits.items()]
    stages = [stage_of(run).train(volunteers=seats) for run, seats in zip(runs, audits, strict=True)]
    assert journal_of(runs[1]) == journal_of(runs[0])
    assert len(set(parameters_of(stages[1].participants))) == 3
    assert not stages[1].run.folder.audits.exists(), "nobody was caught"


def test_a_crew_draws_what_whoever_holds_the_whole_model_draws(tmp_path: Path, stage_of: StageOf) -> None:
    whole = stage_of(run_of(tmp_path / "whole", dropping_task)).train(volunteers=1)
    crew = stage_of(run_of(tmp_path / "crew", dropping_task, seats=3)).train(volunteers=3)
    losses = [[metrics.loss for metrics in stage.swarm.metrics] for stage in (whole, crew)]
    assert losses[1][0] == losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)  # each rounds gradients by draws of its own


def test_shards_of_a_vocabulary_learn_as_the_whole_does(tmp_path: Path, stage_of: StageOf) -> None:
    whole = stage_of(run_of(tmp_path / "whole", tied_task, seats=2)).train(volunteers=2)
    cut = stage_of(run_of(tmp_path / "cut", tied_task, seats=2, shards=2)).train(volunteers=2)
    losses = [[metrics.loss for metrics in stage.swarm.metrics] for stage in (whole, cut)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_gradients_are_what_a_crew_measures_where_there_are_some(tmp_path: Path) -> None:
    config = run_of(tmp_path / "auto", measure="auto", perturb="auto", head="auto", seats=3).config
    assert (config.strategy.measure, config.strategy.local_steps) == ("gradients", 1)
    assert run_of(tmp_path / "losses", measure="losses", seats=3, group_size=8, sigma=0.02).config.server.seats == 3
    with pytest.raises(ConfigError, match="local_steps: expected 1 where crews hold the model"):
        run_of(tmp_path / "local", seats=3, local_steps=4)


@pytest.mark.parametrize("wire", ["float16", "int8-delta", "int4-delta"])
def test_a_crew_learns_whatever_travels_between_its_seats(tmp_path: Path, stage_of: StageOf, wire: str) -> None:
    exact = stage_of(run_of(tmp_path / "exact", seats=3)).train(volunteers=3)
    stage = stage_of(run_of(tmp_path / wire, seats=3, wire=wire, audit=1.0)).train(volunteers=3)
    losses = [[metrics.loss for metrics in each.swarm.metrics] for each in (exact, stage)]
    assert losses[1] == pytest.approx(losses[0], rel=0.1 if wire == "int4-delta" else 0.02)
    assert losses[1] != losses[0]
    assert not stage.run.folder.audits.exists(), "nobody was caught"


def test_a_place_that_is_left_goes_to_who_waits_and_costs_its_lease_alone(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path / "a", seats=3, steps=6))
    for _ in range(4):
        stage.join()
    stage.go_to(3)
    for _ in range(4):
        stage.advance()
    stage.swarm.kill(stage.participants[1])
    stage.settle()
    assert stage.swarm.reason == "all 6 steps are done"
    assert [metrics.members for metrics in stage.swarm.metrics] == [10] * 6
    replica = stage.trainer.replica
    for number in (0, 2, 3):
        part = stage.participants[number].volunteer.replica
        assert part is not None
        assert (part.step, part.digest) == (6, replica.digests([part.layout])[0])


def test_a_seat_that_drifts_is_sent_its_part_again(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path / "a", seats=3, steps=5))
    for _ in range(3):
        stage.join()
    stage.go_to(3)
    drifting = stage.participants[1].volunteer.replica
    assert drifting is not None
    drifting.weights[5] += 1.0
    stage.settle()
    assert stage.swarm.reason == "all 5 steps are done"
    assert any("volunteer 1 drifted: its digest of step" in notice for notice in stage.swarm.notices)


def test_a_run_that_is_resumed_goes_on_to_the_bit(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path / "a", seats=3, steps=5))
    for _ in range(3):
        stage.join()
    stage.go_to(4)
    stage.close()
    again = stage_of(load(stage.run.folder, load_run_config(stage.run.folder), task=residual_task()))
    straight = stage_of(run_of(tmp_path / "b", seats=3, steps=5)).train(volunteers=3)
    assert again.train(volunteers=3).trainer.replica.digest == straight.trainer.replica.digest


def test_gradients_that_are_not_finite_count_for_nothing(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path / "a", seats=3, steps=4))
    for _ in range(3):
        stage.join()
    stage.go_to(2)
    falsify(stage.participants[1], lambda _, passed: _with_estimate(passed, NO_SUM))
    weights = stage.trainer.replica.weights.copy()
    stage.go_to(3)
    assert np.abs(stage.trainer.replica.weights - weights).max() < 0.1
    assert stage.swarm.metrics[-1].loss is None


# ---- false seats

Lie = Callable[[Pass, Passed], Passed]
NO_SUM = CodedEstimate(np.zeros(0, dtype=np.int8), np.zeros(0, dtype=np.uint8))


def falsify(participant: Participant, lie: Lie) -> None:
    """Has a participant answer falsely from now on."""
    perform = participant.volunteer.perform

    def perform_falsely(compute: Compute) -> Computed:
        answer = perform(compute)
        if isinstance(compute, Pass):
            assert isinstance(answer, Passed)
            return lie(compute, answer)
        return answer

    participant.volunteer.perform = perform_falsely  # type: ignore[method-assign]


def _changed(order: Pass, passed: Passed, *, is_back: bool, change: Callable[[np.ndarray[Any, Any]], bytes]) -> Passed:
    """The payload with other values, on the way forward or back."""
    goes_back = order.cotangents is not None or (passed.results is not None and bool(passed.results.losses.size))
    if goes_back != is_back or not passed.payload:
        return passed
    payload = change(np.frombuffer(passed.payload, "<f4"))
    return Passed((payload * len(passed.payload))[: len(passed.payload)], passed.results)


def reversed_values(values: np.ndarray[Any, Any]) -> bytes:
    return values[::-1].tobytes()


def _with_estimate(passed: Passed, estimate: CodedEstimate) -> Passed:
    if passed.results is None or not passed.results.estimate.is_there:
        return passed
    return Passed(passed.payload, TrialResults(passed.results.losses, estimate))


def turned(_: Pass, passed: Passed) -> Passed:
    """The gradient of this part points the other way."""
    if passed.results is None or not passed.results.estimate.is_there:
        return passed
    its = passed.results.estimate
    return _with_estimate(passed, CodedEstimate(-np.maximum(its.numbers, np.int8(-127)), its.shifts))


def better(_: Pass, passed: Passed) -> Passed:
    """The losses are said to be better than they are."""
    if passed.results is None:
        return passed
    return Passed(passed.payload, TrialResults(passed.results.losses * np.float32(0.5), passed.results.estimate))


LIES: list[tuple[int, str, Lie]] = [
    (0, "activations", partial(_changed, is_back=False, change=reversed_values)),
    (1, "activations", partial(_changed, is_back=False, change=reversed_values)),
    (1, "cotangents", partial(_changed, is_back=True, change=reversed_values)),
    (2, "cotangents", partial(_changed, is_back=True, change=reversed_values)),
    (0, "sum", turned),
    (1, "sum", turned),
    (2, "sum", turned),
    (2, "losses", better),
]


def verdicts_of(stage: Stage) -> list[Verdict]:
    path = stage.run.folder.audits
    return [msgspec.json.decode(line, type=Verdict) for line in path.read_bytes().splitlines()] if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "lie"), [(place, lie) for place, _, lie in LIES], ids=[f"{n}-{k}" for n, k, _ in LIES]
)
def test_the_seat_that_lies_is_sent_away_and_nobody_else(
    tmp_path: Path, stage_of: StageOf, place: int, lie: Lie
) -> None:
    stage = stage_of(run_of(tmp_path / "a", seats=3, steps=6, audit=0.02))
    for number in range(4):
        joined = stage.join()
        if number == place:
            falsify(joined, lie)
    stage.settle()
    assert stage.swarm.reason == "all 6 steps are done"
    left = stage.participants[place].left_by
    assert left is not None
    assert left.is_refusal
    verdicts = verdicts_of(stage)
    assert {(verdict.name, verdict.place) for verdict in verdicts} == {(f"volunteer {place}", place)}
    roster = stage.swarm.coordinator.roster.volunteers.values()
    honest = [volunteer.reputation for volunteer in roster if volunteer.name != f"volunteer {place}"]
    assert [reputation.n_caught for reputation in honest] == [0] * 3
