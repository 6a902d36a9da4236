"""A run of the product that trains a recurrent network on a text, as the benchmarks look at it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fedlearn.config import RunConfig, Schema, load_config
from fedlearn.data.folder import RunData
from fedlearn.es.layout import Float32Array
from fedlearn.runs.creation import create
from fedlearn.runs.run import Run, find
from fedlearn.tasks.rnn.dataset import Dataset, dataset_in
from fedlearn.tasks.rnn.examiner import text_loss
from fedlearn.tasks.rnn.kind import KIND
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.options import RnnOptions, options_of
from fedlearn.text.documents import EncodedText

SCHEMA = Schema(RnnOptions)
"""All keys of such a run."""

Settings = dict[str, str | bool | int | float]
"""Values of keys."""


class RnnRun(msgspec.Struct, frozen=True, eq=False):
    """The run with its network and its text."""

    run: Run
    objective: RnnObjective
    dataset: Dataset

    @property
    def config(self) -> RunConfig:
        return self.run.config

    @property
    def options(self) -> RnnOptions:
        """The settings of network and text."""
        return options_of(self.run.config)

    @property
    def threads(self) -> int:
        """0: all processors."""
        return self.run.config.volunteers.threads

    def initial_weights(self) -> Float32Array:
        """The weights with which every learner begins, [n_parameters]."""
        return self.objective.initial_weights()

    def bits_per_character(self, weights: Float32Array, text: EncodedText) -> float:
        """The loss of the unperturbed network on a part of the text."""
        return text.bits_per_character(text_loss(self.objective, weights, text.tokens, threads=self.threads))


def config_of(flags: Mapping[str, Any]) -> RunConfig:
    """The configuration that flags amount to; a figure must not depend on a file or the environment."""
    return load_config(SCHEMA, None, {}, flags)


def flat(config: RunConfig) -> Settings:
    """The value of every key."""
    return {key: config.get(key) for key in SCHEMA.fields}


def create_run(config: RunConfig) -> RnnRun:
    """A new run in the folder that the configuration names.

    Raises:
        ConfigError: the settings are refused.
        StorageError: the folder can't be written.
    """
    return _opened(create(KIND, config))


def find_run(root: str) -> RnnRun:
    """The newest run in a folder."""
    return _opened(find(root, "latest"))


def _opened(run: Run) -> RnnRun:
    objective = run.prepared.objective
    assert isinstance(objective, RnnObjective), f"expected an RNN, got {type(objective).__name__}"
    return RnnRun(run, objective, dataset_in(RunData(run.folder.data)))
