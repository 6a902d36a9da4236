"""Limits of the memory and work that a server may ask for: requests beyond them are refused before they begin."""

import msgspec

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.trials import MAX_GROUP_MEMBERS, Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.limits import PARAMETER_BYTES, UNBOUNDED
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.parts.objective import PartObjective
from fedlearn.terminal.figures import format_bytes

SNAPSHOTS_AT_ONCE = 4
"""Copies of a snapshot at the same time: its bytes, the decoded message, the new replica and the old one."""

BLOCKS_AT_ONCE = 4
"""Copies of blocks at the same time: the bytes, the decoded message, and those that are kept."""

MAX_OPERATIONS = 2**46
"""The most operations of one computation, counted as parameters x members x units of work: an hour on a slow machine.
"""


class BudgetError(ValueError):
    """Raised where something takes more memory than a server may ask for here."""


class MemoryBudget(msgspec.Struct, frozen=True):
    """What one server may ask of this machine; each check raises a ValueError that says what was asked."""

    max_bytes: int = UNBOUNDED

    @property
    def lent_bytes(self) -> int:
        """Memory as a server is told, in bytes: 0 where there is no limit."""
        return self.max_bytes if self.max_bytes < UNBOUNDED else 0

    @property
    def max_snapshot_bytes(self) -> int:
        """The largest Snapshot for which there is room."""
        return self.max_bytes // SNAPSHOTS_AT_ONCE

    @property
    def max_waiting_bytes(self) -> int:
        """Bytes of messages that may wait for their turn."""
        return self.max_bytes // 4

    @property
    def max_activations_bytes(self) -> int:
        """Bytes of activations that may wait for their turn: two windows, since the next lease's may come early."""
        return self.max_bytes // 2

    def check_layout(self, layout: ParameterLayout) -> None:
        """Checks that the weights and the optimizer's slots fit.

        Raises:
            BudgetError: they do not.
        """
        self._check(PARAMETER_BYTES * layout.size, f"a model of {layout.size} parameters")

    def check_block(self, n_bytes: int) -> None:
        """Checks that blocks of this length fit."""
        self._check(BLOCKS_AT_ONCE * n_bytes, f"blocks of {n_bytes} bytes")

    def check_trials(self, objective: Objective, data: Columns, trials: Trials, *, threads: int) -> None:
        """Checks that trials are well formed and can be evaluated."""
        trials.check_groups()
        trials.check_numbers()
        asked = f"trials of {trials.n_members} members at rank {trials.perturbation.rank}"
        _check_work(trials.n_members * objective.layout.size * objective.work_per_member, asked)
        n_bytes = objective.trial_bytes(data, trials, threads=threads)
        if trials.shaping is not None:
            # Each thread has a sum of its own; the noise is computed once more.
            _check_work(trials.n_members * max(trials.perturbation.rank, 1) * objective.layout.size, asked)
            n_bytes += 4 * threads * objective.layout.size
            n_bytes += objective.mask_bytes(data, trials.n_groups)
        self._check(n_bytes, asked)

    def check_pass(self, part: PartObjective, trials: Trials) -> None:
        """Checks that members can pass through a part of the model."""
        trials.check_numbers()
        if not trials.perturbation.has_noise:
            asked = f"gradients of {trials.n_members} members"
            _check_work(trials.n_members * part.layout.size, asked)
            self._check(part.backward_bytes, asked)
            return
        left = trials.group_size - trials.first_member % trials.group_size
        if not 0 < trials.n_members <= left <= MAX_GROUP_MEMBERS:
            raise ValueError(
                f"members: expected some of one group of at most {MAX_GROUP_MEMBERS}, got {trials.n_members} from "
                f"{trials.first_member} on, in groups of {trials.group_size}"
            )
        asked = f"{trials.n_members} members at once at rank {trials.perturbation.rank}"
        _check_work(trials.n_members * max(trials.perturbation.rank, 1) * part.layout.size, asked)
        self._check(trials.n_members * part.member_bytes(), asked)

    def check_update(self, objective: Objective | PartObjective, data: Columns, update: Update) -> None:
        """Checks that a step can be taken."""
        if update.is_summed:
            return
        asked = f"an Update of {update.n_members} members in groups of {update.group_size}"
        _check_work(update.n_members * max(update.rank, 1) * objective.layout.size, asked)
        if isinstance(objective, Objective):
            self._check(objective.mask_bytes(data, update.n_members // max(update.group_size, 1)), asked)

    def _check(self, n_bytes: int, asked: str) -> None:
        if n_bytes > self.max_bytes:
            raise BudgetError(
                f"memory: expected work that fits into {format_bytes(self.max_bytes)}, got {asked}, which would take "
                f"{format_bytes(n_bytes)}; --max-memory allows more, if this machine has it"
            )


def _check_work(operations: int, asked: str) -> None:
    if operations > MAX_OPERATIONS:
        raise ValueError(f"work: expected at most {MAX_OPERATIONS} operations at once, got {asked}: {operations}")


def why_too_many(n_bytes: int, most: int) -> str:
    """The reason to leave a server of whose messages more bytes wait for their turn than this most."""
    return (
        f"memory: expected orders as fast as this machine takes them, {format_bytes(n_bytes)} are waiting, more than "
        f"the {format_bytes(most)} that it lends for that; --max-memory of a volunteer says how much it lends"
    )
