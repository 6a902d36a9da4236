"""How low fedlearn, pycma, nevergrad and evosax get functions in equally many evaluations.

All begin at the same point, and the loss that is reported is that of the point that they give, without noise.
`fedlearn.minimize` and the other libraries begin with the same standard deviation and choose their other settings.
"fedlearn.function" is the task that volunteers can share; it chooses its own where it learns a covariance, and ours for
the network were chosen by 7 tries with seed 1.
"""

import time
from collections.abc import Mapping
from importlib.metadata import version

import msgspec
import numpy as np

import fedlearn
from benchmarks.measure import Spread, parser_of, print_tables, spread, use_processors
from benchmarks.tasks.function_peers import Run, installed_peers, peers_for
from benchmarks.tasks.function_problems import Points, Problem, problems
from benchmarks.tasks.one_process import OneProcess
from fedlearn.tasks.function import noisy
from fedlearn.tasks.user.recommendation import EXACT_SHARE, NOISY_SHARE


class Minimized(msgspec.Struct, frozen=True):
    """The runs of a learner on a function, one a seed."""

    function: str
    learner: str
    parameters: int
    evaluations: int
    start_loss: float
    loss: Spread
    seconds: Spread
    """Processor time."""
    losses: list[float]
    """The loss of each seed."""


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    named = problems()
    parser = parser_of(__doc__)
    parser.add_argument("--functions", nargs="+", choices=named, default=list(named), help="what is minimized")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="a run each")
    parser.add_argument("--evaluations", type=int, default=20_000, metavar="N", help="of a run (default: 20000)")
    parser.add_argument("--no-peers", action="store_true", help="leave pycma, nevergrad and evosax out")
    options = parser.parse_args()
    if options.evaluations < 1:
        parser.error(f"--evaluations: expected 1 or more, got {options.evaluations}")
    use_processors(1)
    installed = [] if options.no_peers else installed_peers()
    results = [
        minimized(function, named[function], learner, run, options.seeds, options.evaluations)
        for function in options.functions
        for learner, run in learners_for(named[function], installed).items()
    ]
    peers = {name: version(name) for name in installed}
    print_tables("functions", as_json=options.json, facts=peers, results=results)
    return 0


def learners_for(problem: Problem, installed: list[str]) -> Mapping[str, Run]:
    """The ways to minimize this problem: ours, and those of the packages that are installed."""
    return {"fedlearn.minimize": by_minimize, "fedlearn.function": by_task, **peers_for(problem, installed)}


def minimized(function: str, problem: Problem, learner: str, run: Run, seeds: list[int], evaluations: int) -> Minimized:
    """All runs of a learner, judged in double precision."""
    losses, tried, seconds = list[float](), 0, list[float]()
    for seed in seeds:
        started = time.process_time()
        loss, tried = run(problem, seed, evaluations)
        seconds.append(time.process_time() - started)
        losses.append(loss)
    start_loss, size = problem.loss(problem.start), problem.start.size
    return Minimized(function, learner, size, tried, start_loss, spread(losses), spread(seconds), losses)


def by_minimize(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
    """Gives the loss of the point that `fedlearn.minimize` finds, and evaluations."""
    found = fedlearn.minimize(
        problem.told(seed), problem.start, maxfev=evaluations, restarts=problem.restarts, vectorized=True, seed=seed
    )
    return problem.loss(found.x), found.nfev


def by_task(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
    """Gives the loss of the unperturbed weights, and evaluations."""
    told = problem.told(seed)

    def loss(arrays: Mapping[str, Points]) -> Points:
        return told(arrays["x"].astype(np.float64))

    task = fedlearn.function(loss, {"x": problem.start}, vectorized=True, settings=problem.settings)
    settings = dict(task.settings)
    if task.layout.is_correlated:
        # As a run chooses; its size of a step fits the speed of volunteers as well.
        size, n_groups = task.usual_population, noisy.MOST_GROUPS if problem.is_noisy else 1
        settings |= {"group_size": size, "population_limit": n_groups * size, "learning_rate": settings["sigma"]}
        settings["path_share"] = NOISY_SHARE if problem.is_noisy else EXACT_SHARE
        settings["population_warmup"] = noisy.warmup_steps(problem.start.size, size) if problem.is_noisy else 0
        settings["restarts"] = problem.restarts
    else:
        settings["steps"] = max(1, evaluations // int(settings["population_limit"]))
    run = OneProcess(task, seed=seed, settings=settings)
    while not run.end and (not run.members_tried or run.members_tried + run.population <= evaluations):
        run.step()
    return problem.loss(run.best[: problem.start.size].astype(np.float64)), run.members_tried


if __name__ == "__main__":
    raise SystemExit(main())
