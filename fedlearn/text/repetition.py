"""Rules that keep a text from going in circles, as likely texts of small models do."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fedlearn.text.language_model import LogProbabilities
from fedlearn.text.tokens import TokenArray


def forbid_repeats(log_probabilities: LogProbabilities, texts: TokenArray, n: int) -> LogProbabilities:
    """Forbids tokens that would complete a sequence of `n` tokens that is in the text already; 0 forbids nothing.

    `log_probabilities` [texts, vocab_size] are those of the token after `texts` [texts, length]; forbidden ones become
    -inf. Where everything would be forbidden, nothing is.

    Source: Paulus, Xiong and Socher 2017, https://arxiv.org/abs/1705.04304.
    """
    length = texts.shape[1]
    if not 0 < n <= length:
        return log_probabilities
    seen = sliding_window_view(texts, n, axis=1)  # [texts, length - n + 1, n]
    is_again = (seen[..., :-1] == texts[:, np.newaxis, length - n + 1 :]).all(axis=-1)
    rows, places = np.nonzero(is_again)
    left = log_probabilities.copy()
    left[rows, seen[rows, places, -1]] = -np.inf
    has_any = np.isfinite(left).any(axis=1, keepdims=True)
    return np.where(has_any, left, log_probabilities)


def penalise_repeats(log_probabilities: LogProbabilities, text: TokenArray, penalty: float) -> LogProbabilities:
    """Log-probabilities [vocab_size], those of the tokens in `text` [n] times `penalty`: above 1 they get less likely.

    Source: Keskar et al. 2019, https://arxiv.org/abs/1909.05858.
    """
    if penalty == 1.0:
        return log_probabilities
    penalised = log_probabilities.copy()
    penalised[text] *= np.float32(penalty)
    return penalised
