"""A replica as a Snapshot, and back: what checkpoints hold and joiners are sent."""

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.replica import OptimizerState, Replica, RowMasks
from fedlearn.wire.messages import Snapshot


def snapshot_of(replica: Replica) -> Snapshot:
    """The replica as it is now; arrays are copies."""
    state = replica.optimizer
    return Snapshot(
        step=replica.step,
        digest=replica.digest,
        weights=replica.weights.copy(),
        first_moment=state.first_moment.copy(),
        second_moment=state.second_moment.copy(),
        beta1_power=state.beta1_power,
        beta2_power=state.beta2_power,
    )


def replica_of(snapshot: Snapshot, *, layout: ParameterLayout, seed: int, row_masks: RowMasks) -> Replica:
    """A replica as the snapshot has it. Raises ValueError where the snapshot is of another layout."""
    return Replica(
        layout,
        seed=seed,
        step=snapshot.step,
        weights=snapshot.weights,
        optimizer=OptimizerState(
            snapshot.first_moment, snapshot.second_moment, snapshot.beta1_power, snapshot.beta2_power
        ),
        row_masks=row_masks,
    )
