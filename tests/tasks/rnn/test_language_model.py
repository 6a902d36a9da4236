import numpy as np
import pytest

from fedlearn.tasks.rnn.cells import CellName
from fedlearn.tasks.rnn.examiner import text_loss
from fedlearn.tasks.rnn.language_model import RnnLanguageModel
from fedlearn.text.language_model import LanguageModel
from tests.tasks.rnn.networks import TOLERANCE, VOCAB, TorchRnn, rnn_of, text_of, weights_of


def model_of(n_layers: int = 1, stop_token: int = 0, cell: CellName = "tanh") -> RnnLanguageModel:
    objective = rnn_of(n_layers, cell=cell)
    return RnnLanguageModel(objective, weights_of(objective), stop_token=stop_token)


@pytest.mark.parametrize("cell", ["tanh", "gru", "lstm"])
@pytest.mark.parametrize("reset_token", [-1, 5])
def test_log_probabilities_equal_pytorchs(cell: CellName, reset_token: int) -> None:
    objective = rnn_of(2, cell=cell, reset_token=reset_token)
    network = TorchRnn(objective, weights_of(objective))
    model: LanguageModel = RnnLanguageModel(objective, weights_of(objective), stop_token=1)
    assert (model.vocab_size, model.stop_token) == (VOCAB, 1)
    state, torch_state = model.initial_state(3), network.start(3)
    for tokens in text_of(60).reshape(20, 3):
        state, log_probabilities = model.next_log_probabilities(state, tokens)
        logits, torch_state = network.read(tokens[:, np.newaxis], torch_state)
        expected = logits[:, 0].log_softmax(dim=-1).numpy()
        np.testing.assert_allclose(log_probabilities, expected, rtol=0, atol=TOLERANCE)


def test_log_probabilities_sum_to_one_and_to_the_text_loss() -> None:
    objective, model = rnn_of(2), model_of(2)
    text = text_of(21)
    state = model.initial_state(len(text) - 1)
    # Twenty predictions: the text is read in pieces of one token, each from the initial state.
    _, log_probabilities = model.next_log_probabilities(state, text[:-1])
    np.testing.assert_allclose(np.exp(log_probabilities).sum(axis=1), 1.0, rtol=0, atol=TOLERANCE)
    mean = -log_probabilities[np.arange(20), text[1:]].mean()
    assert abs(text_loss(objective, weights_of(objective), text, threads=1) - float(mean)) < TOLERANCE


def test_reading_leaves_the_state_as_it_was() -> None:
    model = model_of()
    state = model.initial_state(2)
    before = state.copy()
    after, _ = model.next_log_probabilities(state, np.array([1, 2], dtype=np.uint16))
    np.testing.assert_array_equal(state, before)
    assert not np.array_equal(after, before)


def test_sequences_may_be_taken_out_of_the_state() -> None:
    model = model_of(2)
    state, _ = model.next_log_probabilities(model.initial_state(4), np.array([1, 2, 3, 4], dtype=np.uint16))
    tokens = np.array([5, 6], dtype=np.uint16)
    picked = model.next_log_probabilities(state[::-2], tokens)
    whole = model.next_log_probabilities(state, np.array([0, 6, 0, 5], dtype=np.uint16))
    for few, many in zip(picked, whole, strict=True):
        np.testing.assert_allclose(few, many[::-2], rtol=0, atol=TOLERANCE)


def test_tokens_that_never_come_are_impossible_and_the_others_as_they_were() -> None:
    objective = rnn_of()
    weights, tokens = weights_of(objective), np.array([1, 2], dtype=np.uint16)
    whole, some = RnnLanguageModel(objective, weights), RnnLanguageModel(objective, weights, never=np.array([0, 3]))
    expected = whole.next_log_probabilities(whole.initial_state(2), tokens)[1]
    expected[:, [0, 3]] = -np.inf
    np.testing.assert_array_equal(some.next_log_probabilities(some.initial_state(2), tokens)[1], expected)


def test_empty_prompt_stands_for_the_end_of_a_document_unless_it_is_told_otherwise() -> None:
    objective = rnn_of()
    assert RnnLanguageModel(objective, weights_of(objective), stop_token=4).start.tolist() == [4]
    start = np.array([2, 3], dtype=np.uint16)
    assert RnnLanguageModel(objective, weights_of(objective), start=start).start.tolist() == [2, 3]
