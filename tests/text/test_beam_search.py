from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedlearn.text.beam_search import Search
from fedlearn.text.language_model import LanguageModel, LogProbabilities, State
from fedlearn.text.sampling import Manner, sample
from fedlearn.text.tokens import TokenArray
from tests.text.searches import beam_search

Build = Callable[[NDArray[np.float64], int], LanguageModel]
Hypothesis = tuple[int, ...]
SUM = Search(length_penalty=0.0)
PENALTIES = st.sampled_from([0.0, 0.5, 1.0])


@st.composite
def second_order_weights(draw: st.DrawFn) -> NDArray[np.float64]:
    """[vocab, vocab, vocab] small integers: ties and impossible tokens are frequent."""
    vocab_size = draw(st.integers(2, 4))
    size = vocab_size**3
    weights = np.array(draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)), dtype=np.float64)
    weights = weights.reshape(vocab_size, vocab_size, vocab_size)
    weights[..., 0] += weights.sum(axis=-1) == 0
    return weights


def every_hypothesis(weights: NDArray[np.float64], stop_token: int, length: int) -> dict[Hypothesis, float]:
    """Total log-probability of each hypothesis after an empty prompt; the finished ones end in `<stop>`."""
    with np.errstate(divide="ignore"):
        table = np.log(weights / weights.sum(axis=-1, keepdims=True))
    totals = {}
    for path in product(range(weights.shape[-1]), repeat=length):
        end = path.index(stop_token) + 1 if stop_token in path else length
        read = (0, stop_token, *path[:end])
        totals[path[:end]] = sum(
            table[before, last, token] for before, last, token in zip(read, read[1:], read[2:], strict=False)
        )
    return totals


@settings(deadline=None)  # up to 4**5 hypotheses, enumerated one by one
@given(
    weights=second_order_weights(),
    length=st.integers(1, 5),
    length_penalty=PENALTIES,
    data=st.data(),
)
def test_with_room_for_everything_the_optimum_is_found(
    markov_model: Build,
    weights: NDArray[np.float64],
    length: int,
    length_penalty: float,
    data: st.DataObject,
) -> None:
    vocab_size = weights.shape[-1]
    stop = data.draw(st.integers(0, vocab_size - 1))
    totals = every_hypothesis(weights, stop, length)
    divisor = {path: len(path) ** length_penalty for path in totals}
    found = beam_search(
        markov_model(weights, stop),
        [],
        n_beams=vocab_size**length,
        length=length,
        rules=Search(length_penalty=length_penalty),
    )
    path = (*found.tokens.tolist(), *([stop] if found.is_stopped else []))
    assert found.log_probability == pytest.approx(totals[path], abs=1e-4)
    assert totals[path] / divisor[path] == pytest.approx(max(totals[p] / divisor[p] for p in totals), abs=1e-4)


@given(weights=second_order_weights(), n_beams=st.integers(1, 5), length=st.integers(1, 5))
def test_any_width_reports_the_true_probability_of_what_it_found(
    markov_model: Build, weights: NDArray[np.float64], n_beams: int, length: int
) -> None:
    totals = every_hypothesis(weights, 1, length)
    found = beam_search(markov_model(weights, 1), [], n_beams=n_beams, length=length, rules=SUM)
    path = (*found.tokens.tolist(), *([1] if found.is_stopped else []))
    assert found.log_probability == pytest.approx(totals[path], abs=1e-4)


@given(weights=second_order_weights(), length=st.integers(0, 8), length_penalty=PENALTIES)
def test_one_beam_is_greedy(
    markov_model: Build, weights: NDArray[np.float64], length: int, length_penalty: float
) -> None:
    model = markov_model(weights, weights.shape[-1] - 1)
    found = beam_search(model, [0], n_beams=1, length=length, rules=Search(length_penalty=length_penalty))
    greedy = sample(model, [0], length=length, generator=np.random.default_rng(0), manner=Manner(temperature=0))
    assert found.tokens.tolist() == greedy.tokens.tolist()
    assert found.is_stopped == greedy.is_stopped
    assert found.log_probability == pytest.approx(greedy.log_probability)


def test_two_beams_find_what_greedy_search_misses(markov_model: Build) -> None:
    weights = np.array([[5.0, 5.0, 0.0], [1.0, 9.0, 0.0], [6.0, 4.0, 0.0]])
    model = markov_model(weights, 2)
    assert beam_search(model, [], n_beams=1, length=3, rules=SUM).tokens.tolist() == [0, 0, 0]
    best = beam_search(model, [], n_beams=2, length=3, rules=SUM)
    assert best.tokens.tolist() == [1, 1, 1]
    assert best.log_probability == pytest.approx(np.log(0.4 * 0.9 * 0.9))


def test_ties_go_to_the_better_beam_then_the_lower_token(markov_model: Build) -> None:
    model = markov_model(np.array([1.0, 1.0, 1.0, 0.0]), 3)
    for n_beams in (1, 2, 5, 100):
        assert beam_search(model, [0], n_beams=n_beams, length=4, rules=SUM).tokens.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("token", "is_kept"), [(18, True), (20, False)])
def test_of_many_equals_the_lower_tokens_are_kept(markov_model: Build, token: int, is_kept: bool) -> None:
    weights = np.tile(np.array([1.0, 2.0] * 50), (100, 1))  # 59 beams: 49 odd tokens, then 0, 2, ... 18
    weights[token] = np.eye(100)[1]  # only this one leads on to a certain token
    weights[0, 99] = 0  # `<stop>`
    found = beam_search(markov_model(weights, 99), [0], n_beams=59, length=2, rules=SUM)
    assert (found.tokens[0] == token) == is_kept


def test_finished_hypothesis_wins_when_the_open_ones_fall_behind(markov_model: Build) -> None:
    model = markov_model(np.array([0.6, 0.4]), 1)
    found = beam_search(model, [0], n_beams=2, length=10, rules=SUM)
    assert found.tokens.tolist() == []
    assert found.is_stopped
    assert found.log_probability == pytest.approx(np.log(0.4))


def test_search_by_the_mean_prefers_the_longer_text(markov_model: Build) -> None:
    model = markov_model(np.array([0.6, 0.4]), 1)
    found = beam_search(model, [0], n_beams=2, length=10, rules=Search(length_penalty=1.0))
    assert found.tokens.tolist() == [0] * 10
    assert found.log_probability == pytest.approx(10 * np.log(0.6), rel=1e-6)


class CountedModel:
    """Counts how often the inner model is asked."""

    def __init__(self, inner: LanguageModel) -> None:
        self.inner = inner
        self.vocab_size = inner.vocab_size
        self.stop_token = inner.stop_token
        self.start = inner.start
        self.n_calls = 0

    def initial_state(self, n_sequences: int) -> State:
        return self.inner.initial_state(n_sequences)

    def next_log_probabilities(self, state: State, tokens: TokenArray) -> tuple[State, LogProbabilities]:
        self.n_calls += 1
        return self.inner.next_log_probabilities(state, tokens)


def test_search_ends_when_no_open_hypothesis_can_win(markov_model: Build) -> None:
    model = CountedModel(markov_model(np.array([0.3, 0.1, 0.6]), 2))
    assert beam_search(model, [0], n_beams=3, length=50, rules=SUM).is_stopped
    assert model.n_calls == 1


def test_model_is_asked_once_a_prediction(markov_model: Build) -> None:
    model = CountedModel(markov_model(np.array([1.0, 1.0, 0.0]), 2))
    beam_search(model, [0, 1, 0], n_beams=3, length=5, rules=SUM)
    assert model.n_calls == 3 + 4


def test_impossible_tokens_never_win(markov_model: Build) -> None:
    found = beam_search(markov_model(np.array([0.0, 1.0, 0.0]), 2), [0], n_beams=3, length=3, rules=SUM)
    assert found.tokens.tolist() == [1, 1, 1]
    assert found.log_probability == 0


def test_no_length_gives_nothing(markov_model: Build) -> None:
    found = beam_search(markov_model(np.ones(3), 2), [0], n_beams=3, length=0, rules=SUM)
    assert (found.tokens.tolist(), found.log_probability, found.is_stopped) == ([], 0.0, False)


@pytest.mark.parametrize(("n_beams", "length"), [(0, 3), (1, -1)])
def test_arguments_out_of_range_are_refused(markov_model: Build, n_beams: int, length: int) -> None:
    with pytest.raises(ValueError, match=f"got {n_beams} and {length}"):
        beam_search(markov_model(np.ones(3), 2), [0], n_beams=n_beams, length=length)


def test_no_sequence_of_forbidden_length_comes_twice(markov_model: Build) -> None:
    model = markov_model(np.array([5.0, 1.0, 0.0]), 2)
    for n_beams in (1, 3):
        found = beam_search(model, [1, 0], n_beams=n_beams, length=3, rules=Search(no_repeat_ngram=2))
        assert found.tokens.tolist() == [0, 1, 1]


@pytest.mark.parametrize(("penalty", "ngram"), [(-0.1, 0), (np.nan, 0), (np.inf, 0), (1.0, -1)])
def test_rules_out_of_range_are_refused(penalty: float, ngram: int) -> None:
    with pytest.raises(ValueError, match="beam search: expected length_penalty >= 0 and no_repeat_ngram >= 0"):
        Search(length_penalty=penalty, no_repeat_ngram=ngram)
