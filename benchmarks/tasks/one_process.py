"""One process asks, evaluates and tells a task by what server and volunteers run: the same steps to the bit."""

from collections.abc import Mapping
from typing import final

from fedlearn.config import Schema
from fedlearn.es.layout import Float32Array
from fedlearn.es.replica import BEST, genesis
from fedlearn.es.strategy import ask, search_end, tell
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import block_name
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.strategy import strategy_of
from fedlearn.tasks.task import Setting, Task
from fedlearn.tasks.user.task_objective import TaskObjective
from fedlearn.tasks.user.task_options import TaskOptions

DEFAULTS: Mapping[str, Setting] = {
    "sigma": 0.1,
    "learning_rate": 0.05,
    "group_size": 16,
    "population_limit": 64,
    "learning_rate_schedule": "constant",
}
"""Settings that hold where neither the task nor the benchmark says otherwise."""


@final
class OneProcess:
    """A run of a task, step by step; `settings` outrank the task's own."""

    def __init__(self, task: Task, *, seed: int, settings: Mapping[str, Setting] | None = None) -> None:
        self.settings = {**DEFAULTS, **task.settings, **(settings or {})}
        self._task = task
        self._strategy = strategy_of(Schema(TaskOptions).build(self.settings))
        objective = TaskObjective(task, seed=seed)
        self._block = block_name(task.data)
        self._holding = Holding(objective, seed=seed, threads=1, blocks={self._block: task.data})
        weights, keeps_start = objective.initial_weights(), self._strategy.keeps_start
        self._holding.load(genesis(objective.layout, weights, keeps_start=keeps_start))
        self._last: Update | None = None
        self._next = ask(self._strategy, 0, None)
        self.members_tried = 0

    @property
    def steps_taken(self) -> int:
        """Steps so far."""
        return self._holding.replica.step

    @property
    def weights(self) -> Float32Array:
        """The unperturbed weights [n_parameters]."""
        return self._holding.replica.weights

    @property
    def best(self) -> Float32Array:
        """The weights [n_parameters] that the last step of a run would leave: the kept ones, if those were better."""
        attempt, replica = self._last.attempt if self._last is not None else None, self._holding.replica
        return replica.slots[BEST] if attempt is not None and attempt.best < attempt.smoothed else replica.weights

    @property
    def population(self) -> int:
        """Number of members of the next step."""
        return self._next.limit

    @property
    def end(self) -> str:
        """Why a search is at its end; empty where it goes on."""
        return search_end(self._strategy, self._last)

    def step(self) -> float:
        """Takes one step; the mean of its members' losses."""
        population = self._next
        trials = Trials(self.steps_taken, population.perturbation, population.group_size, 0, population.limit)
        found = self._holding.evaluate(trials, self._block)
        losses, n_groups = found.losses, trials.n_groups
        spans = ((0, population.limit),)
        update = tell(
            self._strategy,
            population,
            block=self._block,
            spans=spans,
            losses=losses,
            duration_s=0.0,
            moments=found.moments.reshape(n_groups, -1) if found.moments.size else None,
        )
        self._holding.apply(update)
        self._last, self._next = update, ask(self._strategy, self.steps_taken, update)
        self.members_tried += trials.n_members
        return float(losses.mean())

    def evaluate(self) -> dict[str, float]:
        """Figures of the unperturbed weights."""
        return self._task.evaluate(self.weights, threads=1)
