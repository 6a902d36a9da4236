"""Crews, which hold one replica between them, beside volunteers that hold whole ones."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.commands.look.traffic import traffic_command
from fedlearn.config import ConfigError
from fedlearn.coordination.crews.crew import STALL_S
from fedlearn.coordination.crews.crews import REPLAN_S
from fedlearn.runs import history
from fedlearn.runs.creation import create
from fedlearn.runs.run import Run, load, load_run_config
from fedlearn.simulation.swarm import Participant
from fedlearn.tasks.torch.supervised import Supervised, supervised
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.tasks.user.task_kind import SUPERVISED
from fedlearn.wire.messages import Activations
from tests.run_folders import reopened, task_config
from tests.simulation.swarm.stage import StageOf, journal_of

STEPS = 6
N_PARAMETERS = 913
MEMORY = 60_208
"""Of a whole replica, as the planner has it."""


def residual_task() -> NamedTask:
    """A sine, by layers of which the last reads what the first made."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 16)
            self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
            self.last = nn.Linear(16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = hidden = torch.tanh(self.first(x))
            for layer in self.layers:
                hidden = torch.tanh(layer(hidden))
            last: torch.Tensor = self.last(hidden + kept)
            return last

    def loss(model: nn.Module, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        return nn.functional.mse_loss(model(rows["x"])[:, 0], rows["y"])

    torch.manual_seed(0)
    x = np.random.default_rng(0).uniform(-1, 1, (256, 4)).astype(np.float32)
    task = supervised(Residual, loss, {"x": x, "y": np.sin(3 * x[:, 0])}, batch_size=8)
    return NamedTask(task, "sine.py:task", bytes(16))


@contextmanager
def exported_once() -> Iterator[None]:
    """The task is the same in all runs here, and exporting it takes longer than training."""
    attachment = residual_task().task.as_graph()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Supervised, "as_graph", lambda *_, **__: attachment)
        yield


@pytest.fixture(autouse=True, scope="module")
def _exported_once() -> Iterator[None]:
    with exported_once():
        yield


def run_of(folder: Path, **settings: Any) -> Run:  # noqa: ANN401 (values of any setting)
    folder.mkdir(exist_ok=True)
    config = task_config(folder, **{"steps": STEPS, **settings})
    return create(SUPERVISED, config, residual_task())


def parameters_of(participants: list[Participant]) -> list[int]:
    """That each of them holds."""
    return [p.volunteer.replica.layout.size if p.volunteer.replica else 0 for p in participants]


def tensors_of(participant: Participant) -> list[str]:
    replica = participant.volunteer.replica
    return [view.name for view in replica.layout.tensors] if replica is not None else []


@pytest.mark.parametrize("seats", [2, 3, 5])
def test_a_crew_takes_the_steps_of_a_lone_volunteer(tmp_path: Path, stage_of: StageOf, seats: int) -> None:
    alone, crew = run_of(tmp_path / "alone", seats=1), run_of(tmp_path / "crew", seats=seats)
    stage_of(alone).train(volunteers=1)
    stage = stage_of(crew).train(volunteers=seats)
    assert journal_of(crew) == journal_of(alone)
    assert [metrics.volunteers for metrics in stage.swarm.metrics] == [seats] * STEPS
    held = parameters_of(stage.participants)
    assert sum(held) == N_PARAMETERS
    assert max(held) < N_PARAMETERS
    assert history.replay(reopened(crew)).holding.replica.digest == stage.trainer.replica.digest


def test_who_lends_too_little_memory_for_a_replica_shares_one(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path))
    stage.join()
    for _ in range(2):
        stage.join(budget=MemoryBudget(MEMORY * 4 // 5))
    stage.go_to(2)
    stage.join(budget=MemoryBudget(MEMORY * 4 // 5))
    stage.settle()
    held = parameters_of(stage.participants)
    assert held[0] == N_PARAMETERS
    assert sum(held[1:]) == N_PARAMETERS
    assert sorted(held)[0] == 0, "two are enough, and the third waits"
    assert {metrics.volunteers for metrics in stage.swarm.metrics[2:]} == {3}


def test_a_slow_seat_is_not_sent_more_of_a_large_group_than_it_can_hold(tmp_path: Path, stage_of: StageOf) -> None:
    budget = MemoryBudget(MEMORY * 4 // 5)
    stage = stage_of(run_of(tmp_path, steps=2, population_limit=256, group_size=256))
    crew = [stage.join(budget=budget) for _ in range(2)]
    stage.go_to(1)
    (slow,) = [one for one in crew if "last.weight" in tensors_of(one)]
    slow.is_stalled = True
    stage.settle()
    most, group_bytes = slow.worker.activations_waiting_bytes, 256 * 2 * 8 * 16 * 4
    print(f"{most} bytes wait of a group of {group_bytes}, where {budget.max_activations_bytes} may")
    assert 0 < 2 * most <= budget.max_activations_bytes < group_bytes
    slow.is_stalled = False
    stage.settle()
    assert [metrics.members for metrics in stage.swarm.metrics] == [256, 256]


def test_a_place_that_is_left_goes_to_who_waits(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=3, steps=12))
    for _ in range(4):
        stage.join()
    stage.go_to(3)
    assert parameters_of(stage.participants)[3] == 0
    stage.swarm.kill(stage.participants[1])
    stage.go_to(6)
    assert sum(parameters_of([stage.participants[i] for i in (0, 2, 3)])) == N_PARAMETERS
    stage.settle()
    assert stage.swarm.reason == "all 12 steps are done"
    replica = stage.trainer.replica
    for number in (0, 2, 3):
        part = stage.participants[number].volunteer.replica
        assert part is not None
        assert (part.step, part.digest) == (12, replica.digests([part.layout])[0])


def test_who_holds_which_tensors_is_shown(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=3, steps=12))
    for _ in range(4):
        stage.join()

    def held() -> list[tuple[str, ...]]:
        shown = stage.swarm.coordinator.run_status(0.0).volunteers
        return [volunteer.tensors for volunteer in shown if volunteer.phase == "seated"]

    names = sorted(view.name for view in stage.trainer.layout.tensors)
    stage.go_to(3)
    assert (held()[3], sorted(name for tensors in held() for name in tensors)) == ((), names)
    stage.swarm.kill(stage.participants[1])
    stage.go_to(6)
    assert all(held())
    assert sorted(name for tensors in held() for name in tensors) == names


def test_a_crew_goes_on_when_its_place_is_taken_by_a_newcomer(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=3, steps=8))
    for _ in range(3):
        stage.join()
    stage.go_to(3)
    stage.swarm.kill(stage.participants[0])
    stage.settle()
    assert stage.trainer.replica.step == 3
    stage.join()
    stage.settle()
    assert stage.trainer.replica.step == 8


def test_a_place_that_nobody_takes_is_given_up(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, steps=9))
    stage.join(budget=MemoryBudget(MEMORY * 4 // 5))
    stage.join(budget=MemoryBudget(MEMORY * 4 // 5))
    stage.go_to(2)
    first, second = stage.participants
    stage.swarm.kill(second)
    stage.settle()
    stage.join(budget=MemoryBudget(MEMORY * 3 // 5))
    stage.settle()
    assert stage.trainer.replica.step < 9, "the place that is left is too large for the newcomer"
    stage.clock.now += REPLAN_S
    stage.settle()
    assert stage.swarm.reason == "all 9 steps are done"
    assert sum(parameters_of([first, stage.participants[2]])) == N_PARAMETERS


def test_who_does_not_answer_loses_the_seat(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=2, steps=8, time_per_step=2 * STALL_S))
    for _ in range(3):
        stage.join()
    stage.go_to(2)
    stage.participants[1].is_stalled = True
    stage.settle()
    assert stage.trainer.replica.step < 8
    stage.clock.now += STALL_S
    stage.settle()
    assert stage.trainer.replica.step == 8
    assert any("has not answered for 30 s; its seat is free" in notice for notice in stage.swarm.notices)


@pytest.mark.parametrize("wire", ["float16", "int8-delta", "int4-delta"])
def test_a_crew_learns_whatever_its_activations_travel_as(tmp_path: Path, stage_of: StageOf, wire: str) -> None:
    exact = stage_of(run_of(tmp_path / "exact", seats=3)).train(volunteers=3)
    stage = stage_of(run_of(tmp_path / wire, seats=3, wire=wire)).train(volunteers=3)
    losses = [metrics.loss for metrics in stage.swarm.metrics]
    assert losses == pytest.approx([metrics.loss for metrics in exact.swarm.metrics], rel=0.02)
    assert losses != [metrics.loss for metrics in exact.swarm.metrics]


def test_a_seat_that_drifts_is_sent_its_part_again(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=3, steps=8))
    for _ in range(3):
        stage.join()
    stage.go_to(3)
    drifting = stage.participants[1].volunteer.replica
    assert drifting is not None
    drifting.weights[5] += 1.0
    drifting_digest = drifting.digest
    stage.settle()
    assert stage.swarm.reason == "all 8 steps are done"
    assert any("volunteer 1 drifted: its digest of step" in notice for notice in stage.swarm.notices)
    mended = stage.participants[1].volunteer.replica
    assert mended is not None
    assert mended.digest == stage.trainer.replica.digests([mended.layout])[0] != drifting_digest


def test_who_answers_for_members_of_others_is_sent_away(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=2, steps=8))
    for _ in range(2):
        stage.join()
    stage.go_to(2)
    stage.participants[0].link.client.send(Activations(2, 10**6, 8, bytes(8), b"1"))
    stage.settle()
    left = stage.participants[0].left_by
    assert left is not None
    assert left.is_refusal
    assert "expected some from 0 to 63, got 8 from 1000000 on" in left.reason


def test_the_work_of_a_crew_is_credited_to_its_seats(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=3)).train(volunteers=3)
    entries = [msgspec.json.decode(line) for line in stage.run.folder.credit.read_bytes().splitlines()]
    earned = {volunteer["name"]: volunteer["members"] for entry in entries for volunteer in entry["earned"].values()}
    assert set(earned) == {"volunteer 0", "volunteer 1", "volunteer 2"}
    assert sum(earned.values()) == 64 * STEPS
    assert max(earned.values()) - min(earned.values()) <= STEPS


def test_a_crew_and_a_lone_volunteer_share_a_step(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, steps=100))
    for _ in range(2):
        stage.join(budget=MemoryBudget(MEMORY * 4 // 5))
    stage.go_to(2)
    stage.join()
    stage.go_to(6)
    shown = stage.swarm.coordinator.run_status(0.0).volunteers
    assert [volunteer.name for volunteer in shown] == ["volunteer 0", "volunteer 1", "volunteer 2"]
    assert [volunteer.phase for volunteer in shown] == ["seated", "seated", "ready"]
    assert shown[2].share > 0
    assert shown[0].share == shown[1].share == (1.0 - shown[2].share) / 2
    assert shown[0].members_per_s == shown[1].members_per_s
    assert {volunteer.digest for volunteer in shown} == {"equal"}
    assert stage.swarm.coordinator.status(0.0).volunteers == 3
    stage.swarm.coordinator.stop("the operator stopped it")
    shares = [volunteer.share for volunteer in stage.swarm.coordinator.run_status(0.0).volunteers]
    assert max(shares) == 0.0, "no step is open"


def test_a_run_that_is_resumed_seats_its_volunteers_again(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path / "a", seats=3, steps=8))
    for _ in range(3):
        stage.join()
    stage.go_to(4)
    stage.close()
    run = load(stage.run.folder, load_run_config(stage.run.folder), task=residual_task())
    again = stage_of(run).train(volunteers=3)
    straight = stage_of(run_of(tmp_path / "b", seats=3, steps=8)).train(volunteers=3)
    assert again.trainer.replica.digest == straight.trainer.replica.digest


def test_results_of_a_crew_are_checked_like_anybodys(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=2, audit=1.0, wire="int8-delta")).train(volunteers=2)
    entries = [msgspec.json.decode(line) for line in stage.run.folder.credit.read_bytes().splitlines()]
    assert sum(volunteer.get("agreed", 0) for entry in entries for volunteer in entry["earned"].values()) > 0
    assert not stage.run.folder.audits.exists(), "nobody was caught"


def test_a_model_that_has_no_such_parts_is_refused_at_the_start(tmp_path: Path, stage_of: StageOf) -> None:
    with pytest.raises(
        ConfigError, match=r"seats, shards: expected a model that can be divided among 12: .* at most 5"
    ):
        stage_of(run_of(tmp_path, seats=12))


@pytest.mark.parametrize(("wire", "bytes_a_member"), [("float32", 512), ("int8-delta", 136), ("int4-delta", 72)])
def test_what_crosses_each_cut_is_in_the_metrics_and_follows_the_formula(
    tmp_path: Path, stage_of: StageOf, capsys: pytest.CaptureFixture[str], wire: str, bytes_a_member: int
) -> None:
    stage = stage_of(run_of(tmp_path, seats=2, wire=wire)).train(volunteers=2)
    group = stage.run.config.strategy.group_size
    per_group = 4 * 8 * 16 if wire.endswith("delta") else 0
    n_values = 2  # the first layer's values are passed on for the last one
    for metrics in stage.swarm.metrics:
        n_members, n_bytes, n_direct = metrics.relayed["crew 1, cut 1"]
        assert n_members == metrics.members
        assert n_direct == 0
        assert sum(received for received, _ in metrics.kinds.values()) == metrics.bytes_in
        assert sum(sent for _, sent in metrics.kinds.values()) == metrics.bytes_out
        assert metrics.kinds["activations"][0] == metrics.kinds["activations"][1] > n_bytes
        assert n_bytes == n_values * (n_members * bytes_a_member + n_members // group * per_group)
    options = argparse.Namespace(run=str(stage.run.folder.path), runs=str(tmp_path), json=False)
    assert traffic_command(options) == 0
    said = capsys.readouterr().out
    assert "crew 1, cut 1: " in said
    assert ": activations " in said


def test_who_waits_for_a_seat_is_said_with_what_is_missing(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=3))
    stage.join()
    stage.join()
    stage.settle()
    stage.clock.now += 3.0
    stage.settle()
    assert stage.swarm.notices == ["2 volunteers wait for a part of the model: a crew of 3 needs 1 more"]
    stage.join()
    stage.go_to(1)
    costs = "crew 1 sends bytes a member as float32, through this server: 1024 behind seat 1, 1024 behind seat 2"
    assert costs in stage.swarm.notices
