from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.tasks.torch.members import execution_plans as plans_module  # noqa: E402
from fedlearn.tasks.torch.members.execution_plans import ExecutionPlans  # noqa: E402
from fedlearn.tasks.torch.members.noise import Noise  # noqa: E402
from fedlearn.tasks.torch.members.refusals import Refused  # noqa: E402
from fedlearn.tasks.torch.members.trial import Subject  # noqa: E402
from tests.tasks.torch.members.conftest import Make  # noqa: E402
from tests.tasks.torch.members.layers import CHANCES, expected  # noqa: E402

Draw = Callable[..., list[Noise]]
Timed = Callable[[dict[str, float]], tuple[list[tuple[str, int]], Callable[[], object], Callable[[], float]]]


def total(x: Tensor) -> Tensor:
    return x.sum()


def counted(plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What is run from now on: the plan, and members at once."""
    calls: list[tuple[str, int]] = []
    batched_before, sequential_before = Subject.batched, Subject.sequential

    def batched(subject: Subject, seen: Any = None) -> Any:  # noqa: ANN401
        calls.append(("batched", len(subject.noise[0][0])))
        return batched_before(subject, seen)

    def sequential(subject: Subject) -> Any:  # noqa: ANN401
        calls.append(("sequential", len(subject.noise[0][0])))
        return sequential_before(subject)

    monkeypatch.setattr(Subject, "batched", batched)
    monkeypatch.setattr(Subject, "sequential", sequential)
    monkeypatch.setattr(plans, "clock", lambda _device: float(len(calls)))
    return calls


def test_pieces_hold_no_more_members_than_memory_does(
    make: Make, linear: nn.Linear, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Tensor) -> Tensor:
        return total(linear(x))

    members, x = make(96, 8), torch.randn(8, 2, 4)
    plans.most_at_once = 5
    calls = counted(plans, monkeypatch)
    members(function, x)
    assert max(size for plan, size in calls if plan == "batched") == 5


def test_pieces_grow_within_groups_and_over_groups(
    make: Make, linear: nn.Linear, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Tensor) -> Tensor:
        return total(linear(x))

    members, x = make(96, 8), torch.randn(8, 2, 4)
    calls = counted(plans, monkeypatch)
    members(function, x)
    # After the trial, which is of four: parts of a group of 12, the rest of it, then whole groups.
    assert [size for _, size in calls[6:]] == [8, 8, 4, 12, 12, 24, 24]
    calls.clear()
    for _ in range(4):
        members(function, x)
    assert [size for _, size in calls] == [60, 36, 60, 36, 96, 96]
    assert all(plan == "batched" for plan, _ in calls)


@pytest.mark.parametrize("chance", CHANCES)
def test_what_a_group_draws_no_other_does(
    make: Make,
    linear: nn.Linear,
    plans: ExecutionPlans,
    monkeypatch: pytest.MonkeyPatch,
    chance: Callable[[], float],
) -> None:
    def function(x: Tensor) -> Tensor:
        return total(linear(x)) + chance()

    members, x = make(64, 8), torch.randn(8, 2, 4)
    calls = counted(plans, monkeypatch)
    members(function, x, seeds=range(8))
    calls.clear()
    for _ in range(6):
        members(function, x, seeds=range(8))
    assert {size for _, size in calls} == {8}


def test_members_are_run_one_by_one_where_that_is_faster(
    make: Make, linear: nn.Linear, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Tensor) -> Tensor:
        return total(linear(x))

    members, x = make(64, 2), torch.randn(2, 2, 4)
    calls = counted(plans, monkeypatch)
    # By this clock a member takes an hour in company, and a tick alone.
    seconds = {"sequential": 1.0, "batched": 3600.0}
    monkeypatch.setattr(plans, "clock", lambda _device: sum(seconds[plan] * n for plan, n in calls))
    members(function, x)
    assert [plan for plan, _ in calls[:4]] == ["sequential"] * 4
    calls.clear()
    found = members(function, x)
    assert calls == [("sequential", 32), ("sequential", 32)]
    torch.testing.assert_close(found, expected(members, x.repeat_interleave(32, 0)).sum((1, 2)))


def test_slow_pythons_share_is_not_held_against_company(
    make: Make, linear: nn.Linear, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Tensor) -> Tensor:
        return total(linear(x))

    members, x = make(512), torch.randn(1, 2, 4)
    calls = counted(plans, monkeypatch)
    monkeypatch.setattr(
        plans, "clock", lambda _device: sum(0.001 * n if plan == "sequential" else 0.02 for plan, n in calls)
    )
    for _ in range(8):
        members(function, x)
    assert calls[-1][0] == "batched"
    assert calls[-1][1] >= 256


@pytest.fixture
def timed(make: Make, linear: nn.Linear, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """Members that run both plans by a clock: `timed(seconds)` gives calls, how to make more, and the clock."""

    def begun(seconds: dict[str, float]) -> tuple[list[tuple[str, int]], Callable[[], object], Callable[[], float]]:
        batched, sequential = Subject.batched, Subject.sequential
        # What is run one by one for the clock alone is computed at once, which is as good and sooner.
        monkeypatch.setattr(
            Subject, "sequential", lambda one: (sequential if len(one.noise[0][0]) == 1 else batched)(one)
        )
        calls = counted(plans, monkeypatch)
        members, x = make(64), torch.randn(1, 2, 4)
        spent, read = [0.0], [0]

        def clock() -> float:
            spent[0] += sum(seconds[plan] * n for plan, n in calls[read[0] :])
            read[0] = len(calls)
            return spent[0]

        return calls, lambda: members(lambda x: total(linear(x)), x), clock

    return begun


def test_other_programs_turns_on_the_processor_do_not_choose_the_way(
    timed: Timed, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"sequential": 1.0, "batched": 0.1}
    calls, run, clock = timed(seconds)
    monkeypatch.setattr(plans, "clock", plans_module.processor_clock)
    monkeypatch.setattr(plans_module, "HAS_FINE_CLOCK", True)
    monkeypatch.setattr(plans_module, "thread_time", clock)
    # Whatever runs at once meets another program, for an hour each time.
    hours = [0.0]

    def passed() -> float:
        hours[0] += 3600.0 * (calls[-1][0] == "batched" if calls else 0)
        return hours[0]

    monkeypatch.setattr(plans_module, "default_timer", passed)
    for _ in range(20):
        run()
    assert calls[-1][0] == "batched"
    monkeypatch.setattr(plans_module, "HAS_FINE_CLOCK", False)
    assert plans.now(torch.device("cpu")) == passed() - 3600.0
    assert plans_module.processor_clock(torch.device("mps")) == hours[0]


def test_ways_are_compared_again_now_and_then(
    timed: Timed, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"sequential": 1.0, "batched": 10.0}
    calls, run, clock = timed(seconds)
    monkeypatch.setattr(plans, "clock", lambda _device: clock())
    for _ in range(40):
        run()
    assert calls[-1] == ("sequential", 64)
    assert "one by one: 1000.00 ms a member; not 4 at once: 10000.00 ms" in str(plans)
    seconds["batched"] = 0.1
    for _ in range(400):
        run()
    assert calls[-1][0] == "batched"
    assert " at once: 100.00 ms a member; not one by one: 1000.00 ms" in str(plans)
    seconds["batched"] = 10.0
    for _ in range(400):
        run()
    assert calls[-1] == ("sequential", 64)


@pytest.mark.parametrize("batched_s", [10.0, 0.1])
def test_comparing_costs_little_of_a_run(
    batched_s: float, timed: Timed, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"sequential": 1.0, "batched": batched_s}
    calls, run, clock = timed(seconds)
    monkeypatch.setattr(plans, "clock", lambda _device: clock())
    for _ in range(800):
        run()
    assert calls.count(("sequential", 1)) > 4, "compared once only"
    best_s = 64 * 800 * min(seconds.values())
    assert clock() < 1.1 * best_s


def test_a_search_that_is_begun_again_keeps_to_the_memory(
    timed: Timed, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, run, clock = timed({"sequential": 1.0, "batched": 0.1})
    monkeypatch.setattr(plans, "clock", lambda _device: clock())
    plans.most_at_once = 16
    for _ in range(400):
        run()
    assert calls.count(("batched", 4)) > 2
    assert max(size for _, size in calls) == 16


def test_a_refusal_of_vmap_that_comes_late_is_no_error(make: Make, linear: nn.Linear, plans: ExecutionPlans) -> None:
    def function(x: Tensor) -> Tensor:
        if len(x) > 2:
            return total(linear(x)) * float(linear.bias.sum() > 9)
        loss: Tensor = linear(x).sum()
        return loss

    members = make(8)
    assert members(function, torch.randn(1, 2, 4)).std() > 0
    assert members(function, torch.randn(1, 3, 4)).tolist() == [0.0] * 8
    assert "not at once: RuntimeError: vmap" in str(plans)
    assert members(function, torch.randn(1, 2, 4)).std() > 0


def test_too_much_for_the_memory_is_run_one_by_one_once(
    make: Make, linear: nn.Linear, plans: ExecutionPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, x = make(64), torch.randn(1, 2, 4)
    members(linear, x)
    at_once = Subject.batched

    def limited(subject: Subject, seen: Any = None) -> Any:  # noqa: ANN401
        if len(subject.noise[0][0]) > 4:
            raise torch.cuda.OutOfMemoryError
        return at_once(subject, seen)

    monkeypatch.setattr(Subject, "batched", limited)
    for _ in range(2):
        torch.testing.assert_close(members(linear, x), expected(members, x.expand(64, -1, -1)))
    plan = plans.find(linear)
    assert plan is not None
    assert plan.pace.size(64) == 4


def subject_on(x: Tensor, draw: Draw) -> Subject:
    """Four members of a bias, whose loss is the share of rows that are below zero."""
    layer = nn.ParameterDict({"bias": torch.zeros(3)})
    parameters = dict(layer.named_parameters())
    weights = [parameter.detach().clone() for parameter in parameters.values()]

    def loss(x: Tensor) -> Tensor:
        share: Tensor = (x + layer["bias"] < 0.0).float().mean()
        return share

    return Subject(loss, parameters, weights, draw(list(parameters.values()), 4), (x,), (), nullcontext)


def test_losses_may_be_alike_by_chance_once_they_have_differed(plans: ExecutionPlans, draw: Draw) -> None:
    first = plans.hold_trial(subject_on(torch.zeros(2, 3), draw), 4)
    assert len(set(first.verdict.results.tolist())) > 1
    again = plans.hold_trial(subject_on(torch.full((2, 3), 1e9), draw), 4)
    assert again.verdict.results.tolist() == [0.0] * 4


def test_losses_that_are_alike_at_first_are_refused(plans: ExecutionPlans, draw: Draw) -> None:
    with pytest.raises(Refused, match="all members have the loss 0, however large the noise is"):
        plans.hold_trial(subject_on(torch.full((2, 3), 1e9), draw), 4)
