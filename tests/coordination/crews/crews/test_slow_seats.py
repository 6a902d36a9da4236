"""Seats that are alive and slow: they are waited for where nobody gains by their seats, and answer in the end."""

import pytest

from fedlearn.coordination.crews.crew import STALL_S
from fedlearn.wire.limits import LOADING_LIMIT_S, message_limit_s
from tests.coordination.crews.replica import MEMORY, N_SEATS
from tests.coordination.crews.scene import Scene

IMPORTING_S = 400.0


def joined(n_machines: int, *, n_steps: int = 2) -> Scene:
    """So many machines, and a few steps."""
    scene = Scene()
    for _ in range(n_machines):
        scene.join()
    scene.settle(n_steps)
    return scene


def go_on_without(scene: Scene, slow: int, n_steps: int = 2) -> None:
    """Whatever happens while one machine does nothing, until so many more steps are taken or nothing does."""
    until, moved = len(scene.trainer.journal) + n_steps, True
    while moved and len(scene.trainer.journal) < until:
        moved = scene.do_work()
        for peer, machine in list(scene.machines.items()):
            if peer != slow:
                moved |= machine.hear(scene.clock)
                moved |= machine.compute(scene.clock)
            moved |= scene.hear(peer)


def test_a_seat_that_nobody_else_could_have_is_waited_for() -> None:
    scene = joined(N_SEATS)
    go_on_without(scene, 2)
    n_steps = len(scene.trainer.journal)
    for _ in range(3):
        scene.wait(STALL_S)
        go_on_without(scene, 2)
    assert "volunteer 2 has a seat and does not answer, and nobody else is there for it" in scene.performer.waiting
    assert not any("its seat is free" in notice for notice in scene.kept.notices)
    scene.settle(n_steps + 3)
    assert len(scene.trainer.journal) >= n_steps + 3
    assert scene.performer.waiting == ""


def test_it_is_given_to_a_newcomer_before_long() -> None:
    scene = joined(N_SEATS)
    go_on_without(scene, 2)
    n_steps = len(scene.trainer.journal)
    scene.wait(STALL_S)
    scene.join()
    go_on_without(scene, 2)
    assert len(scene.trainer.journal) == n_steps
    scene.wait(STALL_S)
    go_on_without(scene, 2)
    assert any("volunteer 2 has not answered for 30 s; its seat is free" in notice for notice in scene.kept.notices)
    assert len(scene.trainer.journal) > n_steps
    assert scene.performer.waiting == "1 volunteer waits for a part of the model: 2 more are needed"


def test_all_are_slow_to_load_and_are_not_taken_for_stalled_ones() -> None:
    scene = Scene()
    for _ in range(N_SEATS + 1):
        scene.join()
    while not all(scene.is_loading(machine) for machine in list(scene.machines.values())[:N_SEATS]):
        scene.do_work()
        for peer, machine in list(scene.machines.items()):
            machine.hear(scene.clock)
            if not scene.is_loading(machine):
                machine.compute(scene.clock)
            scene.hear(peer)
    scene.wait(STALL_S + message_limit_s(MEMORY) + LOADING_LIMIT_S - 1.0)
    scene.settle(2)
    assert len(scene.trainer.journal) >= 2
    assert not any("has not answered" in notice for notice in scene.kept.notices)


@pytest.mark.parametrize("n_more", [0, 1, 2])
def test_whoever_loads_for_minutes_loads_once_and_steps_are_taken_soon_after(n_more: int) -> None:
    """The first load of a machine imports for 400 s, longer than any patience; what it imported stays."""
    scene, began, imported = Scene(), dict[int, float](), set[int]()
    for _ in range(N_SEATS + n_more):
        scene.join()
    while len(scene.trainer.journal) < 2 and scene.clock < 1000.0 + 3 * IMPORTING_S:
        scene.wait(10.0)
        moved = True
        while moved:
            moved = scene.do_work()
            for peer, machine in list(scene.machines.items()):
                moved |= machine.hear(scene.clock)
                if scene.is_loading(machine) and peer not in imported:
                    if scene.clock < began.setdefault(peer, scene.clock) + IMPORTING_S:
                        continue
                    imported.add(peer)
                moved |= machine.compute(scene.clock)
                moved |= scene.hear(peer)
            moved &= len(scene.trainer.journal) < 2
    assert len(scene.trainer.journal) == 2
    assert scene.clock <= 1000.0 + IMPORTING_S * (2 if n_more else 1) + 30.0
    n_lost = sum("its seat is free" in notice for notice in scene.kept.notices)
    assert n_lost <= 2 * n_more
    assert not any("is seated anew" in notice for notice in scene.kept.notices)
