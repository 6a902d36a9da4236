import math
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.optimizers import OPTIMIZERS, GradientPart, TensorStep, exact_arithmetic
from fedlearn.es.optimizers.arithmetic import BLOCK
from fedlearn.es.optimizers.clipup import ClipUp
from fedlearn.es.replica import Replica, genesis
from tests.es.replicas import LAYOUT, new_replica, update_of, without_members

CLIPUP = ClipUp(0.25, 0.5)
OPTIMIZER = ClipUp(0.1, 0.9)
GOLDEN = ("de73a8727a7efa05", "43b1626e3ec7a83f", "67563a5377b2dd21")
"""Digests after six steps with noise of rank 0, 1 and 2."""


def gathered(
    velocities: list[list[float]], estimates: list[list[int]], scales: list[float], optimizer: ClipUp = CLIPUP
) -> list[list[float]]:
    """The velocities after a step's gradient, piece by piece."""
    pieces = []
    for velocity, estimate, scale in zip(velocities, estimates, scales, strict=True):
        integers: NDArray[np.int32] = np.array(estimate, dtype=np.int32)
        pieces.append(GradientPart({"velocity": np.array(velocity, dtype=np.float32)}, integers, scale))
    with exact_arithmetic():
        optimizer.gather(pieces)
    return [piece.slots["velocity"].tolist() for piece in pieces]


def moved(rank: int, *, threads: int = 1) -> Replica:
    """A replica after six steps."""
    replica = new_replica(threads=threads)
    for step in range(6):
        replica.apply(update_of(step, optimizer=OPTIMIZER, rank=rank, decay=0.1))
    return replica


def test_it_keeps_one_array_and_no_numbers_and_leaves_those_of_others() -> None:
    optimizer = CLIPUP
    assert optimizer.slots == ("velocity",)
    assert optimizer.advanced({"beta1_power": 0.25}) == {"beta1_power": 0.25}
    assert ClipUp(0.5) == ClipUp(0.5, 0.9)


def test_it_asks_for_all_weights_at_once() -> None:
    assert [name for name, optimizer in OPTIMIZERS.items() if optimizer.gathers] == ["clipup", "cma"]


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_a_gradient_of_any_length_pushes_by_half_of_the_maximum_speed(scale: float) -> None:
    # Of two weights the root of the mean square is 5 / sqrt(2).
    assert gathered([[0.0, 0.0]], [[3, -4]], [scale]) == [
        [np.float32(0.3 * math.sqrt(2)), np.float32(-0.4 * math.sqrt(2))]
    ]


def test_the_sign_of_the_scale_is_that_of_the_push() -> None:
    assert gathered([[0.0]], [[7]], [-2.0]) == [[-0.5]]


def test_pieces_share_one_length_by_their_scales() -> None:
    (first,), (second,) = gathered([[0.0], [0.0]], [[3], [1]], [1.0, 4.0])
    assert first == np.float32(0.3 * math.sqrt(2))
    assert second == np.float32(0.4 * math.sqrt(2))


def test_a_velocity_keeps_its_share_and_stops_at_the_maximum_speed() -> None:
    assert gathered([[0.5]], [[1]], [1.0]) == [[0.75]]
    assert gathered([[1.0]], [[1]], [1.0]) == [[1.0]]
    assert gathered([[1.5]], [[1]], [1.0]) == [[1.0]]
    assert gathered([[-1.0]], [[1]], [1.0]) == [[0.0]]


def test_pieces_are_shortened_alike() -> None:
    assert gathered([[4.0], [-4.0]], [[0], [0]], [1.0, 1.0]) == [[1.0], [-1.0]]
    (first,), (second,) = gathered([[12.0], [16.0]], [[0], [0]], [1.0, 1.0])
    assert first == pytest.approx(0.6 * math.sqrt(2), rel=1e-6)
    assert second == pytest.approx(0.8 * math.sqrt(2), rel=1e-6)


@pytest.mark.parametrize("scale", [0.0, math.inf, math.nan])
def test_a_gradient_without_a_length_leaves_the_velocity_its_share(scale: float) -> None:
    assert gathered([[0.5, 1.0]], [[1, 2]], [scale]) == [[0.25, 0.5]]
    assert gathered([[0.5, 1.0]], [[0, 0]], [1.0]) == [[0.25, 0.5]]


def test_no_pieces_are_no_error() -> None:
    assert gathered([], [], []) == []


def test_the_largest_estimates_are_summed_exactly() -> None:
    n = 2 * BLOCK + 3
    numbers = [-(2**31)] * n
    (velocity,) = gathered([[0.0] * n], [numbers], [1.0])
    assert velocity == [-0.5] * n
    (mixed,) = gathered([[0.0] * 2], [[-65537, 65535]], [1.0])
    length = math.sqrt((65537**2 + 65535**2) / 2)
    assert mixed == [np.float32(-65537) * np.float32(0.5 / length), np.float32(65535) * np.float32(0.5 / length)]


def test_weights_go_by_rate_and_scale_and_decay_comes_first() -> None:
    weights: Float32Array = np.array([1.0, -2.0], dtype=np.float32)
    velocity: Float32Array = np.array([1.0, -0.5], dtype=np.float32)
    with exact_arithmetic():
        CLIPUP.step(weights, {"velocity": velocity}, np.zeros(2, dtype=np.int32), TensorStep({}, 1.0, 2.0, 0.5))
    assert weights.tolist() == [0.0, -0.75]
    assert velocity.tolist() == [1.0, -0.5]


def test_weights_of_a_replica_never_move_farther_than_the_rate_and_soon_as_far() -> None:
    layout = ParameterLayout(
        (TensorSpec("matrix", (9, 5)), TensorSpec("constant", (4,), scale=0.0), TensorSpec("vector", (7,)))
    )
    start = genesis(layout, np.zeros(layout.size, dtype=np.float32))
    replica = Replica(layout, start, seed=1, row_masks=lambda _: None, threads=1)
    moves = []
    for step in range(8):
        before = replica.weights.copy()
        replica.apply(update_of(step, optimizer=ClipUp(0.1, 0.95), rank=1))
        moved = replica.weights - before
        assert not moved[45:49].any()
        moves.append(math.sqrt(float(np.square(moved).sum()) / 52))
    assert moves[0] == pytest.approx(0.05, rel=1e-5)
    assert max(moves) <= 0.1 * (1 + 1e-4)
    assert moves[-1] > 0.07


def test_a_step_without_members_goes_on_by_momentum() -> None:
    replica = new_replica()
    replica.apply(update_of(0, optimizer=CLIPUP))
    before = replica.slots["velocity"].copy()
    replica.apply(without_members(update_of(1, optimizer=CLIPUP)))
    assert replica.slots["velocity"].tolist() == (np.float32(0.5) * before).tolist()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_machine_comes_to_the_same_digest(rank: int, threads: int) -> None:
    assert moved(rank, threads=threads).digest.hex() == GOLDEN[rank]


@pytest.mark.parametrize("odd_arithmetic", ["flush-to-zero"], indirect=True)
def test_a_process_that_flushes_to_zero_comes_to_the_same_digest(
    odd_arithmetic: Callable[[], AbstractContextManager[None]],
) -> None:
    with odd_arithmetic():
        replica = moved(0)
    assert replica.digest.hex() == GOLDEN[0]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_steps_one_number_at_a_time_come_to_the_same_bits(rank: int) -> None:
    replica = new_replica()
    weights, velocity = [float(number) for number in replica.weights], [np.float32(0.0)] * LAYOUT.size
    scales = [tensor.scale for tensor in LAYOUT.tensors for _ in range(tensor.size)]
    is_matrix = [tensor.is_matrix for tensor in LAYOUT.tensors for _ in range(tensor.size)]
    for step in range(6):
        update = update_of(step, optimizer=OPTIMIZER, rank=rank, decay=0.1)
        shares = [-1.0 / math.sqrt(rank) if rank and matrix else -1.0 for matrix in is_matrix]
        velocity = _velocity([int(number) for number in replica.replayed(update)], velocity, shares)
        for place, (own, scale, matrix) in enumerate(zip(velocity, scales, is_matrix, strict=True)):
            kept = np.float32(1.0 - 0.1 * 0.1) if matrix else np.float32(1.0)
            weights[place] = float(kept * np.float32(weights[place]) - np.float32(0.1 * scale) * own)
        replica.apply(update)
        assert replica.slots["velocity"].tolist() == [float(own) for own in velocity]
        assert replica.weights.tolist() == weights


def _velocity(estimate: list[int], velocity: list[np.float32], shares: list[float]) -> list[np.float32]:
    """The velocity after a step, by the definition in docs/design/arithmetic.md."""
    squares: dict[float, int] = {}
    for number, share in zip(estimate, shares, strict=True):
        squares[share] = squares.get(share, 0) + number * number
    push = 0.5 * math.sqrt(len(estimate) / sum(share * share * square for share, square in squares.items()))
    after = [
        np.float32(0.9) * own + np.float32(number) * np.float32(share * push)
        for own, number, share in zip(velocity, estimate, shares, strict=True)
    ]
    length, most = sum(int(np.rint(own * np.float32(2**14))) ** 2 for own in after), len(after) * 2**28
    return [np.float32(math.sqrt(most / length)) * own for own in after] if length > most else after
