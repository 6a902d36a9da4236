import math
from typing import Any

import numpy as np
import pytest

from fedlearn.config import RunConfig
from fedlearn.tasks.rnn import examiner as examiner_module
from fedlearn.tasks.rnn.cells import CellName
from fedlearn.tasks.rnn.dataset import Dataset
from fedlearn.tasks.rnn.examiner import VALIDATION_ROWS, RnnExaminer, text_loss
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.tokenizing import build_dataset
from fedlearn.text import documents
from fedlearn.text.documents import DocumentMode
from fedlearn.text.ngrams import ngram_loss
from fedlearn.text.source import Texts
from fedlearn.text.windows import WindowShape
from tests.run_folders import created
from tests.tasks.memory_folder import MemoryFolder, TextSource
from tests.tasks.rnn.networks import TOLERANCE, TorchRnn, rnn_of, text_of, weights_of
from tests.text.searches import beam_search

PARAGRAPHS = "\n\n".join(f"Paragraph {number} says hello." for number in range(100))


def dataset_of(documents: DocumentMode = "stream") -> Dataset:
    return build_dataset(TextSource(PARAGRAPHS), MemoryFolder({}), documents=documents)


def texts_of(text: str, piece: int = 1000) -> Texts:
    return TextSource(text, piece=piece).texts(lambda _: None)


def objective_of(dataset: Dataset) -> RnnObjective:
    return RnnObjective(
        seed=1,
        vocab_size=dataset.tokenizer.vocab_size,
        hidden_size=6,
        n_layers=1,
        window=WindowShape(1, 2, 3),
        embedding_scale=1.0,
        reset_token=dataset.record.reset_token,
        unigram_counts=dataset.unigram_counts,
    )


@pytest.mark.parametrize("cell", ["tanh", "gru", "lstm"])
@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("reset_token", [-1, 5])
def test_text_loss_equals_pytorchs(n_layers: int, cell: CellName, reset_token: int) -> None:
    objective = rnn_of(n_layers, cell=cell, reset_token=reset_token)
    weights = weights_of(objective)
    network = TorchRnn(objective, weights)
    n_per_row = 7
    text = text_of(VALIDATION_ROWS * n_per_row + 1)
    rows = np.stack([text[i * n_per_row : (i + 1) * n_per_row + 1] for i in range(VALIDATION_ROWS)])
    expected = network.loss(rows, network.start(VALIDATION_ROWS))
    assert text_loss(objective, weights, text, threads=2) == pytest.approx(expected, abs=TOLERANCE)


def test_a_text_of_one_token_has_no_loss() -> None:
    objective = rnn_of()
    with pytest.raises(ValueError, match="text: expected at least 2 tokens, got 1"):
        text_loss(objective, weights_of(objective), text_of(1), threads=1)


def test_baselines_count_the_training_text_and_read_what_is_held_out() -> None:
    dataset = dataset_of()
    found = RnnExaminer(objective_of(dataset), dataset).baselines()
    assert list(found) == ["unigram", "bigram", "trigram", "4-gram"]
    loss = ngram_loss(dataset.train.tokens, dataset.validation.tokens, 2, vocab_size=dataset.tokenizer.vocab_size)
    assert found["bigram"] == pytest.approx(dataset.validation.bits_per_character(loss))
    assert found["unigram"] > found["bigram"] > found["4-gram"] > 0


def test_baselines_of_a_large_text_count_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examiner_module, "MAX_COUNTED_TOKENS", 50)
    dataset = dataset_of()
    seen, read = dataset.train.tokens[:50], dataset.validation.tokens[:50]
    loss = ngram_loss(seen, read, 1, vocab_size=dataset.tokenizer.vocab_size)
    found = RnnExaminer(objective_of(dataset), dataset).baselines()
    assert found["unigram"] == pytest.approx(dataset.validation.bits_per_character(loss))


def test_a_loss_is_shown_in_bits_per_character_of_the_training_text() -> None:
    text = PARAGRAPHS[:1000].replace("e", "é") + PARAGRAPHS[1000:]  # two bytes, one character
    dataset = build_dataset(TextSource(text), MemoryFolder({}), tokenizer="bytes")
    name, bits = RnnExaminer(objective_of(dataset), dataset).show(math.log(2))
    train = dataset.train
    assert name == "bits_per_character"
    assert bits == pytest.approx(len(train.tokens) / train.n_characters)
    assert bits > 1.01


def test_bits_per_character_count_characters_not_tokens(config: RunConfig) -> None:
    prepared = created(config, tokenizer="bytes").prepared
    examiner = prepared.examiner
    assert isinstance(examiner, RnnExaminer)
    name, bits = examiner.show(math.log(2))
    assert name == "bits_per_character"
    assert bits == pytest.approx(1.0)
    uniform = examiner.validate(np.zeros(prepared.objective.layout.size, dtype=np.float32), threads=1)
    assert uniform == {"bits_per_character": pytest.approx(math.log2(examiner.tokenizer.vocab_size), rel=1e-4)}


@pytest.mark.parametrize("documents", ["stream", "blank-lines"])
def test_validation_is_on_the_validation_part(documents: DocumentMode) -> None:
    dataset = dataset_of(documents)
    objective = objective_of(dataset)
    weights = objective.initial_weights()
    part = dataset.validation
    expected = part.bits_per_character(text_loss(objective, weights, part.tokens, threads=1))
    found = RnnExaminer(objective, dataset).validate(weights, threads=1)
    assert found == {"bits_per_character": pytest.approx(expected)}


def test_another_text_is_read_with_the_runs_tokenizer_and_documents() -> None:
    dataset = dataset_of("blank-lines")
    objective = objective_of(dataset)
    weights = objective.initial_weights()
    examiner = RnnExaminer(objective, dataset)
    stop = [dataset.tokenizer.stop_token]
    tokens = [*dataset.tokenizer.encode("Paragraph 7"), *stop, *dataset.tokenizer.encode("hello"), *stop]
    loss = text_loss(objective, weights, np.array(tokens, dtype=np.uint16), threads=1)
    # Sixteen characters, and a stop for each document.
    expected = {"bits_per_character": pytest.approx(loss / math.log(2) * len(tokens) / 18)}
    figures, note = examiner.validate_on(weights, texts_of("Paragraph 7\n\nhello"), threads=1)
    assert figures["bits_per_character"] == expected["bits_per_character"]
    assert (len(figures), note) == (1, "")
    with pytest.raises(ValueError, match="expected at least 2 tokens, got 0"):
        examiner.validate_on(weights, texts_of(""), threads=1)


def test_unknown_characters_of_another_text_are_said_and_cost_bits() -> None:
    dataset = dataset_of()
    objective = objective_of(dataset)
    weights = objective.initial_weights()
    examiner = RnnExaminer(objective, dataset)
    figures, note = examiner.validate_on(weights, texts_of("Paragraph 汉字"), threads=1)
    loss = text_loss(objective, weights, dataset.tokenizer.encode("Paragraph 汉字"), threads=1)
    spread = math.log2(0x110000 - 0x800 - (dataset.tokenizer.vocab_size - 2))
    assert figures == {"bits_per_character": pytest.approx(loss / math.log(2) + 2 / 12 * spread)}
    assert note.startswith(
        "2 of 12 characters are unknown to the run's tokenizer; each costs what the model gives <unk>"
    )
    assert note.endswith("and 20.1 bits to say which it is")


def test_long_text_is_read_in_chunks_that_lose_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = dataset_of()
    objective = objective_of(dataset)
    weights = np.zeros(objective.layout.size, dtype=np.float32)  # without memory: chunks make no difference
    examiner = RnnExaminer(objective, dataset)
    whole, _ = examiner.validate_on(weights, texts_of(PARAGRAPHS), threads=1)
    monkeypatch.setattr(examiner_module, "CHUNK_TOKENS", 300)
    monkeypatch.setattr(documents, "LEAST_PIECE", 1)
    lengths: list[int] = []

    def counted(*arguments: Any, **others: Any) -> float:  # noqa: ANN401 (of `text_loss`)
        lengths.append(len(arguments[2]))
        return text_loss(*arguments, **others)

    monkeypatch.setattr(examiner_module, "text_loss", counted)
    chunks, _ = examiner.validate_on(weights, texts_of(PARAGRAPHS, piece=100), threads=1)
    assert chunks == {"bits_per_character": pytest.approx(whole["bits_per_character"], rel=1e-5)}
    assert len(lengths) > 5
    assert sum(length - 1 for length in lengths) == len(PARAGRAPHS) - 1


def test_validation_of_a_long_text_reads_a_part_of_each_row() -> None:
    objective = rnn_of()
    weights = weights_of(objective)
    text = text_of(VALIDATION_ROWS * 10 + 1)
    first = np.stack([text[i * 10 : i * 10 + 4] for i in range(VALIDATION_ROWS)])
    network = TorchRnn(objective, weights)
    expected = network.loss(first, network.start(VALIDATION_ROWS))
    found = text_loss(objective, weights, text, threads=1, most=3 * VALIDATION_ROWS)
    assert found == pytest.approx(expected, abs=TOLERANCE)


def test_its_language_model_stops_where_the_tokenizer_says() -> None:
    dataset = dataset_of()
    objective = objective_of(dataset)
    model = RnnExaminer(objective, dataset).language_model(objective.initial_weights())
    assert (model.vocab_size, model.stop_token) == (dataset.tokenizer.vocab_size, dataset.tokenizer.stop_token)


def test_a_sample_of_documents_begins_from_zeros() -> None:
    dataset = dataset_of("blank-lines")
    objective = objective_of(dataset)
    weights = objective.initial_weights()
    objective.layout.split(weights)["initial_state"][:] = 0.9
    model = RnnExaminer(objective, dataset).language_model(weights)
    begun, _ = model.next_log_probabilities(model.initial_state(1), model.start)
    expected, _ = model.next_log_probabilities(np.zeros_like(begun), model.start)
    np.testing.assert_array_equal(begun, expected)


@pytest.mark.parametrize("documents", ["stream", "blank-lines"])
def test_model_never_writes_what_training_did_not_show(documents: DocumentMode) -> None:
    dataset = dataset_of(documents)
    objective, tokenizer = objective_of(dataset), dataset.tokenizer
    model = RnnExaminer(objective, dataset).language_model(objective.initial_weights())
    _, log_probabilities = model.next_log_probabilities(model.initial_state(1), model.start)
    is_possible = np.isfinite(log_probabilities[0])
    assert tokenizer.unknown_token is not None
    assert not is_possible[tokenizer.unknown_token]
    assert is_possible[tokenizer.stop_token] == (documents == "blank-lines")
    assert is_possible[tokenizer.encode("Paragraph 1 says hello.")].all()


def test_what_is_searched_in_a_stream_has_its_full_length() -> None:
    dataset = dataset_of()
    objective = objective_of(dataset)
    model = RnnExaminer(objective, dataset).language_model(objective.initial_weights())
    for n_beams in (1, 64):
        found = beam_search(model, [], n_beams=n_beams, length=40)
        assert (len(found.tokens), found.is_stopped) == (40, False)


@pytest.mark.parametrize("documents", ["stream", "blank-lines"])
def test_a_prompt_begins_a_document_but_continues_a_stream(documents: DocumentMode) -> None:
    dataset = dataset_of(documents)
    objective = objective_of(dataset)
    weights = np.random.default_rng(3).normal(size=objective.layout.size).astype(np.float32)
    model = RnnExaminer(objective, dataset).language_model(weights)
    n_layers, hidden_size = objective.shape[2], objective.shape[1]
    initial = objective.layout.split(weights)["initial_state"].reshape(1, n_layers, hidden_size)
    after_stop, _ = model.next_log_probabilities(initial, np.array([model.stop_token], dtype=np.uint16))
    expected = initial if documents == "stream" else after_stop
    np.testing.assert_array_equal(model.initial_state(1), expected)
