from typing import Any

import msgspec
import pytest

from fedlearn.hub.bodies import Asked
from fedlearn.hub.jobs.speed import operations_of


def operations(model: dict[str, Any], **dataset: Any) -> float:  # noqa: ANN401
    return operations_of(msgspec.convert({"model_config": model, "dataset_config": dataset}, Asked))


def test_operations_of_a_classifier_are_two_a_weight_and_row_of_the_layers_that_are_trained() -> None:
    layers = {"layer_sizes": [784, 16, 10]}
    assert operations(layers, batch_size=8) == 2 * (64 * 16 + 16 * 10) * 8
    assert operations(layers, batch_size=8, path="mnist") == 2 * (784 * 16 + 16 * 10) * 8


def test_operations_of_a_transformer_grow_with_all_its_sizes() -> None:
    base = {"type": "transformer", "width": 32, "context": 32, "n_layers": 1}
    usual = operations(base, batch_size=8)
    assert usual == pytest.approx(2 * (12 * 32**2 + 64 * 32) * 32 * 8)
    assert operations(base, batch_size=16) == 2 * usual
    assert operations(base | {"context": 64}, batch_size=8) == 2 * usual


def test_of_a_task_nothing_is_known() -> None:
    assert operations({"type": "task"}) == 0.0
