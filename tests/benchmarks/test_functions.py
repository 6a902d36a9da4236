from collections.abc import Callable
from typing import Any

ReadJson = Callable[..., dict[str, Any]]


def test_losses_of_functions_are_reported(read_json: ReadJson) -> None:
    report = read_json(
        "functions",
        "--functions",
        "Rosenbrock",
        "noisy sphere 1000",
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
        ("noisy sphere 1000", "fedlearn.minimize"),  # of more numbers than a task correlates
    ]
    assert [each["parameters"] for each in results] == [100, 100, 1000]
    for each in results:
        assert 1750 <= each["evaluations"] <= 2001  # whole populations, which are large where there is noise
        assert len(each["losses"]) == 2
        assert max(each["losses"]) < each["start_loss"]
    assert results[0]["start_loss"] == 99 * (100 * 0.25**2 + 0.5**2)
