import msgspec
import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import genesis
from fedlearn.es.snapshot import START
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns, block_name
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.user.task_objective import TaskObjective
from tests.es.replicas import update_of
from tests.tasks.counting import CountingTask
from tests.tasks.rnn.networks import rnn_of, text_of, weights_of

TENSORS = {"matrix": np.ones((4, 3), dtype=np.float32), "vector": np.ones(5, dtype=np.float32)}
DATA: Columns = {"x": np.arange(10.0), "row": np.arange(10) % 4}
NAME = block_name(DATA)
TRIALS = Trials(0, Perturbation(0.5, 1), group_size=4, first_member=0, n_members=8)
TEXT: Columns = {"tokens": text_of()}


def task_of(*, reads: bool = False) -> CountingTask:
    task = CountingTask(TENSORS, DATA)
    task.reads = {"matrix": "row"} if reads else {}
    return task


def holding_of(*, kept: int = 0, reads: bool = False) -> Holding:
    return Holding(TaskObjective(task_of(reads=reads), seed=3), seed=3, threads=1, blocks={NAME: DATA}, kept=kept)


def rnn_holding() -> tuple[Holding, RnnObjective, bytes]:
    objective, name = rnn_of(), block_name(TEXT)
    holding = Holding(objective, seed=objective.seed, threads=1, blocks={name: TEXT})
    holding.load(genesis(objective.layout, weights_of(objective)))
    return holding, objective, name


def on_block(update: Update, name: bytes) -> Update:
    return msgspec.structs.replace(update, block=name)


def test_there_is_no_replica_before_weights_came() -> None:
    holding = holding_of()
    assert not holding.has_replica
    with pytest.raises(ValueError, match="replica: expected a Snapshot or a Start first"):
        _ = holding.replica
    holding.begin(0, keeps_start=False)
    assert holding.has_replica


@pytest.mark.parametrize("keeps_start", [False, True])
def test_a_start_of_ones_own_has_the_digest_of_genesis(*, keeps_start: bool) -> None:
    holding = holding_of()
    begun = holding.begin(7, keeps_start=keeps_start)
    weights = holding.objective.initial_weights()
    sent = genesis(holding.objective.layout, weights, step=7, keeps_start=keeps_start)
    assert begun == sent.digest == holding_of().load(sent)
    assert holding.replica.step == 7
    assert (START in holding.replica.slots) == keeps_start


def test_a_snapshot_takes_the_place_of_what_was_held() -> None:
    holding = holding_of()
    holding.begin(0, keeps_start=False)
    other = genesis(holding.objective.layout, holding.replica.weights * 2, step=5)
    assert holding.load(other) == other.digest
    assert holding.replica.step == 5


def test_a_snapshot_of_another_model_is_refused() -> None:
    other = genesis(rnn_of().layout, rnn_of().initial_weights())
    with pytest.raises(ValueError, match="weights: expected float32"):
        holding_of().load(other)


def test_a_step_gives_the_digest_after_it() -> None:
    holding = holding_of()
    before = holding.begin(0, keeps_start=False)
    digest = holding.apply(on_block(update_of(0), NAME))
    assert digest == holding.replica.digest != before
    with pytest.raises(ValueError, match="step: expected 1, got 0"):
        holding.apply(on_block(update_of(0), NAME))


def test_rows_that_no_groups_data_name_stay_where_they_are() -> None:
    plain, reading = holding_of(), holding_of(reads=True)
    only_two = {"x": DATA["x"], "row": np.full(10, 2)}
    for holding in (plain, reading):
        holding.store(block_name(only_two), only_two)
        holding.begin(0, keeps_start=False)
        holding.apply(on_block(update_of(0), block_name(only_two)))
    moved = [
        (holding.objective.layout.split(holding.replica.weights)["matrix"] != 1.0).any(axis=1).tolist()
        for holding in (plain, reading)
    ]
    assert moved == [[True] * 4, [False, False, True, False]]


def test_a_step_on_a_block_that_is_not_held_is_refused() -> None:
    holding = holding_of(reads=True)
    before = holding.begin(0, keeps_start=False)
    with pytest.raises(ValueError, match=f"block {bytes(16).hex()}: expected one that is held here"):
        holding.apply(on_block(update_of(0), bytes(16)))
    assert holding.replica.digest == before


def test_the_empty_name_stands_for_no_data() -> None:
    assert holding_of().block(b"") == {}
    with pytest.raises(ValueError, match="block 00ff: expected one that is held here, got a name without data"):
        holding_of().block(b"\x00\xff")


def test_of_blocks_that_came_only_the_newest_are_kept_where_few_are_wanted() -> None:
    few, all_of_them = holding_of(kept=2), holding_of()
    names = [bytes([number]) for number in range(4)]
    for holding in (few, all_of_them):
        for name in names:
            holding.store(name, DATA)
    assert [name for name in [NAME, *names] if _is_held(few, name)] == [NAME, *names[2:]]
    assert [name for name in [NAME, *names] if _is_held(all_of_them, name)] == [NAME, *names]


def _is_held(holding: Holding, name: bytes) -> bool:
    try:
        return holding.block(name) is DATA
    except ValueError:
        return False


def test_a_block_that_comes_again_counts_as_the_newest() -> None:
    holding = holding_of(kept=2)
    for name in (b"a", b"b", b"a", b"c"):
        holding.store(name, DATA)
    assert holding.held(b"a") is DATA
    assert not holding.held(b"b")


def test_trials_are_those_of_the_replicas_weights_on_the_block() -> None:
    holding = holding_of()
    holding.begin(0, keeps_start=False)
    holding.apply(on_block(update_of(0), NAME))
    results = holding.evaluate(msgspec.structs.replace(TRIALS, step=1), NAME)
    expected = holding.objective.evaluate(
        holding.replica.weights, DATA, msgspec.structs.replace(TRIALS, step=1), threads=1
    )
    np.testing.assert_array_equal(results.losses, expected)
    assert results.estimate is NO_ESTIMATE


def test_trials_on_a_block_that_is_not_held_are_refused() -> None:
    holding = holding_of()
    holding.begin(0, keeps_start=False)
    with pytest.raises(ValueError, match="expected one that is held here"):
        holding.evaluate(TRIALS, b"?")


@pytest.mark.parametrize(
    "noise", [Perturbation(0.5, 1, "activations"), Perturbation(0.5, 1, "weights", "closed-form")], ids=str
)
def test_sums_are_asked_only_of_objectives_that_have_them(noise: Perturbation) -> None:
    trials = msgspec.structs.replace(TRIALS, perturbation=noise)
    holding = holding_of()
    holding.begin(0, keeps_start=False)
    with pytest.raises(ValueError, match="perturb, head: expected weights and perturbed, got a task that can't sum"):
        holding.evaluate(trials, NAME)
    rnn, objective, name = rnn_holding()
    summed = rnn.evaluate(trials, name)
    expected = objective.gradient_sum(rnn.replica.weights, TEXT, trials, threads=1)
    np.testing.assert_array_equal(summed.losses, expected.losses)
    np.testing.assert_array_equal(summed.estimate.numbers, expected.estimate.numbers)
    assert summed.estimate.numbers.size == objective.layout.size


def test_replayed_trials_have_losses_alone_whatever_the_objective_can() -> None:
    rnn, objective, name = rnn_holding()
    results = rnn.evaluate(TRIALS, name)
    np.testing.assert_array_equal(results.losses, objective.evaluate(rnn.replica.weights, TEXT, TRIALS, threads=1))
    assert results.estimate is NO_ESTIMATE
