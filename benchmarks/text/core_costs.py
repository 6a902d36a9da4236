"""What a run costs one core of this machine: trials, steps, and what the server does with messages."""

import time
from typing import final

import msgspec

from benchmarks.measure import alternate, spread
from benchmarks.text.rnn_run import RnnRun
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.steps.closing import close_step
from fedlearn.coordination.steps.divergence import DivergenceWatch
from fedlearn.es.replica import genesis
from fedlearn.es.strategy import Population, ask, sum_shaping
from fedlearn.es.sums.clipping import Clipping
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from fedlearn.simulation.costs import Costs
from fedlearn.tasks.strategy import strategy_of
from fedlearn.wire.encoding.codec import decode, encode
from fedlearn.wire.messages import Result

SEND_S = 33e-6
"""Seconds of the server's core for a message in or out: a third of what `swarm.py` finds for a volunteer and step."""

MEMBERS = 1024
"""Members of the trials that are timed; a group of them at least."""

ROUNDS = 9
"""Rounds, of which the median counts."""


def core_costs(run: RnnRun) -> Costs:
    """The costs of a run of this size, in processor time: other programs' turns do not count."""
    parts = Parts(run)
    makers = {"member": parts.evaluate, "take": parts.take, "close": parts.close, "step": parts.step}
    if not parts.is_summed:
        makers["noise"] = parts.noise
    times = alternate(makers, rounds=ROUNDS, clock=time.process_time)
    took = {name: spread(seconds).median for name, seconds in times.items()}
    noise_s = took.get("noise", 0.0)
    return Costs(
        member_s=took["member"] / parts.n_members,
        noise_s=noise_s / parts.n_members,
        step_s=max(took["step"] - (noise_s if parts.is_replayed else 0.0), 0.0),
        take_s=took["take"] + SEND_S,
        close_s=took["close"],
        send_s=SEND_S,
    )


@final
class Parts:
    """Each part of a run's second step: the first has no sum, since no scale is known before it."""

    def __init__(self, run: RnnRun) -> None:
        self._strategy = strategy_of(run.config)
        size = self._strategy.group_size
        self.n_members = max(MEMBERS // size, 1) * size
        self.is_summed = self._strategy.perturbation.is_summed
        """Whether volunteers send sums that nobody can replay."""
        self._layout = run.objective.layout
        self._block = next(iter(run.run.prepared.named_blocks))
        self._holding = run.run.holding(threads=1)
        self._holding.load(genesis(self._layout, run.initial_weights(), threads=1))
        first = self._begin(ask(self._strategy, 0, None))
        self._holding.apply(first)
        self._last = self._begin(ask(self._strategy, 1, first))
        self.is_replayed = not self._last.is_summed
        self._update = encode(self._last)

    def _begin(self, population: Population) -> Update:
        """Has the trials of a step run, and their Result taken; gives the Update."""
        self._population = population
        shaping = sum_shaping(self._strategy, population, self._layout, n_volunteers=1)
        size = population.group_size
        self._trials = Trials(population.step, population.perturbation, size, 0, self.n_members, shaping)
        results = self._holding.evaluate(self._trials, self._block)
        self._losses = results.losses
        self._result = encode(Result(population.step, 0, results.losses, bytes(8), results.estimate))
        self._complete = self.take()
        return self.close()

    def evaluate(self) -> None:
        """Runs the trials, without the noise of a sum."""
        self._holding.evaluate(msgspec.structs.replace(self._trials, shaping=None), self._block)

    def noise(self) -> None:
        """Makes the noise of the trials again, to replay them or for their sum."""
        if self._last.is_summed:
            self._holding.summed(self._trials, self._block, self._losses)
        else:
            self._holding.replica.replayed(self._last)

    def step(self) -> None:
        """Takes a step as it comes over the line, with its digest."""
        update = decode(self._update, Update)
        self._holding.apply(msgspec.structs.replace(update, step=self._holding.replica.step))

    def take(self) -> OpenStep:
        """Takes a Result as it comes over the line; gives the step, which it completes."""
        result = decode(self._result, Result)
        step = OpenStep(
            self._population,
            opened_at=0.0,
            deadline=1.0,
            first_member=0,
            layout=self._layout,
            block=self._block,
            shaping=self._trials.shaping,
        )
        problem = step.lease(self.n_members).take(0, result.losses, result.estimate, self._population.group_size)
        assert not problem, problem
        return step

    def close(self) -> Update:
        """Makes the Update and encodes it."""
        watch = DivergenceWatch()
        update = close_step(self._complete, self._strategy, clipping=Clipping(), watch=watch, now=1.0).update
        encode(update)
        return update
