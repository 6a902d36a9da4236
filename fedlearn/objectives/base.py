"""What is optimised: the interface between a model and everything that trains it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.update import Update
from fedlearn.text.language_model import LanguageModel
from fedlearn.text.tokens import TokenArray

Float32Array = NDArray[np.float32]
UInt8Array = NDArray[np.uint8]
Model = Mapping[str, str | int | float]
"""What an objective is built from, as it travels in a Welcome."""


class Trials(msgspec.Struct, frozen=True):
    """Consecutive members of one step, in whole groups."""

    step: int
    sigma: float
    rank: int
    group_size: int
    first_member: int
    n_members: int
    antithetic: bool = False


class Objective(ABC):
    """A model with its way of reading text; a value without weights or text of its own."""

    @classmethod
    @abstractmethod
    def from_model(cls, model: Model, seed: int) -> Self:
        """The objective that a run's description stands for. Raises ValueError where it makes no sense."""

    @property
    @abstractmethod
    def layout(self) -> ParameterLayout:
        """Where each tensor lies in the flat weights."""

    @property
    @abstractmethod
    def tokens_per_member(self) -> int:
        """Scored tokens that one member costs."""

    @abstractmethod
    def initial_weights(self, unigram_counts: NDArray[np.int64]) -> Float32Array:
        """Weights [n_parameters] that a run begins with; computed once, by the server."""

    @abstractmethod
    def member_losses(self, weights: Float32Array, block: TokenArray, trials: Trials, *, threads: int) -> Float32Array:
        """Mean nats per token of each member, [n_members]; may differ in the last digits between machines."""

    @abstractmethod
    def row_masks(self, update: Update, block: TokenArray) -> UInt8Array | None:
        """[groups, columns] 1 for each row of a masked tensor that could change the group's loss; exact."""

    @abstractmethod
    def text_loss(self, weights: Float32Array, tokens: TokenArray, *, threads: int) -> float:
        """Mean nats per token of the unperturbed model on a text."""

    @abstractmethod
    def language_model(self, weights: Float32Array, stop_token: int) -> LanguageModel:
        """The model with these weights, to be sampled and searched."""
