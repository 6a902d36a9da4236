"""How low fedlearn, pycma and nevergrad get two functions in equally many evaluations.

The functions are Rosenbrock's in 100 dimensions, begun at 0.5, and the mean squared error of a network of 201 weights
that is to do as another one of its shape does. All begin at the same point. The loss reported is fedlearn's at the
unperturbed weights, which is no member's; the other libraries give the best point that they have tried, or recommend.
Our settings were chosen by 7 to 11 tries with seed 1, the other libraries choose their own.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
from measure import Machine, describe_machine, print_report, use_processors
from numpy.typing import NDArray
from one_process import OneProcess

import fedlearn

RESULTS = Path(__file__).parent / "results" / "functions.json"

DIMENSIONS = 100
N_INPUTS, N_HIDDEN, N_ROWS = 8, 20, 256
CMA_SIGMA = 0.5
"""What pycma begins with; it adapts."""
NEVERGRAD_WAYS = ("NGOpt", "DiagonalCMA")
PEERS = ("cma", "nevergrad")

Points = NDArray[Any]
"""[points, n_parameters]."""


class Problem(msgspec.Struct, frozen=True):
    """A function, where it is begun, and our settings."""

    losses: Callable[[Points], Points]
    """[points] of [points, n_parameters]."""
    start: Points
    settings: dict[str, int | float | str | bool]


class Minimized(msgspec.Struct, frozen=True):
    """One run."""

    function: str
    learner: str
    seed: int
    parameters: int
    evaluations: int
    start_loss: float
    loss: float
    seconds: float
    settings: dict[str, int | float | str | bool]


class Report(msgspec.Struct, frozen=True, tag_field="benchmark", tag="functions"):
    """What `--json` prints."""

    machine: Machine
    peers: dict[str, str]
    """Versions of those that are installed and asked for."""
    results: list[Minimized]


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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--functions", nargs="+", choices=list(named), default=list(named), help="what is minimized")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="a run each")
    parser.add_argument("--evaluations", type=int, default=20_000, metavar="N", help="of a run (default: 20000)")
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="pycma and nevergrad, where installed"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--save", action="store_true", help=f"also write {RESULTS.parent.name}/{RESULTS.name}")
    options = parser.parse_args()
    if options.evaluations < 1:
        parser.error(f"--evaluations: expected 1 or more, got {options.evaluations}")
    use_processors(1)
    peers = {name: version(name) for name in PEERS if options.peers and find_spec(name)}
    learners: dict[str, Callable[[Problem, int, int], tuple[float, int, dict[str, Any]]]] = {"fedlearn": ours}
    if "cma" in peers:
        learners["cma"] = by_cma
    if "nevergrad" in peers:
        learners |= {f"nevergrad {way}": by_nevergrad(way) for way in NEVERGRAD_WAYS}
    results = [
        minimized(function, named[function], learner, learners[learner], seed, options.evaluations)
        for function in options.functions
        for learner in learners
        for seed in options.seeds
    ]
    report = Report(describe_machine(), peers, results)
    print_report(report, lambda: table(report), as_json=options.json)
    if options.save:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return 0


def minimized(
    function: str,
    problem: Problem,
    learner: str,
    run: Callable[[Problem, int, int], tuple[float, int, dict[str, Any]]],
    seed: int,
    evaluations: int,
) -> Minimized:
    """One run, judged in double precision."""
    started = time.process_time()
    loss, tried, settings = run(problem, seed, evaluations)
    seconds = time.process_time() - started
    start_loss = float(problem.losses(problem.start[np.newaxis])[0])
    return Minimized(function, learner, seed, problem.start.size, tried, start_loss, loss, seconds, settings)


def ours(problem: Problem, seed: int, evaluations: int) -> tuple[float, int, dict[str, Any]]:
    """Loss of the unperturbed weights, evaluations, settings."""
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
    return float(problem.losses(run.weights[np.newaxis].astype(np.float64))[0]), run.members_tried, settings


def by_cma(problem: Problem, seed: int, evaluations: int) -> tuple[float, int, dict[str, Any]]:
    """The best loss that pycma has seen, evaluations, settings."""
    options = {"seed": seed, "maxfevals": evaluations, "verbose": -9}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = import_module("cma").CMAEvolutionStrategy(problem.start, CMA_SIGMA, options)
        while not search.stop():
            points = search.ask()
            search.tell(points, problem.losses(np.array(points)).tolist())
    return float(search.result.fbest), int(search.result.evaluations), {"sigma0": CMA_SIGMA}


def by_nevergrad(way: str) -> Callable[[Problem, int, int], tuple[float, int, dict[str, Any]]]:
    """A way of nevergrad's to minimize: the loss of what it recommends, evaluations, settings."""

    def run(problem: Problem, seed: int, evaluations: int) -> tuple[float, int, dict[str, Any]]:
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
        return float(problem.losses(found[np.newaxis])[0]), evaluations, {}

    return run


def table(report: Report) -> str:
    """For people."""
    peers = ", ".join(f"{name} {number}" for name, number in report.peers.items())
    lines = [
        f"{report.machine.processor}, one processor; {peers or 'no other library is asked for, or none installed'}",
        f"{'function':<11} {'learner':<21} {'evaluations':>11} {'start':>9} {'median':>10} {'lowest':>10}"
        f" {'highest':>10} {'seconds':>8} {'seeds':>5}",
    ]
    for function, learner in dict.fromkeys((run.function, run.learner) for run in report.results):
        runs = [run for run in report.results if (run.function, run.learner) == (function, learner)]
        losses, evaluations = [run.loss for run in runs], max(run.evaluations for run in runs)
        lines += [
            f"{function:<11} {learner:<21} {evaluations:>11} {runs[0].start_loss:>9.3g} {median(losses):>10.4g}"
            f" {min(losses):>10.4g} {max(losses):>10.4g} {median(run.seconds for run in runs):>8.1f} {len(runs):>5}"
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
