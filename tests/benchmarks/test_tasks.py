"""What benchmarks/tasks report."""

from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks.tasks.function_peers import installed_peers, peers_for
from benchmarks.tasks.function_problems import problems
from tests.benchmarks.conftest import ReadJson

needs_gymnasium = pytest.mark.skipif(find_spec("gymnasium") is None, reason="needs gymnasium")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")

WIDE = "noisy sphere 1000"
TIMES_NOISE = "sphere 10 times noise"


def test_targets_of_the_suite_that_are_hit_are_counted(read_json: ReadJson) -> None:
    pytest.importorskip("cocoex")
    pytest.importorskip("cma")
    report = read_json("bbob", "--functions", "1", "5", "24", "--dimensions", "2", "--budget", "500")
    assert report["evaluations for each dimension"] == [100, 500]
    assert [(each["function"], each["learner"]) for each in report["functions"]] == [
        (function, learner) for function in (1, 5, 24) for learner in ("fedlearn.minimize", "cma")
    ]
    for each in report["functions"]:
        early, late = each["hit"]
        assert 0.0 <= early <= late <= 1.0
        assert (each["best"] <= 1e-8) == (late == 1.0)
    sphere, _, slope, *_ = report["functions"]
    assert sphere["hit"][-1] == slope["hit"][-1] == 1.0
    hits = [each["hit"][-1] for each in report["functions"][::2]]
    assert report["totals"][0]["hit"][-1] == pytest.approx(sum(hits) / 3)


@needs_torch
@needs_gymnasium
def test_a_policy_is_judged_along_its_episodes(read_json: ReadJson) -> None:
    report = read_json("environments", "--environments", "CartPole-v1", "--seeds", "1", "--episodes", "150", "--peers")
    assert report["evotorch"] is None
    (run,) = report["runs"]
    assert (run["environment"], run["learner"], run["seed"]) == ("CartPole-v1", "fedlearn", 1)
    assert (run["population"], run["episodes"]) == (8, 144)
    assert 1 <= run["last_return"] <= run["best_return"] <= 500
    (summary,) = report["summaries"]
    assert (summary["best_worst"], summary["last_median"]) == (run["best_return"], run["last_return"])
    assert summary["solved"] == ("0 of 1" if run["solved_after"] is None else "1 of 1")


@needs_torch
@needs_gymnasium
def test_random_search_learns_beside_a_policy(read_json: ReadJson) -> None:
    report = read_json(
        "environments", "--environments", "CartPole-v1", "--seeds", "1", "--episodes", "64", "--peers", "ARS"
    )
    run = next(run for run in report["runs"] if run["learner"] == "ARS")
    assert (run["population"], run["episodes"], run["seed"]) == (16, 64, 1)
    assert run["best_return"] >= 475
    assert run["solved_after"] in (16, 32, 48, 64)


@needs_torch
@needs_gymnasium
def test_seconds_end_a_run_of_a_policy_in_place_of_episodes(read_json: ReadJson) -> None:
    options = ["--environments", "CartPole-v1", "--seeds", "1", "--episodes", "8", "--seconds", "0.5", "--peers"]
    (run,) = read_json("environments", *options)["runs"]
    assert run["seconds"] >= 0.5
    assert run["episodes"] > 8


def test_losses_of_functions_are_reported(read_json: ReadJson) -> None:
    report = read_json(
        "functions",
        "--functions",
        "Rosenbrock",
        WIDE,
        TIMES_NOISE,
        "--seeds",
        "1",
        "2",
        "--evaluations",
        "2000",
        "--no-peers",
    )
    results = report["results"]
    assert [(each["function"], each["learner"]) for each in results] == [
        ("Rosenbrock", "fedlearn.minimize"),
        ("Rosenbrock", "fedlearn.function"),
        (WIDE, "fedlearn.minimize"),
        (WIDE, "fedlearn.function"),
        (TIMES_NOISE, "fedlearn.minimize"),
        (TIMES_NOISE, "fedlearn.function"),
    ]
    assert [each["parameters"] for each in results] == [100, 100, 1000, 1000, 10, 10]
    for each in results:
        assert 1750 <= each["evaluations"] <= 2001  # whole populations, which are large where there is noise
        assert len(each["losses"]) == 2
        assert max(each["losses"]) < each["start_loss"]
    assert results[0]["start_loss"] == 99 * (100 * 0.25**2 + 0.5**2)


def test_peers_are_called_in_ways_that_suit_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "__version__", "2.3.5")
    few, many = (set(peers_for(problems()[name], ["nevergrad", "evosax"])) for name in ("Rosenbrock", WIDE))
    assert few - many == {"evosax CMA_ES"}
    assert many == {"nevergrad NGOpt", "nevergrad DiagonalCMA", "evosax Sep_CMA_ES", "evosax SNES"}
    monkeypatch.setattr(np, "__version__", "2.4.0")
    assert "nevergrad NGOpt" not in peers_for(problems()[WIDE], ["nevergrad"])
    assert list(peers_for(problems()[WIDE], ["cma"])) == ["cma"]


def test_noise_is_added_or_multiplied_by_and_other_each_time() -> None:
    points = np.ones((4000, 10))
    added, multiplied = (problems()[name].told(1) for name in ("noisy sphere 10", TIMES_NOISE))
    assert float(np.std(added(points))) == pytest.approx(5.0, rel=0.05)
    assert float(np.std(np.log(multiplied(points) / 10.0))) == pytest.approx(1.0, rel=0.05)
    assert float(np.median(multiplied(points))) == pytest.approx(10.0, rel=0.05)
    assert not np.array_equal(added(points), added(points))


def test_peers_begin_with_the_deviation_of_minimize() -> None:
    assert problems()["Ackley 30"].sigma == 1.5
    assert problems()["Rosenbrock"].sigma == 0.5


@pytest.mark.parametrize("peer", installed_peers())
def test_peers_find_less_than_the_start(peer: str) -> None:
    problem = problems()["Rastrigin 20"]
    for run in peers_for(problem, [peer]).values():
        loss, evaluations = run(problem, 1, 600)
        assert 570 <= evaluations <= 624  # whole populations
        assert loss < problem.loss(problem.start)
