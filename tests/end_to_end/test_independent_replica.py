"""A second replica, written from docs/design alone: it reads a run's files and must reach every recorded digest.

Nothing of fedlearn or its core computes here, so what the documents leave out would show.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, final

import msgspec
import numpy as np
import pytest
from blake3 import blake3
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file

from fedlearn.config import Schema
from fedlearn.runs.creation import create
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Swarm
from fedlearn.tasks.rnn.kind import KIND

Float32Array = NDArray[np.float32]

ROTATIONS = [(10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20)]
NOISE, WINDOWS = 0, 1
COLD_INTERVAL = 16


def threefry_words(key: tuple[int, ...], stream: int, number: int, n_words: int) -> NDArray[np.uint32]:
    """Words of consecutive blocks under counters (block, stream, number low, number high)."""
    n_blocks = -(-n_words // 4)
    schedule = [np.uint32(k) for k in (*key, 0x1BD11BDA ^ key[0] ^ key[1] ^ key[2] ^ key[3])]
    rest = (stream, number & 0xFFFFFFFF, number >> 32)
    counter = [np.arange(n_blocks, dtype=np.uint32), *(np.full(n_blocks, word, dtype=np.uint32) for word in rest)]
    x = [word + schedule[i] for i, word in enumerate(counter)]
    for turn in range(20):
        for (a, b), by in zip(
            ((0, 1), (2, 3)) if turn % 2 == 0 else ((0, 3), (2, 1)), ROTATIONS[turn % 8], strict=True
        ):
            x[a] = x[a] + x[b]
            x[b] = ((x[b] << np.uint32(by)) | (x[b] >> np.uint32(32 - by))) ^ x[a]
        if turn % 4 == 3:
            injection = turn // 4 + 1
            x = [word + schedule[(injection + i) % 5] for i, word in enumerate(x)]
            x[3] = x[3] + np.uint32(injection)
    return np.stack(x, axis=-1).reshape(-1)[:n_words]


class Tensor(NamedTuple):
    rows: int
    columns: int
    scale: float
    mask_column: int | None
    n_hidden: int = 0


def nearest_orthogonal(matrix: Float32Array) -> Float32Array:
    """The nearest orthogonal matrix, roughly, of a matrix with at least as many columns as rows."""

    def whole(numbers: Float32Array) -> tuple[NDArray[np.int64], float]:
        largest = np.abs(numbers).max()
        factor = np.float32(127 / float(largest)) if largest > 0 else np.float32(0)
        return np.rint(numbers * factor).astype(np.int64), float(largest)

    def single(number: float) -> np.float32:
        return np.float32(number)

    x, _ = whole(matrix)
    unit, result = 1.0 / max(float((x * x).sum()) ** 0.5, 1.0), matrix
    for p, q, r in ((8.0443, -21.581, 14.909), (4.0664, -2.8612, 0.5184), (3.9096, -2.8234, 0.525)):
        square, largest = whole((x @ x.T).astype(np.float32))
        a = largest / 127 * (unit * unit)
        factor = single(q * a) * square.astype(np.float32)
        factor = factor + single(r * a * a) * (square @ square).astype(np.float32)
        b, of_b = whole(factor)
        result = single(p * unit) * x.astype(np.float32)
        result = result + single(of_b / 127 * unit) * (b @ x).astype(np.float32)
        x, largest = whole(result)
        unit = largest / 127
    return result


@final
class IndependentReplica:
    """Weights, moments and powers of a run folder, and the arithmetic of the documents."""

    def __init__(self, folder: Path) -> None:
        groups: dict[str, dict[str, Any]] = json.loads((folder / "config.json").read_text())
        self.config: dict[str, Any] = {key: value for group in groups.values() for key, value in group.items()}
        self.vocab = len(json.loads((folder / "data/tokenizer.json").read_text())["characters"]) + 2
        genesis = load_file(folder / "genesis.safetensors")
        with safe_open(folder / "genesis.safetensors", framework="numpy") as file:
            metadata = file.metadata()
        names = [tensor["name"] for tensor in json.loads(metadata["layout"])["tensors"]]
        self.weights = np.concatenate([genesis[name].reshape(-1) for name in names])
        self.slots = {"start": self.weights.copy()} if json.loads(metadata["is_start"]) else {}
        self.numbers: dict[str, float] = {}
        text = np.load(folder / "data/train.npy")
        header = f"tokens\0{text.dtype.str}\0({len(text)},)\0".encode()
        self.blocks = {blake3(header + text.tobytes()).digest(16): text}
        hidden, layers = self.config["hidden_size"], self.config["n_layers"]
        cell = self.config["cell"]
        sums = {"tanh": 1, "gru": 3, "lstm": 4}[cell] * hidden
        self.tensors = [Tensor(self.vocab, sums, self.config["embedding_scale"], 0)]
        for layer in range(layers):
            n_gates = sums // hidden
            self.tensors += [Tensor(sums, hidden, 1.0, None, n_gates)] * (2 if layer else 1)
            self.tensors += [Tensor(1, sums, 1.0, None)]
            self.tensors += [Tensor(1, hidden, 1.0, None)] if cell == "gru" else []
        self.tensors += [Tensor(self.vocab, hidden, 1.0, None), Tensor(1, self.vocab, 1.0, None)]
        self.tensors += [Tensor(1, (2 if cell == "lstm" else 1) * layers * hidden, 1.0, self.vocab)]
        if self.config["perturb"] == "activations":
            is_closed = self.config["head"] == "closed-form"
            if self.config["control_variates"]:
                chain = [Tensor(hidden, hidden, 1.0, None)] * (2 * layers - 1)
                self.tensors += [Tensor(self.vocab, hidden, 1.0, None), *chain]
                readout = [(self.vocab, hidden), (1, self.vocab), (self.vocab, self.vocab)]
                self.tensors += [] if is_closed else [Tensor(*sides, 1.0, None) for sides in readout]

    def key(self, step: int, domain: int) -> tuple[int, ...]:
        seed = self.config["seed"]
        return (seed & 0xFFFFFFFF, seed >> 32, step, domain)

    def signs(self, step: int, member: int, stream: int, length: int) -> NDArray[np.int64]:
        words = threefry_words(self.key(step, NOISE), stream, member, -(-length // 32))
        bits = (words[:, np.newaxis] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
        return 1 - 2 * bits.reshape(-1)[:length].astype(np.int64)

    def mask(self, step: int, group: int, block: NDArray[np.uint16]) -> NDArray[np.int64]:
        context, scored, batch = (self.config[name] for name in ("context", "sequence_length", "batch_size"))
        positions = len(block) - (context + scored + 1) + 1
        words = threefry_words(self.key(step, WINDOWS), 0, group, batch)
        mask = np.zeros(self.vocab + 1, dtype=np.int64)
        for word in words:
            start = (int(word) * positions >> 32) + context
            mask[block[start : start + scored]] = 1
        mask[self.vocab] = context == 0 or group % COLD_INTERVAL == 0
        return mask

    def noise(self, step: int, member: int, number: int, rank: int) -> NDArray[np.int64]:
        tensor = self.tensors[number]
        if min(tensor.rows, tensor.columns) == 1 or rank == 0:
            return self.signs(step, member, number << 16, tensor.rows * tensor.columns).reshape(tensor.rows, -1)
        factors = [
            self.signs(step, member, number << 16 | f, tensor.columns if f % 2 else tensor.rows)
            for f in range(2 * rank)
        ]
        return sum((np.outer(factors[2 * k], factors[2 * k + 1]) for k in range(rank)), np.zeros((), dtype=np.int64))

    def apply(self, update: list[Any]) -> str:
        """Takes the step of a decoded journal record; gives the digest after it."""
        (_, step, block, spans, (_, _, utilities), rank, group_size, gradient_scale, optimizer, *rest) = update
        antithetic, weight_decay, towards, _, _, ((_, _, numbers), (_, _, shifts)), renormalization, attempt = rest
        assert renormalization is None, "this kind of task observes nothing"
        rule, lr, *settings = optimizer
        shapes = [(t.columns, t.rows) if min(t.rows, t.columns) > 1 else (1, t.columns) for t in self.tensors]
        lengths = np.concatenate([np.full(n_rows, length) for length, n_rows in shapes])
        summed = np.frombuffer(numbers, dtype=np.int8).astype(np.int64)
        if summed.size:
            summed = summed << np.repeat(np.frombuffer(shifts, dtype=np.uint8).astype(np.int64), lengths)
        text = self.blocks[block]
        members = [member for first, count in spans for member in range(first, first + count)]
        masks = {group: self.mask(step, group, text) for group in {member // group_size for member in members}}
        slots_of_sgd = ("momentum_buffer",) if settings[0] else ()
        moments = ("first_moment", "second_moment")
        names = {"adam": moments, "muon": moments, "sgd": slots_of_sgd, "lion": ("momentum",)}[rule]
        for name in names:
            self.slots.setdefault(name, np.zeros_like(self.weights))
        if rule in ("adam", "muon"):
            betas = settings[2:] if rule == "muon" else settings
            for name, beta in zip(("beta1_power", "beta2_power"), betas, strict=False):
                self.numbers[name] = max(self.numbers.get(name, 1.0) * beta, 2.0**-1000)
        replayed = [] if summed.size else members
        offset = 0
        for number, tensor in enumerate(self.tensors):
            total = np.zeros((tensor.rows, tensor.columns), dtype=np.int64)
            if summed.size:
                total[:] = summed[offset : offset + total.size].reshape(total.shape)
            for member, utility in zip(replayed, np.frombuffer(utilities, dtype=np.int8), strict=True):
                # Of an antithetic pair, the odd member has the noise of the even one, negated.
                is_negated = antithetic and member % 2 == 1
                noise = self.noise(step, member - is_negated, number, rank) * int(-utility if is_negated else utility)
                if tensor.mask_column is not None:
                    rows = slice(tensor.mask_column, tensor.mask_column + tensor.rows)
                    noise *= masks[member // group_size][rows, np.newaxis]
                total += noise
            place = slice(offset, offset + total.size)
            offset += total.size
            is_matrix = min(tensor.rows, tensor.columns) > 1
            is_low_rank = is_matrix and rank > 0 and not summed.size
            scale = np.float32(gradient_scale / np.sqrt(float(rank if is_low_rank else 1)))
            gradient = total.reshape(-1).astype(np.float32) * scale
            w = self.weights[place]
            if towards == "start":
                share = lr * weight_decay
                w[:] = np.float32(1.0 - share) * w + np.float32(share) * self.slots["start"][place]
            else:
                w *= np.float32(1.0 - (lr * weight_decay if is_matrix else 0.0))
            if rule == "muon" and tensor.n_hidden:
                self.turn(place, gradient, tensor, lr * tensor.scale, settings)
            else:
                rate, named, own = lr, rule, settings
                if rule == "muon":
                    *betas, vector_rate = settings[2:]
                    rate, named, own = lr * (1.0 if is_matrix else vector_rate), "adam", [*betas, 1e-8]
                self.move(place, gradient, named, np.float32(rate * tensor.scale), own)
        if attempt is not None:
            self.go(attempt[-1], names)
        return self.digest()

    def go(self, move: str, names: tuple[str, ...]) -> None:
        """Keeps the weights, or goes to others with an optimizer that remembers nothing."""
        if move == "keep":
            self.slots["best"] = self.weights.copy()
        elif move != "on":
            self.weights[:] = self.slots[{"anew": "start", "back": "best"}[move]]
            self.slots.update({name: np.zeros_like(self.weights) for name in names})
            self.numbers.clear()

    def move(self, place: slice, gradient: Float32Array, rule: str, rate: np.float32, settings: list[float]) -> None:
        """The optimizer's step of one tensor."""
        w = self.weights[place]
        if rule == "adam":
            beta1, beta2, epsilon = settings
            m, v = self.slots["first_moment"][place], self.slots["second_moment"][place]
            powers = (self.numbers["beta1_power"], self.numbers["beta2_power"])
            correction1, correction2 = (np.float32(1.0 / (1.0 - power)) for power in powers)
            m[:] = np.float32(beta1) * m + np.float32(1.0 - beta1) * gradient
            v[:] = np.float32(beta2) * v + np.float32(1.0 - beta2) * (gradient * gradient)
            w -= (rate * (m * correction1)) / (np.sqrt(v * correction2) + np.float32(epsilon))
        elif rule == "lion":
            beta1, beta2 = settings
            m = self.slots["momentum"][place]
            mixed = np.float32(beta1) * m + np.float32(1.0 - beta1) * gradient
            m[:] = np.float32(beta2) * m + np.float32(1.0 - beta2) * gradient
            w -= rate * np.sign(mixed)
        else:
            m = self.slots["momentum_buffer"][place] if settings[0] else np.zeros_like(w)
            m[:] = np.float32(settings[0]) * m + gradient
            w -= rate * m

    def turn(self, place: slice, gradient: Float32Array, tensor: Tensor, rate: float, settings: list[float]) -> None:
        """Muon's step of a tensor's hidden matrices."""
        matrix_rate, momentum = settings[:2]
        m = self.slots["first_moment"][place]
        kept, added = np.float32(momentum), np.float32(1.0 - momentum)
        m[:] = kept * m + added * gradient
        rows = tensor.rows // tensor.n_hidden
        pieces = (kept * m + added * gradient).reshape(tensor.n_hidden, rows, tensor.columns)
        directions = np.concatenate([nearest_orthogonal(piece).reshape(-1) for piece in pieces])
        factor = np.float32(rate * matrix_rate * max(rows / tensor.columns, 1.0) ** 0.5)
        self.weights[place] -= factor * directions

    def digest(self) -> str:
        """Of the tensors' digests, each of its weights and slots, and of the optimizer's numbers."""
        tensors, offset = b"", 0
        arrays = [self.weights, *(self.slots[name] for name in sorted(self.slots))]
        for tensor in self.tensors:
            end = offset + tensor.rows * tensor.columns
            tensors += blake3(b"".join(array[offset:end].astype("<f4").tobytes() for array in arrays)).digest(16)
            offset = end
        numbers = [self.numbers[name] for name in sorted(self.numbers)]
        return blake3(tensors + struct.pack(f"<{len(numbers)}d", *numbers)).digest(8).hex()


def journal_of(folder: Path) -> Iterator[list[Any]]:
    for segment in sorted((folder / "journal").iterdir()):
        data = segment.read_bytes().removeprefix(b"fedlearn journal 3\n")[16 + 8 + 8 + 4 :]
        while data:
            marker, length, _ = struct.unpack_from("<4sII", data)
            assert marker == b"\xf5UPD"
            yield msgspec.msgpack.decode(data[12 + 16 : 12 + length])
            data = data[12 + length :]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "sgd", "learning_rate": 0.1},
        {"optimizer": "sgd", "learning_rate": 0.1, "beta1": 0.0},
        {"optimizer": "lion", "learning_rate": 0.002, "weight_decay": 0.3},
        {"weight_decay": 2.0, "weight_decay_towards": "start"},
        {"rank": 2, "n_layers": 2, "batch_size": 2},
        {"rank": 0, "context": 0},
        {"cell": "gru", "n_layers": 2},
        {"cell": "lstm", "n_layers": 2},
        {"perturb": "activations", "head": "perturbed", "sigma": 0.05},
        {"perturb": "activations", "head": "closed-form", "n_layers": 2},
        {"optimizer": "muon", "cell": "gru", "n_layers": 2, "weight_decay": 0.3, "vector_rate": 0.5},
        {"head": "closed-form"},
        {"antithetic": True, "weight_decay": 0.3},
        {"learning_rate_schedule": "cosine", "sigma_schedule": "linear", "warmup_steps": 2},
        {"antithetic": True, "rank": 0, "optimizer": "sgd", "weight_decay": 0.3},
        {"restarts": 1, "target_loss": -1e9, "steps": 52, "population_limit": 16, "learning_rate": 0.02},
    ],
    ids=str,
)
def test_the_documents_suffice_to_replay_a_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("colourless green ideas sleep furiously while the quick brown fox jumps over a lazy dog. " * 20)
    settings = {"hidden_size": 6, "population_limit": 136, "group_size": 4, "context": 3, "sequence_length": 5}
    recipe = {"sigma": 0.01, "learning_rate": 0.006, "time_per_step": 5.0}
    choices: dict[str, Any] = {**settings, **recipe, **changes}
    places = {"data": (str(text),), "runs": str(tmp_path / "runs")}
    run = create(KIND, Schema(KIND.options).build({**places, "steps": 3, "seed": 2**40 + 7, **choices}))
    trainer, _ = Trainer.open(run)
    swarm = Swarm(trainer, lambda: 0.0)
    swarm.join("one")
    swarm.join("two")
    while swarm.reason is None:
        assert swarm.advance()
    trainer.close()
    replica = IndependentReplica(run.folder.path)
    updates = list(journal_of(run.folder.path))
    digests = [replica.apply(update) for update in updates]
    if "restarts" in changes:
        assert {update[-1][-1] for update in updates} == {"on", "keep", "anew", "back"}
    assert digests == [metrics.digest for metrics in swarm.metrics]
    assert len(digests) == choices.get("steps", 3)
