"""What objectives say of their memory is at least what they take: a volunteer that trusted less would run out of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.client.hostile import OPTIONS
from tests.tasks.counting import CountingTask

TENSORS = {"matrix": np.zeros((40, 30), dtype=np.float32), "vector": np.ones(5, dtype=np.float32)}
DATA = {"x": np.zeros((20, 100)), "word": np.zeros(20, dtype=np.int64)}

PROBE = """
import json, sys
from pathlib import Path
import numpy as np
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.rnn.objective import RnnObjective
options, perturbation, group_size, n_members, threads = json.loads(sys.argv[1])
objective = RnnObjective.from_options(options, 1)
weights = objective.initial_weights()
data = {"tokens": np.arange(10**5, dtype=np.uint16) % options["vocab_size"]}

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024

def run(step, n_members):
    trials = Trials(step, Perturbation(0.1, **perturbation), group_size, 0, n_members)
    evaluate = objective.gradient_sum if trials.perturbation.is_summed else objective.evaluate
    evaluate(weights, data, trials, threads=threads)
    return peak(), trials

small = RnnObjective.from_options({**options, "hidden_size": 4, "batch_size": 1, "context": 1, "sequence_length": 4}, 1)
small.evaluate(small.initial_weights(), data, Trials(0, Perturbation(0.1, 1), 2, 0, 4), threads=threads)
before = peak()
after, trials = run(1, n_members)
print(after - before, objective.trial_bytes(data, trials, threads=threads))
"""
MEASURED: dict[str, tuple[dict[str, Any], dict[str, Any], int, int, int]] = {
    "large groups": ({"hidden_size": 64}, {"rank": 1}, 2**14, 2**15, 2),
    "high rank": ({"hidden_size": 256, "vocab_size": 100}, {"rank": 8}, 2**11, 2**12, 2),
    "full rank": ({"hidden_size": 512}, {"rank": 0}, 2, 4, 2),
    "many groups": ({"context": 100}, {"rank": 1}, 2, 2**14, 1),
    "large batch": ({"hidden_size": 64, "batch_size": 512, "context": 60, "cell": "gru"}, {"rank": 1}, 4, 64, 2),
    "activations": ({"hidden_size": 128, "batch_size": 64}, {"rank": 0, "space": "activations"}, 16, 256, 2),
    "closed form": ({"vocab_size": 5000}, {"rank": 1, "head": "closed-form"}, 8, 2**13, 2),
}


@pytest.mark.parametrize("name", MEASURED)
def test_recurrent_networks_take_no_more_than_they_say(name: str, tmp_path: Path) -> None:
    options, *given = MEASURED[name]
    arguments = json.dumps([{**OPTIONS, **options}, *given])
    done = subprocess.run(
        [sys.executable, "-c", PROBE, arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    taken, said = map(int, done.stdout.split())
    print(f"{name}: {taken / 1e6:.1f} MB, said {said / 1e6:.1f} MB")
    assert taken < said + 2 * 10**6


def test_each_thread_counts() -> None:
    objective = RnnObjective.from_options(OPTIONS, 1)
    trials = Trials(0, Perturbation(0.1, 1), 64, 0, 640)
    one, two, four = (objective.trial_bytes({}, trials, threads=threads) for threads in (1, 2, 4))
    assert four - two == 2 * (two - one) > 0


@pytest.mark.parametrize("rank", [0, 1, 8])
def test_noise_and_rows_of_a_users_task_are_counted(rank: int) -> None:
    objective = TaskObjective(CountingTask(TENSORS, DATA, batch_size=6), seed=1)
    trials = Trials(0, Perturbation(0.1, rank), group_size=100, first_member=0, n_members=300)
    noise = 4 * ((70 * rank if rank else 1200) + 5)
    rows = 7 * (32 + 808)
    assert objective.trial_bytes(DATA, trials, threads=1) == 3 * (3 * 100 * noise + rows) + 4 * 300


def test_groups_that_are_evaluated_later_take_no_noise_yet() -> None:
    objective = TaskObjective(CountingTask(TENSORS, DATA), seed=1)
    some, many = (Trials(0, Perturbation(0.1, 1), 2, 0, n) for n in (2 * 10**7, 2 * 10**9))
    assert objective.trial_bytes(DATA, many, threads=1) - objective.trial_bytes(DATA, some, threads=1) == 4 * (
        2 * 10**9 - 2 * 10**7
    )


def test_masks_of_a_users_task_are_counted_where_it_has_any() -> None:
    plain = TaskObjective(CountingTask(TENSORS, DATA, batch_size=6), seed=1)
    assert plain.mask_bytes(DATA, 1000) == 0
    task = CountingTask(TENSORS, DATA, batch_size=6)
    task.reads = {"matrix": "word"}
    reading = TaskObjective(task, seed=1)
    assert reading.mask_bytes(DATA, 1000) == 1000 * (2 * 40 + 3 * 7 * (32 + 808))
