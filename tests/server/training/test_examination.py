from collections.abc import Mapping
from typing import final

import numpy as np
import pytest

from fedlearn.config import RunConfig
from fedlearn.es.layout import Float32Array
from fedlearn.runs import history
from fedlearn.server.training.examination import SAMPLE_TOKENS, Agenda, Examination, examine
from fedlearn.tasks.kind import Examiner, TextExaminer
from fedlearn.text.language_model import LogProbabilities, State
from fedlearn.text.source import Texts
from fedlearn.text.tokenizers.byte import ByteTokenizer
from fedlearn.text.tokens import TokenArray
from tests.run_folders import created


@final
class Figures(Examiner):
    """An examiner of models that write nothing."""

    def show(self, loss: float) -> tuple[str, float]:
        return "loss", loss

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        return {"mean": float(weights.mean()), "threads": threads}

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        raise NotImplementedError


def test_first_looks_come_early_and_one_follows_every_interval() -> None:
    agenda = Agenda()
    looks = [now for now in range(100, 300) if agenda.is_due(float(now), 30.0)]
    assert looks == [105, 115, 135, 165, 195, 225, 255, 285]


def test_late_look_moves_the_next_one_on() -> None:
    agenda = Agenda()
    assert [agenda.is_due(now, 30.0) for now in (0.0, 50.0, 59.0, 60.0)] == [False, True, False, True]


def test_no_look_is_due_where_none_is_wanted() -> None:
    agenda = Agenda()
    assert not any(agenda.is_due(float(now), 0.0) for now in range(100))


def test_another_interval_counts_from_the_last_look() -> None:
    agenda = Agenda()
    assert [now for now in range(100, 160) if agenda.is_due(float(now), 30.0)] == [105, 115, 135]
    assert [now for now in range(140, 160) if agenda.is_due(float(now), 15.0)] == [150]
    assert not agenda.is_due(300.0, 0.0)
    assert agenda.is_due(300.0, 15.0)


def test_look_is_due_once_after_every_so_many_steps() -> None:
    agenda = Agenda()
    looks = [step for step in range(12) for _ in range(2) if agenda.is_due(0.0, 0.0, step=step, every=5)]
    assert looks == [5, 10]


def test_look_by_steps_counts_for_the_interval() -> None:
    agenda = Agenda()
    looks = [now for now in range(100) if agenda.is_due(float(now), 30.0, step=now, every=25)]
    assert looks == [5, 15, 25, 45, 50, 75]


def test_look_at_a_model_that_writes_keeps_the_lines_of_its_text(config: RunConfig) -> None:
    run = created(config)
    weights = history.replay(run).holding.replica.weights
    found = examine(run.prepared.examiner, weights)
    assert found.figures == pytest.approx(run.prepared.examiner.validate(weights, threads=1))
    assert 0 < len(found.sample) <= SAMPLE_TOKENS
    assert found.sample == found.sample.strip()


def test_look_at_any_other_model_has_its_figures() -> None:
    found = examine(Figures(), np.array([1.0, 2.0], dtype=np.float32))
    assert found == Examination({"mean": 1.5, "threads": 1}, "")


_FOLLOWING = {ord("x"): ord(" "), ord(" "): ord("y"), ord("y"): ord("x")}


@final
class Parrot:
    """A model that writes the token that it read last, again and again; but after an x the words yx."""

    vocab_size = ByteTokenizer().vocab_size
    stop_token = ByteTokenizer().stop_token
    start = ByteTokenizer().encode("\n")

    def initial_state(self, n_sequences: int) -> State:
        return np.zeros((n_sequences, 1), dtype=np.float32)

    def next_log_probabilities(self, state: State, tokens: TokenArray) -> tuple[State, LogProbabilities]:
        log_probabilities = np.full((len(tokens), self.vocab_size), -1e9, dtype=np.float32)
        following = [_FOLLOWING.get(int(token), int(token)) for token in tokens]
        log_probabilities[np.arange(len(tokens)), following] = 0.0
        return state, log_probabilities


@final
class Writer(TextExaminer):
    """An examiner of it."""

    tokenizer = ByteTokenizer()
    characters_per_token = 1.0

    def __init__(self, opening: str) -> None:
        self.opening = opening

    def show(self, loss: float) -> tuple[str, float]:
        return "loss", loss

    def validate(self, weights: Float32Array, *, threads: int) -> dict[str, float]:
        del weights, threads
        return {}

    def language_model(self, weights: Float32Array) -> Parrot:
        del weights
        return Parrot()

    def state_dict(self, weights: Float32Array, about: Mapping[str, str]) -> bytes:
        raise NotImplementedError

    def validate_on(self, weights: Float32Array, texts: Texts, *, threads: int) -> tuple[dict[str, float], str]:
        raise NotImplementedError

    def baselines(self) -> dict[str, float]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("opening", "sample"),
    [
        ("It was", f"[It was] {SAMPLE_TOKENS * 's'}"),
        ("It was\n", "[It was\n]"),
        ("", ""),
        ("x", f"[x] {' '.join(39 * ['yx'])}"),
    ],
)
def test_model_that_writes_blanks_is_given_words_to_go_on_from(opening: str, sample: str) -> None:
    assert examine(Writer(opening), np.zeros(1, dtype=np.float32)).sample == sample
