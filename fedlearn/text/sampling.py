"""Writing by chance: temperature, top-k and top-p (nucleus) sampling.

Source: Holtzman et al. 2020, https://arxiv.org/abs/1904.09751.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedlearn.text.language_model import Continuation, LanguageModel, read_prompt, read_tokens


def sample(
    model: LanguageModel,
    prompt: Sequence[int] | NDArray[np.integer],
    *,
    length: int,
    generator: np.random.Generator,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> Continuation:
    """A continuation of at most `length` tokens, shorter if `<stop>` is drawn; see `choose_token`.

    Raises:
        ValueError: an argument is out of range, or the model gives NaN.
    """
    if length < 0:
        raise ValueError(f"length: expected 0 or more, got {length}")
    state, log_probabilities = read_prompt(model, prompt)
    tokens: list[int] = []
    total = 0.0
    for _ in range(length):
        token = choose_token(
            log_probabilities[0], generator=generator, temperature=temperature, top_k=top_k, top_p=top_p
        )
        total += float(log_probabilities[0, token])
        if token == model.stop_token:
            return Continuation(np.array(tokens, dtype=np.uint16), total, is_stopped=True)
        tokens.append(token)
        state, log_probabilities = read_tokens(model, state, np.array([token], dtype=np.uint16))
    return Continuation(np.array(tokens, dtype=np.uint16), total, is_stopped=False)


def choose_token(
    log_probabilities: NDArray[np.float32],
    *,
    generator: np.random.Generator,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> int:
    """Draws a token from `log_probabilities` [vocab_size] (nats), taking one number from `generator`.

    `temperature` divides the log-probabilities; 0 takes the likeliest token. Then only the `top_k` likeliest
    tokens stay (0: all), and of them the fewest whose share reaches `top_p`; of equals the lower
    token goes first.

    Raises:
        ValueError: an argument is out of range.
    """
    if not (0 <= temperature < np.inf and top_k >= 0 and 0 < top_p <= 1):
        raise ValueError(
            "sampling: expected temperature >= 0, top_k >= 0 and 0 < top_p <= 1, "
            f"got {temperature}, {top_k} and {top_p}"
        )
    number = generator.random()
    if temperature == 0:
        return int(np.argmax(log_probabilities))
    weights = np.exp((log_probabilities.astype(np.float64) - np.max(log_probabilities)) / temperature)
    order = np.argsort(-weights, kind="stable")[: top_k or None]
    cumulative = np.cumsum(weights[order])
    last = np.searchsorted(cumulative, top_p * cumulative[-1])
    return int(order[np.searchsorted(cumulative, number * cumulative[last])])
