from typing import Any

import msgspec
import numpy as np
import pytest

from fedlearn.es.layout import Float32Array
from fedlearn.hub.bodies import Asked, RefusedError
from fedlearn.hub.jobs.weights import recognized

TENSORS: dict[str, Float32Array] = {
    "0.weight": np.array([[1, 0, 0, 0], [0, -1, 0, 0]], dtype=np.float32),
    "0.bias": np.zeros(2, dtype=np.float32),
    "2.weight": np.array([[1, 1], [2, 0], [0, 0]], dtype=np.float32),
    "2.bias": np.array([0, 0, 0.5], dtype=np.float32),
}


def classes(pixels: list[float], **dataset: Any) -> list[float]:  # noqa: ANN401
    asked = {"model_config": {"layer_sizes": [4, 2, 3]}, "dataset_config": dataset}
    found = recognized(msgspec.convert(asked, Asked), TENSORS, pixels)
    assert found["class"] == int(np.argmax(found["probabilities"]))
    return [float(p) for p in found["probabilities"]]


def softmax(*logits: float) -> Any:  # noqa: ANN401
    powers = np.exp(logits)
    return pytest.approx(list(powers / powers.sum()))


def test_hidden_units_below_zero_are_cut_and_pixels_are_scaled_as_asked() -> None:
    assert classes([1, 1, 0, 0]) == softmax(1, 2, 0.5)
    assert classes([1, 0, 0, 0], normalize={"mean": [0.5], "std": [0.25]}) == softmax(4, 4, 0.5)
    assert classes([1, 0, 0, 0], normalize={"mean": [0.5, 0.0], "std": [0.25]}) == softmax(4, 4, 0.5)


def test_a_larger_square_is_shrunk_and_any_other_number_of_pixels_refused() -> None:
    drawn = np.zeros((4, 4))
    drawn[:2, :2] = [[1, 0], [1, 0]]
    assert classes(drawn.reshape(-1).tolist()) == classes([0.5, 0, 0, 0])
    for n_pixels in (3, 8, 9):
        with pytest.raises(RefusedError, match=f"pixels: expected 4, .* got {n_pixels}"):
            classes([0.0] * n_pixels)


def test_only_a_classifier_recognizes() -> None:
    with pytest.raises(RefusedError, match="expected a job with layer_sizes, got one of transformer"):
        recognized(msgspec.convert({"model_config": {"type": "transformer"}}, Asked), TENSORS, [0.0] * 4)
