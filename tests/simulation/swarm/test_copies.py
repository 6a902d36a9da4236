"""Volunteers that check one another: what is left for the server, and what those get who lie together."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.trust.false_results import Lie, falsify
from fedlearn.coordination.audits.audit import Claim, Finding, Verdict
from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.server.training import trainer
from fedlearn.storage.logs.lines import read_lines
from tests.run_folders import created, rnn_config
from tests.simulation.swarm.stage import Stage, StageOf, slow_down

N_VOLUNTEERS, LIARS = 10, (0, 5)
HONEST_STEPS, STEPS = 20, 100


@pytest.fixture(autouse=True)
def known_lottery(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server draws the same in each run of these tests."""
    monkeypatch.setattr(trainer, "SystemRandom", lambda: Random(3))


def agreed_lie(trials: Trials, _: TrialResults) -> TrialResults:
    """What everybody says who is part of it: whatever the member's number tells."""
    members = np.arange(trials.first_member, trials.first_member + trials.n_members)
    return TrialResults((members * 7919 % 1000 / 100).astype(np.float32))


def flipped(_: Trials, results: TrialResults) -> TrialResults:
    return TrialResults(2 * results.losses.mean() - results.losses)


def examined(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Members of each claim that the server computes itself, as they come."""
    audit, counts = stage.trainer.audit, list[int]()

    def count(claim: Claim) -> tuple[Finding, Verdict]:
        counts.append(claim.trials.n_members)
        return audit(claim)

    monkeypatch.setattr(stage.trainer, "audit", count)
    return counts


def staged(folder: Path, stage_of: StageOf, n_volunteers: int, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A run in which every volunteer has proven itself; their trials take time, so that newcomers can keep up."""
    folder.mkdir()
    stage = stage_of(created(rnn_config(folder, steps=STEPS, audit=0.02, population_limit=320, group_size=4)))
    for _ in range(n_volunteers):
        slow_down(stage.join(), stage.clock, 200.0, monkeypatch)
    stage.go_to(HONEST_STEPS)
    assert stage.swarm.metrics[-1].members >= 320 - 320 // n_volunteers
    assert stage.swarm.metrics[-1].volunteers >= n_volunteers - 1
    return stage


def loss_of(stage: Stage) -> float:
    stage.settle()
    stage.close()
    figures = stage.run.prepared.examiner.validate(stage.trainer.replica.weights, threads=1)
    return next(iter(figures.values()))


@pytest.mark.parametrize("lie", [agreed_lie, flipped])
def test_those_who_are_trusted_and_then_lie_are_named_and_cost_little(
    tmp_path: Path, stage_of: StageOf, lie: Lie, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {}
    for name, n_volunteers in (("clean", N_VOLUNTEERS - len(LIARS)), ("attacked", N_VOLUNTEERS)):
        stage = staged(tmp_path / name, stage_of, n_volunteers, monkeypatch)
        if name == "attacked":
            for number in LIARS:
                falsify(stage.participants[number], lie)
        figures[name] = loss_of(stage)
    verdicts = list(read_lines(stage.run.folder.audits, Verdict))
    print(f"{lie.__name__}: {figures}, {[(verdict.step, verdict.name) for verdict in verdicts]}")
    assert {verdict.name for verdict in verdicts} == {f"volunteer {number}" for number in LIARS}
    assert figures["attacked"] < 1.05 * figures["clean"]


def test_most_of_what_is_checked_costs_the_server_nothing(
    tmp_path: Path, stage_of: StageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {}
    for name in ("alone", "helped"):
        if name == "alone":
            monkeypatch.setattr(Auditor, "appoint", lambda *_, **__: None)
        else:
            monkeypatch.undo()
            monkeypatch.setattr(trainer, "SystemRandom", lambda: Random(3))
        stage = staged(tmp_path / name, stage_of, N_VOLUNTEERS, monkeypatch)
        counts[name] = examined(stage, monkeypatch)
        loss_of(stage)
        auditor = stage.swarm.coordinator._auditor
        share = auditor.n_checked / auditor.n_received
        print(f"{name}: the server computed {sum(counts[name])} members again; {share:.2%} were checked")
        assert share >= 0.02
        assert not list(read_lines(stage.run.folder.audits, Verdict))
    assert sum(counts["helped"]) < 0.5 * sum(counts["alone"])
