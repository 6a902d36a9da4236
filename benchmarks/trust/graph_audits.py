"""How far honest volunteers of a graph are from one another, in the tolerances of audits: above 1 is an accusation.

A volunteer on PyTorch runs members in pieces that are as large as is fast on its machine, and one by one where that is
faster: products of other shapes, whose sums are rounded in other orders. Here all groups run at once, and then one
member after another; each group is an audit.
"""

from collections.abc import Mapping
from unittest import mock

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import parser_of, print_tables, use_processors
from fedlearn.coordination.audits.audit import loss_differences
from fedlearn.coordination.audits.tolerance import FLOATS
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.torch.members.execution_plans import ExecutionPlan
from fedlearn.tasks.torch_graph.export.export import export
from fedlearn.tasks.torch_graph.graph_task import GraphTask
from fedlearn.tasks.user.task_objective import TaskObjective

GROUP, GROUPS = 16, 16
N_ROWS, INPUTS, CLASSES, BATCH = 512, 16, 8, 16


class Row(msgspec.Struct, frozen=True):
    """One model."""

    model: str
    audits: int
    greatest: float
    """The greatest difference, in tolerances."""
    accused: int


class Attending(nn.Module):
    """A transformer's layer over rows that are read as a short sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(4, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.outward = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [rows, classes]."""
        found: Tensor = self.outward(self.layer(self.inward(x.reshape(-1, 4, 4))).mean(1))
        return found


def main() -> int:
    """Runs the benchmark; gives the exit code: 1 where anybody honest is accused."""
    parser = parser_of(__doc__)
    parser.add_argument("--audits", type=int, default=2000, metavar="N", help="of each model (default: 2000)")
    options = parser.parse_args()
    use_processors(1)
    torch.manual_seed(0)
    models = {
        "perceptron": nn.Sequential(nn.Linear(INPUTS, 32), nn.Tanh(), nn.Linear(32, CLASSES)),
        "convolutional": nn.Sequential(
            nn.Unflatten(1, (1, INPUTS)), nn.Conv1d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14, CLASSES)
        ),
        "transformer": Attending(),
    }
    rows = [audit(name, model.eval(), options.audits) for name, model in models.items()]
    print_tables("graph_audits", as_json=options.json, rows=rows)
    return 1 if any(row.accused for row in rows) else 0


def audit(name: str, model: nn.Module, audits: int) -> Row:
    """Holds members at once against members one by one."""
    objective, data = objective_of(model)
    weights = objective.initial_weights()
    found: list[float] = []
    while len(found) < audits:
        trials = Trials(len(found), Perturbation(0.01, 1), GROUP, 0, GROUP * GROUPS)
        with mock.patch.object(ExecutionPlan, "is_sequential", return_value=False):
            batched = objective.evaluate(weights, data, trials, threads=1)
        with mock.patch.object(ExecutionPlan, "is_sequential", return_value=True):
            sequential = objective.evaluate(weights, data, trials, threads=1)
        found += loss_differences(batched, sequential, GROUP, FLOATS.losses).tolist()
    return Row(name, len(found), max(found), sum(difference > 1.0 for difference in found))


def objective_of(model: nn.Module) -> tuple[TaskObjective, Columns]:
    """The graph of the model, as volunteers have it, and rows."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(N_ROWS, INPUTS)).astype(np.float32)
    data: Columns = {"x": x, "y": generator.integers(0, CLASSES, N_ROWS)}
    learned = dict(model.named_parameters())
    exported = export(model, loss_of, {key: torch.from_numpy(column[:BATCH]) for key, column in data.items()}, learned)
    start = {key: tensor.detach().numpy() for key, tensor in learned.items()}
    return TaskObjective(GraphTask(exported.graph, exported.frozen, start=start, data=data), seed=1), data


def loss_of(model: nn.Module, rows: Mapping[str, Tensor]) -> Tensor:
    """The loss of a group's rows."""
    return functional.cross_entropy(model(rows["x"]), rows["y"])


if __name__ == "__main__":
    raise SystemExit(main())
