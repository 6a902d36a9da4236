from collections.abc import Callable
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]


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
