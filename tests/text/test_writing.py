from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.text.beam_search import Search
from fedlearn.text.language_model import Continuation, LanguageModel, last_of
from fedlearn.text.sampling import Manner, sample
from fedlearn.text.writing import up_to_a_word, written
from tests.text.searches import beam_search

Build = Callable[[NDArray[np.float64], int], LanguageModel]
PROMPT = np.array([1, 0], dtype=np.uint16)


@pytest.fixture
def model(markov_model: Build) -> LanguageModel:
    return markov_model(np.random.default_rng(3).random((5, 5, 5)), 4)


def steps(model: LanguageModel, n_beams: int | None = None, **given: Any) -> list[Continuation]:  # noqa: ANN401
    generator = np.random.default_rng(7)
    return [
        *written(model, PROMPT, length=12, n_beams=n_beams, given=given, characters_per_token=3.0, generator=generator)
    ]


def test_sampled_text_grows_token_by_token_to_what_sampling_gives(model: LanguageModel) -> None:
    found = steps(model, temperature=0.9, top_k=None)
    whole = sample(model, PROMPT, length=12, generator=np.random.default_rng(7), manner=Manner(temperature=0.9))
    assert found[-1].tokens.tolist() == whole.tokens.tolist()
    assert found[-1].is_stopped == whole.is_stopped
    for length, step in enumerate(found[: len(whole.tokens)]):
        assert step.tokens.tolist() == whole.tokens[:length].tolist()


def test_search_shows_its_best_and_ends_with_what_the_search_gives(model: LanguageModel) -> None:
    found = steps(model, n_beams=3, length_penalty=0.5, temperature=None)
    rules = Search(length_penalty=0.5, no_repeat_ngram=2)  # six characters are two tokens of three
    whole = beam_search(model, PROMPT, n_beams=3, length=12, rules=rules)
    assert found[-1].tokens.tolist() == whole.tokens.tolist()
    assert [len(step.tokens) for step in found[:3]] == [0, 1, 2]


def test_repeats_that_were_chosen_are_kept(model: LanguageModel) -> None:
    rules = Search(no_repeat_ngram=0)
    whole = beam_search(model, PROMPT, n_beams=3, length=12, rules=rules)
    assert steps(model, n_beams=3, no_repeat_ngram=0)[-1].tokens.tolist() == whole.tokens.tolist()


def test_the_last_of_what_grew_is_the_text(model: LanguageModel) -> None:
    found = steps(model)
    assert last_of(found) is found[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The value of the na", "The value of the"),
        ("It is bound.\n\nThe", "It is bound."),
        ("It is bound.", "It is bound."),
        ("It is bound ", "It is bound "),
        (" alone", " alone"),
        ("alone", "alone"),
        ("", ""),
    ],
)
def test_last_word_that_nothing_closes_is_left_out_where_there_is_another(text: str, expected: str) -> None:
    assert up_to_a_word(text) == expected
