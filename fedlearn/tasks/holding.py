"""The objective or a part of it, blocks of data, and the replica that one machine holds of a run."""

from collections.abc import Mapping
from typing import final

import msgspec

from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.replica import Replica, UInt8Array, genesis
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.sums.exact_sum import exact_sum
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import NO_BLOCK, Columns
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.parts.activations import ActivationCodec
from fedlearn.tasks.parts.computation import Pass, Passed, StageComputation
from fedlearn.tasks.parts.objective import PartObjective


class Replicated:
    """Blocks of data and the replica, of all tensors or of some.

    Blocks are given at first, or stored later by name. Of the stored ones only the newest `kept` are held; 0 holds all.
    """

    def __init__(
        self,
        objective: Objective | PartObjective,
        *,
        seed: int,
        threads: int = 0,
        blocks: Mapping[bytes, Columns] | None = None,
        kept: int = 0,
        whole: ParameterLayout | None = None,
    ) -> None:
        """`whole` is the layout of which the objective's layout is a part."""
        self._masking = objective
        self._layout = objective.layout
        self._whole = whole
        self._seed = seed
        self._threads = threads
        self._given = blocks or {}
        self._stored: dict[bytes, Columns] = {}
        self.kept = kept
        """Number of stored blocks that are held; 0: all."""
        self._replica: Replica | None = None

    @property
    def replica(self) -> Replica:
        """The replica.

        Raises:
            ValueError: there is none yet.
        """
        if self._replica is None:
            raise ValueError("replica: expected a Snapshot or a Start first")
        return self._replica

    @property
    def has_replica(self) -> bool:
        """Whether there is a replica."""
        return self._replica is not None

    def take_blocks(self, other: "Replicated") -> None:
        """Takes over the blocks that another one on this machine holds."""
        self._stored = other._stored

    def store(self, name: bytes, columns: Columns) -> None:
        """Stores a block of data under its name."""
        self._stored.pop(name, None)  # so that it counts as the newest
        self._stored[name] = columns
        while self.kept and len(self._stored) > self.kept:
            del self._stored[next(iter(self._stored))]

    def block(self, name: bytes) -> Columns:
        """The block of that name.

        Raises:
            ValueError: it is not held here.
        """
        if name == NO_BLOCK:
            return {}
        if name not in self._stored and name not in self._given:
            raise ValueError(f"block {name.hex()}: expected one that is held here, got a name without data")
        return self._stored[name] if name in self._stored else self._given[name]

    def held(self, name: bytes) -> Columns:
        """The block of that name, or no columns if it is not held; most steps are taken without data."""
        return self._stored[name] if name in self._stored else self._given.get(name, {})

    def load(self, snapshot: Snapshot) -> bytes:
        """Loads a snapshot, and gives the digest of the replica.

        Raises:
            ValueError: the snapshot is of another model.
        """
        self._replica = Replica(
            self._layout,
            snapshot,
            seed=self._seed,
            row_masks=self._row_masks,
            threads=self._threads,
            whole=self._whole,
        )
        return self._replica.digest

    def apply(self, update: Update) -> bytes:
        """Takes a step, and gives the digest after it.

        Raises:
            ValueError: the update does not follow on the replica's last step.
        """
        self.replica.apply(update)
        return self.replica.digest

    def _row_masks(self, update: Update) -> UInt8Array | None:
        return self._masking.row_masks(update, self.block(update.block))


@final
class Holding(Replicated):
    """A whole replica, and the objective."""

    def __init__(
        self,
        objective: Objective,
        *,
        seed: int,
        threads: int = 0,
        blocks: Mapping[bytes, Columns] | None = None,
        kept: int = 0,
    ) -> None:
        super().__init__(objective, seed=seed, threads=threads, blocks=blocks, kept=kept)
        self.objective = objective

    def begin(self, step: int, *, keeps_start: bool) -> bytes:
        """Starts from the initial weights of the run, before `step`, and gives the digest."""
        layout = self.objective.layout
        weights = self.objective.initial_weights()
        return self.load(genesis(layout, weights, step=step, keeps_start=keeps_start, threads=self._threads))

    def evaluate(self, trials: Trials, block: bytes) -> TrialResults:
        """The results of these trials, as a volunteer reports them.

        Raises:
            ValueError: the task cannot run such trials.
        """
        objective, weights, data = self.objective, self.replica.weights, self.block(block)
        if not trials.perturbation.is_summed:
            if objective.layout.n_observed:
                found = objective.observe(weights, data, trials, threads=self._threads)
            else:
                found = TrialResults(objective.evaluate(weights, data, trials, threads=self._threads))
            if trials.shaping is None:
                return found
            return msgspec.structs.replace(self.summed(trials, block, found.losses), moments=found.moments)
        return objective.gradient_sum(weights, data, trials, threads=self._threads)

    def summed(self, trials: Trials, block: bytes, losses: Float32Array) -> TrialResults:
        """The losses, with the exact sum of gradients that follows from them where the trials have a shaping."""
        return TrialResults(losses, exact_sum(self.replica, trials, block, losses))


@final
class PartHolding(Replicated):
    """A part of the replica, and of the objective; members of a crew pass through it."""

    def __init__(
        self,
        part: PartObjective,
        wire: ActivationCodec,
        *,
        is_last: bool,
        seed: int,
        threads: int = 0,
        kept: int = 0,
    ) -> None:
        super().__init__(part, seed=seed, threads=threads, kept=kept, whole=part.whole)
        self.part = part
        self._stage = StageComputation(part, wire, is_last=is_last, threads=threads)

    def load(self, snapshot: Snapshot) -> bytes:
        digest = super().load(snapshot)
        self.part.load(self.replica.weights)
        return digest

    def apply(self, update: Update) -> bytes:
        digest = super().apply(update)
        self.part.load(self.replica.weights)
        return digest

    def passed(self, order: Pass) -> Passed:
        """What the neighbours of this part are sent of some members, and what it reports itself.

        Raises:
            ValueError: what a neighbour sent contradicts the plan, or the data are not held here.
        """
        return self._stage.passed(order, self.block(order.block))
