"""A run on packed documents with real processes: it learns, and what `eval` says is what plain numpy finds."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from fedlearn.text.tokenizers.tokenizer import tokenizer_from_json
from tests.end_to_end.processes import ended_at_exit, fedlearn, metrics_of, start, wait_for
from tests.patience import LIMIT_S

ROWS = 64
"""Pieces of a text that are read side by side, each from the initial state."""

Weights = dict[str, NDArray[np.float32]]


STEPS = ["--group-size", "16", "--population-limit", "1024", "--time-per-step", "60", "--sample-time", "2"]
"""As many members on any machine, so that it learns as much on a busy one."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on lines, each of one letter, of which the line before says nothing."""
    folder = tmp_path_factory.mktemp("documents")
    generator = np.random.default_rng(1)
    lines = ("abcdefgh"[letter] * length for letter, length in generator.integers([0, 3], [8, 12], (2000, 2)))
    (folder / "lines.txt").write_text("\n".join(lines))
    shape = ["--hidden-size", "16", "--context", "12", "--sequence-length", "12"]
    given = ["--verbose", "--data", "lines.txt", "--documents", "lines", *shape, *STEPS]
    server = start("server.py", "--volunteers", "0", "--port", "0", "--steps", "10", *given, folder=folder)
    with ended_at_exit(server):
        port, said = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        assert re.search(r"documents: 2000 are packed .* the state is reset at <stop>", said)
        client = start("client.py", "--server", f"127.0.0.1:{port}", "--threads", "1", "--once", folder=folder)
        with ended_at_exit(client):
            wait_for(server, "all 10 steps are done")
            assert server.wait(timeout=LIMIT_S) == 0
    return folder


def naive_loss(weights: Weights, tokens: NDArray[np.int64], reset_token: int) -> float:
    """Mean nats per token, in float64."""
    parts = {name: part.astype(np.float64) for name, part in weights.items()}
    length = (len(tokens) - 1) // ROWS
    state, total = np.repeat(parts["initial_state"][np.newaxis], ROWS, axis=0), 0.0
    for t in range(length):
        read, target = tokens[t : ROWS * length : length], tokens[t + 1 : ROWS * length + 1 : length]
        state = np.where((read == reset_token)[:, np.newaxis], 0.0, state)
        inputs = parts["embedding.weight"][read] + parts["rnn.bias_l0"]
        state = np.tanh(inputs + state @ parts["rnn.weight_hh_l0"].T)
        logits = state @ parts["head.weight"].T + parts["head.bias"]
        total += float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(ROWS), target]).sum())
    return total / (ROWS * length)


def test_it_learns(trained: Path) -> None:
    first, last = (line["shown"]["bits_per_character"] for line in (metrics_of(trained)[0], metrics_of(trained)[-1]))
    print(f"\nbits per character: {first:.2f} at first, {last:.2f} in the end")
    assert last < first - 0.5


def test_what_eval_says_is_what_numpy_finds(trained: Path) -> None:
    run = trained / "trainingRuns/1"
    weights = safetensors.numpy.load_file(sorted(run.glob("checkpoints/*.safetensors"))[-1])
    about = json.loads((run / "data/dataset.json").read_text())
    tokens = np.load(run / "data/validation.npy").astype(np.int64)
    n_characters: int = about["parts"][1]["n_characters"]

    def bits(reset_token: int) -> float:
        return naive_loss(weights, tokens, reset_token) / math.log(2) * len(tokens) / n_characters

    def said(*arguments: str) -> float:
        told = json.loads(fedlearn("eval", "1", "--json", *arguments, folder=trained))
        return float(told["figures"]["bits_per_character"])

    found, expected, carried = said(), bits(about["reset_token"]), bits(-1)
    print(f"\nbits per character: eval {found:.4f}, numpy {expected:.4f}, without resets {carried:.4f}")
    assert found == pytest.approx(expected, abs=1e-4)
    assert abs(carried - expected) > 1e-3
    tokenizer = tokenizer_from_json((run / "data/tokenizer.json").read_text())
    documents = np.split(tokens, np.flatnonzero(tokens == about["reset_token"]) + 1)
    (trained / "held_out.txt").write_text("\n".join(tokenizer.decode(document) for document in documents))
    assert said("--data", "held_out.txt") == pytest.approx(expected, abs=1e-4)
