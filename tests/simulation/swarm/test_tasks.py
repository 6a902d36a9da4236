"""Tasks that users bring, trained by a swarm as recurrent networks are."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlearn.client.performer import Computed
from fedlearn.coordination.effects import Apply, Begin, Build, Compute, Evaluate, Load, StoreBlock
from fedlearn.es.layout import Float32Array
from fedlearn.es.snapshot import START
from fedlearn.runs import history
from fedlearn.runs.run import Run
from fedlearn.simulation.swarm import Participant
from fedlearn.storage.journal.journal import read_journal
from fedlearn.tasks.blocks import NO_BLOCK, cut
from fedlearn.tasks.function import function
from fedlearn.tasks.function.task import Covariance
from fedlearn.tasks.user import task_kind
from fedlearn.tasks.user.named_task import NamedTask
from tests.run_folders import TARGET, created, fit_task, named, reopened, task_config
from tests.simulation.swarm.stage import StageOf, journal_of


def word_task() -> NamedTask:
    """Finds a vector for each of 12 words, in rows of which a group sees a few only."""
    words = np.arange(48) % 12

    def loss(arrays: dict[str, Float32Array], rows: dict[str, Float32Array]) -> float:
        return float(((arrays["words"][rows["word"]] - rows["value"][:, np.newaxis]) ** 2).mean())

    data = {"word": words, "value": words.astype(np.float32) / 12}
    task = function(loss, {"words": np.zeros((12, 3)), "bias": np.zeros(300)}, data, batch_size=2)
    task.reads = {"words": "word"}
    return named(task)


def run_of(folder: Path, task: NamedTask, **settings: Any) -> Run:  # noqa: ANN401 (values of any setting)
    return created(task_config(folder), task, **settings)


def computes_of(participant: Participant, monkeypatch: pytest.MonkeyPatch) -> list[Compute]:
    """What it computes from now on."""
    computes = []
    perform = participant.volunteer.perform

    def perform_and_tell(compute: Compute) -> Computed:
        computes.append(compute)
        return perform(compute)

    monkeypatch.setattr(participant.volunteer, "perform", perform_and_tell)
    return computes


def test_swarm_finds_what_a_plain_function_asks_for(tmp_path: Path, stage_of: StageOf) -> None:
    task = fit_task()
    run = run_of(tmp_path, task, steps=60, learning_rate=0.05)
    stage = stage_of(run, task).train(volunteers=2)
    assert stage.drifted() == []
    losses = [metrics.loss for metrics in stage.swarm.metrics]
    assert losses[0] == pytest.approx(float((TARGET**2).mean()) - 1.0, abs=0.02)
    assert losses[-1] == pytest.approx(-1.0, abs=0.02)
    assert stage.trainer.replica.weights == pytest.approx(TARGET, abs=0.1)
    assert {update.block for update in read_journal(run.folder.journal)} == {NO_BLOCK}
    assert history.replay(reopened(run)).holding.replica.digest == stage.trainer.replica.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"fitness_shaping": "centered-ranks"},
        {"rank": 0},
        {"antithetic": True},
        {"optimizer": "sgd", "beta1": 0.0},
        {"optimizer": "sgd", "beta1": 0.9},
        {"weight_decay": 0.5},
        {"weight_decay": 0.5, "weight_decay_towards": "start"},
        {"step_num": 7, "steps": 13},
    ],
    ids=lambda changes: " ".join(f"{key}={value}" for key, value in changes.items()),
)
def test_every_choice_gives_equal_replicas_to_whoever_comes_late(
    tmp_path: Path, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    task = word_task()
    run = run_of(tmp_path, task, **{"steps": 6, **changes})
    stage = stage_of(run, task)
    steady = stage.join()
    first_step = run.config.run.step_num
    stage.go_to(first_step + 2)
    computes = computes_of(stage.join(), monkeypatch)
    stage.settle()
    assert stage.drifted() == []
    assert stage.followed(steady) == list(range(first_step + 1, first_step + 7))
    assert stage.followed(stage.participants[1])[-1] == first_step + 6
    assert [type(compute) for compute in computes[:5]] == [Build, StoreBlock, Begin, Apply, Apply]
    assert history.replay(reopened(run)).holding.replica.digest == stage.trainer.replica.digest
    assert (START in stage.trainer.replica.slots) == ("weight_decay_towards" in changes)


def test_joiner_takes_the_journals_steps_while_they_are_fewer_bytes_than_the_weights(
    tmp_path: Path, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = fit_task(start={"vector": np.zeros(6), "never used": np.zeros(1000)})
    stage = stage_of(run_of(tmp_path, task, steps=0), task)
    early = computes_of(stage.join(), monkeypatch)
    stage.go_to(3)
    late = computes_of(stage.join(), monkeypatch)
    stage.go_to(100)
    latest = computes_of(stage.join(), monkeypatch)
    stage.go_to(110)
    assert [type(compute) for compute in early[:3]] == [Build, Begin, Evaluate]
    kinds = [type(compute) for compute in late]
    assert kinds[:5] == [Build, Begin, Apply, Apply, Apply]
    assert Load not in kinds
    assert Evaluate in kinds
    assert [type(compute) for compute in latest[:2]] == [Build, Load]
    assert stage.drifted() == []


@pytest.mark.parametrize(("exchange", "covariance"), [("auto", True), ("sum", True), ("auto", "diagonal")])
def test_noise_that_learns_its_covariance_is_equal_everywhere(
    tmp_path: Path, stage_of: StageOf, exchange: str, covariance: Covariance
) -> None:
    task = fit_task(covariance=covariance)
    settings = {**task.task.settings, "learning_rate": 0.5, "group_size": 8, "population_limit": 16}
    run = run_of(tmp_path, task, steps=60, exchange=exchange, **settings)
    stage = stage_of(run, task)
    stage.join()
    stage.go_to(20)
    stage.join()  # it is sent the path beside the weights
    stage.settle()
    assert stage.drifted() == []
    last = stage.trainer.replica.step  # where losses no longer differ the search ends before
    assert 20 < last <= 60
    assert [stage.followed(participant)[-1] for participant in stage.participants] == [last, last]
    assert stage.trainer.replica.weights[: TARGET.size] == pytest.approx(TARGET, abs=1e-3)
    assert not any(update.is_summed for update in read_journal(run.folder.journal))
    assert history.replay(reopened(run)).holding.replica.digest == stage.trainer.replica.digest


def test_resumed_run_of_a_diagonal_ends_where_an_uninterrupted_one_does(tmp_path: Path, stage_of: StageOf) -> None:
    task = fit_task(covariance="diagonal")
    settings = {**task.task.settings, "learning_rate": 0.5, "group_size": 8, "population_limit": 16}
    whole, parts = (run_of(tmp_path, task, steps=steps, **settings) for steps in (12, 5))
    stage_of(whole, task).train()
    stage_of(parts, task).train()
    stage_of(reopened(parts, steps=12), task).train()
    assert journal_of(parts) == journal_of(whole)


def test_volunteer_whose_start_is_another_is_sent_the_weights(tmp_path: Path, stage_of: StageOf) -> None:
    """As of a library's other version, which makes other random numbers."""
    run = run_of(tmp_path, fit_task(), steps=8)
    stage = stage_of(run, fit_task(start={"vector": np.full(TARGET.size, 1e-7)}))
    stage.join()
    stage.settle()
    told = "drifted: its first weights are not the server's, as where a task's file draws them without a seed"
    assert [told in notice for notice in stage.swarm.notices].count(True) == 1
    assert stage.followed(stage.participants[0]) == list(range(1, 9))
    assert stage.swarm.reason == "all 8 steps are done"


def test_rows_that_a_group_does_not_see_are_masked_across_blocks(
    tmp_path: Path, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_kind, "cut", partial(cut, max_bytes=200))
    task = word_task()
    run = run_of(tmp_path, task, steps=12, steps_per_block=2)
    assert len(run.prepared.blocks) == 3
    stage = stage_of(run, task)
    stage.join()
    stage.go_to(5)
    late = computes_of(stage.join(), monkeypatch)
    stage.settle()
    assert Begin not in {type(compute) for compute in late}  # it has no data of steps that are over
    assert stage.drifted() == []
    assert len({update.block for update in read_journal(run.folder.journal)}) == 3
    assert history.replay(reopened(run)).holding.replica.digest == stage.trainer.replica.digest


def test_resumed_run_of_a_task_ends_where_an_uninterrupted_one_does(tmp_path: Path, stage_of: StageOf) -> None:
    whole, parts = (run_of(tmp_path, word_task(), steps=steps, learning_rate_schedule="constant") for steps in (12, 5))
    stage_of(whole, word_task()).train()
    stage_of(parts, word_task()).train()
    stage_of(reopened(parts, steps=12), word_task()).train()
    assert journal_of(parts) == journal_of(whole)
