import random
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fedlearn.tasks.torch.seeds import random_states, seeded, states_outside_torch  # noqa: E402

CPU = torch.device("cpu")


def test_draws_are_those_of_pytorchs_seed_and_the_state_before_is_restored() -> None:
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(7)
    with seeded(5, CPU):
        assert torch.equal(torch.randn(3), expected)
    after = torch.randn(3)
    torch.manual_seed(7)
    assert torch.equal(after, torch.randn(3))


def test_without_a_seed_the_generator_goes_on() -> None:
    torch.manual_seed(7)
    with seeded(None, CPU):
        first = torch.randn(1)
    second = torch.randn(1)
    torch.manual_seed(7)
    assert torch.equal(torch.randn(2), torch.cat([first, second]))


def test_devices_that_are_not_asked_for_are_not_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("each takes a hundred microseconds")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", refused)
    monkeypatch.setattr(torch, "manual_seed", refused)
    with seeded(5, CPU):
        pass


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_draws_of_python_and_numpy_are_those_of_the_seed(draw: Callable[[], float]) -> None:
    before = random_states(CPU)
    with seeded(2**40, CPU):
        first, second = draw(), draw()
    assert random_states(CPU) == before
    with seeded(2**40, CPU):
        assert (draw(), draw()) == (first, second)
    with seeded(2**40 + 1, CPU):
        assert draw() != first


@pytest.mark.parametrize("draw", [random.random, np.random.rand, np.random.standard_normal])
def test_a_draw_outside_of_pytorch_changes_the_states(draw: Callable[[], float]) -> None:
    before = random_states(CPU)
    outside = states_outside_torch()
    assert random_states(CPU) == before
    draw()
    assert random_states(CPU) != before
    assert states_outside_torch() != outside


def test_a_draw_of_pytorchs_changes_its_states_alone() -> None:
    before, outside = random_states(CPU), states_outside_torch()
    torch.rand(())
    assert random_states(CPU) != before
    assert states_outside_torch() == outside


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: float(torch.rand(()))])
def test_one_seed_within_another_leaves_its_draws_alone(draw: Callable[[], float]) -> None:
    with seeded(5, CPU):
        expected = [draw(), draw()]
    with seeded(5, CPU):
        found = [draw()]
        with seeded(6, CPU):
            draw()
        found.append(draw())
    assert found == expected
