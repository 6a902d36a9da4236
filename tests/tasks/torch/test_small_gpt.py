import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fedlearn.tasks.task import flat_weights  # noqa: E402
from fedlearn.tasks.torch.small_gpt import Shape, SmallGPT, TextWindows, language_task, windows_of  # noqa: E402

SHAPE = Shape(context=8, width=16, n_layers=2, n_heads=4)
TEXT = b"abcd" * 2000 + b"ab" * 500


@pytest.fixture
def windows() -> TextWindows:
    return windows_of(TEXT, SHAPE)


def test_windows_are_pieces_of_the_text_in_order_and_none_is_of_both_parts(windows: TextWindows) -> None:
    alphabet = windows.alphabet
    assert alphabet == b"abcd"
    training = [bytes(alphabet[token] for token in window) for window in windows.training]
    assert training[:2] == [TEXT[:9], TEXT[4:13]]
    assert training[-1] in TEXT[: len(TEXT) - len(TEXT) // 10]
    assert bytes(alphabet[token] for token in windows.held_out[0]) == TEXT[-900:][:9]
    assert len(windows.held_out) == 64


def test_counting_reaches_what_frequencies_of_the_training_text_say(windows: TextWindows) -> None:
    assert windows.unigram == pytest.approx(-math.log(0.25), abs=0.05)
    assert windows.unigram != -math.log(0.25)


def test_a_short_text_is_refused() -> None:
    with pytest.raises(ValueError, match="4000 bytes or more, got 3999"):
        windows_of(b"a" * 3999, SHAPE)


def test_it_begins_with_the_frequencies_and_nothing_else() -> None:
    frequencies = np.array([0.5, 0.25, 0.25])
    logits = SmallGPT(SHAPE, frequencies)(torch.tensor([[0, 1, 2]]))
    assert torch.allclose(logits.softmax(-1), torch.tensor(frequencies, dtype=torch.float32).expand(1, 3, 3))


def test_it_sees_the_past_and_not_the_future() -> None:
    model = SmallGPT(SHAPE, np.full(4, 0.25))
    torch.nn.init.normal_(model.head.weight)
    first, second = model(torch.tensor([[0, 1, 2, 3], [0, 1, 3, 3]]))
    assert torch.allclose(first[:2], second[:2], atol=1e-5)
    assert not torch.allclose(first[2:], second[2:], atol=1e-3)
    assert not torch.allclose(model(torch.tensor([[2, 2]]))[0, 0], model(torch.tensor([[2, 2]]))[0, 1], atol=1e-3)


def test_the_task_travels_and_its_loss_at_the_start_is_that_of_counting(windows: TextWindows) -> None:
    task = language_task(windows, SHAPE, batch_size=4, settings={})
    assert len(task.as_graph()) < 4000
    found = task.evaluate(flat_weights(task.tensors), threads=1)
    assert found["loss"] == pytest.approx(windows.unigram, abs=0.1)
