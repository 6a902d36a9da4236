"""The loading example of docs/runs.md, executed."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlearn.runs.export import export
from fedlearn.runs.history import rebuilt_at
from fedlearn.tasks.kind import TextExaminer
from tests.commands.recorded_run import recorded_run
from tests.docs.pages import REPOSITORY
from tests.run_folders import rnn_config

CHANGES: dict[str, list[tuple[str, str]]] = {
    "tanh": [],
    "gru": [("nn.RNN(", "nn.GRU(")],
    "lstm": [
        ("nn.RNN(", "nn.LSTM("),
        ("torch.zeros(layers,", "torch.zeros(2 * layers,"),
        ("self.rnn(one_hot, state)", "self.rnn(one_hot, state.chunk(2))"),
        ("self.head(outputs), state", "self.head(outputs), torch.cat(state)"),
        ('len(weights["initial_state"])', 'len(weights["initial_state"]) // 2'),
    ],
}
"""What a reader changes in the example for another cell, as the page says."""


@pytest.mark.parametrize("cell", ["tanh", "gru", "lstm"])
def test_example_loads_a_run_and_predicts_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str
) -> None:
    torch = pytest.importorskip("torch", reason="loads into PyTorch, the torch extra")
    run = recorded_run(rnn_config(tmp_path, cell=cell, n_layers=2))
    monkeypatch.chdir(tmp_path)
    export(run, Path("run.safetensors"))
    (example,) = re.findall(r"```python\n(.*?load_state_dict.*?)```", (REPOSITORY / "docs/runs.md").read_text(), re.S)
    names: dict[str, Any] = {}
    for before, after in CHANGES[cell]:
        assert before in example
        example = example.replace(before, after)
    exec(example, names)
    examiner = run.prepared.examiner
    assert isinstance(examiner, TextExaminer)
    model = examiner.language_model(rebuilt_at(run).holding.replica.weights)
    tokens = np.random.default_rng(1).integers(0, model.vocab_size, (3, 7)).astype(np.uint16)
    with torch.no_grad():
        logits, _ = names["network"](torch.from_numpy(tokens.astype(np.int64)))
    found = torch.log_softmax(logits, dim=-1).numpy()
    state = model.initial_state(3)
    for place in range(tokens.shape[1]):
        state, expected = model.next_log_probabilities(state, tokens[:, place])
        is_written = np.isfinite(expected)
        np.testing.assert_allclose(found[:, place][is_written], expected[is_written], atol=1e-4)
