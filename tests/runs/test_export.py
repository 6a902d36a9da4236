import csv
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from fedlearn.config import RunConfig
from fedlearn.runs.export import export, weights_as
from fedlearn.runs.history import rebuilt_at
from fedlearn.runs.run import Run, named_task
from fedlearn.tasks.rnn.layout import to_torch_names
from tests.commands.recorded_run import recorded_run
from tests.run_folders import created, fit_task, reopened, rnn_config, task_config


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return rnn_config(tmp_path)


@pytest.fixture
def run(config: RunConfig) -> Run:
    return recorded_run(config)


def test_newest_weights_are_written_as_pytorch_names_them(run: Run, tmp_path: Path) -> None:
    done = export(run, tmp_path / "out.safetensors")
    replica = rebuilt_at(run).holding.replica
    assert (done.path, done.content) == (tmp_path / "out.safetensors", "the state_dict, with the weights of step 5")
    expected = to_torch_names(run.prepared.objective.layout, replica.weights)
    found = safetensors.numpy.load_file(done.path)
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
    with safe_open(done.path, framework="numpy") as file:
        assert file.metadata() == {"format": "pt", "run": "1", "step": "5", "digest": replica.digest.hex()}


def test_file_is_named_after_the_run_unless_it_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(run).path == Path("run-1.safetensors")
    assert export(run, form="csv").path == Path("run-1.csv")
    assert sorted(path.name for path in tmp_path.glob("run-*")) == ["run-1.csv", "run-1.safetensors"]


def test_ending_that_is_no_format_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"out\.txt: expected a name that ends in \.safetensors, \.onnx, \.csv"):
        export(run, tmp_path / "out.txt")
    assert export(run, tmp_path / "out.txt", "csv").path.exists()


def test_one_step_is_written_as_onnx(run: Run, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
    done = export(run, tmp_path / "out.onnx")
    assert done.content == "one step of the model, with the weights of step 5"
    assert [given.name for given in onnx.load(done.path).graph.input] == ["token", "state"]


def test_figures_are_a_table_with_a_line_a_step(run: Run, tmp_path: Path) -> None:
    lines = run.folder.metrics.read_text().splitlines()
    lines[1] = lines[1][:-1] + ',"validation":{"accuracy":0.75}}'
    again = lines[3].replace('"loss":1.0', '"loss":null')
    assert again != lines[3]
    run.folder.metrics.write_text("\n".join([*lines, again, '{"torn']) + "\n")
    done = export(run, tmp_path / "out.csv")
    rows = list(csv.DictReader(done.path.read_text().splitlines()))
    assert done.content == "the figures of 4 steps"
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["loss"] for row in rows] == ["1.0", "1.0", "1.0", ""]
    assert [row["validation_accuracy"] for row in rows] == ["", "0.75", "", ""]
    assert float(rows[0]["bits_per_character"]) > 1.0
    assert (rows[0]["members"], rows[0]["work"]) == ("16", "128")


MODULE = """import torch
from torch import nn
import fedlearn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("unsaved", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.norm(self.second(self.first(x)))

def loss(model, rows):
    return (model(rows["x"]) ** 2).mean()

torch.manual_seed(0)
net = Net().eval()
task = fedlearn.supervised(net, loss, {"x": torch.randn(8, 3)})
"""


def test_users_module_gets_its_own_state_dict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from safetensors.torch import load_file

    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "fit.py").write_text(MODULE)
    entry = f"{tmp_path / 'fit.py'}:task"
    task = named_task(entry)
    assert task is not None
    from fedlearn.runs.creation import create
    from fedlearn.tasks.user.task_kind import SUPERVISED

    run = create(SUPERVISED, task_config(tmp_path, task=entry, share="nothing"), task)
    loaded = load_file(export(run, tmp_path / "out.safetensors").path)
    module = task.task.model  # type: ignore[attr-defined]
    assert set(loaded) == set(module.state_dict())
    module.load_state_dict(loaded)
    other = np.arange(run.prepared.objective.layout.size, dtype=np.float32)
    payload, _ = weights_as(run, other, "safetensors", {})
    assert safetensors.numpy.load(payload)["second.bias"].sum() > 1.0
    assert torch.equal(loaded["second.weight"], loaded["first.weight"])
    with pytest.raises(ValueError, match=r"onnx: expected the recurrent network.* call torch\.onnx\.export"):
        export(run, tmp_path / "out.onnx")


def test_task_of_arrays_is_written_by_their_names(tmp_path: Path) -> None:
    run = created(task_config(tmp_path), fit_task(start={"vector": np.zeros(6), "scalar": np.float32(2.0)}))
    found = safetensors.numpy.load_file(export(run, tmp_path / "out.safetensors").path)
    assert {name: array.shape for name, array in found.items()} == {"vector": (6,), "scalar": ()}


def test_without_the_tasks_code_what_was_learned_is_written(tmp_path: Path) -> None:
    run = reopened(created(task_config(tmp_path), fit_task()))
    done = export(run, tmp_path / "out.safetensors")
    assert list(safetensors.numpy.load_file(done.path)) == ["vector"]
    assert "only what was learned is in the file" in done.notes[0]
    with pytest.raises(ValueError, match="onnx: expected the recurrent network, got a task whose code is not here"):
        export(run, tmp_path / "out.onnx")
