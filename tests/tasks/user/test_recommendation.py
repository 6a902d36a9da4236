from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlearn.config import MAX_MEMBERS, MAX_POPULATION, RunConfig, Schema
from fedlearn.es.optimizers import OPTIMIZERS
from fedlearn.es.strategy import Strategy
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.function.task import FunctionTask, function
from fedlearn.tasks.objective import Objective
from fedlearn.tasks.task import Batch, Members
from fedlearn.tasks.user.first_step import MOST_GROUPS
from fedlearn.tasks.user.recommendation import settle
from fedlearn.tasks.user.task_objective import TaskObjective
from fedlearn.tasks.user.task_options import TaskOptions
from tests.tasks.counting import CountingTask

SCHEMA = Schema(TaskOptions)
DATA: Columns = {"x": np.arange(10.0)}
OBJECTIVE = TaskObjective(CountingTask({"x": np.ones(3, dtype=np.float32)}, DATA, batch_size=5), seed=1)


PLACED = {"perturb": "weights", "head": "perturbed"}
"""What is chosen before, as no task but the recurrent network says anything of it."""


def settled(members_per_s: float = 1000.0, **given: Any) -> RunConfig:  # noqa: ANN401 (values of any key)
    return settle(SCHEMA.build(PLACED | given), OBJECTIVE, DATA, lambda *_: members_per_s)[0]


def test_what_nobody_says_is_a_beginning() -> None:
    config = settled()
    assert config.is_settled
    assert (config.strategy.group_size, config.strategy.sigma, config.optimizer.learning_rate) == (32, 0.02, 0.01)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_optimizer_has_its_own_share_of_the_rate(optimizer: str) -> None:
    rule = OPTIMIZERS[optimizer]
    expected = 0.125 * rule.rate_to_sigma or 0.01 * rule.rate_to_adam
    assert settled(optimizer=optimizer, sigma=0.125).optimizer.learning_rate == expected


def test_each_choice_has_its_reason_in_a_sentence() -> None:
    _, reasons = settle(SCHEMA.build({"sigma": 0.5}), OBJECTIVE, DATA, lambda *_: 10_000.0)
    assert [*map(str, reasons)] == [
        "group_size = 32: a starting point for networks with weights of about 0.1 to 1",
        "learning_rate = 0.01: a starting point for networks with weights of about 0.1 to 1",
        "measured: 5e+04 trial-beans/s",
        "population_limit = 32: a group for each volunteer, and no more than lines ask for: more steps learn more of "
        "so many trials",
        "time_per_step = 10: four times the 0.0032 s that this machine needs",
    ]


class Distant(CountingTask):
    """A task whose weights are far from where its loss is least."""

    def losses(self, members: Members, batch: Batch) -> list[float]:
        self.batches.append(batch)
        return [abs(float(tensors["x"].mean()) - 10.0) for tensors in members.each()]


@pytest.mark.parametrize(
    ("members_per_s", "given", "rates", "n_tried"),
    [
        (1000.0, {}, (0.015, 1.0), 7),
        (1e5, {}, (0.015, 1.0), MOST_GROUPS),
        (33.0, {}, (0.015, 1.0), 1),
        (31.0, {}, (0.01, 0.0), 0),
        (1000.0, {"population_limit": 128}, (0.03, 1.0), 7),
        (1000.0, {"population_limit": 10**6}, (1.0, 1.0), 7),
        (1000.0, {"max_learning_rate": 0.012}, (0.012, 0.012), 7),
        (1000.0, {"learning_rate": 0.02}, (0.02, 0.0), 0),
        (1000.0, {"population_limit": 32, "time_per_step": 10.0}, (0.01, 0.0), 0),
    ],
)
def test_steps_are_longer_where_there_is_far_to_go_and_trials_are_quick(
    members_per_s: float, given: dict[str, float], rates: tuple[float, float], n_tried: int
) -> None:
    task = Distant({"x": np.zeros(3, dtype=np.float32)}, DATA)
    config, reasons = settle(SCHEMA.build(PLACED | given), TaskObjective(task, seed=1), DATA, lambda *_: members_per_s)
    assert (config.optimizer.learning_rate, config.optimizer.max_learning_rate) == pytest.approx(rates)
    assert {len(batch.seeds) for batch in task.batches} == ({n_tried} if n_tried else set())
    said = [str(reason) for reason in reasons if reason.key == "learning_rate"]
    if n_tried:
        assert said == [
            f"learning_rate = {rates[0]:.3g}: the loss is least after 1,000 usual steps at once; it follows the "
            f"root of the members in a step, up to {rates[1]:.3g}"
        ]
    else:
        assert len(said) == ("learning_rate" not in given)


class Tuned(Distant):
    """One whose weights are good."""

    is_tuned = True


def test_good_weights_are_tuned_by_small_noise_and_steps() -> None:
    task = Tuned({"x": np.zeros(3, dtype=np.float32)}, DATA)
    config, reasons = settle(SCHEMA.build(PLACED), TaskObjective(task, seed=1), DATA, lambda *_: 1000.0)
    assert (config.strategy.sigma, config.optimizer.learning_rate) == (0.003, 0.0005)
    assert "sigma = 0.003: good weights are tuned by small steps" in map(str, reasons)
    assert not task.batches  # no longer step is tried
    given = settle(SCHEMA.build(PLACED | {"sigma": 0.01}), TaskObjective(task, seed=1), DATA, lambda *_: 1000.0)[0]
    assert (given.strategy.sigma, given.optimizer.learning_rate) == (0.01, 0.0005)


def test_a_plain_function_has_the_steps_that_were_tried_for_functions() -> None:
    far = function(lambda arrays: abs(arrays["x"].mean() - 10.0), {"x": np.zeros(3)}, covariance=False)
    config, _ = settle(SCHEMA.build(PLACED | dict(far.settings)), TaskObjective(far, seed=1), {}, lambda *_: 1e4)
    assert config.optimizer.learning_rate == 0.01


@pytest.mark.parametrize(("rows", "is_told"), [(8, False), (9, True), (128, True)])
def test_who_has_losses_of_many_rows_is_told_that_fewer_teach_more(rows: int, is_told: bool) -> None:
    objective = TaskObjective(CountingTask({"x": np.ones(3, dtype=np.float32)}, DATA, batch_size=rows), seed=1)
    _, reasons = settle(SCHEMA.build({}), objective, DATA, lambda *_: 100.0)
    said = f"measure = losses: a loss is of {rows} rows (batch_size); by losses of about 8 most is learned"
    assert (said in map(str, reasons)) == is_told


def test_a_task_that_leaves_its_rows_open_has_fewer_by_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    task, seen = CountingTask({"x": np.ones(3, dtype=np.float32)}, DATA, batch_size=32), list[int]()
    monkeypatch.setattr(task, "batch_size_by_losses", 8)

    def measure(objective: Objective, *_: object) -> float:
        seen.append(objective.work_per_member)
        return 100.0

    _, reasons = settle(SCHEMA.build({}), TaskObjective(task, seed=1), DATA, measure)
    assert seen == [8]
    said = [str(reason) for reason in reasons if "rows" in str(reason)]
    assert said == [
        "measure = losses: a loss is of 8 rows, since one of more is one number, too; batch_size changes that"
    ]
    assert "measured: 800 trial-beans/s" in map(str, reasons)


@pytest.mark.parametrize(
    ("given", "members_per_s", "expected"),
    [
        ({}, 12.8, (32, 2048)),
        ({}, 799.0, (32, 2048)),
        ({}, 800.0, (32, 2560)),
        ({}, 10_000.0, (32, 31_744)),
        ({}, 1e9, (32, 65_536)),
        ({"group_size": 8}, 1e9, (8, 16_384)),
        ({"max_population": 100}, 1e9, (32, 100)),
        ({"max_population": 5000}, 1e9, (32, 5000)),
        # As many members as a 32-bit estimate adds up, or as any run may have.
        ({"group_size": 65536}, 1e9, (65_536, 15_990_784)),
        ({"group_size": 65536, "rank": 8}, 1e9, (65_536, 2_097_152)),
    ],
    ids=str,
)
def test_a_step_is_a_group_and_grows_to_sixteen_fifths_of_a_second_within_bounds(
    given: dict[str, Any], members_per_s: float, expected: tuple[int, int]
) -> None:
    strategy = settled(members_per_s, **given).strategy
    assert (strategy.population_limit, strategy.max_population) == expected


def test_a_task_may_want_more_groups_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountingTask, "least_groups", 4)
    strategy = settled(800.0).strategy
    assert (strategy.population_limit, strategy.max_population) == (128, 2560)


@pytest.mark.parametrize(("population", "expected"), [(2, 2), (31, 16), (32, 32), (1000, 32)])
@pytest.mark.parametrize("key", ["population_limit", "max_population"])
def test_groups_go_into_the_population_that_was_given(key: str, population: int, expected: int) -> None:
    assert settled(**{key: population}).strategy.group_size == expected


@pytest.mark.parametrize(
    ("members_per_s", "expected"), [(3.2, 32), (3.1, 16), (1.6, 16), (1.5, 8), (0.7, 4), (0.1, 4), (1e-9, 4)]
)
def test_the_first_step_of_a_task_whose_members_take_long_is_short(members_per_s: float, expected: int) -> None:
    strategy = settled(members_per_s).strategy
    assert (strategy.group_size, strategy.population_limit) == (expected, expected)


@pytest.mark.parametrize("given", [{"group_size": 16}, {"population_limit": 32}])
def test_groups_and_steps_that_were_given_stay_however_long_members_take(given: dict[str, int]) -> None:
    strategy = settled(0.1, **given).strategy
    assert {key: getattr(strategy, key) for key in given} == given
    assert strategy.group_size == given.get("group_size", 32)


def test_a_population_that_was_given_stays() -> None:
    strategy = settled(population_limit=100).strategy
    assert (strategy.population_limit, strategy.max_population) == (100, 0)


@pytest.mark.parametrize(
    ("members_per_s", "expected"), [(400.0, 10.0), (40.0, 10.0), (30.0, 14.0), (1.0, 400.0), (0.1, 3600.0)]
)
def test_the_deadline_leaves_four_times_the_expected_time(members_per_s: float, expected: float) -> None:
    assert settled(members_per_s, population_limit=100).strategy.time_per_step == expected


def test_nothing_is_measured_where_it_changes_nothing() -> None:
    def measure(objective: Objective, strategy: Strategy, data: Columns) -> float:
        raise AssertionError(f"{objective} {strategy} {data}")

    config, reasons = settle(
        SCHEMA.build({**PLACED, "population_limit": 64, "time_per_step": 2.0}), OBJECTIVE, DATA, measure
    )
    assert config.is_settled
    assert [reason.key for reason in reasons] == ["group_size", "sigma", "learning_rate"]
    assert settle(config, OBJECTIVE, DATA, measure) == (config, ())


def test_what_is_measured_is_the_strategy_on_the_first_data() -> None:
    measured: list[tuple[Objective, Strategy, Columns]] = []

    def measure(objective: Objective, strategy: Strategy, data: Columns) -> float:
        measured.append((objective, strategy, data))
        return 1.0

    settle(SCHEMA.build({"rank": 3}), OBJECTIVE, DATA, measure)
    ((objective, strategy, data),) = measured
    assert objective is OBJECTIVE
    assert data is DATA
    assert (strategy.group_size, strategy.perturbation.sigma, strategy.perturbation.rank) == (32, 0.02, 3)


@given(
    given=st.fixed_dictionaries(
        {},
        optional={
            "group_size": st.integers(2, 65536),
            "rank": st.integers(0, 8),
            "max_population": st.integers(65536, MAX_MEMBERS // 8),
            "population_limit": st.integers(2, MAX_MEMBERS // 8),
            "time_per_step": st.floats(0.01, 1000),
        },
    ).filter(
        lambda given: (
            given.get("group_size", 2) <= given.get("population_limit", 65536) <= given.get("max_population", 10**9)
        )
    ),
    members_per_s=st.floats(1e-3, 1e12),
)
def test_nothing_that_was_given_changes_and_nothing_stays_open(given: dict[str, Any], members_per_s: float) -> None:
    config = settled(members_per_s, **given)
    assert config.is_settled
    assert {key: config.get(key) for key in given} == given
    strategy = config.strategy
    assert strategy.population_limit <= MAX_POPULATION
    if "population_limit" not in given:
        assert strategy.population_limit % strategy.group_size == 0
        assert strategy.group_size <= strategy.population_limit <= strategy.max_population


def function_settled(n: int, members_per_s: float = 1e5, **given: Any) -> tuple[int, int, int]:  # noqa: ANN401
    return task_settled(
        function(lambda arrays: arrays["x"].sum(), {"x": np.zeros(n)}, covariance=False), members_per_s, **given
    )


def task_settled(task: FunctionTask, members_per_s: float, **given: Any) -> tuple[int, int, int]:  # noqa: ANN401
    config, _ = settle(
        SCHEMA.build(PLACED | dict(task.settings) | given), TaskObjective(task, seed=1), {}, lambda *_: members_per_s
    )
    return config.strategy.group_size, config.strategy.population_limit, config.strategy.max_population


@pytest.mark.parametrize(
    ("n", "expected"), [(1, (16, 16, 16)), (10, (16, 16, 16)), (40, (32, 64, 64)), (5000, (32, 256, 256))]
)
def test_a_cheap_function_has_as_many_members_as_its_numbers_ask_for(n: int, expected: tuple[int, int, int]) -> None:
    assert function_settled(n) == expected


def test_a_function_that_takes_long_has_members_for_several_volunteers() -> None:
    assert function_settled(10, 639.0) == (16, 16, 1792)
    assert function_settled(10, 641.0) == (16, 16, 16)


def test_settings_that_were_given_stay_for_functions_too() -> None:
    assert function_settled(40, group_size=8) == (8, 80, 80)
    assert function_settled(10, max_population=1000) == (16, 16, 1000)
    assert function_settled(10, population_limit=500) == (32, 500, 0)


@pytest.mark.parametrize(
    ("n", "members_per_s", "given", "expected"),
    [
        (2, 1e5, {}, (6, 6, 6)),
        (100, 1e5, {}, (17, 17, 17)),
        (100, 641.0, {}, (17, 17, 17)),
        (100, 639.0, {}, (17, 17, 272)),
        (100, 0.1, {}, (17, 17, 272)),
        (100, 0.1, {"max_population": 40}, (17, 17, 40)),
        (1000, 1e5, {}, (24, 24, 24)),
        (1000, 0.1, {}, (24, 24, 384)),
        (100, 1e5, {"population_limit": 34}, (17, 34, 0)),
        (100, 1e5, {"population_limit": 10}, (8, 10, 0)),
        (100, 1e5, {"group_size": 34}, (34, 34, 34)),
    ],
)
def test_noise_that_learns_its_covariance_has_few_members_and_a_group_for_each_volunteer(
    n: int, members_per_s: float, given: dict[str, int], expected: tuple[int, int, int]
) -> None:
    task = function(lambda arrays: arrays["x"].sum(), {"x": np.zeros(n)})
    assert task_settled(task, members_per_s, **given) == expected


@pytest.mark.parametrize(
    ("first_losses", "given", "expected"),
    [
        ([1.0, 1.0], {}, 0.5),
        ([1.0, 2.0], {}, 100.0),
        ([1.0, 2.0], {"path_share": 3.0}, 3.0),
        ([], {"population_limit": 16}, 100.0),  # nobody asks for a loss, which may take an hour
    ],
)
def test_the_path_counts_all_members_unless_losses_are_exact(
    first_losses: list[float], given: dict[str, float], expected: float
) -> None:
    losses = iter(first_losses)
    task = function(lambda _: next(losses), {"x": np.zeros(5)})
    schema = SCHEMA.build(PLACED | dict(task.settings) | given)
    config, _ = settle(schema, TaskObjective(task, seed=1), {}, lambda *_: 1e5)
    assert config.get("path_share") == expected


def test_a_function_that_is_not_the_same_twice_has_more_groups_in_a_step() -> None:
    losses = iter(np.arange(1000.0))
    noisy = function(lambda _: next(losses), {"x": np.zeros(100)})
    assert task_settled(noisy, 1e5) == (17, 1088, 1088)
    assert task_settled(noisy, 0.1) == (17, 1088, 17408)
    assert task_settled(noisy, 1e5, population_limit=34) == (17, 34, 0)
    wide = function(lambda _: next(losses), {"x": np.zeros(1000)})
    assert task_settled(wide, 1e5) == (24, 1536, 1536)
    unlike = function(
        lambda arrays, rows: arrays["x"].sum() + rows["y"].sum(),
        {"x": np.zeros(100)},
        {"y": np.ones(3)},
        covariance=True,
    )
    assert task_settled(unlike, 1e5) == (17, 1088, 1088)
    broken = iter([np.nan, 1.0])
    assert task_settled(function(lambda _: next(broken), {"x": np.zeros(100)}), 1e5) == (17, 17, 17)


@pytest.mark.parametrize(
    ("noise", "given", "expected"),
    [
        (1.0, {}, 196),
        (0.0, {}, 0),
        (1.0, {"population_warmup": 7}, 7),
        (1.0, {"population_limit": 170}, 0),  # whoever says how many members there are has them from the start
    ],
)
def test_the_groups_of_a_noisy_function_are_few_at_first(noise: float, given: dict[str, int], expected: int) -> None:
    losses = iter(np.arange(1000.0))
    task = function(lambda _: noise * next(losses), {"x": np.zeros(100)})
    schema = SCHEMA.build(PLACED | dict(task.settings) | given)
    config, reasons = settle(schema, TaskObjective(task, seed=1), {}, lambda *_: 1e5)
    assert config.strategy.population_warmup == expected
    if noise and not given:
        assert "64 groups in the end, since losses have noise of their own" in " ".join(map(str, reasons))


def test_noise_that_learns_its_covariance_has_its_reason_and_a_rate_of_sigma() -> None:
    task = function(lambda arrays: arrays["x"].sum(), {"x": np.zeros(5)})
    config, reasons = settle(
        SCHEMA.build(PLACED | dict(task.settings)), TaskObjective(task, seed=1), {}, lambda *_: 1e5
    )
    assert config.optimizer.learning_rate == config.strategy.sigma == 0.5
    why = "usual where noise learns the shape of a valley"
    assert [str(reason) for reason in reasons if reason.key != "time_per_step"] == [
        f"group_size = 8: {why}",
        f"learning_rate = 0.5: {why}",
        "measured: 1e+05 trial-examples/s",
        f"population_limit = 8: {why}",
    ]


def test_losses_of_a_function_with_data_vary_so_that_more_members_help() -> None:
    task = function(lambda arrays, rows: arrays["x"].sum() + rows["y"].sum(), {"x": np.zeros(2)}, {"y": np.ones(3)})
    assert task.usual_population == 0
