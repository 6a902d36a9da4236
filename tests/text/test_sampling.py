from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.text.language_model import LanguageModel
from fedlearn.text.sampling import Manner, choose_token, sample

Build = Callable[[NDArray[np.float64], int], LanguageModel]
PROBABILITIES = np.array([0.1, 0.4, 0.2, 0.3])
LOG_PROBABILITIES = np.log(PROBABILITIES).astype(np.float32)
N_DRAWS = 20_000
PLAIN = Manner(temperature=1.0)


def shares(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> NDArray[np.float64]:
    generator = np.random.default_rng(1)
    manner = Manner(temperature=temperature, top_k=top_k, top_p=top_p)
    draws = [choose_token(LOG_PROBABILITIES, manner, generator) for _ in range(N_DRAWS)]
    return np.bincount(draws, minlength=4) / N_DRAWS


def test_tokens_come_as_often_as_the_model_says() -> None:
    np.testing.assert_allclose(shares(), PROBABILITIES, atol=0.015)


def test_temperature_sharpens() -> None:
    np.testing.assert_allclose(shares(temperature=0.5), PROBABILITIES**2 / sum(PROBABILITIES**2), atol=0.015)


def test_top_k_keeps_the_likeliest() -> None:
    np.testing.assert_allclose(shares(top_k=2), [0, 4 / 7, 0, 3 / 7], atol=0.015)


@pytest.mark.parametrize(("top_p", "kept"), [(0.05, [1]), (0.39, [1]), (0.41, [1, 3]), (0.95, [0, 1, 2, 3])])
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float, kept: list[int]) -> None:
    assert np.flatnonzero(shares(top_p=top_p)).tolist() == kept


def test_top_p_reached_exactly_keeps_no_more() -> None:
    halves = np.log(np.full(2, 0.5, dtype=np.float32))
    assert {choose_token(halves, Manner(top_p=0.5), np.random.default_rng(seed)) for seed in range(20)} == {0}


def test_top_p_applies_to_what_top_k_left() -> None:
    assert np.flatnonzero(shares(top_k=2, top_p=0.5)).tolist() == [1]


def test_zero_temperature_takes_the_lowest_of_the_likeliest() -> None:
    tied = np.log(np.array([0.2, 0.4, 0.4], dtype=np.float32))
    assert {choose_token(tied, Manner(temperature=0), np.random.default_rng(seed)) for seed in range(20)} == {1}


def test_top_k_of_equals_keeps_the_lower_token() -> None:
    tied = np.log(np.where(np.arange(100) % 2, 0.015, 0.005)).astype(np.float32)
    draws = {choose_token(tied, Manner(temperature=1, top_k=3), np.random.default_rng(seed)) for seed in range(100)}
    assert draws == {1, 3, 5}


def test_impossible_token_is_never_drawn() -> None:
    class HighestNumber(np.random.Generator):
        def random(self) -> float:  # type: ignore[override]
            return float(np.nextafter(1, 0))

    weights = np.array([0, 0.7, 0, 0.3, 0], dtype=np.float32)
    with np.errstate(divide="ignore"):
        log_probabilities = np.log(weights)
    assert choose_token(log_probabilities, PLAIN, HighestNumber(np.random.PCG64(1))) == 3


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"temperature": -1}, "temperature: expected 0 or more, got -1"),
        ({"temperature": np.nan}, "temperature: expected 0 or more, got nan"),
        ({"temperature": np.inf}, "temperature: expected 0 or more, got inf"),
        ({"top_k": -1}, "top_k: expected 0 or more, got -1"),
        ({"top_p": 0}, "top_p: expected above 0 and at most 1, got 0"),
        ({"top_p": 1.1}, "top_p: expected above 0 and at most 1, got 1.1"),
        ({"repetition_penalty": 0.9}, "repetition_penalty: expected 1 or more, got 0.9"),
        ({"repetition_penalty": np.nan}, "repetition_penalty: expected 1 or more, got nan"),
        ({"repetition_penalty": np.inf}, "repetition_penalty: expected 1 or more, got inf"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram: expected 0 or more, got -1"),
    ],
)
def test_setting_out_of_its_range_is_named_alone(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        Manner(**given)


def test_no_sequence_of_forbidden_length_comes_twice(markov_model: Build) -> None:
    model, manner = markov_model(np.array([5.0, 1.0, 0.0]), 2), Manner(temperature=0, no_repeat_ngram=2)
    written = sample(model, [0], length=4, generator=np.random.default_rng(0), manner=manner)
    assert written.tokens.tolist() == [0, 1, 0, 0]  # then all pairs of 0 and 1 but (1, 1) were there
    assert written.log_probability == pytest.approx(np.log(5 / 6 * 1 / 6 * 5 / 6 * 5 / 6))


def test_what_was_read_or_written_comes_less_often_with_a_penalty(markov_model: Build) -> None:
    model, manner = markov_model(np.array([5.0, 4.0, 3.0, 0.0]), 3), Manner(temperature=0, repetition_penalty=2.0)
    written = sample(model, [0], length=3, generator=np.random.default_rng(0), manner=manner)
    assert written.tokens.tolist() == [1, 2, 0]


def test_same_seed_writes_the_same(markov_model: Build) -> None:
    model = markov_model(np.arange(1.0, 65.0).reshape(4, 4, 4), 3)
    first, again = (sample(model, [0], length=20, generator=np.random.default_rng(5), manner=PLAIN) for _ in range(2))
    assert first.tokens.tolist() == again.tokens.tolist()
    assert first.log_probability == again.log_probability


def test_continuation_ends_before_stop_and_counts_its_probability(markov_model: Build) -> None:
    weights = np.zeros((3, 3))
    weights[0] = [0, 1, 0]
    weights[1] = [0, 0, 1]
    weights[2] = [3, 1, 0]
    result = sample(
        markov_model(weights, 2), [], length=9, generator=np.random.default_rng(0), manner=Manner(temperature=0)
    )
    assert result.tokens.tolist() == [0, 1]
    assert result.is_stopped
    assert result.log_probability == pytest.approx(np.log(0.75))


def test_continuation_is_cut_at_its_length(markov_model: Build) -> None:
    model = markov_model(np.array([1.0, 1.0, 0.0]), 2)
    result = sample(model, [0], length=7, generator=np.random.default_rng(0), manner=PLAIN)
    assert len(result.tokens) == 7
    assert result.tokens.dtype == np.uint16
    assert not result.is_stopped
    assert result.log_probability == pytest.approx(7 * np.log(0.5))


def test_negative_length_is_refused(markov_model: Build) -> None:
    with pytest.raises(ValueError, match="length: expected 0 or more, got -1"):
        sample(markov_model(np.ones(3), 2), [0], length=-1, generator=np.random.default_rng(0), manner=PLAIN)
