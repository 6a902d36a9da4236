import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedlearn.tasks.torch.hidden import hidden_matrices
from fedlearn.tasks.torch.supervised import supervised
from fedlearn.tasks.torch_graph.sharing import received, unpacked


class Reader(nn.Module):
    """A causal reader of tokens, with its head tied to the embedding or not."""

    def __init__(self, *, is_tied: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 32)
        self.block = nn.TransformerEncoderLayer(32, 2, 64)
        self.head = nn.Linear(32, 50)
        if is_tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.block(self.tokens(tokens)))
        return found


BLOCK = {
    "block.self_attn.in_proj_weight": 3,
    "block.self_attn.out_proj.weight": 1,
    "block.linear1.weight": 1,
    "block.linear2.weight": 1,
}


@pytest.mark.parametrize("is_tied", [False, True])
def test_embeddings_and_heads_are_not_hidden(is_tied: bool) -> None:
    assert hidden_matrices(Reader(is_tied=is_tied)) == BLOCK


def test_small_matrices_and_the_last_one_are_not_hidden() -> None:
    layers = [nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3), nn.Flatten(), nn.Linear(288, 15), nn.Linear(15, 16)]
    assert hidden_matrices(nn.Sequential(*layers)) == {"1.weight": 1}
    assert hidden_matrices(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 2))) == {"0.weight": 1}
    assert hidden_matrices(nn.Linear(16, 16)) == {}
    assert hidden_matrices(nn.LayerNorm(16)) == {}


@pytest.mark.parametrize(("layer", "gates"), [(nn.RNN(20, 16), 1), (nn.GRU(20, 16), 3), (nn.LSTM(20, 16), 4)])
def test_each_gate_is_a_matrix(layer: nn.RNNBase, gates: int) -> None:
    model = nn.Sequential(layer, nn.Linear(16, 16))
    assert hidden_matrices(model) == {"0.weight_ih_l0": gates, "0.weight_hh_l0": gates}


def test_projections_in_one_product_are_apart_by_the_layers_name() -> None:
    model = nn.ModuleDict(
        {"qkv": nn.Linear(16, 48), "kv": nn.Linear(16, 32), "up": nn.Linear(16, 48), "head": nn.Linear(16, 16)}
    )
    assert hidden_matrices(model) == {"qkv.weight": 3, "kv.weight": 2, "up.weight": 1}
    assert hidden_matrices(nn.ModuleDict({"qkv": nn.Linear(32, 48), "head": nn.Linear(16, 16)})) == {"qkv.weight": 1}


class Conv1D(nn.Module):
    """A layer with a row of weights for each input, as transformers has it by this name."""

    def __init__(self, n_outputs: int, *n_inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(*n_inputs, n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def test_matrices_of_layers_with_rows_for_inputs_lie_side_by_side() -> None:
    layers = {"c_attn": Conv1D(48, 16), "c_fc": Conv1D(64, 16), "narrow": Conv1D(20, 15), "kernel": Conv1D(3, 16, 8)}
    model = nn.ModuleDict({**layers, "head": nn.Linear(16, 16)})
    expected = {"c_attn.weight": -3, "c_fc.weight": -1, "kernel.weight": 1}
    assert hidden_matrices(model) == expected
    chain = nn.Sequential(Conv1D(20, 16), Conv1D(16, 20), nn.Linear(16, 16))
    assert hidden_matrices(chain) == hidden_matrices(torch.jit.script(chain)) == {"0.weight": -1, "1.weight": -1}


@pytest.mark.parametrize("train", [["0.", "1."], ["1.", "2."]])
def test_a_task_has_the_hidden_matrices_that_it_trains(train: list[str]) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16))
    task = supervised(
        model, lambda model, rows: model(rows["x"]).sum(), {"x": np.ones((4, 16), np.float32)}, train=train
    )
    hidden = {"0.weight": 1, "1.weight": 1} if train[0] == "0." else {"1.weight": 1}
    assert task.hidden == hidden
    assert {spec.name: spec.n_hidden for spec in task.layout.tensors if spec.n_hidden} == hidden
    assert received(task.as_graph()).layout == task.layout == unpacked(task.as_graph()).layout


def test_hidden_matrices_of_torchscript_are_those_of_its_module() -> None:
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 16), nn.LSTM(16, 16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer PyTorch, which people still use it with
        scripted = torch.jit.script(model)
    assert hidden_matrices(scripted) == hidden_matrices(model) == {"1.weight": 1, "2.weight_ih_l0": 4}
