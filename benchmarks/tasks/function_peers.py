"""Other libraries that minimize functions, each as its users would call it with one start and first deviation.

They are used where they are installed: pycma (`cma`), nevergrad, and evosax with JAX.
"""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.lib import NumpyVersion

from benchmarks.tasks.function_problems import Points, Problem
from fedlearn.tasks.function.covariance import LARGEST_FULL, CovarianceSearch

NEVERGRAD_WAYS = ("NGOpt", "DiagonalCMA")
"""The way that nevergrad recommends, which chooses among all others by numbers and budget, and one that suits many
numbers. Its way "CMA" is pycma."""
NGOPT_FAILS_FROM = "2.4.0"
"""The version of NumPy with which NGOpt (nevergrad 1.0.12) takes an array for a number and raises TypeError."""
EVOSAX_WAYS = ("CMA_ES", "Sep_CMA_ES", "SNES")

Run = Callable[[Problem, int, int], tuple[float, int]]
"""Gives, for a problem, a seed and evaluations, the loss that is reported and how many evaluations there were."""


def installed_peers() -> list[str]:
    """The packages that can be compared with."""
    return [name for name in ("cma", "nevergrad", "evosax") if find_spec(name)]


def peers_for(problem: Problem, installed: list[str]) -> Mapping[str, Run]:
    """The ways of the peers to minimize this problem."""
    found = dict[str, Run]()
    if "cma" in installed:
        found["cma"] = by_cma
    if "nevergrad" in installed:
        fails = NumpyVersion(np.__version__) >= NGOPT_FAILS_FROM
        found |= {f"nevergrad {way}": by_nevergrad(way) for way in NEVERGRAD_WAYS if not (way == "NGOpt" and fails)}
    if "evosax" in installed:
        # A step of CMA_ES decomposes a matrix [n, n]: minutes a run for 1,000 numbers.
        is_large = problem.start.size > LARGEST_FULL
        found |= {f"evosax {way}": by_evosax(way) for way in EVOSAX_WAYS if not (way == "CMA_ES" and is_large)}
    return found


def by_cma(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
    """Gives the loss of the best point that pycma has seen, of its mean where there is noise, and evaluations."""
    told = problem.told(seed)

    def losses(points: list[Points]) -> list[float]:
        found: list[float] = told(np.array(points)).tolist()
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, search = import_module("cma").fmin2(
            None,
            problem.start,
            problem.sigma,
            {"seed": seed, "maxfevals": evaluations, "verbose": -9},
            parallel_objective=losses,
            restarts=problem.restarts,
            bipop=problem.restarts > 0,
        )
    # What it gives itself is the best of the last search.
    found = search.result.xfavorite if problem.is_noisy else search.all_best[0].x
    return problem.loss(found), int(search.result.evaluations)


def by_nevergrad(way: str) -> Run:
    """A way of nevergrad's to minimize, which gives the loss of what it recommends, and evaluations."""

    def run(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
        told = problem.told(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nevergrad = import_module("nevergrad")
            space = nevergrad.p.Array(init=problem.start).set_mutation(sigma=problem.sigma)
            space.random_state.seed(seed)
            space.function.deterministic = not problem.is_noisy
            search = nevergrad.optimizers.registry[way](parametrization=space, budget=evaluations, num_workers=1)
            for _ in range(evaluations):
                point = search.ask()
                search.tell(point, float(told(point.value[np.newaxis])[0]))
            return problem.loss(search.provide_recommendation().value), evaluations

    return run


def by_evosax(way: str) -> Run:
    """A way of evosax's to minimize, which gives the loss of the best point, of its mean where there is noise."""

    def run(problem: Problem, seed: int, evaluations: int) -> tuple[float, int]:
        jax, algorithms = import_module("jax"), import_module("evosax.algorithms")
        told, start, tried = problem.told(seed), jax.numpy.asarray(problem.start), 0

        def begun(population: int) -> Any:  # noqa: ANN401
            return getattr(algorithms, way)(population_size=population, solution=start)

        def parameters(search: Any, _: Any = None) -> Any:  # noqa: ANN401
            return search.default_params.replace(std_init=problem.sigma)

        search = begun(CovarianceSearch.usual_population(problem.start.size))
        given, key = parameters(search), jax.random.key(seed)
        state = search.init(key, start, given)
        again = import_module("evosax.core.restart").BIPOPRestart(
            begun, search.population_size, strategy_params_factory=parameters
        )
        restarted, has_ended = again.init(search), jax.jit(again.should_restart)
        while tried + search.population_size <= evaluations:
            key, for_points, for_step, for_restart = jax.random.split(key, 4)
            points, state = search.ask(for_points, state, given)
            losses = jax.numpy.asarray(told(np.asarray(points, dtype=np.float64)))
            state, _ = search.tell(for_step, points, losses, state, given)
            tried += search.population_size
            if problem.restarts and has_ended(points, losses, state, given, restarted):
                search, given, state, restarted = again.restart(for_restart, search, state, given, restarted)
        found = search.get_mean(state) if problem.is_noisy else state.best_solution
        return problem.loss(np.asarray(found, dtype=np.float64)), tried

    return run
