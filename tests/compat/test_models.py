"""Modules as they are brought: saved for nodes, or scripted in a file."""

import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from fedlearn.compat.models import loaded, save, trainable  # noqa: E402
from fedlearn.tasks.task import Batch, flat_weights  # noqa: E402
from fedlearn.tasks.torch.supervised import supervised  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import received  # noqa: E402


def module() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)).eval()


def scripted(folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(module()), folder / "scripted.pt")
    return folder / "scripted.pt"


def test_a_scripted_module_travels_and_has_its_gradient(tmp_path: Path) -> None:
    x, labels = torch.randn(12, 1, 4, 4), torch.arange(12) % 3
    made = trainable(loaded(scripted(tmp_path)), x[:6])
    plain = module()
    assert {name: list(each.shape) for name, each in made.named_parameters()} == {
        name: list(each.shape) for name, each in plain.named_parameters()
    }
    task = supervised(made, lambda model, rows: F.cross_entropy(model(rows["x"]), rows["y"]),
                      {"x": x, "y": labels}, batch_size=6)  # fmt: skip
    batch = Batch({"x": x.numpy().reshape(2, 6, 1, 4, 4), "y": labels.numpy().reshape(2, 6)}, (0, 1))
    found = received(task.as_graph()).loss_gradients(flat_weights(task.tensors), batch)
    expected = torch.autograd.grad(F.cross_entropy(plain(x), labels), list(plain.parameters()))
    flat = np.concatenate([each.numpy().reshape(-1) for each in expected])
    np.testing.assert_allclose(found.total / 2, flat, rtol=1e-4, atol=1e-6)


def test_another_file_is_no_scripted_module(tmp_path: Path) -> None:
    (tmp_path / "other.pt").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"other.pt: expected a scripted module, got another file"):
        loaded(tmp_path / "other.pt")


def test_a_model_is_saved_for_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node_data").mkdir()
    assert save(module(), tmp_path / "node_data") == ""
    torch.testing.assert_close(loaded(None).state_dict(), module().state_dict())


def test_a_model_that_can_not_be_saved_is_told(tmp_path: Path) -> None:
    class Local(nn.Module):
        pass

    assert "the model can't be saved" in save(Local(), tmp_path)


def test_torchvisions_residual_network_travels_and_has_its_gradient() -> None:
    torchvision = pytest.importorskip("torchvision")
    x, labels = torch.randn(4, 3, 32, 32), torch.arange(4)
    network = torchvision.models.resnet18(num_classes=5)
    task = supervised(trainable(network, x), lambda model, rows: F.cross_entropy(model(rows["x"]), rows["y"]),
                      {"x": x, "y": labels}, batch_size=4)  # fmt: skip
    batch = Batch({"x": x.numpy()[None], "y": labels.numpy()[None]}, (0,))
    found = received(task.as_graph()).loss_gradients(flat_weights(task.tensors), batch).total
    expected = torch.autograd.grad(F.cross_entropy(network.train()(x), labels), list(network.parameters()))
    flat = np.concatenate([each.numpy().reshape(-1) for each in expected])
    assert np.linalg.norm(found - flat) < 0.01 * np.linalg.norm(flat)
