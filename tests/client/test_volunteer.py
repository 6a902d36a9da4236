from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from fedlearn.client import volunteer as module
from fedlearn.client.lending.budget import MemoryBudget
from fedlearn.client.volunteer import VolunteerReplica
from fedlearn.config import RunConfig
from fedlearn.coordination.effects import Apply, Begin, Build, Evaluate, Load, StoreBlock
from fedlearn.coordination.people.roster import KEPT_BLOCKS
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.snapshot import START, Snapshot
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.runs.run import Run
from fedlearn.storage.checkpoint import read_checkpoint
from fedlearn.tasks.blocks import NO_BLOCK, block_name, encode_block
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.user.named_task import NamedTask
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import DataBlock, Start, Welcome
from tests.run_folders import created, fit_task, task_config, update_of

TRIALS = Trials(step=0, perturbation=Perturbation(sigma=0.02, rank=1), group_size=8, first_member=16, n_members=24)


def build_of(run: Run) -> Build:
    return Build(Welcome("1", run.prepared.invitation))


@pytest.fixture
def run(config: RunConfig) -> Run:
    return created(config)


@pytest.fixture
def genesis(run: Run) -> Snapshot:
    return read_checkpoint(run.folder.genesis).snapshot


@pytest.fixture
def block(run: Run) -> DataBlock:
    ((name, columns),) = run.prepared.named_blocks.items()
    return DataBlock(name, encode_block(columns))


@pytest.fixture
def volunteer(run: Run, genesis: Snapshot, block: DataBlock) -> VolunteerReplica:
    """One that holds the weights of genesis and the only block."""
    volunteer = VolunteerReplica(1)
    for compute in (build_of(run), StoreBlock(block), Load(genesis)):
        volunteer.perform(compute)
    return volunteer


def losses_of(volunteer: VolunteerReplica, block: bytes) -> list[float]:
    results = volunteer.perform(Evaluate(TRIALS, block))
    assert isinstance(results, TrialResults)
    losses: list[float] = results.losses.tolist()
    return losses


def test_loaded_weights_have_the_digest_of_the_server(volunteer: VolunteerReplica, genesis: Snapshot) -> None:
    assert volunteer.perform(Load(genesis)) == genesis.digest
    assert volunteer.replica is not None
    assert volunteer.replica.digest == genesis.digest


def test_there_is_no_replica_before_weights(run: Run) -> None:
    volunteer = VolunteerReplica(1)
    assert (volunteer.replica, volunteer.report) == (None, "")
    assert volunteer.perform(build_of(run)) is None
    assert (volunteer.replica, volunteer.report) == (None, "")


def test_update_gives_the_digest_that_the_server_has_after_it(
    run: Run, volunteer: VolunteerReplica, genesis: Snapshot
) -> None:
    server = run.holding()
    server.load(genesis)
    digest = server.apply(update_of(run, 0))
    assert volunteer.perform(Apply(update_of(run, 0))) == digest != genesis.digest


def test_trials_give_a_loss_a_member_at_the_weights_held(
    run: Run, volunteer: VolunteerReplica, genesis: Snapshot, block: DataBlock
) -> None:
    data = run.prepared.named_blocks[block.block]
    expected = run.prepared.objective.evaluate(genesis.weights, data, TRIALS, threads=1).tolist()
    assert losses_of(volunteer, block.block) == expected
    volunteer.perform(Apply(update_of(run, 0)))
    assert losses_of(volunteer, block.block) != expected


def test_start_is_made_here(tmp_path: Path) -> None:
    task = fit_task()
    run = created(task_config(tmp_path, step_num=7, weight_decay_towards="start"), task)
    genesis = read_checkpoint(run.folder.genesis).snapshot
    volunteer = VolunteerReplica(1, task=task)
    volunteer.perform(build_of(run))
    assert volunteer.perform(Begin(Start(genesis.digest, 7, 9, keeps_start=True))) == genesis.digest
    assert volunteer.replica is not None
    assert (volunteer.replica.step, list(volunteer.replica.slots)) == (7, [START])
    assert (
        losses_of(volunteer, NO_BLOCK)
        == run.prepared.objective.evaluate(genesis.weights, {}, TRIALS, threads=1).tolist()
    )


def test_weights_whose_content_is_not_their_digest_are_refused(volunteer: VolunteerReplica, genesis: Snapshot) -> None:
    damaged = msgspec.structs.replace(genesis, digest=bytes(8))
    with pytest.raises(RemoteProtocolError, match=f"expected digest {bytes(8).hex()}"):
        volunteer.perform(Load(damaged))


def test_weights_of_another_model_are_refused(volunteer: VolunteerReplica, genesis: Snapshot) -> None:
    longer = msgspec.structs.replace(genesis, weights=np.zeros(genesis.weights.size + 1, dtype=np.float32))
    with pytest.raises(ValueError, match="weights: expected float32"):
        volunteer.perform(Load(longer))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda block: DataBlock(bytes(16), block.columns), f"block {bytes(16).hex()}: expected data with that hash"),
        (lambda block: DataBlock(block.block, block.columns[:-1]), "block: expected safetensors bytes"),
    ],
    ids=["another name", "another content"],
)
def test_block_that_is_not_what_its_name_says_is_refused(
    volunteer: VolunteerReplica, block: DataBlock, damage: Callable[[DataBlock], DataBlock], complaint: str
) -> None:
    with pytest.raises((ValueError, RemoteProtocolError), match=complaint):
        volunteer.perform(StoreBlock(damage(block)))


def test_kind_that_this_version_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'transformer'; is this version of fedlearn older"):
        VolunteerReplica(1).perform(Build(Welcome("1", Invitation("transformer", 0, {}, {}))))


def test_volunteer_that_lacks_something_takes_part_in_no_run(run: Run) -> None:
    with pytest.raises(ValueError, match=r"^fit.py: expected the module nowhere$"):
        VolunteerReplica(1, missing="fit.py: expected the module nowhere").perform(build_of(run))


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        (None, r"task: expected a file, .* kind function .* --task FILE\.py:NAME"),
        (fit_task(start={"vector": [0.0] * 7}), "task: expected the server's tensors, got other ones"),
        (msgspec.structs.replace(fit_task(), source=b"another" * 2), "task: expected the server's source, got other"),
    ],
    ids=["no task", "another task", "another source"],
)
def test_volunteer_without_the_servers_task_is_told_what_differs(
    tmp_path: Path, task: NamedTask | None, complaint: str
) -> None:
    run = created(task_config(tmp_path), fit_task())
    with pytest.raises(ValueError, match=complaint):
        VolunteerReplica(1, task=task).perform(build_of(run))


def test_task_that_nobody_asked_for_is_named(run: Run) -> None:
    with pytest.raises(
        ValueError, match=r"task: expected none, .* trains a recurrent network, got fit\.py:task; leave --task out"
    ):
        VolunteerReplica(1, task=fit_task()).perform(build_of(run))


def test_orders_without_what_they_need_are_refused(run: Run, genesis: Snapshot, block: DataBlock) -> None:
    stranger = VolunteerReplica(1)
    for compute in (Load(genesis), StoreBlock(block), Apply(update_of(run, 0)), Evaluate(TRIALS, block.block)):
        with pytest.raises(RemoteProtocolError, match="expected a Welcome first"):
            stranger.perform(compute)
    stranger.perform(build_of(run))
    with pytest.raises(ValueError, match="expected a Snapshot or a Start first"):
        stranger.perform(Apply(update_of(run, 0)))
    stranger.perform(Load(genesis))
    with pytest.raises(ValueError, match="expected one that is held here"):
        stranger.perform(Evaluate(TRIALS, block.block))


def test_only_the_last_blocks_are_kept(volunteer: VolunteerReplica, block: DataBlock) -> None:
    others = [{"tokens": np.full(100, number, dtype=np.uint16)} for number in range(KEPT_BLOCKS)]
    for columns in others:
        assert losses_of(volunteer, block.block)
        volunteer.perform(StoreBlock(DataBlock(block_name(columns), encode_block(columns))))
    with pytest.raises(ValueError, match="expected one that is held here"):
        volunteer.perform(Evaluate(TRIALS, block.block))
    for columns in others:
        assert losses_of(volunteer, block_name(columns))


def test_what_the_server_names_has_the_memory_of_the_budget(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Mock(join=Mock(return_value=run.prepared.objective))
    monkeypatch.setattr(module, "find_kind", lambda _: kind)
    VolunteerReplica(1, budget=MemoryBudget(10**9)).perform(build_of(run))
    assert kind.join.call_args.kwargs == {"device": "cpu", "max_bytes": 10**9}


def test_what_is_held_of_a_run_is_good_for_its_next_conversation(
    run: Run, volunteer: VolunteerReplica, block: DataBlock
) -> None:
    volunteer.perform(Apply(update_of(run, 0)))
    held = volunteer.held
    assert held is not None
    assert held.step == 1
    volunteer.perform(build_of(run))
    assert volunteer.perform(Begin(Start(held.digest, 1, 1, keeps_start=False))) == held.digest
    assert volunteer.held == held
    assert losses_of(volunteer, block.block)


def test_start_at_other_weights_is_made_anew(run: Run, volunteer: VolunteerReplica) -> None:
    assert VolunteerReplica(1).held is None
    volunteer.perform(Apply(update_of(run, 0)))
    held = volunteer.held
    volunteer.perform(Begin(Start(b"otherwis", 1, 1, keeps_start=False)))
    assert held is not None
    assert volunteer.held is not None
    assert (volunteer.held.step, volunteer.held.digest == held.digest) == (1, False)


def test_nothing_is_held_of_another_run(run: Run, volunteer: VolunteerReplica) -> None:
    other = msgspec.structs.replace(run.prepared.invitation, seed=run.prepared.invitation.seed + 1)
    volunteer.perform(Build(Welcome("2", other)))
    assert volunteer.held is None
