"""Images of 28 x 28 in place of MNIST's, which nothing ships: scikit-learn's digits, enlarged, moved and spoiled."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIDE, DIGIT_SIDE = 28, 20
HELD_OUT_SHARE = 5
NOISE = 0.15

Examples = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images [rows, 28, 28] of bytes, and classes [rows]."""


def made_images(n_training: int, n_held_out: int) -> tuple[Examples, Examples]:
    """Examples to learn from, and others of digits that none of those shows."""
    from sklearn.datasets import load_digits

    digits, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    cut = len(order) - len(order) // HELD_OUT_SHARE
    parts = ((n_training, order[:cut], 1), (n_held_out, order[cut:], 2))
    first, second = (_made(n, digits[of], labels[of], np.random.default_rng(seed)) for n, of, seed in parts)
    return first, second


def write_archive(path: Path, n_training: int, n_held_out: int, *, order: int = 0) -> tuple[Examples, Examples]:
    """Writes them as Keras spreads MNIST, those to learn from in the order of that number, and gives them."""
    (images, labels), held_out = made_images(n_training, n_held_out)
    rows = np.random.default_rng(order).permutation(n_training)
    training = images[rows], labels[rows]
    np.savez(path, x_train=training[0], y_train=training[1], x_test=held_out[0], y_test=held_out[1])
    return training, held_out


def _made(n: int, digits: NDArray[np.float64], labels: NDArray[np.int64], generator: np.random.Generator) -> Examples:
    chosen, places = generator.integers(len(labels), size=n), generator.integers(SIDE - DIGIT_SIDE + 1, size=(n, 2))
    enlarged = _enlarged(digits.reshape(-1, 8, 8) / 16.0)
    images = np.zeros((n, SIDE, SIDE))
    for image, digit, (down, right) in zip(images, chosen, places, strict=True):
        image[down : down + DIGIT_SIDE, right : right + DIGIT_SIDE] = enlarged[digit]
    spoiled = np.clip(images + generator.normal(0.0, NOISE, images.shape), 0.0, 1.0)
    return (spoiled * 255).astype(np.uint8), labels[chosen].astype(np.int64)


def _enlarged(digits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Digits of 20 x 20 by linear interpolation."""
    at = np.linspace(0.0, 7.0, DIGIT_SIDE)
    low = np.minimum(at.astype(int), 6)
    weights = np.zeros((DIGIT_SIDE, 8))
    weights[np.arange(DIGIT_SIDE), low], weights[np.arange(DIGIT_SIDE), low + 1] = 1.0 - (at - low), at - low
    enlarged: NDArray[np.float64] = np.einsum("ij,njk,lk->nil", weights, digits, weights)
    return enlarged
