"""A recurrent network that predicts the next token, with units as in `torch.nn.RNN`, `nn.GRU` or `nn.LSTM`.

The embedding stands for PyTorch's one-hot input weights: `embedding.weight` is `rnn.weight_ih_l0` transposed, so that a
token's row lies in one piece. Where PyTorch adds two biases there is one, their sum.
"""

from collections.abc import Mapping
from typing import Annotated, Self, final

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.replica import UInt8Array
from fedlearn.es.sums.estimate import encode_estimate
from fedlearn.es.sums.partial_sum import partial_sum
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns, column_of
from fedlearn.tasks.invitation import Option
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.rnn.cells import CELLS, CellName
from fedlearn.tasks.rnn.layout import Residuals, control_tensors, rnn_layout
from fedlearn.tasks.rnn.options import MAX_WINDOW, Precision
from fedlearn.text.tokens import StoredTokens
from fedlearn.text.windows import TokenWindows, WindowShape, cut_windows

NetworkArguments = tuple[tuple[int, int, int], NDArray[np.int64], Float32Array, Float32Array]


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounded, since a server that a volunteer does not know names the sizes of what is then allocated."""

    vocab_size: Annotated[int, Meta(ge=2, le=es_core.RNN_MAX_SIZE)]
    hidden_size: Annotated[int, Meta(ge=2, le=es_core.RNN_MAX_SIZE)]
    n_layers: Annotated[int, Meta(ge=1, le=es_core.RNN_MAX_LAYERS)]
    context: Annotated[int, Meta(ge=0, le=MAX_WINDOW)]
    sequence_length: Annotated[int, Meta(ge=1, le=MAX_WINDOW)]
    batch_size: Annotated[int, Meta(ge=1, le=MAX_WINDOW)]
    embedding_scale: float
    precision: Precision
    cell: CellName = "tanh"
    control_variates: bool = False
    control_residuals: Residuals = "head"
    reset_token: Annotated[int, Meta(ge=-1, le=es_core.RNN_MAX_SIZE - 1)] = -1

    def __post_init__(self) -> None:
        if self.reset_token >= self.vocab_size:
            raise ValueError(f"expected a reset_token below vocab_size = {self.vocab_size}, got {self.reset_token}")


@final
class RnnObjective(Objective):
    """`hidden_size` units in `n_layers` layers over `vocab_size` tokens."""

    def __init__(
        self,
        *,
        seed: int,
        vocab_size: int,
        hidden_size: int,
        n_layers: int,
        window: WindowShape,
        embedding_scale: float,
        precision: Precision = "float32",
        cell: CellName = "tanh",
        control_variates: bool = False,
        control_residuals: Residuals = "head",
        reset_token: int = -1,
        unigram_counts: NDArray[np.int64] | None = None,
    ) -> None:
        """Whoever reads `reset_token`, as what ends a document, does so from a state of zeros; -1 is no token."""
        self.unit = "tokens"
        self.seed = seed
        self.window = window
        self.work_per_member = window.batch_size * window.scored
        self.precision = precision
        self.cell = cell
        self.reset_token = reset_token
        self.shape = (vocab_size, hidden_size, n_layers)
        self.control_variates = control_variates
        self._unigram_counts = np.ones(vocab_size) if unigram_counts is None else unigram_counts
        network = rnn_layout(vocab_size, hidden_size, n_layers, embedding_scale, cell).tensors
        controls = control_tensors(self.shape, control_residuals) if control_variates else ()
        self._n_network_tensors = len(network)
        self._n_signs = sum(sum(tensor.sides) for tensor in network)
        self.layout = ParameterLayout((*network, *controls))
        self._scales = np.array([tensor.scale for tensor in self.layout.tensors], dtype=np.float32)
        self._is_head = [tensor.name.startswith("head.") for tensor in self.layout.tensors]

    @classmethod
    def from_options(
        cls, options: Mapping[str, Option], seed: int, *, unigram_counts: NDArray[np.int64] | None = None
    ) -> Self:
        """The objective that an Invitation's options stand for.

        `unigram_counts` [vocab_size], how often each token occurs, is known to who makes the initial weights.

        Raises:
            ValueError: the options contradict each other or are unknown.
        """
        try:
            values = msgspec.structs.asdict(msgspec.convert(dict(options), _Model))
        except msgspec.ValidationError as error:
            raise ValueError(f"options: {error}; is this version of fedlearn older than the server's?") from error
        window = WindowShape(*(values.pop(name) for name in ("batch_size", "context", "sequence_length")))
        return cls(seed=seed, unigram_counts=unigram_counts, window=window, **values)

    def network(self, weights: Float32Array, rank: int = 0) -> "NetworkArguments":
        """What `es_core` asks of the network alone: shape, tensor table, relative scales, weights."""
        n = self._n_network_tensors
        return self.shape, self.layout.table(rank)[:n], self._scales[:n], weights

    def initial_weights(self) -> Float32Array:
        _, hidden_size, n_layers = self.shape
        generator = np.random.default_rng(self.seed)
        weights = np.zeros(self.layout.size, dtype=np.float32)
        parts = self.layout.split(weights)

        def fill(name: str, deviation: float) -> None:
            parts[name][:] = generator.standard_normal(parts[name].shape) * deviation

        fill("embedding.weight", 1.0)
        for layer in range(n_layers):
            if layer > 0:
                fill(f"rnn.weight_ih_l{layer}", 0.7 / hidden_size**0.5)
            fill(f"rnn.weight_hh_l{layer}", 0.7 / hidden_size**0.5)
        fill("head.weight", 0.3 / hidden_size**0.5)
        # The head starts at the unigram model; unseen tokens count once.
        counts = np.maximum(self._unigram_counts, 1)
        parts["head.bias"][:] = np.log(counts / counts.sum())
        return weights

    def evaluate(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> Float32Array:
        scales = self._scales[: self._n_network_tensors]
        return self._weight_losses(weights, self._windows_of(trials, _tokens_of(data)), trials, scales, threads)

    def gradient_sum(self, weights: Float32Array, data: Columns, trials: Trials, *, threads: int) -> TrialResults:
        windows = self._windows_of(trials, _tokens_of(data))
        if trials.perturbation.space == "activations":
            return self._activation_sum(weights, windows, trials, threads)
        # The members leave the head alone: its gradient follows from the unperturbed trajectory.
        scales = np.where(self._is_head, np.float32(0.0), self._scales)[: self._n_network_tensors]
        losses = self._weight_losses(weights, windows, trials, scales, threads)
        is_finite = np.isfinite(losses.reshape(-1, trials.group_size)).all(axis=1)
        head = es_core.rnn_head_gradient(
            *self.network(weights),
            tokens=windows.tokens[is_finite],
            context=self.window.context,
            is_cold=windows.is_cold[is_finite],
            cell=self.cell,
            reset_token=self.reset_token,
            threads=threads,
        )
        rest = partial_sum(
            self.layout,
            trials.perturbation,
            losses,
            seed=self.seed,
            step=trials.step,
            first_member=trials.first_member,
            group_size=trials.group_size,
            row_masks=self._masks_of(windows),
            threads=threads,
        )
        is_head = np.repeat(self._is_head, [tensor.size for tensor in self.layout.tensors])
        return TrialResults(losses, encode_estimate(self.layout, np.where(is_head, head, rest)))

    def trial_bytes(self, data: Columns, trials: Trials, *, threads: int) -> int:
        del data
        vocab_size, hidden_size, n_layers = self.shape
        rank, batch_size = trials.perturbation.rank, self.window.batch_size
        noise = max(rank, 1) * self._n_signs
        units = CELLS[self.cell].gates * n_layers * (hidden_size + es_core.RNN_ROW_MULTIPLE)
        rows = max(trials.group_size, batch_size, es_core.RNN_CONTEXT_ROWS, es_core.RNN_RUN_ROWS)
        per_thread = trials.group_size * noise + rows * (6 * units + 3 * vocab_size)
        shared = 4 * self.layout.size + min(trials.n_groups, es_core.RNN_BLOCK_GROUPS) * batch_size * 2 * units
        if rank == 0:
            per_thread += 2 * self.layout.size  # each member has weights of its own
        scored = batch_size * self.window.scored
        if trials.perturbation.is_summed:
            # States and predictions for each token; sums of gradients in 64 bits.
            n_traced = (
                es_core.RNN_TRACED_GROUPS if trials.perturbation.space == "activations" else es_core.RNN_BLOCK_GROUPS
            )
            shared += min(trials.n_groups, n_traced) * scored * (2 * units + vocab_size + es_core.RNN_ROW_MULTIPLE)
            n_kept = 4 if self.control_variates else 1  # residual estimates, and what is predicted of them
            per_thread += 2 * self.layout.size + es_core.RNN_ITEM_GROUPS * scored * n_kept * (units + vocab_size)
        masks = self.mask_bytes({}, trials.n_groups) if trials.perturbation.is_summed else 0
        return 4 * (threads * per_thread + shared) + trials.n_groups * self._window_bytes + masks

    def mask_bytes(self, data: Columns, n_groups: int) -> int:
        del data
        return n_groups * (self._window_bytes + 2 * (self.shape[0] + 1))

    @property
    def _window_bytes(self) -> int:
        """Bytes of a group's text, with the positions in the block that it is read from."""
        return self.window.batch_size * (32 + 28 * self.window.n_tokens)

    def _windows_of(self, trials: Trials, block: StoredTokens) -> TokenWindows:
        return cut_windows(
            block,
            self.window,
            seed=self.seed,
            step=trials.step,
            first_group=trials.first_group,
            n_groups=trials.n_groups,
        )

    def _weight_losses(
        self, weights: Float32Array, windows: TokenWindows, trials: Trials, scales: Float32Array, threads: int
    ) -> Float32Array:
        shape, table, _, _ = self.network(weights, trials.perturbation.rank)
        return es_core.rnn_member_losses(
            shape,
            table,
            scales,
            weights,
            seed=self.seed,
            step=trials.step,
            first_member=trials.first_member,
            group_size=trials.group_size,
            tokens=windows.tokens,
            context=self.window.context,
            is_cold=windows.is_cold,
            sigma=trials.perturbation.sigma,
            cell=self.cell,
            reset_token=self.reset_token,
            antithetic=trials.perturbation.antithetic,
            int8=self.precision == "int8",
            threads=threads,
        )

    def _activation_sum(
        self, weights: Float32Array, windows: TokenWindows, trials: Trials, threads: int
    ) -> TrialResults:
        perturbation = trials.perturbation
        losses, estimate, variance_left = es_core.rnn_activation_gradient(
            self.shape,
            self.layout.table(0),
            self._scales,
            weights,
            seed=self.seed,
            step=trials.step,
            first_member=trials.first_member,
            group_size=trials.group_size,
            tokens=windows.tokens,
            context=self.window.context,
            is_cold=windows.is_cold,
            sigma=perturbation.sigma,
            logit_sigma=perturbation.logit_sigma if perturbation.head == "perturbed" else 0.0,
            discount=perturbation.discount,
            correction=perturbation.correction,
            cell=self.cell,
            reset_token=self.reset_token,
            control_variates=self.control_variates,
            int8=self.precision == "int8",
            threads=threads,
        )
        return TrialResults(
            losses, encode_estimate(self.layout, estimate), variance_left if self.control_variates else None
        )

    def row_masks(self, update: Update, data: Columns) -> UInt8Array | None:
        masks = [
            self._masks_of(
                cut_windows(
                    _tokens_of(data),
                    self.window,
                    seed=self.seed,
                    step=update.step,
                    first_group=first_member // update.group_size,
                    n_groups=n_members // update.group_size,
                )
            )
            for first_member, n_members in update.spans
        ]
        return np.concatenate(masks) if masks else None

    def _masks_of(self, windows: TokenWindows) -> UInt8Array:
        """A column a token (does the group read it?), and a last one for the initial state (is the group cold?)."""
        vocab_size = self.shape[0]
        read = windows.tokens[:, :, self.window.context : -1].reshape(len(windows.is_cold), -1)
        if read.max(initial=0) >= vocab_size:
            raise ValueError(f"tokens: expected tokens below {vocab_size}, got {read.max()}")
        mask = np.zeros((len(read), vocab_size + 1), dtype=np.uint8)
        np.put_along_axis(mask, read.astype(np.int64), 1, axis=1)
        mask[:, vocab_size] = windows.is_cold
        return mask


def _tokens_of(data: Columns) -> StoredTokens:
    """The block's tokens.

    Raises:
        ValueError: the data are no tokens.
    """
    tokens = column_of(data, "tokens")
    if tokens.dtype not in (np.uint8, np.uint16) or tokens.ndim != 1:
        raise ValueError(f"tokens: expected one dimension of uint8 or uint16, got {tokens.dtype} {list(tokens.shape)}")
    return tokens
