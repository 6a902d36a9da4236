from typing import Any

import pytest

from fedlearn.config import RunConfig
from fedlearn.runs.replaying import replaying
from tests.commands.recorded_run import recorded_run
from tests.commands.test_output import Kept


@pytest.mark.parametrize(("until", "expected"), [(None, "3 of 4 steps"), (4, "3 of 3 steps"), (2, "3 of 3 steps")])
def test_a_replay_counts_the_steps_that_it_takes(config: RunConfig, until: int | None, expected: str) -> None:
    kept: Any = Kept()
    with replaying(kept, recorded_run(config, begin=1, end=5), until=until) as tell:
        for step in (2, 3, 4):
            tell(step)
    assert kept.last.figures[0] == expected


def test_a_replay_of_a_run_without_metrics_has_no_end_to_show(config: RunConfig) -> None:
    kept: Any = Kept()
    with replaying(kept, recorded_run(config, begin=1, end=1)) as tell:
        tell(2)
    assert kept.last.figures[0] == "1 steps"
