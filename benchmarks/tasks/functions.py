"""How low fedlearn, pycma and nevergrad get two functions in equally many evaluations.

The functions are Rosenbrock's in 100 dimensions, begun at 0.5, and the mean squared error of a network of 201 weights
that is to do as another one of its shape does. All begin at the same point. The loss reported is fedlearn's at the
unperturbed weights, which is no member's; the other libraries give the best point that they have tried, or recommend.
Our settings were chosen by 7 to 11 tries with seed 1, the other libraries choose their own.
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

DIMENSIONS = 100
N_INPUTS, N_HIDDEN, N_ROWS = 8, 20, 256
CMA_SIGMA = 0.5
"""What pycma begins with; it adapts."""
NEVERGRAD_WAYS = ("NGOpt", "DiagonalCMA")
PEERS = ("cma", "nevergrad")

Points = NDArray[Any]
"""[points, n_parameters]."""
Run = Callable[["Problem", int, int], tuple[float, int]]
"""Of a problem, seed and evaluations: the loss that is reported, and how many evaluations there were."""


class Problem(msgspec.Struct, frozen=True):
    """A function, where it is begun, and our settings."""

    losses: Callable[[Points], Points]
    """[points] of [points, n_parameters]."""
    start: Points
    settings: dict[str, int | float | str | bool]


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


def network(weights: Points, inputs: Points) -> Points:
    """Outputs [points, rows] of networks with one hidden layer for the same rows."""
    ends = np.cumsum([N_INPUTS * N_HIDDEN, N_HIDDEN, N_HIDDEN])
    first, bias, second, last = np.split(weights, ends, axis=1)
    hidden = np.tanh(inputs @ first.reshape(-1, N_INPUTS, N_HIDDEN) + bias[:, np.newaxis])
    outputs: Points = (hidden @ second[:, :, np.newaxis])[:, :, 0] + last
    return outputs


def problems() -> dict[str, Problem]:
    """By name."""
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
        "Rosenbrock": Problem(
            rosenbrock, np.full(DIMENSIONS, 0.5), {"sigma": 0.02, "learning_rate": 0.01, "population_limit": 32}
        ),
        "network": Problem(losses, start, {"sigma": 0.03, "learning_rate": 0.05, "population_limit": 16}),
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
    learners: dict[str, Run] = {"fedlearn": ours}
    if "cma" in peers:
        learners["cma"] = by_cma
    if "nevergrad" in peers:
        learners |= {f"nevergrad {way}": by_nevergrad(way) for way in NEVERGRAD_WAYS}
    results = [
        minimized(function, named[function], learner, run, options.seeds, options.evaluations)
        for function in options.functions
        for learner, run in learners.items()
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


def ours(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
    """Gives the loss of the unperturbed weights, and evaluations."""
    steps = max(1, evaluations // int(problem.settings["population_limit"]))
    settings = {
        "group_size": 16,
        "antithetic": True,
        "learning_rate_schedule": "linear",
        "sigma_schedule": "linear",
        "steps": steps,
        **problem.settings,
    }

    def loss(arrays: Mapping[str, Points]) -> Points:
        return problem.losses(arrays["x"].astype(np.float64))

    task = fedlearn.function(loss, {"x": problem.start}, vectorized=True, settings=settings)
    run = OneProcess(task, seed=seed)
    for _ in range(steps):
        run.step()
    return float(problem.losses(run.weights[np.newaxis].astype(np.float64))[0]), run.members_tried


def by_cma(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
    """Gives the best loss that pycma has seen, and evaluations."""
    options = {"seed": seed, "maxfevals": evaluations, "verbose": -9}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = import_module("cma").CMAEvolutionStrategy(problem.start, CMA_SIGMA, options)
        while not search.stop():
            points = search.ask()
            search.tell(points, problem.losses(np.array(points)).tolist())
    return float(search.result.fbest), int(search.result.evaluations)


def by_nevergrad(way: str) -> Run:
    """A way of nevergrad's to minimize, which gives the loss of what it recommends, and evaluations."""

    def run(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nevergrad = import_module("nevergrad")
            space = nevergrad.p.Array(init=problem.start)
            space.random_state.seed(seed)
            search = nevergrad.optimizers.registry[way](parametrization=space, budget=evaluations, num_workers=1)
            for _ in range(evaluations):
                point = search.ask()
                search.tell(point, float(problem.losses(point.value[np.newaxis])[0]))
            found = search.provide_recommendation().value
        return float(problem.losses(found[np.newaxis])[0]), evaluations

    return run


if __name__ == "__main__":
    raise SystemExit(main())
