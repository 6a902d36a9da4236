"""A volunteer's half of the work: performs what a Worker computes, with its own replica."""

from typing import final

import numpy as np
from numpy.typing import NDArray

from fedlearn.app.snapshots import replica_of
from fedlearn.coordination.effects import Apply, Build, Compute, Evaluate, Load, StoreBlock
from fedlearn.coordination.roster import KEPT_BLOCKS
from fedlearn.es.replica import Replica
from fedlearn.es.update import Update
from fedlearn.objectives import Objective, build_objective
from fedlearn.objectives.base import TrialResults, run_trials
from fedlearn.text.tokens import TokenArray
from fedlearn.wire.errors import RemoteProtocolError
from fedlearn.wire.messages import Snapshot


@final
class Volunteer:
    """Objective, replica and token blocks of one connection; `threads` 0 means all processors."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._objective: Objective | None = None
        self._seed = 0
        self._blocks: dict[bytes, TokenArray] = {}
        self.replica: Replica | None = None

    def perform(self, compute: Compute) -> bytes | TrialResults | None:
        """The result of a computation: a digest for Load and Apply, losses for Evaluate.

        Raises ValueError for a run that this version can't take part in, RemoteProtocolError for orders that
        contradict what came before.
        """
        match compute:
            case Build(welcome):
                self._objective = build_objective(welcome.model, welcome.seed)
                self._seed = welcome.seed
            case StoreBlock(block):
                self._blocks[block.block] = block.tokens
                while len(self._blocks) > KEPT_BLOCKS:
                    del self._blocks[next(iter(self._blocks))]
            case Load(snapshot):
                self.replica = self._load(snapshot)
                return self.replica.digest
            case Apply(update):
                replica = self._ready_replica()
                replica.apply(update, threads=self._threads)
                return replica.digest
            case Evaluate(trials, block):
                weights = self._ready_replica().weights
                objective = self._ready_objective()
                return run_trials(objective, weights, self._block(block), trials, threads=self._threads)
        return None

    def _load(self, snapshot: Snapshot) -> Replica:
        layout = self._ready_objective().layout
        replica = replica_of(snapshot, layout=layout, seed=self._seed, row_masks=self._row_masks)
        if replica.digest != snapshot.digest:
            raise RemoteProtocolError(
                f"snapshot: expected digest {snapshot.digest.hex()}, its content has {replica.digest.hex()}"
            )
        return replica

    def _row_masks(self, update: Update) -> NDArray[np.uint8] | None:
        return self._ready_objective().row_masks(update, self._block(update.block))

    def _block(self, name: bytes) -> TokenArray:
        if name not in self._blocks:
            raise RemoteProtocolError(f"token block {name.hex()}: the server named it but never sent it")
        return self._blocks[name]

    def _ready_objective(self) -> Objective:
        if self._objective is None:
            raise RemoteProtocolError("objective: expected a Welcome first")
        return self._objective

    def _ready_replica(self) -> Replica:
        if self.replica is None:
            raise RemoteProtocolError("replica: expected a Snapshot first")
        return self.replica
