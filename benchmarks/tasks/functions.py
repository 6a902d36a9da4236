"""How low fedlearn, pycma and nevergrad get functions in equally many evaluations.

All begin at the same point, and the loss that is reported is that of the point that they give, without noise.
`fedlearn.minimize` and the other libraries choose their own settings. "fedlearn.function" is the task that volunteers
can share; it chooses its own where it learns a covariance, and ours for the network were chosen by 7 tries with seed 1.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

import fedlearn
from benchmarks.measure import Spread, parser_of, print_tables, spread, use_processors
from benchmarks.tasks.one_process import OneProcess
from fedlearn.tasks.function.covariance import LARGEST_FULL
from fedlearn.tasks.task import Setting

N_INPUTS, N_HIDDEN, N_ROWS = 8, 20, 256
CMA_SIGMA = 0.5
"""What pycma begins with; it adapts."""
RESTARTS = 9
"""Restarts of `fedlearn.minimize` where a function has many valleys."""
NEVERGRAD_WAYS = ("CMA", "DiagonalCMA")
"""NGOpt, its own choice among its ways, fails with NumPy 2 (version 1.0.12)."""
PEERS = ("cma", "nevergrad")

NETWORK_SETTINGS: Mapping[str, Setting] = {
    "sigma": 0.03,
    "learning_rate": 0.05,
    "population_limit": 16,
    "group_size": 16,
    "antithetic": True,
    "learning_rate_schedule": "linear",
    "sigma_schedule": "linear",
}

Points = NDArray[Any]
"""[points, n_parameters]."""
Run = Callable[["Problem", int, int], tuple[float, int]]
"""Gives, for a problem, a seed and evaluations, the loss that is reported and how many evaluations there were."""


class Problem(msgspec.Struct, frozen=True):
    """A function, where it is begun, and our settings."""

    losses: Callable[[Points], Points]
    """[points] of [points, n_parameters]."""
    start: Points
    settings: Mapping[str, Setting] | None = None
    """Our settings as a task; None where it chooses."""
    noise: float = 0.0
    """Standard deviation of what is added to each loss that is told."""
    restarts: int = 0
    """Restarts of `fedlearn.minimize`."""

    @property
    def is_task(self) -> bool:
        """Whether it is tried as a task: without settings, where the task has some of its own."""
        return self.settings is not None or self.start.size <= LARGEST_FULL

    def told(self, seed: int) -> Callable[[Points], Points]:
        """What a learner is told of points, with noise of this seed."""
        if not self.noise:
            return self.losses
        random = np.random.default_rng(seed)
        return lambda points: self.losses(points) + self.noise * random.standard_normal(len(points))


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


def rosenbrock(points: Points) -> Points:
    """Zero at ones, at the end of a curved valley."""
    x, after = points[:, :-1], points[:, 1:]
    losses: Points = (100 * (after - x**2) ** 2 + (1 - x) ** 2).sum(axis=1)
    return losses


def rastrigin(points: Points) -> Points:
    """Zero at zero, in a large bowl of many small ones."""
    losses: Points = (10 + points**2 - 10 * np.cos(2 * np.pi * points)).sum(axis=1)
    return losses


def ackley(points: Points) -> Points:
    """Zero at zero, in a narrow funnel of a wavy plain."""
    length, waves = np.sqrt((points**2).mean(axis=1)), np.cos(2 * np.pi * points).mean(axis=1)
    losses: Points = 20 + np.e - 20 * np.exp(-0.2 * length) - np.exp(waves)
    return losses


def sphere(points: Points) -> Points:
    """Zero at zero."""
    losses: Points = (points**2).sum(axis=1)
    return losses


def network(weights: Points, inputs: Points) -> Points:
    """Outputs [points, rows] of networks with one hidden layer for the same rows."""
    ends = np.cumsum([N_INPUTS * N_HIDDEN, N_HIDDEN, N_HIDDEN])
    first, bias, second, last = np.split(weights, ends, axis=1)
    hidden = np.tanh(inputs @ first.reshape(-1, N_INPUTS, N_HIDDEN) + bias[:, np.newaxis])
    outputs: Points = (hidden @ second[:, :, np.newaxis])[:, :, 0] + last
    return outputs


def problems() -> dict[str, Problem]:
    """All problems by name."""
    random = np.random.default_rng(0)
    n_weights = (N_INPUTS + 2) * N_HIDDEN + 1
    inputs = random.standard_normal((N_ROWS, N_INPUTS))
    scale = np.full(n_weights, N_INPUTS**-0.5)
    scale[N_INPUTS * N_HIDDEN :] = N_HIDDEN**-0.5
    wanted = network((2 * scale * random.standard_normal(n_weights))[np.newaxis], inputs)

    def losses(points: Points) -> Points:
        errors: Points = ((network(points, inputs) - wanted) ** 2).mean(axis=1)
        return errors

    start = 0.5 * scale * random.standard_normal(n_weights)
    return {
        "Rosenbrock": Problem(rosenbrock, np.full(100, 0.5)),
        "network": Problem(losses, start, NETWORK_SETTINGS),
        "Rosenbrock 10": Problem(rosenbrock, np.zeros(10)),
        "Rastrigin 20": Problem(rastrigin, np.full(20, 3.0), restarts=RESTARTS),
        "Ackley 30": Problem(ackley, np.full(30, 3.0)),
        "noisy sphere 1000": Problem(sphere, np.ones(1000), noise=1.0),
    }


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    named = problems()
    parser = parser_of(__doc__)
    parser.add_argument("--functions", nargs="+", choices=named, default=list(named), help="what is minimized")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="a run each")
    parser.add_argument("--evaluations", type=int, default=20_000, metavar="N", help="of a run (default: 20000)")
    parser.add_argument("--no-peers", action="store_true", help="leave pycma and nevergrad out")
    options = parser.parse_args()
    if options.evaluations < 1:
        parser.error(f"--evaluations: expected 1 or more, got {options.evaluations}")
    use_processors(1)
    peers = {name: version(name) for name in PEERS if not options.no_peers and find_spec(name)}
    learners: dict[str, Run] = {"fedlearn.minimize": by_minimize, "fedlearn.function": by_task}
    if "cma" in peers:
        learners["cma"] = by_cma
    if "nevergrad" in peers:
        learners |= {f"nevergrad {way}": by_nevergrad(way) for way in NEVERGRAD_WAYS}
    results = [
        minimized(function, named[function], learner, run, options.seeds, options.evaluations)
        for function in options.functions
        for learner, run in learners.items()
        if run is not by_task or named[function].is_task
    ]
    print_tables("functions", as_json=options.json, facts=peers, results=results)
    return 0


def minimized(function: str, problem: Problem, learner: str, run: Run, seeds: list[int], evaluations: int) -> Minimized:
    """All runs of a learner, judged in double precision."""
    losses, tried, seconds = list[float](), 0, list[float]()
    for seed in seeds:
        started = time.process_time()
        loss, tried = run(problem, seed, evaluations)
        seconds.append(time.process_time() - started)
        losses.append(loss)
    start_loss = float(problem.losses(problem.start[np.newaxis])[0])
    return Minimized(function, learner, problem.start.size, tried, start_loss, spread(losses), spread(seconds), losses)


def by_minimize(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
    """Gives the loss of the point that `fedlearn.minimize` finds, and evaluations."""
    found = fedlearn.minimize(
        problem.told(seed), problem.start, maxfev=evaluations, restarts=problem.restarts, vectorized=True, seed=seed
    )
    return float(problem.losses(found.x[np.newaxis])[0]), found.nfev


def by_task(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
    """Gives the loss of the unperturbed weights, and evaluations."""
    told = problem.told(seed)

    def loss(arrays: Mapping[str, Points]) -> Points:
        return told(arrays["x"].astype(np.float64))

    task = fedlearn.function(loss, {"x": problem.start}, vectorized=True, settings=problem.settings)
    settings = dict(task.settings)
    if task.layout.is_correlated:
        size = task.usual_population
        settings |= {"group_size": size, "population_limit": size, "learning_rate": settings["sigma"]}
    steps = max(1, evaluations // int(settings["population_limit"]))
    run = OneProcess(task, seed=seed, settings={**settings, "steps": steps})
    for _ in range(steps):
        run.step()
    found = run.weights[np.newaxis, : problem.start.size].astype(np.float64)
    return float(problem.losses(found)[0]), run.members_tried


def by_cma(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
    """Gives the loss of the best point that pycma has seen, of its mean where there is noise, and evaluations."""
    told = problem.told(seed)
    options = {"seed": seed, "maxfevals": evaluations, "verbose": -9}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = import_module("cma").CMAEvolutionStrategy(problem.start, CMA_SIGMA, options)
        while not search.stop():
            points = search.ask()
            search.tell(points, told(np.array(points)).tolist())
    found = search.result.xfavorite if problem.noise else search.result.xbest
    return float(problem.losses(found[np.newaxis])[0]), int(search.result.evaluations)


def by_nevergrad(way: str) -> Run:
    """A way of nevergrad's to minimize, which gives the loss of what it recommends, and evaluations."""

    def run(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
        told = problem.told(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nevergrad = import_module("nevergrad")
            space = nevergrad.p.Array(init=problem.start)
            space.random_state.seed(seed)
            search = nevergrad.optimizers.registry[way](parametrization=space, budget=evaluations, num_workers=1)
            for _ in range(evaluations):
                point = search.ask()
                search.tell(point, float(told(point.value[np.newaxis])[0]))
            found = search.provide_recommendation().value
        return float(problem.losses(found[np.newaxis])[0]), evaluations

    return run


if __name__ == "__main__":
    raise SystemExit(main())
