"""The numeric core: noise, gradient estimate and optimizer steps (replicated), RNN losses and gradients (reported)."""

from es_core._native import (
    ESTIMATE_UNIT,
    adam_step,
    current_isa,
    estimate_gradient,
    normalized_utilities,
    random_words,
    rnn_activation_gradient,
    rnn_head_gradient,
    rnn_member_losses,
    rnn_next_log_probabilities,
    rnn_text_losses,
    select_isa,
    sgd_step,
    sign_noise,
    supported_isas,
    usable_processors,
)

__all__ = [
    "ESTIMATE_UNIT",
    "adam_step",
    "current_isa",
    "estimate_gradient",
    "normalized_utilities",
    "random_words",
    "rnn_activation_gradient",
    "rnn_head_gradient",
    "rnn_member_losses",
    "rnn_next_log_probabilities",
    "rnn_text_losses",
    "select_isa",
    "sgd_step",
    "sign_noise",
    "supported_isas",
    "usable_processors",
]
