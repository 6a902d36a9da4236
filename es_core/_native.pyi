"""The typed interface of the C++ core.

Every array must be C-contiguous; a wrong dtype or shape raises ValueError. 0 `threads` means all processors.
"""

import numpy as np
from numpy.typing import NDArray

ESTIMATE_UNIT: float
"""The number that stands for 1 nat per token in the estimates of `rnn_activation_gradient` and `rnn_head_gradient`."""

RNN_MAX_SIZE: int
"""Tokens in a vocabulary and units in a layer, at most."""
RNN_MAX_LAYERS: int
RNN_ROW_MULTIPLE: int
"""Units that a kernel may fill a row up to a multiple of."""
RNN_CONTEXT_ROWS: int
"""Texts that a thread reads side by side, at most."""
RNN_RUN_ROWS: int
"""Members of small groups that a thread runs side by side with noise on activations, at most."""
RNN_BLOCK_GROUPS: int
"""Groups whose contexts are read together, at most."""
RNN_TRACED_GROUPS: int
"""Groups whose unperturbed states `rnn_activation_gradient` keeps together."""
RNN_ITEM_GROUPS: int
"""Groups whose gradients a thread adds up together."""

def sign_noise(
    seed: int, step: int, member: int, tensor: int, factor: int, offset: int, count: int
) -> NDArray[np.int8]:
    """Signs (+1, -1), int8 [count], from number `offset` on, of one factor of one tensor of one member's noise."""

def member_signs(
    seed: int,
    step: int,
    first_member: int,
    n_members: int,
    factors: NDArray[np.int64],
    scales: NDArray[np.float32] | None = None,
    first_signs: NDArray[np.int64] | None = None,
    *,
    antithetic: bool = False,
    threads: int = 0,
) -> NDArray[np.float32]:
    """Signs of consecutive members times a scale of their factor, float32 [n_members, sum of lengths].

    `factors` has a row (tensor, factor, length) each; their signs stand one factor behind the other, and are those of
    `sign_noise` from an offset on that `first_signs` has for each, 0 without. `scales` has a number each, 1 without. Of
    antithetic pairs, members 2k and 2k + 1, the odd one has the signs of the even one, those of factors with an even
    number negated: a product of two factors then changes its sign once.
    """

def random_words(
    seed: int, step: int, first_stream: int, n_streams: int, count: int, offset: int = 0
) -> NDArray[np.uint32]:
    """`count` random words of consecutive streams, such as groups, from word `offset` of each on: [n_streams, count].

    No noise uses them.
    """

def dropout_mask(seed: int, count: int, kept: float) -> NDArray[np.float32]:
    """Factors of dropout, float32 [count]: 1 / `kept` with the probability `kept`, to the nearest 65536th, else 0."""

def normalized_utilities(
    losses: NDArray[np.float32], group_size: int, scale: float, resolution: float
) -> NDArray[np.int8]:
    """`clip(round(resolution * (group mean - loss) / scale))` of every member, int8 [n].

    It is 0 in groups with a loss that is not finite, and everywhere where the scale is 0.
    """

def estimate_gradient(
    tensors: NDArray[np.int64],
    n_parameters: int,
    *,
    seed: int,
    step: int,
    group_size: int,
    spans: list[tuple[int, int]],
    utilities: NDArray[np.int8],
    row_masks: NDArray[np.uint8] | None,
    places: NDArray[np.int64] | None = None,
    antithetic: bool = False,
    threads: int = 0,
    naive: bool = False,
) -> NDArray[np.int32]:
    """Sum over members of utility times perturbation, int32 [n_parameters], exact.

    `tensors` has a row (offset, rows, columns, rank, mask column) a tensor; `row_masks` [groups, columns] says with 0
    or 1 which rows of the tensors with a mask column take part, groups in the order of the spans. Of antithetic
    pairs, members 2k and 2k + 1, the odd one has the noise of the even one, negated; groups are then even.

    Where the tensors are a part of a model, `places` has a row (number, first sign) for each: its number in the whole,
    and where its own signs begin among those of the whole tensor, of the rows' factors or, at rank 0, of all elements.
    """

def encode_rows(
    numbers: NDArray[np.int64], row_lengths: NDArray[np.int64], *, exact: bool
) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """Bytes of the integers, row by row, and a code for each row that says how to read it: see `fedlearn.es.estimate`.

    Rounded rows have a byte per number, and a shift from 0 to 24 as their code. With `exact`, rows have as many bytes
    per number as their greatest number needs, 0 to 4, and 128 plus those as their code.

    Raises:
        ValueError: a number does not fit into 32 bits, with `exact`.
    """

def round_rows(
    numbers: NDArray[np.int64], words: NDArray[np.uint32], row_lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """A byte of each integer, row by row, and a code for each row as in `encode_rows`, from 0 to 24.

    A number is rounded up or down by its word of `words` [n_numbers], without bias.

    Raises:
        ValueError: there is not a word for each number.
    """

def pack_rows(
    numbers: NDArray[np.int64], random: NDArray[np.uint8], row_lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """Four bits of each integer, row by row, and a code for each row as in `encode_rows`, from 136 on.

    A number is rounded up or down by its byte of `random` [n_numbers or more], without bias. A row of one number is
    rounded to a byte as in `encode_rows`.

    Raises:
        ValueError: there are too few random bytes.
    """

def decode_rows(
    numbers: NDArray[np.int8], codes: NDArray[np.uint8], row_lengths: NDArray[np.int64], n_numbers: int
) -> NDArray[np.int32]:
    """The integers [n_numbers] that the bytes stand for.

    Raises:
        ValueError: the bytes do not fit the codes and rows.
    """

def adam_step(
    weights: NDArray[np.float32],
    first_moment: NDArray[np.float32],
    second_moment: NDArray[np.float32],
    estimate: NDArray[np.int32],
    *,
    gradient_scale: float,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    correction1: float,
    correction2: float,
    decay: float = 0.0,
) -> None:
    """One Adam step in place over arrays of one length [n]; the corrections are `1 / (1 - beta**t)`.

    Weight decay is decoupled, as in AdamW: before the step the share `decay` is taken off the weights.
    """

def sgd_step(
    weights: NDArray[np.float32],
    momentum_buffer: NDArray[np.float32],
    estimate: NDArray[np.int32],
    *,
    gradient_scale: float,
    learning_rate: float,
    momentum: float,
    decay: float = 0.0,
) -> None:
    """One step of gradient descent with momentum, in place over arrays [n]; `decay` is as in `adam_step`."""

def muon_step(
    weights: NDArray[np.float32],
    momentum: NDArray[np.float32],
    estimate: NDArray[np.int32],
    rows: int,
    columns: int,
    *,
    gradient_scale: float,
    rate: float,
    kept: float,
    decay: float = 0.0,
    threads: int = 1,
) -> None:
    """One step of Muon in place over arrays of one length, [n, rows, columns] in a row.

    `kept` is the share of the momentum that stays; large matrices are shared by rows between the threads.

    Raises:
        ValueError: these are no whole matrices, or a side is longer than 2^17.
    """

class FloatGuard:
    """A context in which this thread's floating-point operations round to nearest and keep subnormal numbers."""

    def __init__(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

def pull_towards(weights: NDArray[np.float32], start: NDArray[np.float32], share: float) -> None:
    """Moves the weights by a share of their way to `start`, in place: `(1 - share) * weights + share * start`.

    Both factors are rounded to float32 once. This is weight decay towards the weights with which training began.
    """

def rnn_member_losses(
    shape: tuple[int, int, int],
    tensors: NDArray[np.int64],
    scales: NDArray[np.float32],
    weights: NDArray[np.float32],
    *,
    seed: int,
    step: int,
    first_member: int,
    group_size: int,
    tokens: NDArray[np.uint16],
    context: int,
    is_cold: NDArray[np.uint8],
    sigma: float,
    cell: str = "tanh",
    reset_token: int = -1,
    antithetic: bool = False,
    int8: bool = False,
    threads: int = 0,
    naive: bool = False,
) -> NDArray[np.float32]:
    """Mean nats per token of each member of whole groups, float32 [groups * group_size].

    `shape` is (vocabulary, hidden, layers); `tokens` [groups, sequences, context + scored + 1]; a cold group
    (`is_cold` [groups]) skips the context and starts at the perturbed initial state. `int8` evaluates members of low
    rank with weights and states of 8 bits (an initial state is cut to [-1, 1]); full rank stays in float32.

    `cell` is "tanh", "gru" or "lstm", for the units of torch.nn.RNN, GRU and LSTM. A GRU has three rows for each hidden
    unit, those of reset, update and new state one behind the other, and after a layer's bias stands that of PyTorch's
    second one which the reset gate multiplies, [1, hidden]. An LSTM has four, those of input, forget, new state and
    output, and two state vectors a layer, h and c, where other cells have one. All other biases are the sum of
    PyTorch's two.

    Whoever reads `reset_token` does so from a state of zeros, here and in all functions below; -1 is no token.
    """

def rnn_activation_gradient(
    shape: tuple[int, int, int],
    tensors: NDArray[np.int64],
    scales: NDArray[np.float32],
    weights: NDArray[np.float32],
    *,
    seed: int,
    step: int,
    first_member: int,
    group_size: int,
    tokens: NDArray[np.uint16],
    context: int,
    is_cold: NDArray[np.uint8],
    sigma: float,
    logit_sigma: float,
    discount: float,
    correction: float = 1.0,
    cell: str = "tanh",
    reset_token: int = -1,
    control_variates: bool = False,
    int8: bool = False,
    threads: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.int32], float]:
    """Trials whose noise is on activations: mean nats per token of each member, and what they say of the gradient.

    Every member adds `sigma` times a sign to the input of each hidden unit at each scored token, and `logit_sigma`
    times one to each logit; 0 leaves the logits alone, and the head's gradient comes from its closed form. `discount`
    weighs a loss for each token that it comes later than the noise. With `control_variates`, matrices that predict
    what noise does to losses stand behind the model's tensors in `tensors`: [vocabulary, hidden] for the last layer;
    for each layer [hidden, hidden] from the next token, and below the last layer [hidden, hidden] from the layer
    above; then, for perturbed logits, a readout [vocabulary, hidden] with its bias [vocabulary], and [vocabulary,
    vocabulary]. What trials say beyond the prediction counts `correction` (0 to 1) in the estimate of hidden units: at
    1 the matrices bias nothing, below it the estimate has less variance and some bias of theirs. Of logits it counts
    in full.

    The estimate, int32 [n_parameters], is ESTIMATE_UNIT times the sum over groups of the gradient of the mean loss, in
    relative scales; groups with a non-finite loss count zero. The last number is the share of the variance of
    discounted losses about their group's mean that control variates left; 1 without any.
    """

def rnn_head_gradient(
    shape: tuple[int, int, int],
    tensors: NDArray[np.int64],
    scales: NDArray[np.float32],
    weights: NDArray[np.float32],
    *,
    tokens: NDArray[np.uint16],
    context: int,
    is_cold: NDArray[np.uint8],
    cell: str = "tanh",
    reset_token: int = -1,
    threads: int = 0,
) -> NDArray[np.int32]:
    """The closed-form gradient of head weights and bias on unperturbed texts, in the unit of `rnn_activation_gradient`.

    It is int32 [n_parameters], a sum over groups, and zero outside of the head.
    """

def rnn_text_losses(
    shape: tuple[int, int, int],
    tensors: NDArray[np.int64],
    scales: NDArray[np.float32],
    weights: NDArray[np.float32],
    *,
    tokens: NDArray[np.uint16],
    state: NDArray[np.float32],
    cell: str = "tanh",
    reset_token: int = -1,
    threads: int = 0,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Sum of nats of the unperturbed network on each row of `tokens` [rows, n + 1], and its state after each row.

    `state` is [rows, state vectors, hidden]: one a layer, and with an LSTM those of c behind those of h.
    """

def rnn_next_log_probabilities(
    shape: tuple[int, int, int],
    tensors: NDArray[np.int64],
    scales: NDArray[np.float32],
    weights: NDArray[np.float32],
    *,
    tokens: NDArray[np.uint16],
    state: NDArray[np.float32],
    cell: str = "tanh",
    reset_token: int = -1,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Log-probabilities [rows, vocabulary] of the token after `tokens` [rows, n], and the state after reading those."""

def has_crc32() -> bool:
    """Whether this processor has what `crc32` is made of."""

def crc32(data: bytes | bytearray | memoryview, value: int, /) -> int:
    """As `zlib.crc32`, many times faster.

    Raises:
        ValueError: the processor lacks what it takes, or the data is not bytes one after another.
    """

def supported_isas() -> list[str]:
    """The instruction sets that this build has and this processor supports, best first."""

def current_isa() -> str:
    """The instruction set in use."""

def select_isa(name: str) -> None:
    """Uses another supported instruction set from the next call on.

    Raises:
        ValueError: it is not supported; the message lists those that are.
    """

def usable_processors() -> int:
    """Number of processors that this process may use, by its affinity and control group."""
