"""Beam search for the text with the highest log-probability, weighed against its length.

Source: Wu et al. 2016, https://arxiv.org/abs/1609.08144, section 7.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.text.language_model import (
    Continuation,
    LanguageModel,
    LogProbabilities,
    read_prompt,
    read_tokens,
)
from fedlearn.text.repetition import forbid_repeats
from fedlearn.text.tokens import TokenArray

Totals = NDArray[np.float64]
"""Sums of log-probabilities in nats, [n], one per hypothesis, best first."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that make one hypothesis better than another.

    Raises:
        ValueError: a value is out of its range.
    """

    length_penalty: float = 1.0
    """The score is the total log-probability divided by the number of predictions (`<stop>` included) to this power:
    with 1 it is their mean, and 0 prefers texts that end early."""
    no_repeat_ngram: int = 0
    """The length of token sequences that may not occur twice in the text; 0 means no limit."""

    def __post_init__(self) -> None:
        if not (0 <= self.length_penalty < np.inf and self.no_repeat_ngram >= 0):
            raise ValueError(
                "beam search: expected length_penalty >= 0 and no_repeat_ngram >= 0, "
                f"got {self.length_penalty} and {self.no_repeat_ngram}"
            )


def searched(
    model: LanguageModel,
    prompt: Sequence[int] | NDArray[np.integer],
    *,
    n_beams: int,
    length: int,
    rules: Search | None = None,
) -> Iterator[Continuation]:
    """The likeliest open hypothesis after each step, and in the end the best one that was found.

    That is at most `length` predictions long; a shorter one ends in `<stop>`. Each step keeps the `n_beams` likeliest
    expansions of the open hypotheses by one token; of equal ones the one from the better beam, then the one with the
    lower token, goes first. A hypothesis that ends in `<stop>` is finished; the search ends when no open one can exceed
    the best of these. The score is the total log-probability by the `rules`. One beam is greedy search.

    Raises:
        ValueError: an argument is out of its range, or the model gives NaN.
    """
    if n_beams < 1 or length < 0:
        raise ValueError(f"beam search: expected n_beams >= 1 and length >= 0, got {n_beams} and {length}")
    rules = rules or Search()
    read, state, log_probabilities = read_prompt(model, prompt)
    totals: Totals = np.zeros(1)
    histories = np.empty((1, 0), dtype=np.uint16)  # [n_open, n_predictions]
    finished, finished_score = None, -np.inf
    yield Continuation(histories[0].copy(), 0.0, is_stopped=False)
    for n_predictions in range(1, length + 1):
        texts = np.column_stack([np.tile(read, (len(histories), 1)), histories])
        varied = forbid_repeats(log_probabilities, texts, rules.no_repeat_ngram)
        beams, tokens, totals = _best_expansions(totals, varied, n_beams)
        histories = np.column_stack([histories[beams], tokens])
        is_open = tokens != model.stop_token
        if not is_open.all():
            best = int(np.argmin(is_open))
            score = totals[best] / n_predictions**rules.length_penalty
            if score > finished_score:
                finished = Continuation(histories[best, :-1].copy(), float(totals[best]), is_stopped=True)
                finished_score = score
        beams, tokens = beams[is_open], tokens[is_open]
        totals, histories = totals[is_open], histories[is_open]
        # Totals only fall: this bound holds for all that follows, and is the score itself in the last step.
        best_possible = totals[:1] / length**rules.length_penalty
        if finished is not None and not (best_possible > finished_score).any():
            yield finished
            return
        yield Continuation(histories[0].copy(), float(totals[0]), is_stopped=False)
        if n_predictions < length:
            state, log_probabilities = read_tokens(model, state[beams], tokens)


def _best_expansions(
    totals: Totals, log_probabilities: LogProbabilities, n_beams: int
) -> tuple[NDArray[np.int64], TokenArray, Totals]:
    """The beams, tokens and totals of the `n_beams` likeliest expansions, best first."""
    candidates = (totals[:, None] + log_probabilities).ravel()
    n_kept = min(n_beams, candidates.size)
    threshold = np.partition(candidates, -n_kept)[-n_kept]
    contenders = np.flatnonzero(candidates >= threshold)
    chosen = contenders[np.argsort(-candidates[contenders], kind="stable")[:n_kept]]
    beams, tokens = np.divmod(chosen, log_probabilities.shape[1])
    return beams, tokens.astype(np.uint16), candidates[chosen]
