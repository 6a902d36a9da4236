"""How far honest machines are from one another after local steps: float32 beside gradients in double precision.

Double precision stands for a machine that rounds otherwise at every operation. Differences are shares of the tolerances
of audits; what is above 1 would accuse an honest machine. Half of the ways begin at the initial weights, half after 200
steps.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np

from benchmarks.measure import parser_of, print_tables, use_processors
from fedlearn.coordination.audits.audit import loss_difference, sum_difference
from fedlearn.coordination.audits.tolerance import LOCAL_STEPS
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.noise import TensorNoise
from fedlearn.es.optimizers import AnyOptimizer, Sgd, optimizer_of
from fedlearn.es.perturbation import LocalSteps, Perturbation
from fedlearn.es.sums.estimate import decode_estimate
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.tasks.task import Batch, LossGradients, Task
from fedlearn.tasks.user.task_objective import TaskObjective

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    sys.exit("local_step_audits.py needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.models.subjects import Subject, cnn, gpt, mlp

MUON = optimizer_of({"optimizer": "muon", "learning_rate": 0.021, "matrix_rate": 1.5})
UNIT_BITS = 22
BEFORE = 200


class Row(msgspec.Struct, frozen=True):
    """Differences after so many local steps, in tolerances."""

    model: str
    local_steps: int
    ways: int
    mean_of_sums: float
    greatest_of_sums: float
    mean_of_losses: float
    greatest_of_losses: float


class InDouble(Task):
    """A subject's task, whose gradients are computed in double precision."""

    def __init__(self, subject: Subject) -> None:
        make = subject.task._model
        assert not isinstance(make, nn.Module)
        torch.manual_seed(0)
        self._model, self._subject = make().double(), subject
        self.data, self.batch_size = subject.task.data, subject.task.batch_size
        self.hidden = subject.task.hidden

    @property
    def tensors(self) -> Mapping[str, Float32Array]:
        return self._subject.task.tensors

    def members(self, weights: Float32Array, noise: Sequence[TensorNoise], *, n_groups: int) -> NoReturn:
        raise AssertionError(f"no noise is asked for, got {n_groups} groups of {len(noise)} at {weights.shape}")

    def losses(self, members: object, batch: Batch) -> NoReturn:
        raise AssertionError(f"gradients are asked for, got {members} and {batch}")

    def loss_gradients(self, weights: Float32Array, batch: Batch) -> LossGradients:
        parameters = list(self._model.parameters())
        nn.utils.vector_to_parameters(torch.as_tensor(weights.astype(np.float64)), parameters)
        total = torch.zeros(weights.size, dtype=torch.float64)
        losses = []
        for group in range(len(batch.seeds)):
            rows = {name: torch.as_tensor(column[group]) for name, column in batch.rows.items()}
            rows = {name: row.double() if row.is_floating_point() else row for name, row in rows.items()}
            loss = self._subject.loss(self._model, rows)
            assert isinstance(loss, Tensor)
            total += torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
            losses.append(loss.item())
        return LossGradients(np.array(losses, dtype=np.float32), total.float().numpy())


def compared(name: str, subject: Subject, n_local: int, n_ways: int, optimizer: AnyOptimizer) -> Row:
    """The differences of some groups of local steps."""
    machines = [TaskObjective(task, seed=1) for task in (subject.task, InDouble(subject))]
    layout, first = machines[0].layout, machines[0].initial_weights()
    steps = LocalSteps(optimizer, 1)
    trained = first - way_of(
        machines[0].gradient_sum(first, subject.task.data, trials_of(0, BEFORE, steps), threads=1), layout
    )
    sums, losses = [], []
    for number in range(1, n_ways + 1):
        weights, trials = (first, trained)[number % 2], trials_of(number, n_local, steps)
        one, other = (each.gradient_sum(weights, subject.task.data, trials, threads=1) for each in machines)
        sums.append(sum_difference(one.estimate, other.estimate, layout, LOCAL_STEPS))
        losses.append(loss_difference(one.losses, other.losses, n_local, LOCAL_STEPS))
    return Row(name, n_local, n_ways, float(np.mean(sums)), max(sums), float(np.mean(losses)), max(losses))


def trials_of(step: int, n_local: int, steps: LocalSteps) -> Trials:
    """One group of local steps."""
    return Trials(step, Perturbation(0.0, 0, "nothing", unit_bits=UNIT_BITS, local_steps=steps), n_local, 0, n_local)


def way_of(results: TrialResults, layout: ParameterLayout) -> Float32Array:
    """How far the steps lead back."""
    return decode_estimate(layout, results.estimate).astype(np.float32) * np.float32(2.0**-UNIT_BITS)


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", default=["mlp", "cnn"], choices=["mlp", "cnn", "gpt"])
    parser.add_argument("--text", type=Path, help="a text, for gpt")
    parser.add_argument("--local-steps", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--ways", type=int, default=10, help="groups of each number of steps (default: 10)")
    parser.add_argument(
        "--plain-rate", type=float, default=0.0, help="of plain gradient descent's steps, in place of Muon's"
    )
    options = parser.parse_args()
    optimizer = Sgd(options.plain_rate, 0.0) if options.plain_rate else MUON
    use_processors(1)
    rows = []
    for name in options.models:
        if name == "gpt" and options.text is None:
            parser.error("--text: expected a text for gpt, got none")
        subject = gpt(options.text.read_bytes()) if name == "gpt" else {"mlp": mlp, "cnn": cnn}[name]()
        rows += [compared(name, subject, n_local, options.ways, optimizer) for n_local in options.local_steps]
    print_tables("local_step_audits", as_json=options.json, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
