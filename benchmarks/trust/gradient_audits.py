"""How far honest machines are from one another: sums of gradients, and local steps, on two machines.

The other machine computes in double precision, which stands for one that rounds otherwise at every operation, or it is
a process in which PyTorch and its libraries use no vectors or AVX2 at most. Differences are shares of the tolerances of
audits; what is above 1 would accuse an honest machine. Half of the groups begin at the initial weights, half after 200
steps.
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np

from benchmarks.measure import parser_of, print_tables, use_processors
from fedlearn.coordination.audits.audit import loss_difference, sum_difference
from fedlearn.coordination.audits.tolerance import FLOATS, LOCAL_STEPS
from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import TensorNoise
from fedlearn.es.optimizers import AnyOptimizer, Sgd
from fedlearn.es.optimizers.muon import Muon
from fedlearn.es.perturbation import LocalSteps, Perturbation
from fedlearn.es.sums.estimate import decode_estimate
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.tasks.task import Batch, LossGradients, Task
from fedlearn.tasks.user.task_objective import TaskObjective

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    sys.exit("gradient_audits.py needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.models.subjects import Subject, subject_of

MUON = Muon(0.021, vector_rate=0.3)
UNIT_BITS = 22
BEFORE = 200

LIBRARIES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
INSTRUCTIONS = {"plain": ("default", "SSE41", "SSE4_2"), "avx2": ("avx2", "AVX2", "AVX2")}
"""What PyTorch and its libraries are told to use at most, by the name of a machine."""


class Row(msgspec.Struct, frozen=True):
    """Differences after so many local steps, in tolerances."""

    model: str
    machines: str
    local_steps: int
    groups: int
    accused: int
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


class Machine:
    """A machine that computes the results of groups of a subject's task."""

    def __init__(self, name: str, text: bytes, n_local: int, optimizer: AnyOptimizer, *, in_double: bool) -> None:
        subject = subject_of(name, text)
        self._data, self._n_local, self._steps = subject.task.data, n_local, LocalSteps(optimizer, 1)
        self._objective = TaskObjective(InDouble(subject) if in_double else subject.task, seed=1)
        self.layout = self._objective.layout

    def results(self, number: int, weights: Float32Array) -> TrialResults:
        """The results of one group: a gradient, or so many local steps."""
        return self._sum(weights, number, self._n_local, self._steps if self._n_local > 1 else None)

    def starts(self) -> list[Float32Array]:
        """The weights at which groups begin."""
        first = self._objective.initial_weights()
        way = decode_estimate(self.layout, self._sum(first, 0, BEFORE, self._steps).estimate)
        return [first, first - way.astype(np.float32) * np.float32(2.0**-UNIT_BITS)]

    def _sum(self, weights: Float32Array, step: int, n_local: int, steps: LocalSteps | None) -> TrialResults:
        perturbation = Perturbation(0.0, 0, "nothing", unit_bits=UNIT_BITS, local_steps=steps)
        return self._objective.gradient_sum(
            weights, self._data, Trials(step, perturbation, n_local, 0, n_local), threads=1
        )


def all_results(machine: Machine, starts: Sequence[Float32Array], n_groups: int) -> list[TrialResults]:
    """The results of that many groups, which take turns where they begin."""
    return [machine.results(number, starts[number % len(starts)]) for number in range(n_groups)]


def results_there(
    name: str, text: bytes, n_local: int, optimizer: AnyOptimizer, starts: Sequence[Float32Array], n_groups: int
) -> list[TrialResults]:
    """The same, in a process of its own."""
    use_processors(1)
    return all_results(Machine(name, text, n_local, optimizer, in_double=False), starts, n_groups)


@contextmanager
def limited_to(machine: str) -> Iterator[None]:
    """Lets processes that begin inside use the instructions of a machine at most."""
    os.environ.update(zip(LIBRARIES, INSTRUCTIONS[machine], strict=True))
    try:
        yield
    finally:
        for library in LIBRARIES:
            del os.environ[library]


def compared(name: str, text: bytes, n_local: int, optimizer: AnyOptimizer, other: str, n_groups: int) -> Row:
    """The differences of some groups."""
    machine = Machine(name, text, n_local, optimizer, in_double=False)
    starts = machine.starts()
    if other == "double":
        others = all_results(Machine(name, text, n_local, optimizer, in_double=True), starts, n_groups)
    else:
        spawning = multiprocessing.get_context("spawn")
        with limited_to(other), ProcessPoolExecutor(1, mp_context=spawning) as pool:
            others = pool.submit(results_there, name, text, n_local, optimizer, starts, n_groups).result()
    tolerance = LOCAL_STEPS if n_local > 1 else FLOATS.summed
    pairs = list(zip(all_results(machine, starts, n_groups), others, strict=True))
    sums = np.array([sum_difference(one.estimate, two.estimate, machine.layout, tolerance) for one, two in pairs])
    losses = np.array([loss_difference(one.losses, two.losses, n_local, tolerance) for one, two in pairs])
    accused = int((np.maximum(sums, losses) > 1.0).sum())
    greatest = float(sums.max()), float(losses.max())
    return Row(
        name, other, n_local, n_groups, accused, float(sums.mean()), greatest[0], float(losses.mean()), greatest[1]
    )


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", default=["mlp", "cnn"], choices=["mlp", "cnn", "gpt"])
    parser.add_argument("--text", type=Path, help="a text, for gpt")
    parser.add_argument("--local-steps", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--groups", type=int, default=10, metavar="N", help="of each number of steps (default: 10)")
    parser.add_argument(
        "--machines", nargs="+", default=["double"], choices=["double", *INSTRUCTIONS], help="held against this one"
    )
    parser.add_argument(
        "--plain-rate", type=float, default=0.0, help="of plain gradient descent's steps, in place of Muon's"
    )
    options = parser.parse_args()
    optimizer = Sgd(options.plain_rate, 0.0) if options.plain_rate else MUON
    use_processors(1)
    if "gpt" in options.models and options.text is None:
        parser.error("--text: expected a text for gpt, got none")
    text = options.text.read_bytes() if options.text else b""
    rows = [
        compared(name, text, n_local, optimizer, other, options.groups)
        for name in options.models
        for other in options.machines
        for n_local in options.local_steps
    ]
    print_tables("gradient_audits", as_json=options.json, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
