import msgspec
import numpy as np
import pytest

import es_core
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import Dense, LowRank, TensorNoise, member_noise, perturbed
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from tests.es.parts import PARTS, WHOLE

SEED = 77
LAYOUT = ParameterLayout(
    (
        TensorSpec("vector", (130,), scale=0.5),
        TensorSpec("matrix", (3, 200), scale=3.0),
        TensorSpec("number", ()),
        TensorSpec("kernel", (4, 3, 2, 2)),
        TensorSpec("column", (6, 1)),
    )
)


def trials(rank: int = 1, *, antithetic: bool = False, first_member: int = 2**33 + 5, n_members: int = 6) -> Trials:
    perturbation = Perturbation(sigma=0.03, rank=rank, antithetic=antithetic)
    return Trials(9, perturbation, group_size=2, first_member=first_member, n_members=n_members)


def plain_signs(tried: Trials, tensor: int, factor: int, length: int) -> Float32Array:
    """[members, length] of one factor, drawn member by member."""
    rows = []
    for member in range(tried.first_member, tried.first_member + tried.n_members):
        is_mirror = tried.perturbation.antithetic and member % 2 == 1
        signs = es_core.sign_noise(SEED, tried.step, member - is_mirror, tensor, factor, 0, length)
        rows.append(-signs if is_mirror and factor % 2 == 0 else signs)
    return np.array(rows, dtype=np.float32).reshape(-1, length)


def plain_noise(tried: Trials) -> list[TensorNoise]:
    noise: list[TensorNoise] = []
    rank = tried.perturbation.rank
    for i, tensor in enumerate(LAYOUT.tensors):
        sigma = np.float32(tried.perturbation.sigma * tensor.scale)
        if tensor.is_matrix and rank > 0:
            n_rows, n_columns = tensor.sides
            rows = np.stack([plain_signs(tried, i, 2 * k, n_rows) for k in range(rank)], axis=-1)
            columns = np.stack([plain_signs(tried, i, 2 * k + 1, n_columns) for k in range(rank)], axis=-1)
            noise.append(LowRank(rows * np.float32(sigma / rank**0.5), columns))
        else:
            noise.append(Dense((plain_signs(tried, i, 0, tensor.size) * sigma).reshape(-1, *tensor.shape)))
    return noise


def arrays(noise: list[TensorNoise]) -> list[Float32Array]:
    return [array for entry in noise for array in msgspec.structs.astuple(entry)]


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("first_member", [0, 2**33 + 5])
def test_noise_is_that_of_members_drawn_one_by_one(rank: int, antithetic: bool, first_member: int) -> None:
    tried = trials(rank, antithetic=antithetic, first_member=first_member)
    drawn, plain = member_noise(LAYOUT, tried, seed=SEED, threads=2), plain_noise(tried)
    assert [type(entry) for entry in drawn] == [type(entry) for entry in plain]
    for found, expected in zip(arrays(drawn), arrays(plain), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("name", PARTS)
def test_a_part_has_the_noise_that_it_has_in_the_whole(name: str, rank: int, antithetic: bool) -> None:
    tried, part = trials(rank, antithetic=antithetic), PARTS[name]
    whole = dict(zip(WHOLE.numbers, member_noise(WHOLE, tried, seed=SEED), strict=True))
    found = member_noise(part, tried, seed=SEED)
    for piece, number, noise in zip(part.tensors, part.numbers, found, strict=True):
        rows = slice(piece.first_row, piece.first_row + piece.shape[0])
        expected = whole[number]
        if isinstance(noise, LowRank) and isinstance(expected, LowRank):
            np.testing.assert_array_equal(noise.rows, expected.rows[:, rows])
            np.testing.assert_array_equal(noise.columns, expected.columns)
        else:
            (of_piece,), (of_tensor,) = arrays([noise]), arrays([expected])
            np.testing.assert_array_equal(of_piece, of_tensor[:, rows])


def test_nothing_of_a_model_has_no_noise() -> None:
    assert member_noise(WHOLE.part([]), trials(), seed=SEED) == []


def test_only_what_is_more_than_a_row_or_a_column_has_noise_of_low_rank() -> None:
    noise = member_noise(LAYOUT, trials(), seed=SEED)
    assert [isinstance(entry, LowRank) for entry in noise] == [False, True, False, True, False]


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_all_noise_lies_in_one_array_of_which_nothing_is_copied(rank: int) -> None:
    found = arrays(member_noise(LAYOUT, trials(rank), seed=SEED))
    roots = {id(base) for array in found for base in [array.base]}
    assert len(roots) == 1
    assert found[0].base is not None
    assert found[0].base.shape == (6, sum(array[0].size for array in found))


def test_no_members_have_no_noise() -> None:
    noise = member_noise(LAYOUT, trials(n_members=0), seed=SEED)
    assert [len(array) for array in arrays(noise)] == [0] * 7


@pytest.mark.parametrize("rank", [0, 2])
def test_a_perturbed_tensor_is_the_tensor_plus_its_noise(rank: int) -> None:
    tried = trials(rank)
    kernel = np.random.default_rng(1).standard_normal((4, 3, 2, 2)).astype(np.float32)
    (noise,) = (entry for entry in member_noise(LAYOUT, tried, seed=SEED)[3:4])
    if isinstance(noise, LowRank):
        addition = sum(np.outer(noise.rows[2, :, k], noise.columns[2, :, k]) for k in range(rank))
    else:
        addition = noise.noise[2]
    found = perturbed(kernel, noise, 2)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, kernel + np.reshape(addition, kernel.shape), rtol=1e-6)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_antithetic_members_lie_on_both_sides_of_the_tensor(rank: int) -> None:
    tried = trials(rank, antithetic=True, first_member=4)
    for spec, noise in zip(LAYOUT.tensors, member_noise(LAYOUT, tried, seed=SEED), strict=True):
        zeros = np.zeros(spec.shape, dtype=np.float32)
        for even in (0, 2, 4):
            np.testing.assert_array_equal(perturbed(zeros, noise, even), -perturbed(zeros, noise, even + 1))
