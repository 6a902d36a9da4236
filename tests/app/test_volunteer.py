import numpy as np
import pytest

from fedlearn.app import run as runs
from fedlearn.app.run import Run
from fedlearn.app.volunteer import Volunteer
from fedlearn.config import RunConfig
from fedlearn.coordination.effects import Apply, Build, Evaluate, Load, StoreBlock
from fedlearn.coordination.roster import KEPT_BLOCKS
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.update import Update
from fedlearn.objectives.base import TrialResults, Trials
from fedlearn.storage.checkpoint import load_checkpoint
from fedlearn.text.blocks import block_id
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Snapshot, TokenBlock, Welcome

TRIALS = Trials(step=0, perturbation=Perturbation(sigma=0.02, rank=1), group_size=8, first_member=16, n_members=24)


@pytest.fixture
def run(config: RunConfig) -> Run:
    return runs.create(config)


@pytest.fixture
def genesis(run: Run) -> Snapshot:
    return load_checkpoint(run.folder.genesis)


@pytest.fixture
def block(run: Run) -> TokenBlock:
    (name,) = run.blocks
    return TokenBlock(name, run.block(name))


@pytest.fixture
def volunteer(run: Run, genesis: Snapshot, block: TokenBlock) -> Volunteer:
    """One that holds the weights of genesis and the only block."""
    volunteer = Volunteer(1)
    for compute in (Build(Welcome("1", run.config.seed, run.model)), StoreBlock(block), Load(genesis)):
        volunteer.perform(compute)
    return volunteer


def update_of(block: TokenBlock) -> Update:
    utilities = np.arange(-12, 12, dtype=np.int8)
    return Update(
        0, block.block, ((16, 24),), utilities, 1, 8, -0.1, "adam", 0.01, 0.9, 0.999, 1e-8, False, 0.0, 0.0, 1.0
    )


def test_loaded_snapshot_has_the_digest_of_the_server(volunteer: Volunteer, genesis: Snapshot) -> None:
    assert volunteer.perform(Load(genesis)) == genesis.digest


def test_update_gives_the_digest_that_the_server_has_after_it(
    run: Run, volunteer: Volunteer, genesis: Snapshot, block: TokenBlock
) -> None:
    server = run.new_replica(genesis)
    server.apply(update_of(block))
    assert volunteer.perform(Apply(update_of(block))) == server.digest != genesis.digest


def test_trials_give_a_loss_a_member_at_the_weights_held(
    run: Run, volunteer: Volunteer, genesis: Snapshot, block: TokenBlock
) -> None:
    results = volunteer.perform(Evaluate(TRIALS, block.block))
    assert isinstance(results, TrialResults)
    expected = run.objective.member_losses(genesis.weights, block.tokens, TRIALS, threads=1)
    assert np.array_equal(results.losses, expected)
    volunteer.perform(Apply(update_of(block)))
    results = volunteer.perform(Evaluate(TRIALS, block.block))
    assert isinstance(results, TrialResults)
    assert not np.array_equal(results.losses, expected)


def test_snapshot_whose_content_is_not_its_digest_is_refused(volunteer: Volunteer, genesis: Snapshot) -> None:
    damaged = Snapshot(genesis.step, bytes(8), genesis.weights, genesis.first_moment, genesis.second_moment, 1.0, 1.0)
    with pytest.raises(RemoteProtocolError, match=f"expected digest {bytes(8).hex()}"):
        volunteer.perform(Load(damaged))


def test_model_that_this_version_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="transformer"):
        Volunteer(1).perform(Build(Welcome("1", 0, {"architecture": "transformer"})))


def test_orders_without_what_they_need_are_refused(run: Run, genesis: Snapshot, block: TokenBlock) -> None:
    stranger = Volunteer(1)
    with pytest.raises(RemoteProtocolError, match="expected a Welcome first"):
        stranger.perform(Load(genesis))
    with pytest.raises(RemoteProtocolError, match="expected a Snapshot first"):
        stranger.perform(Apply(update_of(block)))
    stranger.perform(Build(Welcome("1", run.config.seed, run.model)))
    stranger.perform(Load(genesis))
    with pytest.raises(RemoteProtocolError, match="never sent it"):
        stranger.perform(Evaluate(TRIALS, block.block))


def test_only_the_last_blocks_are_kept(volunteer: Volunteer, block: TokenBlock) -> None:
    others = [np.full(100, number, dtype=np.uint16) for number in range(KEPT_BLOCKS)]
    for tokens in others:
        assert isinstance(volunteer.perform(Evaluate(TRIALS, block.block)), TrialResults)
        volunteer.perform(StoreBlock(TokenBlock(block_id(tokens), tokens)))
    with pytest.raises(RemoteProtocolError, match="never sent it"):
        volunteer.perform(Evaluate(TRIALS, block.block))
    for tokens in others:
        volunteer.perform(Evaluate(TRIALS, block_id(tokens)))
