"""What policies return along the episodes that they learn from, beside evotorch's PGPE and ARS at equal episodes, or
in equal seconds of a processor.

Nothing is set by hand, but that nobody is taught by what Hopper pays for each step that it stands. The return is the
unperturbed policy's, over the same ten episodes each time, which are not counted. Neither are the 8 to 64 by which
observations are measured before the first step; evotorch measures them as it learns. All learn on one processor. Ours
is the policy of whoever names none; evotorch has as many hidden units, ClipUp, its usual optimizer, with the customary
radius and rates, and begins at weights of nearly zero as it does. ARS is a linear policy, as its authors have it.

LunarLander needs gymnasium[box2d], and what follows Pendulum needs gymnasium[mujoco].
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from statistics import median
from time import process_time
from typing import Any

import gymnasium
import msgspec
import torch

import fedlearn
from benchmarks.measure import parser_of, print_tables, use_processors
from benchmarks.tasks.one_process import OneProcess
from benchmarks.tasks.random_search import N_DIRECTIONS, RandomSearch, play
from fedlearn.tasks.environment.task import FIRST_HELD_OUT_SEED, N_HELD_OUT

LOOKS = 32
"""The most looks at the policy along a run."""

OURS, ARS, EVOTORCH = "fedlearn", "ARS", "evotorch"

PEERS = (ARS, EVOTORCH)

EVOTORCH_POPULATION = 64

RADIUS = 4.5
"""The length of evotorch's first perturbations, all weights together; the greatest step is a fifteenth of it."""
STDEV_LEARNING_RATE = 0.1

Env = gymnasium.Env[Any, Any]


class Problem(msgspec.Struct, frozen=True):
    """An environment, and how it is learned."""

    widths: tuple[int, ...]
    """Widths of the layers of evotorch's policy, with tanh between them."""
    episodes: int
    solved: float
    """The least return that counts as a solution."""
    survival_bonus: float = 0.0
    """What it pays for each step that an episode lasts, where members are compared without."""


PROBLEMS = {
    "CartPole-v1": Problem((4, 16, 2), 1024, 475.0),
    "Acrobot-v1": Problem((6, 16, 3), 512, -100.0),
    "LunarLander-v3": Problem((8, 16, 4), 3000, 200.0),
    "MountainCarContinuous-v0": Problem((2, 16, 1), 512, 90.0),
    "Pendulum-v1": Problem((3, 16, 1), 4096, -200.0),
    "InvertedPendulum-v5": Problem((4, 16, 1), 1024, 950.0),
    "Swimmer-v5": Problem((8, 16, 2), 1000, 300.0),
    "HalfCheetah-v5": Problem((17, 16, 6), 4000, 3000.0),
    "Hopper-v5": Problem((11, 16, 3), 6000, 2500.0, survival_bonus=1.0),
}
"""Environments with the thresholds of gymnasium; for Pendulum and the last four, of those who use them."""


class Look(msgspec.Struct, frozen=True):
    """The unperturbed policy after some episodes."""

    episodes: int
    mean_return: float


class Budget(msgspec.Struct, frozen=True):
    """What a run may use: episodes, or seconds of the processor where these are not 0."""

    episodes: int
    seconds: float

    def used(self, episodes: int, seconds: float) -> float:
        """The share of it that is used."""
        return seconds / self.seconds if self.seconds else episodes / self.episodes


class Learned(msgspec.Struct, frozen=True):
    """One run."""

    environment: str
    learner: str
    seed: int
    population: int
    episodes: int
    seconds: float
    """Processor time, with that of the looks."""
    solved_after: int | None
    """Episodes until the first look that is a solution."""
    best_return: float
    last_return: float


class Summary(msgspec.Struct, frozen=True):
    """The runs of one learner, seed by seed."""

    environment: str
    learner: str
    solved: str
    """How many runs were a solution at a look, and of how many."""
    solved_after: float | None
    """The median of the episodes that these needed."""
    episodes: float
    seconds: float
    best_median: float
    best_worst: float
    last_median: float
    last_worst: float


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--environments", nargs="+", choices=PROBLEMS, default=list(PROBLEMS), help="what is learned (default: all)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="a run each")
    parser.add_argument(
        "--episodes", type=int, default=0, metavar="N", help="of a run (default: 0, as many as the environment wants)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.0, metavar="S", help="of a processor for a run, in place of episodes"
    )
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, default=PEERS, help="who learns beside us (default: all installed)"
    )
    options = parser.parse_args()
    for name in ("episodes", "seconds"):
        if not getattr(options, name) >= 0:
            parser.error(f"--{name}: expected 0 or more, got {getattr(options, name)}")
    use_processors(1)
    torch.set_num_threads(1)
    by_name: dict[str, Callable[[str, Problem, int, Budget], Learned]]
    by_name = {OURS: learned, ARS: ars_learned, EVOTORCH: evotorch_learned}
    has_evotorch = EVOTORCH in options.peers and find_spec(EVOTORCH) is not None
    learners = [OURS, *(peer for peer in options.peers if peer != EVOTORCH or has_evotorch)]
    runs = [
        by_name[learner](
            name, PROBLEMS[name], seed, Budget(options.episodes or PROBLEMS[name].episodes, options.seconds)
        )
        for name in options.environments
        for learner in learners
        for seed in options.seeds
    ]
    print_tables(
        "environments",
        as_json=options.json,
        facts={EVOTORCH: version(EVOTORCH) if has_evotorch else None},
        summaries=summarized(runs),
        runs=runs,
    )
    return 0


def learned(name: str, problem: Problem, seed: int, budget: Budget) -> Learned:
    """A run of ours."""
    run = OneProcess(fedlearn.environment(name, survival_bonus=problem.survival_bonus), seed=seed)
    population = int(run.settings["population_limit"])
    looks, seconds = _learn(run.step, lambda: run.evaluate()["return"], population, budget)
    return _judged(name, OURS, problem, seed, population, looks, seconds)


def ars_learned(name: str, problem: Problem, seed: int, budget: Budget) -> Learned:
    """A run of augmented random search."""
    make, population = partial(gymnasium.make, name), 2 * N_DIRECTIONS
    search = RandomSearch(make, seed=seed, survival_bonus=problem.survival_bonus)
    held_out = range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + N_HELD_OUT)
    looks, seconds = _learn(search.step, lambda: search.mean_return(held_out), population, budget)
    return _judged(name, ARS, problem, seed, population, looks, seconds)


def evotorch_learned(name: str, problem: Problem, seed: int, budget: Budget) -> Learned:
    """A run of evotorch's PGPE."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of older interfaces that evotorch uses
        neuroevolution, algorithms = import_module("evotorch.neuroevolution"), import_module("evotorch.algorithms")
        logging.getLogger("evotorch").setLevel(logging.WARNING)  # what is below goes to standard output
        searched = neuroevolution.GymNE(
            partial(seeded, name, seed),
            policy(problem.widths),
            observation_normalization=True,
            decrease_rewards_by=problem.survival_bonus or None,
        )
        searched.manual_seed(seed)
        speed = RADIUS / 15
        settings: dict[str, Any] = {
            "center_learning_rate": speed / 2,
            "stdev_learning_rate": STDEV_LEARNING_RATE,
            "radius_init": RADIUS,
        }
        search = algorithms.PGPE(
            searched, popsize=EVOTORCH_POPULATION, optimizer_config={"max_speed": speed}, **settings
        )

        def mean_return() -> float:
            return played(name, searched.to_policy(search.status["center"]))

        looks, seconds = _learn(search.step, mean_return, EVOTORCH_POPULATION, budget)
    return _judged(name, EVOTORCH, problem, seed, EVOTORCH_POPULATION, looks, seconds)


def summarized(runs: Sequence[Learned]) -> list[Summary]:
    """A line for each environment and learner."""
    summaries = []
    for environment, learner in dict.fromkeys((run.environment, run.learner) for run in runs):
        own = [run for run in runs if (run.environment, run.learner) == (environment, learner)]
        solved = [run.solved_after for run in own if run.solved_after is not None]
        best, last = [run.best_return for run in own], [run.last_return for run in own]
        summaries.append(
            Summary(
                environment,
                learner,
                f"{len(solved)} of {len(own)}",
                median(solved) if solved else None,
                median(run.episodes for run in own),
                median(run.seconds for run in own),
                median(best),
                min(best),
                median(last),
                min(last),
            )
        )
    return summaries


def policy(widths: Sequence[int]) -> torch.nn.Module:
    """Layers of these widths."""
    layers: list[torch.nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [torch.nn.Linear(n_in, n_out), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def seeded(name: str, seed: int, **options: Any) -> Env:  # noqa: ANN401
    """An environment whose episodes are the same ones each time."""
    env: Env = gymnasium.make(name, **options)
    env.reset(seed=seed)
    return env


def played(name: str, module: torch.nn.Module) -> float:
    """The mean return in the episodes that our policies are judged by."""
    env: Env = gymnasium.make(name)
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)

    def act(seen: Any) -> Any:  # noqa: ANN401
        with torch.no_grad():
            outputs = module(torch.as_tensor(seen, dtype=torch.float32)).numpy()
        return int(outputs.argmax()) if discrete else outputs

    return sum(play(env, act, seed=FIRST_HELD_OUT_SEED + episode) for episode in range(N_HELD_OUT)) / N_HELD_OUT


def _learn(
    step: Callable[[], object], mean_return: Callable[[], float], population: int, budget: Budget
) -> tuple[list[Look], float]:
    """Takes steps of `population` episodes, one at least, and looks at the policy every so many, and at the end; the
    looks, and the seconds of the processor."""
    begun, tried, looked, used = process_time(), 0, 0.0, 0.0
    looks: list[Look] = []
    while used < 1.0:
        step()
        tried += population
        # A step that would go beyond the episodes is not begun.
        used = budget.used(tried if budget.seconds else tried + population - 1, process_time() - begun)
        if used - looked >= 1.0 / LOOKS or used >= 1.0:
            looks.append(Look(tried, mean_return()))
            looked = used
    return looks, process_time() - begun


def _judged(
    name: str, learner: str, problem: Problem, seed: int, population: int, looks: list[Look], seconds: float
) -> Learned:
    returns = [look.mean_return for look in looks]
    solved = next((look.episodes for look in looks if look.mean_return >= problem.solved), None)
    return Learned(name, learner, seed, population, looks[-1].episodes, seconds, solved, max(returns), returns[-1])


if __name__ == "__main__":
    raise SystemExit(main())
