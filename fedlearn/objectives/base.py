"""What is optimised: the interface between a model and everything that trains it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.estimate import NO_ESTIMATE, CodedEstimate
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.perturbation import Perturbation
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
    perturbation: Perturbation
    group_size: int
    first_member: int
    n_members: int


class TrialResults(msgspec.Struct, frozen=True, eq=False):
    """What came of trials."""

    losses: Float32Array
    """Mean nats per token of each member, [n_members]."""
    estimate: CodedEstimate
    """Sum of gradients; empty where every replica finds it from the losses."""


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
        """Mean nats per token of members that perturb weights, [n_members]; last digits differ between machines."""

    @abstractmethod
    def gradient_sum(self, weights: Float32Array, block: TokenArray, trials: Trials, *, threads: int) -> TrialResults:
        """The losses with what the trials say of the gradient: `ESTIMATE_UNIT` times its sum over groups.

        Like losses it may differ in the last digits between machines; of groups with a non-finite loss it says nothing.
        """

    @abstractmethod
    def row_masks(self, update: Update, block: TokenArray) -> UInt8Array | None:
        """[groups, columns] 1 for each row of a masked tensor that could change the group's loss; exact."""

    @abstractmethod
    def text_loss(self, weights: Float32Array, tokens: TokenArray, *, threads: int) -> float:
        """Mean nats per token of the unperturbed model on a text."""

    @abstractmethod
    def language_model(self, weights: Float32Array, stop_token: int) -> LanguageModel:
        """The model with these weights, to be sampled and searched."""


def run_trials(
    objective: Objective, weights: Float32Array, block: TokenArray, trials: Trials, *, threads: int
) -> TrialResults:
    """What a volunteer reports of these trials."""
    if trials.perturbation.is_summed:
        return objective.gradient_sum(weights, block, trials, threads=threads)
    return TrialResults(objective.member_losses(weights, block, trials, threads=threads), NO_ESTIMATE)
