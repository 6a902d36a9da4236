"""What a PyTorch user would write: the RNN unperturbed, with rank-1 evolution strategies, and with dense ones.

Each gives the mean nats per token of every row, computed from the same weights as ours; noise is drawn inside, as it
has to be in every step. Dense evaluation holds a copy of all weights a member: the way of libraries that perturb a
vector.
"""

from collections.abc import Callable, Mapping
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.es.layout import ParameterLayout
from fedlearn.tasks.rnn.layout import to_torch_names

ROWS_OF_NN_RNN = 128
"""Rows a call of `nn.RNN`, at which it is fastest: it holds the states and one-hot inputs of all steps of time."""

DENSE_MEMBERS = 64
"""Members side by side in the dense peer: 300 MB of weights at 1024 units."""


@final
class Peers:
    """The contestants in PyTorch, by name, for one network and its rows of tokens [rows, T + 1]."""

    def __init__(
        self, layout: ParameterLayout, weights: NDArray[np.float32], tokens: NDArray[np.uint16], sigma: float
    ) -> None:
        named = {name: torch.from_numpy(value) for name, value in to_torch_names(layout, weights).items()}
        self._vocab_size, hidden_size = named["head.weight"].shape
        self._rnn = nn.RNN(self._vocab_size, hidden_size, batch_first=True)
        self._rnn.load_state_dict({name[4:]: value for name, value in named.items() if name.startswith("rnn.")})
        self._parameters = {
            # A row of the embedding in place of a product with a one-hot token.
            "embedding": (named["rnn.weight_ih_l0"].T + named["rnn.bias_ih_l0"]).contiguous(),
            "recurrent": named["rnn.weight_hh_l0"],
            "head": named["head.weight"],
            "head_bias": named["head.bias"],
            "state": named["initial_state"],
        }
        self._tokens = torch.from_numpy(tokens.astype(np.int64))
        self._sigma = sigma
        self.contestants: dict[str, Callable[[], Tensor]] = {
            "inference, unrolled": self.infer_unrolled,
            "inference, nn.RNN": self.infer,
            "rank-1 ES": self.evaluate_rank_one,
            "dense ES, vmap": self.evaluate_dense,
        }

    def infer(self) -> Tensor:
        """Unperturbed weights, `nn.RNN` over one-hot tokens."""
        head, bias, state = (self._parameters[name] for name in ("head", "head_bias", "state"))
        losses = []
        with torch.inference_mode():
            for first in range(0, len(self._tokens), ROWS_OF_NN_RNN):
                tokens = self._tokens[first : first + ROWS_OF_NN_RNN]
                inputs = F.one_hot(tokens[:, :-1], self._vocab_size).float()
                states, _ = self._rnn(inputs, state.unsqueeze(1).expand(-1, len(tokens), -1).contiguous())
                logits = F.linear(states, head, bias).flatten(0, 1)
                nats = F.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
                losses.append(nats.view(len(tokens), -1).mean(1))
            return torch.cat(losses)

    def infer_unrolled(self) -> Tensor:
        """Unperturbed weights, one step of time after the other."""
        with torch.inference_mode():
            return _unrolled_losses(self._parameters, self._tokens)

    def evaluate_rank_one(self) -> Tensor:
        """Each row with its own rank-1 perturbation of the matrices, and a full one of the vectors."""
        tokens, sigma, n = self._tokens, self._sigma, len(self._tokens)
        embedding, recurrent, head = (self._parameters[name] for name in ("embedding", "recurrent", "head"))
        vocab_size, hidden_size = embedding.shape
        with torch.inference_mode():
            embedding_a, embedding_b = torch.randn(n, vocab_size), torch.randn(n, hidden_size) * sigma
            recurrent_a, recurrent_b = torch.randn(n, hidden_size) * sigma, torch.randn(n, hidden_size)
            head_a, head_b = torch.randn(n, vocab_size) * sigma, torch.randn(n, hidden_size)
            bias = torch.randn(n, hidden_size) * sigma
            head_bias = self._parameters["head_bias"] + torch.randn(n, vocab_size) * sigma
            state = self._parameters["state"] + torch.randn(n, hidden_size) * sigma
            total = torch.zeros(n)
            for t in range(tokens.shape[1] - 1):
                token = tokens[:, t]
                start = embedding[token] + embedding_a.gather(1, token[:, None]) * embedding_b + bias
                start += recurrent_a * (state * recurrent_b).sum(1, keepdim=True)
                state = torch.addmm(start, state, recurrent.T).tanh_()
                logits = torch.addmm(head_bias + head_a * (state * head_b).sum(1, keepdim=True), state, head.T)
                total += F.cross_entropy(logits, tokens[:, t + 1], reduction="none")
            return total / (tokens.shape[1] - 1)

    def evaluate_dense(self) -> Tensor:
        """A few rows, each with weights of its own."""
        tokens = self._tokens[:DENSE_MEMBERS]
        with torch.inference_mode():
            members = {
                name: value + self._sigma * torch.randn(len(tokens), *value.shape)
                for name, value in self._parameters.items()
            }
            losses: Tensor = vmap(lambda parameters, row: _unrolled_losses(parameters, row[None])[0])(members, tokens)
            return losses


def _unrolled_losses(parameters: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """[rows] from tokens [rows, T + 1]."""
    state = parameters["state"].expand(len(tokens), -1)
    total = torch.zeros(len(tokens))
    for t in range(tokens.shape[1] - 1):
        state = torch.addmm(parameters["embedding"][tokens[:, t]], state, parameters["recurrent"].T).tanh()
        logits = torch.addmm(parameters["head_bias"], state, parameters["head"].T)
        total = total + F.cross_entropy(logits, tokens[:, t + 1], reduction="none")
    return total / (tokens.shape[1] - 1)
