"""What policies return along the episodes that they learn from, beside evotorch's PGPE at equal episodes.

The return is the unperturbed policy's, over the same ten episodes each time, which are not counted. Neither are the
eight random ones by which observations are measured before the first step; evotorch measures them as it learns. Both
learn the same network on one processor. Our settings were found on these environments; evotorch has ClipUp, its usual
optimizer, with the same customary radius and rates for all of them, and begins at weights of nearly zero as it does.

With --untuned nothing is set by hand: our defaults are beside large steps by few members, at the same episodes of the
same network, whose step is 2,000 interactions if episodes are as long as they may be.
"""

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import gymnasium
import msgspec
import torch

import fedlearn
from benchmarks.measure import parser_of, print_tables, use_processors
from benchmarks.tasks.one_process import OneProcess
from fedlearn.tasks.environment.task import FIRST_HELD_OUT_SEED, N_HELD_OUT

LOOKS = 32
"""The most looks at the policy along a run."""

OURS, PEER, LARGE = "fedlearn", "evotorch", "fedlearn, large steps"
LARGE_RADIUS, SPEED_TO_RADIUS = 9.0, 4.0 / 15.0
"""The length of the perturbations of large steps, all weights together, and the greatest step as a share of it."""
INTERACTIONS, LEAST_MEMBERS, MOST_MEMBERS = 2000, 8, 64
"""Interactions of a large step, and the bounds of its members."""

RADIUS = 4.5
"""The length of evotorch's first perturbations, all weights together; the greatest step is a fifteenth of it."""
STDEV_LEARNING_RATE = 0.1

Env = gymnasium.Env[Any, Any]


class Problem(msgspec.Struct, frozen=True):
    """An environment, and how it is learned."""

    widths: tuple[int, ...]
    """Widths of the policy's layers, with tanh between them."""
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


UNTUNED = {
    "CartPole-v1": Problem((4, 16, 2), 1024, 475.0, 64),
    "Acrobot-v1": Problem((6, 16, 3), 512, -100.0, 64),
    "MountainCarContinuous-v0": Problem((2, 16, 1), 512, 90.0, 64),
    "Pendulum-v1": Problem((3, 16, 1), 4096, -200.0, 64),
    "InvertedPendulum-v5": Problem((4, 16, 1), 1024, 950.0, 64),
    "Swimmer-v5": Problem((8, 16, 2), 192, 360.0, 64),
}
"""Environments with the thresholds of gymnasium, for which nothing is set."""


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
    episodes: int
    solved_after: int | None
    """Episodes until the first look that is a solution."""
    best_return: float
    last_return: float


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--environments", nargs="+", choices={**PROBLEMS, **UNTUNED}, help="what is learned (default: all)"
    )
    parser.add_argument("--untuned", action="store_true", help="our defaults beside large steps, nothing set by hand")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="a run each")
    parser.add_argument(
        "--episodes", type=int, default=0, metavar="N", help="of a run (default: 0, as many as the environment wants)"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave evotorch out, where it is installed")
    options = parser.parse_args()
    if options.episodes < 0:
        parser.error(f"--episodes: expected 0 or more, got {options.episodes}")
    use_processors(1)
    torch.set_num_threads(1)
    has_peer = not (options.no_peers or options.untuned) and find_spec(PEER) is not None
    problems = UNTUNED if options.untuned else PROBLEMS
    learners = [learned, large_steps] if options.untuned else [learned, peer_learned] if has_peer else [learned]
    names = options.environments or list(problems)
    if unknown := set(names) - set(problems):
        parser.error(f"--environments: expected some of {', '.join(problems)}, got {', '.join(sorted(unknown))}")
    runs = [
        learner(name, problems[name], seed, options.episodes or problems[name].episodes)
        for name in names
        for learner in learners
        for seed in options.seeds
    ]
    print_tables("environments", as_json=options.json, facts={PEER: version(PEER) if has_peer else None}, runs=runs)
    return 0


def learned(name: str, problem: Problem, seed: int, episodes: int) -> Learned:
    """A run of ours."""
    task = fedlearn.environment(name, partial(policy, problem.widths))
    own = {**task.settings, **problem.settings}
    if problem.decays:
        steps = max(1, episodes // int(own["population_limit"]))
        own |= {"learning_rate_schedule": "linear", "sigma_schedule": "linear", "steps": steps}
    return _run(name, OURS, problem, seed, episodes, own)


def large_steps(name: str, problem: Problem, seed: int, episodes: int) -> Learned:
    """A run of ours by few members and ClipUp."""
    spec = gymnasium.spec(name)
    members = math.ceil(INTERACTIONS / (spec.max_episode_steps or INTERACTIONS) / LEAST_MEMBERS) * LEAST_MEMBERS
    members = min(members, MOST_MEMBERS)
    sigma = LARGE_RADIUS / math.sqrt(sum(weights.numel() for weights in policy(problem.widths).parameters()))
    own: dict[str, int | float | str | bool] = {
        "optimizer": "clipup",
        "sigma": sigma,
        "learning_rate": SPEED_TO_RADIUS * sigma,
        "group_size": members,
        "population_limit": members,
        "antithetic": True,
        "rank": 0,
        "fitness_shaping": "centered-ranks",
    }
    return _run(name, LARGE, problem, seed, episodes, own)


def _run(
    name: str,
    learner: str,
    problem: Problem,
    seed: int,
    episodes: int,
    settings: Mapping[str, int | float | str | bool],
) -> Learned:
    run = OneProcess(fedlearn.environment(name, partial(policy, problem.widths)), seed=seed, settings=settings)
    population = int(run.settings["population_limit"])
    looks = [Look(0, run.evaluate()["return"])]
    while run.members_tried + population <= episodes or not run.members_tried:
        run.step()
        if _is_due(run.members_tried, population, episodes, looks):
            looks.append(Look(run.members_tried, run.evaluate()["return"]))
    return _judged(name, learner, problem, seed, population, looks)


def peer_learned(name: str, problem: Problem, seed: int, episodes: int) -> Learned:
    """A run of evotorch's PGPE."""
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
    return _judged(name, PEER, problem, seed, population, looks)


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


def _judged(name: str, learner: str, problem: Problem, seed: int, population: int, looks: list[Look]) -> Learned:
    returns = [look.mean_return for look in looks]
    solved = next((look.episodes for look in looks if look.mean_return >= problem.solved), None)
    return Learned(name, learner, seed, population, looks[-1].episodes, solved, max(returns), returns[-1])


if __name__ == "__main__":
    raise SystemExit(main())
