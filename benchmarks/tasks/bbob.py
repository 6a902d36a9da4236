"""The share of BBOB's targets that fedlearn.minimize and pycma hit: 24 functions without noise, from COCO's own suite.

A target is a distance to the least value of a function: 51 of them, from 100 to 1e-8, evenly in their logarithms. Both
begin at the origin with a standard deviation of 2, and begin again with other populations until their evaluations are
done (BIPOP). Needs coco-experiment and cma.

Source: Hansen et al., "COCO: a platform for comparing continuous optimizers in a black-box setting", 2021.
"""

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, final

import msgspec
import numpy as np
from numpy.typing import NDArray

import fedlearn
from benchmarks.measure import parser_of, print_tables, use_processors

TARGETS = np.logspace(2, -8, 51)
SIGMA = 2.0
"""The first standard deviation; the answers lie between -5 and 5."""
RESTARTS = 50
"""Restarts with a larger population, more than there are evaluations for."""
BUDGETS = (100, 1000, 10_000)
"""Evaluations for each dimension after which the targets are counted."""

Points = NDArray[np.float64]
Learner = Callable[["Watched", int, int], None]
"""Minimizes a function from the origin, with a seed and so many evaluations."""


class Solved(msgspec.Struct, frozen=True):
    """The targets of a function that a learner hit."""

    dimension: int
    function: int
    learner: str
    hit: tuple[float, ...]
    """The share of all targets hit, by BUDGETS."""
    best: float
    """The distance to the least value that was left at the end."""
    seconds: float
    """Processor time."""
    evaluation_seconds: float
    """The part of it that the evaluations take, whoever asks for them."""


class Total(msgspec.Struct, frozen=True):
    """The mean over all functions of a dimension."""

    dimension: int
    learner: str
    hit: tuple[float, ...]
    seconds: float
    """Processor time of all functions together."""
    evaluation_seconds: float
    """The part of it that the evaluations take, whoever asks for them."""


@final
class Watched:
    """A function of the suite that remembers when each target was hit."""

    def __init__(self, problem: Any, least: float) -> None:  # noqa: ANN401 (cocoex has no types)
        self._problem, self._least = problem, least
        self.dimension: int = problem.dimension
        self.n = 0
        """Evaluations so far."""
        self.best = float("inf")
        """The least distance so far."""
        self.improved: list[tuple[int, float]] = []
        """The evaluation at which the distance became less, and the distance."""

    def __call__(self, point: Points) -> float:
        value = float(self._problem(point))
        self.n += 1
        if value - self._least < self.best:
            self.best = value - self._least
            self.improved.append((self.n, self.best))
        return value

    def hit(self, evaluations: int) -> float:
        """The share of the targets that were hit within so many evaluations."""
        best = min((distance for when, distance in self.improved if when <= evaluations), default=float("inf"))
        return float((best <= TARGETS).mean())


def by_minimize(function: Watched, seed: int, evaluations: int) -> None:
    def losses(points: Points) -> Points:
        return np.array([function(point) for point in points])

    start = np.zeros(function.dimension)
    fedlearn.minimize(losses, start, sigma=SIGMA, maxfev=evaluations, restarts=RESTARTS, vectorized=True, seed=seed)


def by_cma(function: Watched, seed: int, evaluations: int) -> None:
    options = {"maxfevals": evaluations, "seed": seed, "verbose": -9}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("cma").fmin2(
            function, np.zeros(function.dimension), SIGMA, options, restarts=RESTARTS, bipop=True
        )


LEARNERS: dict[str, Learner] = {"fedlearn.minimize": by_minimize, "cma": by_cma}


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[10], choices=(2, 3, 5, 10, 20, 40), metavar="N")
    parser.add_argument("--functions", type=int, nargs="+", default=[*range(1, 25)], metavar="N", help="from 1 to 24")
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=[*LEARNERS])
    parser.add_argument("--budget", type=int, default=BUDGETS[-1], metavar="N", help="evaluations for each dimension")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    options = parser.parse_args()
    use_processors(1)
    budgets = [*[each for each in BUDGETS if each < options.budget], options.budget]
    solved = [
        run(learner, function, dimension, options.seed, budgets)
        for dimension in options.dimensions
        for function in options.functions
        for learner in options.learners
    ]
    facts = {"targets": len(TARGETS), "evaluations for each dimension": budgets, "cma": version("cma")}
    totals = [
        total([each for each in solved if (each.dimension, each.learner) == (dimension, learner)])
        for dimension in options.dimensions
        for learner in options.learners
    ]
    print_tables("bbob", as_json=options.json, facts=facts, functions=solved, totals=totals)
    return 0


def run(learner: str, number: int, dimension: int, seed: int, budgets: Sequence[int]) -> Solved:
    """What a learner hits of a function's first instance."""
    suite = import_module("cocoex").Suite(
        "bbob", "", f"dimensions:{dimension} function_indices:{number} instance_indices:1"
    )
    function = Watched(suite.get_problem(0), least_of(suite))
    started = time.process_time()
    LEARNERS[learner](function, seed, budgets[-1] * dimension)
    seconds = time.process_time() - started
    hit = tuple(function.hit(each * dimension) for each in budgets)
    evaluation_seconds = function.n * seconds_of(function)
    return Solved(dimension, number, learner, hit, function.best, seconds, evaluation_seconds)


def seconds_of(function: Watched) -> float:
    """The processor time of an evaluation."""
    points = np.random.default_rng(0).uniform(-5.0, 5.0, (2000, function.dimension))
    started = time.process_time()
    for point in points:
        function(point)
    return (time.process_time() - started) / len(points)


def least_of(suite: Any) -> float:  # noqa: ANN401 (cocoex has no types)
    """The least value of a suite's first function, at the point that it writes into the working folder."""
    problem, here = suite.get_problem(0), os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            problem._best_parameter("print")
            return float(problem(np.loadtxt("._bbob_problem_best_parameter.txt")))
        finally:
            os.chdir(here)
            problem.free()


def total(solved: Sequence[Solved]) -> Total:
    """The mean of a learner over the functions of a dimension."""
    hit = tuple(float(each) for each in np.mean([each.hit for each in solved], axis=0))
    seconds = sum(each.seconds for each in solved)
    return Total(solved[0].dimension, solved[0].learner, hit, seconds, sum(each.evaluation_seconds for each in solved))


if __name__ == "__main__":
    raise SystemExit(main())
