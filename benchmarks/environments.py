"""What policies return along the episodes that they learn from, beside evotorch's PGPE at equal episodes.

The return is the unperturbed policy's, over the same ten episodes each time, which are not counted. Neither are the
eight random ones by which observations are measured before the first step; evotorch measures them as it learns. Both
learn the same network on one processor. Our settings were found on these environments; evotorch has ClipUp, its usual
optimizer, with the same customary radius and rates for all of them, and begins at weights of nearly zero as it does.
"""

import argparse
import logging
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import gymnasium
import msgspec
import torch
from measure import Machine, describe_machine, print_report, use_processors
from one_process import OneProcess

import fedlearn
from fedlearn.tasks.environment.task import FIRST_HELD_OUT_SEED, N_HELD_OUT
from fedlearn.tasks.task import Setting

RESULTS = Path(__file__).parent / "results" / "environments.json"
LOOKS = 32
"""At the policy along a run, at most."""

OURS, PEER = "fedlearn", "evotorch"
RADIUS = 4.5
"""Of evotorch's first perturbations, all weights together; the greatest step is a fifteenth of it."""
STDEV_LEARNING_RATE = 0.1

Env = gymnasium.Env[Any, Any]


class Problem(msgspec.Struct, frozen=True):
    """An environment, and how it is learned."""

    widths: tuple[int, ...]
    """Of the policy's layers, with tanh between them."""
    episodes: int
    solved: float
    """The least return that counts as a solution."""
    peer_population: int
    settings: dict[str, int | float | str | bool] = {}
    decays: bool = False
    """Whether learning rate and noise go down to nothing at the end."""


PROBLEMS = {
    "CartPole-v1": Problem((4, 16, 2), 2000, 500.0, 64),
    "Swimmer-v5": Problem(
        (8, 2),
        1000,
        330.0,
        16,
        {
            "sigma": 0.5,
            "learning_rate": 0.3,
            "group_size": 16,
            "population_limit": 16,
            "antithetic": True,
            "learning_rate_schedule": "constant",
        },
    ),
    "Pendulum-v1": Problem(
        (3, 32, 32, 1), 6000, -200.0, 64, {"sigma": 1.0, "learning_rate": 0.6, "antithetic": True}, decays=True
    ),
}


class Look(msgspec.Struct, frozen=True):
    """The unperturbed policy after some episodes."""

    episodes: int
    mean_return: float


class Learned(msgspec.Struct, frozen=True):
    """One run."""

    environment: str
    learner: str
    seed: int
    population: int
    settings: dict[str, int | float | str | bool]
    solved_return: float
    solved_after: int | None
    """Episodes until the first look that is a solution."""
    looks: list[Look]


class Report(msgspec.Struct, frozen=True, tag_field="benchmark", tag="environments"):
    """What `--json` prints."""

    machine: Machine
    evotorch: str | None
    """Its version; none where it is not installed or not asked for."""
    results: list[Learned]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    options = _parser().parse_args()
    if options.episodes < 0:
        raise SystemExit(f"--episodes: expected 0 or more, got {options.episodes}")
    use_processors(1)
    torch.set_num_threads(1)
    learners = [learned, *([peer_learned] if options.peers and find_spec(PEER) else [])]
    results = [
        learner(name, seed, options.episodes or PROBLEMS[name].episodes)
        for name in options.environments
        for learner in learners
        for seed in options.seeds
    ]
    report = Report(describe_machine(), version(PEER) if peer_learned in learners else None, results)
    print_report(report, lambda: table(report), as_json=options.json)
    if options.save:
        saved = with_earlier(report)
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--environments", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS), help="what is learned"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="a run each")
    parser.add_argument(
        "--episodes", type=int, default=0, metavar="N", help="of a run (default: 0, as many as the environment wants)"
    )
    parser.add_argument(
        "--peers", action=argparse.BooleanOptionalAction, default=True, help="evotorch too, where it is installed"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument(
        "--save", action="store_true", help=f"also put the runs into {RESULTS.parent.name}/{RESULTS.name}"
    )
    return parser


def with_earlier(report: Report) -> Report:
    """The report with what is saved of other runs."""
    if not RESULTS.exists():
        return report
    earlier = msgspec.json.decode(RESULTS.read_bytes(), type=Report)
    runs = {(r.environment, r.learner, r.seed): r for r in (*earlier.results, *report.results)}
    ranks = {name: rank for rank, name in enumerate((*PROBLEMS, OURS, PEER))}
    ordered = sorted(runs.values(), key=lambda run: (ranks[run.environment], ranks[run.learner], run.seed))
    return Report(report.machine, report.evotorch or earlier.evotorch, ordered)


def learned(name: str, seed: int, episodes: int) -> Learned:
    """A run of ours."""
    problem = PROBLEMS[name]
    task = fedlearn.environment(name, partial(policy, problem.widths))
    own = {**task.settings, **problem.settings}
    if problem.decays:
        steps = max(1, episodes // int(own["population_limit"]))
        own |= {"learning_rate_schedule": "linear", "sigma_schedule": "linear", "steps": steps}
    run = OneProcess(task, seed=seed, settings=own)
    population = int(run.settings["population_limit"])
    looks = [Look(0, run.evaluate()["return"])]
    while run.members_tried + population <= episodes or not run.members_tried:
        run.step()
        if _is_due(run.members_tried, population, episodes, looks):
            looks.append(Look(run.members_tried, run.evaluate()["return"]))
    return _judged(name, OURS, seed, population, own, looks)


def peer_learned(name: str, seed: int, episodes: int) -> Learned:
    """A run of evotorch's PGPE."""
    problem = PROBLEMS[name]
    population = problem.peer_population
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of older interfaces that evotorch uses
        neuroevolution, algorithms = import_module("evotorch.neuroevolution"), import_module("evotorch.algorithms")
        logging.getLogger("evotorch").setLevel(logging.WARNING)  # what is below goes to standard output
        searched = neuroevolution.GymNE(
            partial(seeded, name, seed), policy(problem.widths), observation_normalization=True
        )
        searched.manual_seed(seed)
        speed = RADIUS / 15
        settings: dict[str, Any] = {
            "center_learning_rate": speed / 2,
            "stdev_learning_rate": STDEV_LEARNING_RATE,
            "radius_init": RADIUS,
        }
        search = algorithms.PGPE(searched, popsize=population, optimizer_config={"max_speed": speed}, **settings)
        looks: list[Look] = []
        tried = 0
        while tried + population <= episodes or not tried:
            search.step()
            tried += population
            if _is_due(tried, population, episodes, looks):
                looks.append(Look(tried, played(name, searched.to_policy(search.status["center"]))))
    return _judged(name, PEER, seed, population, {**settings, "max_speed": speed}, looks)


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
    discrete, total = isinstance(env.action_space, gymnasium.spaces.Discrete), 0.0
    for episode in range(N_HELD_OUT):
        seen, over = env.reset(seed=FIRST_HELD_OUT_SEED + episode)[0], False
        while not over:
            with torch.no_grad():
                outputs = module(torch.as_tensor(seen, dtype=torch.float32)).numpy()
            seen, reward, terminated, truncated, _ = env.step(int(outputs.argmax()) if discrete else outputs)
            total, over = total + float(reward), terminated or truncated
    return total / N_HELD_OUT


def _is_due(tried: int, population: int, episodes: int, looks: Sequence[Look]) -> bool:
    """Whether the policy is looked at now: every so many episodes, and at the end."""
    since = tried - (looks[-1].episodes if looks else 0)
    return since >= episodes / LOOKS or tried + population > episodes


def _judged(
    name: str, learner: str, seed: int, population: int, settings: Mapping[str, Setting], looks: list[Look]
) -> Learned:
    least = PROBLEMS[name].solved
    solved = next((look.episodes for look in looks if look.mean_return >= least), None)
    return Learned(name, learner, seed, population, dict(settings), least, solved, looks)


def table(report: Report) -> str:
    """For people."""
    lines = [
        f"{report.machine.processor}, one processor; "
        + (f"evotorch {report.evotorch}" if report.evotorch else "evotorch is left out, or not installed"),
        f"{'environment':<12} {'learner':<9} {'seed':>4} {'population':>10} {'solved after':>12} {'best':>8}"
        f" {'last':>8} {'episodes':>8}",
    ]
    for run in report.results:
        returns = [look.mean_return for look in run.looks]
        lines += [
            f"{run.environment:<12} {run.learner:<9} {run.seed:>4} {run.population:>10} {run.solved_after or '-':>12}"
            f" {max(returns):>8.1f} {returns[-1]:>8.1f} {run.looks[-1].episodes:>8}"
        ]
    for name in dict.fromkeys(run.environment for run in report.results):
        for learner in (OURS, PEER):
            last = [r.looks[-1].mean_return for r in report.results if (r.environment, r.learner) == (name, learner)]
            if last:
                lines += [f"{name} by {learner}: {mean(last):.1f} at the end, the mean of {len(last)} seeds"]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
