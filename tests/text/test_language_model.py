from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.text.language_model import LanguageModel, read_prompt

Build = Callable[[NDArray[np.float64], int], LanguageModel]
WEIGHTS = np.arange(1.0, 28.0).reshape(3, 3, 3)


def test_prompt_is_read_token_by_token(markov_model: Build) -> None:
    read, state, log_probabilities = read_prompt(markov_model(WEIGHTS, 2), [0, 2, 1])
    assert (read.tolist(), state.tolist()) == ([0, 2, 1], [[1.0]])
    np.testing.assert_allclose(np.exp(log_probabilities[0]), WEIGHTS[2, 1] / WEIGHTS[2, 1].sum(), rtol=1e-6)


def test_empty_prompt_stands_for_stop(markov_model: Build) -> None:
    model = markov_model(WEIGHTS, 2)
    expected = read_prompt(model, [2])[2].tolist()
    assert read_prompt(model, [])[2].tolist() == expected
    assert read_prompt(model, np.empty(0, dtype=np.uint16))[2].tolist() == expected


def test_foreign_prompt_token_is_refused(markov_model: Build) -> None:
    with pytest.raises(ValueError, match="expected 0 to 2, got 3"):
        read_prompt(markov_model(WEIGHTS, 2), [3])


def test_diverged_model_is_refused(markov_model: Build) -> None:
    with pytest.raises(ValueError, match="got NaN; the weights diverged"):
        read_prompt(markov_model(WEIGHTS * np.nan, 2), [0])
