import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from fedlearn.tasks.torch.perceptron import classifier, perceptron, scaled_pixels  # noqa: E402


def test_layers_are_linear_with_relu_between_them_only() -> None:
    model = perceptron((4, 8, 3))
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "Linear"]
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(8, 4), (8,), (3, 8), (3,)]


def test_loss_and_accuracy_of_unperturbed_weights_are_those_of_held_out_rows() -> None:
    x, y = np.eye(3, dtype=np.float32), np.arange(3)
    task = classifier((3, 3), (x, y), (x, (y + 1) % 3), batch_size=2, settings={"sigma": 0.1})
    weights = np.concatenate([10 * np.eye(3, dtype=np.float32).reshape(-1), np.zeros(3, dtype=np.float32)])
    found = task.evaluate(weights, threads=1)
    assert (found["accuracy"], found["loss"] > 9.0) == (0.0, True)
    right = classifier((3, 3), (x, y), (x, y), batch_size=2, settings={}).evaluate(weights, threads=1)
    assert (right["accuracy"], right["loss"] < 0.01) == (1.0, True)
    assert (task.batch_size, task.settings) == (2, {"sigma": 0.1})


def test_pixels_are_scaled_alike_or_channel_by_channel() -> None:
    image = torch.tensor([[0, 255, 51, 102]], dtype=torch.uint8)
    assert scaled_pixels([0.0], [1.0], n_channels=1)(image)[0].tolist() == pytest.approx([0.0, 1.0, 0.2, 0.4])
    alike = scaled_pixels([0.5], [0.5], n_channels=2)(image)[0].tolist()
    assert alike == pytest.approx([-1.0, 1.0, -0.6, -0.2])
    by_channel = scaled_pixels([0.5, 0.0], [0.5, 0.2], n_channels=2)(image)[0].tolist()
    assert by_channel == pytest.approx([-1.0, 1.0, 1.0, 2.0])


def test_an_examination_runs_the_network_once_for_both_metrics() -> None:
    prepared = []

    def prepare(inputs: Tensor) -> Tensor:
        prepared.append(len(inputs))
        return inputs

    x, y = np.eye(3, dtype=np.float32), np.arange(3)
    task = classifier((3, 3), (x[:2], y[:2]), (x, y), batch_size=2, settings={}, prepare=prepare)
    right = np.concatenate([10 * np.eye(3, dtype=np.float32).reshape(-1), np.zeros(3, dtype=np.float32)])
    assert task.evaluate(right, threads=1)["accuracy"] == 1.0
    assert task.evaluate(-right, threads=1)["accuracy"] == 0.0
    assert task.evaluate(-right, threads=1)["loss"] > 9.0
    assert prepared == [3, 3, 3]
