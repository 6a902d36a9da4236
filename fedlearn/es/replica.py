"""The replica: weights and optimizer state that every machine holds, equal to the bit, of all tensors or of some.

`apply` is the only way a step changes weights, on the server and on every client; all it reads is the Update, the
run's seed, and the row masks that follow from the block of data named in it.
"""

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

import es_core
from fedlearn.es.attempts import Move
from fedlearn.es.correlation import go_elsewhere, search
from fedlearn.es.digest import part_digests, run_digest, tensor_digests
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.optimizers import GradientPart, Optimizer, TensorStep, exact_arithmetic
from fedlearn.es.snapshot import START, Snapshot
from fedlearn.es.sums.estimate import Int32Array, decode_estimate, estimate_of_rows
from fedlearn.es.sums.moments import Renormalization
from fedlearn.es.update import Update

UInt8Array = NDArray[np.uint8]
RowMasks = Callable[[Update], UInt8Array | None]
"""A function that gives [groups, columns]: which rows of masked tensors could change the loss of each group."""

BEST = "best"
"""Name of the slot with the best weights of a run that may begin again."""


@final
class Replica:
    """Weights [n_parameters] before step `step`, with the optimizer's state in `slots` and `numbers`."""

    def __init__(
        self,
        layout: ParameterLayout,
        snapshot: Snapshot,
        *,
        seed: int,
        row_masks: RowMasks,
        threads: int = 0,
        whole: ParameterLayout | None = None,
    ) -> None:
        """Copies the replica from a snapshot; 0 threads means as many as there are processors.

        `whole` is the layout that `layout` is a part of, for which the sums in Updates are made; None means `layout`.

        Raises:
            ValueError: the snapshot is of another layout, or this layout is no part of the whole.
        """
        slots = snapshot.whole_slots(layout)
        self.layout = layout
        self._whole = whole or layout
        self._rows = self._whole.row_intervals(layout)
        self.seed = seed
        self.step = snapshot.step
        self.weights = snapshot.weights.copy()
        self.slots = slots
        self.numbers = dict(snapshot.numbers)
        self._row_masks = row_masks
        self._threads = threads

    @property
    def digest(self) -> bytes:
        """The digest (8 bytes) that identifies these weights and this optimizer state."""
        tensors = tensor_digests(self.layout, self.weights, self.slots, threads=self._threads)
        return run_digest(tensors, self.numbers)

    def digests(self, parts: Sequence[ParameterLayout]) -> list[bytes]:
        """The digests of replicas that hold these parts, if they are equal to this one.

        Raises:
            ValueError: a part is not of the layout.
        """
        return part_digests(self.layout, parts, self.weights, self.slots, self.numbers, threads=self._threads)

    def weights_of(self, part: ParameterLayout) -> Float32Array:
        """A copy of the weights of a part, [n_parameters of the part].

        Raises:
            ValueError: the part is not of the layout.
        """
        return _gathered(self.weights, self.layout.intervals(part))

    def snapshot(self, part: ParameterLayout | None = None) -> Snapshot:
        """A snapshot of the replica, or of a part of it; the arrays are copies.

        Raises:
            ValueError: the part is not of the layout.
        """
        part = part or self.layout
        intervals = self.layout.intervals(part)
        weights = self.weights_of(part)
        slots = {name: _gathered(slot, intervals) for name, slot in self.slots.items()}
        return Snapshot(self.step, self.digests([part])[0], weights, slots, dict(self.numbers))

    def apply(self, update: Update) -> None:
        """Takes one step; an Update without members changes the optimizer's state like any other.

        Raises:
            ValueError: the Update is of another step or another model.
        """
        if update.step != self.step:
            raise ValueError(f"step: expected {self.step}, got {update.step}; the replica must resync")
        if update.decay_towards == "start" and START not in self.slots:
            raise ValueError("weight_decay_towards: expected a run that keeps its start, got one that does not")
        move = update.attempt.move if update.attempt is not None else "on"
        if (move == "anew" and START not in self.slots) or (move == "back" and BEST not in self.slots):
            raise ValueError(f"attempt: expected a run that keeps the weights that it goes to, got {move} in another")
        if update.renormalization is not None:
            update.renormalization.check(self.layout.n_observed)
        if update.optimizer.searches:
            _check_spans(update)
            self._add_slots(update.optimizer)
            with exact_arithmetic():
                search(self.layout, self.weights, self.slots, update, seed=self.seed, threads=self._threads)
                self._attempt(move, update, [slice(0, self.weights.size)])
                if move == "anew":
                    go_elsewhere(self.layout, self.weights, update, seed=self.seed)
            self.step += 1
        else:
            self.take(update, self._summed(update) if update.is_summed else self.replayed(update))

    def take(self, update: Update, estimate: Int32Array) -> None:
        """Takes one step by this gradient estimate, [n_parameters], whatever the Update says of it."""
        self._add_slots(update.optimizer)
        by_matrix = update.optimizer.by_matrix
        matrices_differ = by_matrix or update.rank > 1 or update.weight_decay != 0.0
        with exact_arithmetic():
            self.numbers = update.optimizer.advanced(self.numbers)
            steps = [
                (interval, self._tensor_step(update, scale=scale, is_matrix=is_matrix))
                for (scale, is_matrix), interval in self.layout.stretches(
                    apart=matrices_differ, with_hidden=not by_matrix
                )
            ]
            steps += [
                (interval, self._tensor_step(update, scale=tensor.scale, is_matrix=True, hidden=tensor))
                for tensor, interval in (self.layout.hidden if by_matrix else ())
            ]
            # Tensors without a scale are constants of the model that travel with its weights.
            learned = [(interval, by) for interval, by in steps if by.scale != 0.0]
            self._step(update, estimate, learned)
            if update.renormalization is not None:
                self._renormalize(update.renormalization)
        if update.attempt is not None:
            self._attempt(update.attempt.move, update, [interval for interval, _ in learned])
        self.step += 1

    def _attempt(self, move: Move, update: Update, learned: Sequence[slice]) -> None:
        """Keeps the weights, or goes to others with an optimizer that remembers nothing, or forgets what it kept."""
        if move == "keep":
            self.slots[BEST] = self.weights.copy()
        elif move == "back":
            self.weights[:] = self.slots[BEST]
        elif move == "anew":
            for interval in learned:  # what is observed is what it was
                self.weights[interval] = self.slots[START][interval]
        if move in ("anew", "back"):
            self.numbers = {}
            for name in update.optimizer.slots:
                del self.slots[name]
            self._add_slots(update.optimizer)
        if move == "settle":
            for name in (BEST,) if update.decay_towards == "start" else (BEST, START):
                self.slots.pop(name, None)

    def _add_slots(self, optimizer: Optimizer) -> None:
        """Makes the slots that the optimizer needs and that are not there yet.

        They come from the system as zeros, so where a step neither reads nor writes them, they take no memory.
        """
        for name in optimizer.slots:
            if name not in self.slots:
                self.slots[name] = np.zeros(self.layout.size, dtype=np.float32)

    def _renormalize(self, renormalization: Renormalization) -> None:
        """Renews mean and deviation of what members observe."""
        mean, deviation = (self.weights[self.layout.statistics[which]] for which in ("mean", "deviation"))
        mean += deviation * renormalization.moves
        deviation *= renormalization.factors

    def _step(self, update: Update, estimate: Int32Array, steps: Sequence[tuple[slice, TensorStep]]) -> None:
        """Takes the steps of the tensors in these intervals, those in each of which are alike."""
        optimizer = update.optimizer
        slots = [{name: self.slots[name][interval] for name in optimizer.slots} for interval, _ in steps]
        if optimizer.gathers:
            optimizer.gather(
                [
                    GradientPart(own, estimate[interval], by.gradient_scale)
                    for own, (interval, by) in zip(slots, steps, strict=True)
                ]
            )
        for own, (interval, by) in zip(slots, steps, strict=True):
            weights = self.weights[interval]
            if update.decay_towards == "start":
                pull = optimizer.learning_rate * update.weight_decay
                es_core.pull_towards(weights, self.slots[START][interval], pull)
            optimizer.step(weights, own, estimate[interval], by)

    def _tensor_step(
        self, update: Update, *, scale: float, is_matrix: bool, hidden: TensorSpec | None = None
    ) -> TensorStep:
        """What the step of tensors depends on that are alike in this."""
        decays = is_matrix and update.decay_towards == "zero"
        return TensorStep(
            numbers=self.numbers,
            gradient_scale=update.gradient_scale / math.sqrt(max(update.rank if is_matrix else 0, 1)),
            scale=scale,
            decay=update.optimizer.learning_rate * update.weight_decay if decays else 0.0,
            is_matrix=is_matrix,
            sides=hidden.hidden_sides if hidden is not None else None,
            is_turned=hidden is not None and hidden.n_hidden < 0,
            threads=self._threads,
        )

    def _summed(self, update: Update) -> Int32Array:
        own = estimate_of_rows(self._whole, self._rows, update.estimate)
        return decode_estimate(self.layout, own)

    def replayed(self, update: Update) -> Int32Array:
        """The gradient estimate, int32 [n_parameters], from the utilities and the noise of all members, computed again.

        It does not depend on the weights.

        Raises:
            ValueError: spans or utilities are malformed.
        """
        if not update.spans or not self.layout.tensors:
            return np.zeros(self.layout.size, dtype=np.int32)
        _check_spans(update)
        return es_core.estimate_gradient(
            self.layout.table(update.rank),
            self.layout.size,
            seed=self.seed,
            step=update.step,
            group_size=update.group_size,
            spans=list(update.spans),
            utilities=update.utilities,
            row_masks=self._row_masks(update) if self.layout.is_masked else None,
            places=self.layout.places(update.rank),
            antithetic=update.antithetic,
            threads=self._threads,
        )


def _gathered(array: Float32Array, intervals: list[slice]) -> Float32Array:
    """A copy of these intervals of the array, one after the other."""
    return np.concatenate([array[:0], *(array[interval] for interval in intervals)])


def _check_spans(update: Update) -> None:
    """Checks that spans match the utilities, before memory for noise and row masks is taken.

    Raises:
        ValueError: they do not match.
    """
    is_sound = all(0 <= first < 2**63 and count > 0 for first, count in update.spans)
    if not is_sound or update.group_size < 1 or update.n_members != update.utilities.size:
        raise ValueError(
            f"spans: expected members from 0 on, in groups, with a utility each, got {update.spans[:4]} "
            f"in groups of {update.group_size} with {update.utilities.size} utilities"
        )


def genesis(
    layout: ParameterLayout, weights: Float32Array, *, step: int = 0, keeps_start: bool = False, threads: int = 0
) -> Snapshot:
    """The snapshot that a run begins with."""
    slots = {START: weights} if keeps_start else {}
    digest = run_digest(tensor_digests(layout, weights, slots, threads=threads), {})
    return Snapshot(step, digest, weights, slots, {})
