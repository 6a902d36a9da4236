import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import member_noise, perturbed
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.es.vocabulary import shard_terms, token_losses

N_ROWS, WIDTH, N_TOKENS, N_MEMBERS = 1000, 32, 50, 8
GENERATOR = np.random.default_rng(4)
TARGETS = GENERATOR.integers(0, N_ROWS, N_TOKENS)
TARGETS[:4] = 0, 499, 500, 999
LOGITS = (GENERATOR.standard_normal((N_MEMBERS, N_TOKENS, N_ROWS)) * 3).astype(np.float32)


def plain_losses(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """[..., tokens], the textbook's way."""
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    losses: NDArray[np.float64] = -np.log(probabilities[..., np.arange(N_TOKENS), TARGETS])
    return losses


def terms_of(logits: Float32Array, first_rows: list[int]) -> list[Float32Array]:
    ends = [*first_rows[1:], logits.shape[-1]]
    return [shard_terms(logits[..., begin:end], TARGETS, begin) for begin, end in zip(first_rows, ends, strict=True)]


@pytest.mark.parametrize("first_rows", [[0], [0, 500], [0, 1, 999], [0, 125, 250, 375, 500, 625, 750, 875]])
def test_shards_tell_eight_bytes_a_token_that_make_up_the_loss_to_a_millionth(first_rows: list[int]) -> None:
    terms = terms_of(LOGITS, first_rows)
    assert {of_shard.nbytes for of_shard in terms} == {8 * N_MEMBERS * N_TOKENS}
    found, exact = token_losses(terms, TARGETS, first_rows), plain_losses(LOGITS.astype(np.float64))
    error = np.abs(found - exact).max()
    print(f"{len(first_rows)} shards: {error:.1e} nats from float64")
    assert error < 2e-6
    assert np.array_equal(found.mean(axis=-1).argsort(), exact.mean(axis=-1).argsort())


def test_what_a_shard_tells_is_rounded_once() -> None:
    (terms,) = terms_of(LOGITS, [0])
    exact = np.log(np.exp(LOGITS.astype(np.float64)).sum(axis=-1))
    half = np.spacing(terms[..., 0]).astype(np.float64) / 2
    assert (np.abs(terms[..., 0] - exact) <= half * (1 + 1e-6)).all()
    np.testing.assert_array_equal(terms[..., 1], LOGITS[:, np.arange(N_TOKENS), TARGETS])


def test_what_shards_tell_is_summed_without_rounding() -> None:
    terms = terms_of(LOGITS, [0, 400, 700])
    found = token_losses(terms, TARGETS, [0, 400, 700])
    told = np.stack(terms).astype(np.float64)
    target = np.nansum(told[..., 1], axis=0)
    np.testing.assert_allclose(found, np.log(np.exp(told[..., 0]).sum(axis=0)) - target, rtol=0, atol=1e-12)


def test_shards_of_a_perturbed_head_tell_the_loss_of_the_whole_one() -> None:
    head = ParameterLayout(
        (TensorSpec("inner", (4, 4)), TensorSpec("head", (N_ROWS, WIDTH)), TensorSpec("bias", (N_ROWS,)))
    )
    weights = (GENERATOR.standard_normal(head.size) * 0.3).astype(np.float32)
    states = GENERATOR.standard_normal((N_TOKENS, WIDTH)).astype(np.float32)
    trials = Trials(3, Perturbation(0.05, 1), N_MEMBERS, 64, N_MEMBERS)

    def logits(first: int, count: int) -> Float32Array:
        part = head.part(["head", "bias"], {"head": (first, count), "bias": (first, count)})
        own = np.concatenate([weights[interval] for interval in head.intervals(part)])
        tensors, noise = part.split(own), member_noise(part, trials, seed=9)
        members = [
            states @ perturbed(tensors["head"], noise[0], i).T + perturbed(tensors["bias"], noise[1], i)
            for i in range(N_MEMBERS)
        ]
        return np.stack(members)

    whole = token_losses([shard_terms(logits(0, N_ROWS), TARGETS, 0)], TARGETS, [0])
    terms = [shard_terms(logits(0, 300), TARGETS, 0), shard_terms(logits(300, 700), TARGETS, 300)]
    np.testing.assert_allclose(token_losses(terms, TARGETS, [0, 300]), whole, atol=1e-5, rtol=0)


def test_great_logits_do_not_overflow() -> None:
    terms = terms_of(LOGITS + np.float32(30_000), [0, 400])
    found = token_losses(terms, TARGETS, [0, 400])
    np.testing.assert_allclose(found, plain_losses(LOGITS.astype(np.float64)), atol=0.02)


def test_what_a_shard_tells_of_anothers_targets_does_not_count() -> None:
    terms = terms_of(LOGITS, [0, 400])
    expected = token_losses(terms, TARGETS, [0, 400])
    terms[0][:, TARGETS >= 400, 1] = math.nan
    terms[1][:, TARGETS < 400, 1] = 1e9
    np.testing.assert_array_equal(token_losses(terms, TARGETS, [0, 400]), expected)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("number", [0, 1])
def test_what_is_not_finite_makes_no_finite_loss_of_its_member_and_no_other(wrong: float, number: int) -> None:
    terms = terms_of(LOGITS, [0, 400])
    holder = int(TARGETS[7] >= 400)
    terms[holder][2, 7, number] = wrong
    is_finite = np.isfinite(token_losses(terms, TARGETS, [0, 400]).mean(axis=-1))
    assert is_finite.tolist() == [member != 2 for member in range(N_MEMBERS)]


def test_a_target_that_is_no_shards_has_no_finite_loss() -> None:
    targets = TARGETS.copy()
    targets[3] = N_ROWS
    terms = [shard_terms(LOGITS[..., :400], targets, 0), shard_terms(LOGITS[..., 400:], targets, 400)]
    is_finite = np.isfinite(token_losses(terms, targets, [0, 400]))
    assert is_finite.all(axis=0).tolist() == [token != 3 for token in range(N_TOKENS)]


def test_an_infinite_logit_is_told() -> None:
    logits = LOGITS.copy()
    logits[1, 2, 3] = math.inf
    assert not np.isfinite(token_losses(terms_of(logits, [0, 400]), TARGETS, [0, 400])[1, 2])


@pytest.mark.parametrize(
    ("first_rows", "complaint"),
    [
        ([0], r"first_rows: expected 2 ascending from 0 on, got \[0\]"),
        ([1, 400], "first_rows: expected 2 ascending from 0 on"),
        ([0, 0], "first_rows: expected 2 ascending from 0 on"),
    ],
)
def test_shards_that_are_not_of_one_vocabulary_are_refused(first_rows: list[int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        token_losses(terms_of(LOGITS, [0, 400]), TARGETS, first_rows)


def test_terms_of_other_tokens_are_refused() -> None:
    first, second = terms_of(LOGITS, [0, 400])
    for wrong in ([first, second[:, 1:]], [first[:, 1:], second[:, 1:]], [first[..., :1], second[..., :1]]):
        with pytest.raises(ValueError, match=r"terms: expected \[..., 50, 2\] of every shard"):
            token_losses(wrong, TARGETS, [0, 400])
    with pytest.raises(ValueError, match="targets: expected rows from 0 on, got -1"):
        token_losses([first, second], TARGETS - TARGETS.min() - 1, [0, 400])
