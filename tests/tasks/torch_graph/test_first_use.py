"""What a process imports at its first use of graphs, which one that is started ahead has done before."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import sys
import numpy as np
import torch
from fedlearn.tasks.torch.perceptron import classifier
from fedlearn.tasks.torch_graph import first_use
from fedlearn.tasks.torch_graph.sharing import received

def foreign():
    return {name for name in sys.modules if name.startswith(("torch", "sympy"))}

x, y = np.zeros((8, 4), dtype=np.float32), np.zeros(8, dtype=np.int64)
task = classifier((4, 3, 2), (x, y), (x, y), batch_size=4, settings={})
before, state = foreign(), torch.get_rng_state()
first_use.run_once()
print("run_once", len(foreign() - before) > 100)
first_use.export_once()
known = foreign()
print("export_once", len(known - before) > 500, torch.equal(torch.get_rng_state(), state))
received(task.as_graph())
print("then", sorted(foreign() - known))
"""


def test_what_comes_after_the_first_use_imports_nothing_more_of_pytorch() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == ["run_once True", "export_once True True", "then []"]
