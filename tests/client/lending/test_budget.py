import msgspec
import numpy as np
import pytest

from fedlearn.client.lending.budget import MAX_OPERATIONS, MemoryBudget
from fedlearn.config import RunConfig
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import Shaping
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.trials import MAX_GROUP_MEMBERS, Trials
from fedlearn.runs.run import Run
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.limits import PARAMETER_BYTES
from tests.run_folders import created, update_of

TRIALS = Trials(step=0, perturbation=Perturbation(sigma=0.02, rank=1), group_size=8, first_member=16, n_members=24)
EMPTY = MemoryBudget(0)
AMPLE = MemoryBudget(2**40)


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


def data_of(run: Run) -> Columns:
    return next(iter(run.prepared.blocks))


def test_model_is_refused_by_all_that_its_weights_will_take() -> None:
    layout = ParameterLayout((TensorSpec("w", (10, 10)),))
    MemoryBudget(100 * PARAMETER_BYTES).check_layout(layout)
    with pytest.raises(ValueError, match=r"expected work that fits into 4.8 kB, got a model of 100 parameters"):
        MemoryBudget(100 * PARAMETER_BYTES - 1).check_layout(layout)


def test_blocks_are_refused_by_all_copies_of_them() -> None:
    MemoryBudget(400).check_block(100)
    with pytest.raises(ValueError, match=r"blocks of 101 bytes, .*--max-memory allows more"):
        MemoryBudget(400).check_block(101)


def test_parts_of_the_budget_hold_snapshots_and_what_waits() -> None:
    assert (MemoryBudget(1000).max_snapshot_bytes, MemoryBudget(1000).max_waiting_bytes) == (250, 250)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"group_size": 2 * MAX_GROUP_MEMBERS, "n_members": 2 * MAX_GROUP_MEMBERS}, "groups of at most 1048576"),
        ({"n_members": 20}, "whole groups"),
        ({"first_member": 2**63 - 24}, "members below 2\\^63"),
        ({"step": 2**32}, "step below 2\\^32"),
        ({"step": -1}, "step below 2\\^32"),
        ({"perturbation": Perturbation(0.1, -1)}, "a rank of 0 or more, got -1"),
        ({"n_members": 8 * 2**46}, "work: expected at most"),
        ({"perturbation": Perturbation(0.1, 2**38)}, "memory: expected work that fits into 1.1e\\+03 GB"),
    ],
)
def test_trials_of_absurd_sizes_are_refused(run: Run, changes: dict[str, object], complaint: str) -> None:
    trials = msgspec.structs.replace(TRIALS, **changes)
    with pytest.raises(ValueError, match=complaint):
        AMPLE.check_trials(run.prepared.objective, data_of(run), trials, threads=2)


def test_trials_that_fit_are_let_through_and_no_others(run: Run) -> None:
    AMPLE.check_trials(run.prepared.objective, data_of(run), TRIALS, threads=2)
    with pytest.raises(ValueError, match="trials of 24 members at rank 1"):
        EMPTY.check_trials(run.prepared.objective, data_of(run), TRIALS, threads=2)


def test_update_is_refused_by_its_masks_and_its_members(run: Run) -> None:
    objective, update = run.prepared.objective, update_of(run, 0)
    AMPLE.check_update(objective, data_of(run), update)
    with pytest.raises(ValueError, match="an Update of 16 members in groups of 8"):
        EMPTY.check_update(objective, data_of(run), update)
    many = MAX_OPERATIONS // objective.layout.size + 1
    with pytest.raises(ValueError, match="work: expected at most"):
        AMPLE.check_update(objective, data_of(run), msgspec.structs.replace(update, spans=((0, many),)))
    with pytest.raises(ValueError, match="work: expected at most"):
        AMPLE.check_update(objective, data_of(run), msgspec.structs.replace(update, rank=2**46))


def test_update_with_a_sum_costs_no_members(run: Run) -> None:
    estimate = CodedEstimate(np.zeros(1, dtype=np.int8), np.zeros(1, dtype=np.uint8))
    EMPTY.check_update(run.prepared.objective, {}, msgspec.structs.replace(update_of(run, 0), estimate=estimate))


def test_trials_with_a_sum_are_refused_by_its_memory_and_its_work(run: Run) -> None:
    objective, summed = run.prepared.objective, msgspec.structs.replace(TRIALS, shaping=Shaping("sign", 1.0))
    n_bytes = objective.trial_bytes(data_of(run), TRIALS, threads=2) + 2 * 4 * objective.layout.size
    n_bytes += objective.mask_bytes(data_of(run), TRIALS.n_groups)
    MemoryBudget(n_bytes).check_trials(objective, data_of(run), summed, threads=2)
    with pytest.raises(ValueError, match="memory: expected work that fits"):
        MemoryBudget(n_bytes - 1).check_trials(objective, data_of(run), summed, threads=2)
    ranked = msgspec.structs.replace(summed, perturbation=Perturbation(0.1, 2**38))
    with pytest.raises(ValueError, match="work: expected at most"):
        AMPLE.check_trials(objective, data_of(run), ranked, threads=2)
