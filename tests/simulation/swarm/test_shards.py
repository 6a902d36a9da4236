"""Crews whose seats hold rows of a vocabulary each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from fedlearn.runs.creation import create
from fedlearn.runs.run import Run
from fedlearn.tasks.torch.supervised import supervised
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.tasks.user.task_kind import SUPERVISED
from tests.run_folders import task_config
from tests.simulation.swarm.stage import StageOf

VOCABULARY = 50
WIDTH = 8


class Language(nn.Module):
    """The next of some words, by the word before."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=not tied)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(torch.tanh(self.hidden(self.embedding(words))))
        return logits


def language_task(*, tied: bool) -> NamedTask:
    torch.manual_seed(0)
    words = np.cumsum(np.random.default_rng(0).integers(1, 4, (128, 9)), axis=1) % VOCABULARY

    def loss(model: nn.Module, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        logits = model(rows["words"][:, :-1])
        return nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), rows["words"][:, 1:].reshape(-1))

    task = supervised(lambda: Language(tied=tied), loss, {"words": words}, batch_size=4)
    return NamedTask(task, "words.py:task", bytes(16))


def run_of(folder: Path, *, tied: bool = False, **settings: Any) -> Run:  # noqa: ANN401 (values of any setting)
    folder.mkdir(exist_ok=True)
    return create(SUPERVISED, task_config(folder, **{"steps": 5, **settings}), language_task(tied=tied))


@pytest.mark.parametrize("tied", [False, True])
def test_a_crew_in_shards_has_the_losses_of_one_volunteer(tmp_path: Path, stage_of: StageOf, tied: bool) -> None:
    alone = stage_of(run_of(tmp_path / "alone", tied=tied, seats=1)).train()
    crew = stage_of(run_of(tmp_path / "crew", tied=tied, seats=3, shards=2)).train(volunteers=3)
    expected = [metrics.loss for metrics in alone.swarm.metrics]
    assert [metrics.loss for metrics in crew.swarm.metrics] == pytest.approx(expected, rel=1e-5)


def test_each_seat_holds_its_rows(tmp_path: Path, stage_of: StageOf) -> None:
    stage = stage_of(run_of(tmp_path, seats=2, shards=2)).train(volunteers=2)
    replica = stage.trainer.replica
    held = []
    for participant in stage.participants:
        part = participant.volunteer.replica
        assert part is not None
        assert part.digest == replica.digests([part.layout])[0]
        held.append([(tensor.name, tensor.first_row, tensor.shape) for tensor in part.layout.tensors])
    first, second = held
    assert second == [("head.weight", 25, (25, WIDTH)), ("head.bias", 25, (25,))]
    assert first[-2:] == [("head.weight", 0, (25, WIDTH)), ("head.bias", 0, (25,))]


@pytest.mark.parametrize("tied", [False, True])
def test_whoever_holds_the_same_shards_takes_the_same_steps_to_the_bit(
    tmp_path: Path, stage_of: StageOf, tied: bool
) -> None:
    losses, digests = [], set()
    for n_seats in (1, 2, 3):
        run = run_of(tmp_path / str(n_seats), tied=tied, seats=n_seats, shards=3)
        stage = stage_of(run).train(volunteers=n_seats)
        losses.append([metrics.loss for metrics in stage.swarm.metrics])
        digests.add(stage.trainer.replica.digest)
    assert losses[0] == losses[1] == losses[2]
    assert len(digests) == 1
