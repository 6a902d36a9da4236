"""Replayed or summed: the same digest after every step, whatever a run chooses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.false_results import falsify
from fedlearn.config import RunConfig
from fedlearn.coordination.audits.audit import MOST_DIFFERENCE, Verdict
from fedlearn.es.layout import Float32Array
from fedlearn.es.sums import exchange
from fedlearn.es.sums.estimate import decode_estimate, encode_exactly
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.runs import history
from fedlearn.simulation.swarm import Participant
from fedlearn.storage.journal.journal import read_journal
from fedlearn.storage.logs.lines import read_lines
from fedlearn.tasks.blocks import Columns
from tests.run_folders import created, rnn_config, task_config
from tests.simulation.swarm.stage import Stage, StageOf
from tests.simulation.swarm.test_tasks import word_task

STEPS = 6


def digests(stage: Stage) -> list[str]:
    return [metrics.digest for metrics in stage.swarm.metrics]


def break_losses(participant: Participant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third member has no loss, or one that counts as none."""
    objective = participant.volunteer._ready().objective
    evaluate = objective.evaluate

    def evaluate_badly(weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        losses = evaluate(weights, data, trials, threads=threads)
        losses[::24] = np.nan
        losses[9::48] = 1e7
        return losses

    monkeypatch.setattr(objective, "evaluate", evaluate_badly)


CHOICES: list[dict[str, Any]] = [
    {},
    {"fitness_shaping": "centered-ranks"},
    {"fitness_shaping": "sign"},
    {"rank": 0},
    {"rank": 3},
    {"antithetic": True},
    {"antithetic": True, "rank": 2, "fitness_shaping": "sign", "optimizer": "sgd", "learning_rate": 1.0},
    {"n_layers": 2, "cell": "gru"},
    {"tokenizer": "bytes", "context": 0},
    {"group_size": 5, "fitness_shaping": "sign"},
    {"population_limit": 640, "weight_decay": 0.1, "weight_decay_towards": "start"},
]


@pytest.mark.parametrize("changes", CHOICES, ids=lambda given: " ".join(f"{k}={v}" for k, v in given.items()) or "rnn")
def test_sums_take_the_steps_that_replaying_takes(
    config: RunConfig, stage_of: StageOf, changes: dict[str, Any]
) -> None:
    replayed = stage_of(created(config, steps=STEPS, **changes)).train(volunteers=3)
    run = created(config, steps=STEPS, exchange="sum", **changes)
    summed = stage_of(run).train(volunteers=3)
    assert digests(summed) == digests(replayed)
    assert summed.drifted() == []
    updates = list(read_journal(run.folder.journal))
    assert [update.is_summed for update in updates] == [False] + [True] * (STEPS - 1)
    assert all(update.utilities.size == 0 for update in updates[1:])
    assert history.replay(run).holding.replica.digest.hex() == digests(summed)[-1]


def test_broken_losses_count_the_same_in_sums(
    config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for way in ("replay", "sum"):
        stage = stage_of(created(config, steps=STEPS, exchange=way))
        broken = stage.join()
        stage.join()
        stage.go_to(1)
        break_losses(broken, monkeypatch)
        stage.settle()
        stage.close()
        seen.append(digests(stage))
    assert seen[0] == seen[1]
    assert len(seen[0]) == STEPS


def test_auto_replays_what_one_volunteer_does(config: RunConfig, stage_of: StageOf) -> None:
    run = created(config, steps=3, exchange="auto")
    stage_of(run).train()
    assert not any(update.is_summed for update in read_journal(run.folder.journal))


def test_auto_sums_where_others_cost_more_than_the_line(
    config: RunConfig, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "LINE_BYTES_PER_S", 1e15)
    monkeypatch.setattr(exchange, "CODING_S", 0.0)
    shares = {}
    for n in (1, 3):
        run = created(config, steps=5, exchange="auto")
        stage_of(run).train(volunteers=n)
        shares[n] = [update.is_summed for update in read_journal(run.folder.journal)]
    assert shares == {1: [False] * 5, 3: [False, True, True, True, True]}


def lie(participant: Participant) -> None:
    """From now on one number of its sums is one too high; its losses are honest."""
    layout = participant.volunteer._ready().objective.layout

    def one_more(_: Trials, true: TrialResults) -> TrialResults:
        numbers = decode_estimate(layout, true.estimate)
        numbers[layout.size // 2] += 1
        return TrialResults(true.losses, encode_exactly(layout, numbers))

    falsify(participant, one_more)


def test_a_sum_that_is_one_number_off_is_found_out_and_named(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(created(rnn_config(tmp_path, steps=60, audit=0.1, exchange="sum", population_limit=320)))
    liar, *_ = (stage.join() for _ in range(5))
    stage.go_to(1)
    lie(liar)
    stage.settle()
    stage.close()
    verdicts = list(read_lines(stage.run.folder.audits, Verdict))
    print(f"{len(verdicts)} verdicts, the first at step {verdicts[0].step}")
    assert {verdict.name for verdict in verdicts} == {"volunteer 0"}
    assert verdicts[0].difference == MOST_DIFFERENCE


def test_losses_that_are_false_are_found_out_though_their_sum_is_theirs(
    tmp_path: Path, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(created(rnn_config(tmp_path, steps=60, audit=0.1, exchange="sum", population_limit=320)))
    liar, *_ = (stage.join() for _ in range(5))
    stage.go_to(1)
    objective = liar.volunteer._ready().objective
    evaluate = objective.evaluate

    def evaluate_falsely(weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        losses = evaluate(weights, data, trials, threads=threads)
        flipped: Float32Array = 2 * losses.mean() - losses
        return flipped

    monkeypatch.setattr(objective, "evaluate", evaluate_falsely)
    stage.settle()
    stage.close()
    verdicts = list(read_lines(stage.run.folder.audits, Verdict))
    assert {verdict.name for verdict in verdicts} == {"volunteer 0"}
    assert all(1.0 < verdict.difference < MOST_DIFFERENCE for verdict in verdicts)


def test_honest_sums_pass_every_audit(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(created(rnn_config(tmp_path, steps=20, audit=1.0, exchange="sum")))
    stage.train(volunteers=3)
    assert not stage.run.folder.audits.exists()
    assert all(update.is_summed for update in list(read_journal(stage.run.folder.journal))[1:])


def test_tasks_whose_groups_read_some_rows_take_the_same_steps(tmp_path: Path, stage_of: StageOf) -> None:
    seen = []
    for way in ("replay", "sum"):
        task = word_task()
        run = created(task_config(tmp_path), task, steps=STEPS, exchange=way)
        stage = stage_of(run, task).train(volunteers=2)
        assert stage.drifted() == []
        seen.append(digests(stage))
    assert seen[0] == seen[1]
