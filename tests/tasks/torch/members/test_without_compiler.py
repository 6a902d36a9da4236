"""In processes of their own, since what one test has imported all others have."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.tasks.torch.supervised import supervised  # noqa: E402
from tests.patience import LIMIT_S  # noqa: E402

VOLUNTEER = """
import sys
import numpy as np
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.torch_graph.sharing import received
from fedlearn.tasks.torch.members.without_compiler import COMPILER
from fedlearn.tasks.user.task_objective import TaskObjective
with open(sys.argv[1], "rb") as file:
    objective = TaskObjective(received(file.read()), seed=1)
rows = {"x": np.ones((8, 4), dtype=np.float32), "y": np.zeros(8, dtype=np.int64)}
weights = objective.initial_weights()
print(np.isfinite(objective.first_gradient(weights, rows).losses).all())
trials = Trials(0, Perturbation(0.1, 0), group_size=4, first_member=0, n_members=8)
print(len(objective.evaluate(weights, rows, trials, threads=1)))
print(COMPILER in sys.modules)
"""

MEMBERS = """
import sys
import numpy as np
from torch import nn
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.torch.supervised import supervised
from fedlearn.tasks.torch.members.without_compiler import COMPILER
from fedlearn.tasks.user.task_objective import TaskObjective
rows = {"x": np.ones((8, 4), dtype=np.float32), "y": np.zeros(8, dtype=np.int64)}
def loss(model, rows):
    return nn.functional.cross_entropy(model(rows["x"]), rows["y"])
objective = TaskObjective(supervised(lambda: nn.Linear(4, 3), loss, rows, batch_size=4), seed=1)
trials = Trials(0, Perturbation(0.1, 0), group_size=4, first_member=0, n_members=8)
print(len(objective.evaluate(objective.initial_weights(), rows, trials, threads=1)))
print(COMPILER in sys.modules)
"""

COMPILER = """
import sys
from fedlearn.tasks.torch.members.without_compiler import COMPILER, without_compiler
import torch
with without_compiler():
    torch.add(torch.empty(1, device="meta"), 1.0)
    print(COMPILER in sys.modules, sys.modules[COMPILER].disable(len) is len)
print(COMPILER in sys.modules)
with without_compiler():
    print(torch._dynamo.is_compiling())
real = sys.modules[COMPILER]
with without_compiler():
    print(sys.modules[COMPILER] is real)
print(sys.modules[COMPILER] is real, torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""


def said(script: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", script, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return ended.stdout.splitlines()


def test_the_compiler_is_imported_only_where_more_is_wanted_of_it() -> None:
    assert said(COMPILER) == ["True True", "False", "False", "True", "True 2.0"]


def test_members_of_a_module_are_tried_without_it() -> None:
    assert said(MEMBERS) == ["8", "False"]


@pytest.mark.parametrize("has_dropout", [False, True])
def test_a_volunteer_never_imports_it(tmp_path: Path, has_dropout: bool) -> None:
    def make() -> nn.Module:
        middle = nn.Dropout(0.5) if has_dropout else nn.LayerNorm(6)
        return nn.Sequential(nn.Linear(4, 6), nn.GELU(), middle, nn.Linear(6, 3))

    def loss(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(rows["x"]), rows["y"])

    rows: dict[str, Any] = {"x": np.ones((8, 4), dtype=np.float32), "y": np.zeros(8, dtype=np.int64)}
    (tmp_path / "task").write_bytes(supervised(make, loss, rows, batch_size=4).as_graph())
    assert said(VOLUNTEER, str(tmp_path / "task")) == ["True", "8", "False"]
