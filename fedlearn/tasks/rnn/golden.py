"""Fixed trials of a fixed small network, whose losses every kernel must come close to."""

from collections.abc import Mapping

import msgspec
import numpy as np

from fedlearn.es.golden import golden_words
from fedlearn.es.layout import Float32Array
from fedlearn.es.perturbation import Perturbation, Space
from fedlearn.es.trials import Trials
from fedlearn.tasks.rnn.cells import CellName
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.options import Precision
from fedlearn.text.windows import WindowShape

GROUP_SIZE = 4
N_MEMBERS = 8
"""Number of members, in two groups: the first starts cold, the other reads a context."""

_VOCAB_SIZE = 29
_RESET_TOKEN = 4
"""Both groups read it among the scored tokens, the cold one as the first of them, the warm one in its context, too."""
_PERTURBATIONS: Mapping[Space, Perturbation] = {
    "weights": Perturbation(sigma=0.05, rank=1),
    "activations": Perturbation(sigma=0.2, rank=0, space="activations", logit_sigma=0.2, discount=0.9),
}


class GoldenTrials(msgspec.Struct, frozen=True):
    """Trials whose losses are known."""

    cell: CellName
    precision: Precision
    space: Space
    expected: tuple[float, ...]
    """The losses of the portable kernels; those of others may differ as far as audits allow."""
    reset_token: int = -1

    def __str__(self) -> str:
        resets = "" if self.reset_token < 0 else ", with resets"
        return f"{self.cell} units in {self.precision}, noise on {self.space}{resets}"

    def losses(self) -> Float32Array:
        """What this machine's kernels find, [N_MEMBERS]."""
        objective = RnnObjective(
            seed=1,
            vocab_size=_VOCAB_SIZE,
            hidden_size=40,
            n_layers=2,
            window=WindowShape(batch_size=2, context=4, scored=8),
            embedding_scale=3.0,
            precision=self.precision,
            cell=self.cell,
            reset_token=self.reset_token,
        )
        data = {"tokens": (golden_words(100, 300) % _VOCAB_SIZE).astype(np.uint16)}
        # Between -0.5 and 0.5: units are neither linear nor saturated.
        weights = (golden_words(101, objective.layout.size) >> 8).astype(np.float32) / np.float32(2**24)
        weights -= np.float32(0.5)
        trials = Trials(3, _PERTURBATIONS[self.space], GROUP_SIZE, first_member=0, n_members=N_MEMBERS)
        if trials.perturbation.is_summed:
            return objective.gradient_sum(weights, data, trials, threads=1).losses
        return objective.evaluate(weights, data, trials, threads=1)


GOLDEN_TRIALS = (
    GoldenTrials(
        "tanh",
        "float32",
        "weights",
        (4.366974, 4.2631774, 4.1653905, 4.1243777, 5.2799783, 4.8952694, 4.9604983, 4.4996767),
    ),
    GoldenTrials(
        "tanh",
        "int8",
        "weights",
        (4.3659306, 4.26507, 4.183097, 4.118757, 5.2766833, 4.8938446, 4.9712114, 4.4974985),
    ),
    GoldenTrials(
        "gru",
        "float32",
        "weights",
        (4.039191, 3.9046855, 3.9818604, 3.9914937, 3.547085, 3.4521322, 3.6272864, 3.5673063),
    ),
    GoldenTrials(
        "tanh",
        "float32",
        "activations",
        (4.3554864, 4.0682955, 4.398234, 4.4227133, 5.1267643, 5.0411096, 4.5160303, 4.4299893),
    ),
    GoldenTrials(
        "tanh",
        "int8",
        "activations",
        (4.3410845, 4.0563135, 4.3961024, 4.42399, 5.1366496, 5.040951, 4.50894, 4.4290404),
    ),
    GoldenTrials(
        "gru",
        "float32",
        "weights",
        (3.8255439, 3.7596552, 3.8383029, 3.8594239, 3.4840329, 3.4206946, 3.5390453, 3.507437),
        _RESET_TOKEN,
    ),
    GoldenTrials(
        "tanh",
        "int8",
        "activations",
        (4.6179333, 4.532791, 4.606837, 4.721866, 4.858881, 4.84824, 4.7647605, 4.519962),
        _RESET_TOKEN,
    ),
    GoldenTrials(
        "lstm",
        "float32",
        "weights",
        (3.3884344, 3.4173346, 3.4334767, 3.3978179, 3.5000994, 3.5120635, 3.512713, 3.539048),
        _RESET_TOKEN,
    ),
)
