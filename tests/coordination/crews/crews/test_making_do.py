"""A crew that lost seats which nobody comes for makes do with fewer, until somebody is there for all of them."""

import pytest

from fedlearn.coordination.crews.crews import MAKE_DO_S, REPLAN_S
from fedlearn.coordination.effects import Notice, Peer
from tests.coordination.crews.replica import HONEST, MEMORY, N_SEATS
from tests.coordination.crews.scene import Scene


@pytest.fixture
def scene() -> Scene:
    """Three volunteers, of whose crew one left when it had taken steps; it broke up just now."""
    scene = Scene()
    peers = [scene.join() for _ in range(N_SEATS)]
    scene.settle(3)
    scene.drop(peers[1])
    scene.settle()
    scene.wait(REPLAN_S)
    scene.settle()
    return scene


def seats_of(scene: Scene) -> list[tuple[str, ...]]:
    """Tensors by seat of the crew that is up; empty where none is."""
    return [holder.tensors for crew in scene.crews._crews if crew.is_up for holder in crew.seated]


def said(scene: Scene) -> str:
    return "\n".join(scene.kept.notices)


def test_two_of_three_seats_are_enough_after_a_while(scene: Scene) -> None:
    n_steps = len(scene.trainer.journal)
    scene.wait(MAKE_DO_S - 1.0)
    scene.settle()
    assert seats_of(scene) == []
    assert len(scene.trainer.journal) == n_steps
    scene.wait(1.0)
    scene.settle(n_steps + 3)
    assert seats_of(scene) == [("a", "b"), ("c",)]
    assert len(scene.trainer.journal) == n_steps + 3
    assert scene.trainer.losses[-1] == HONEST
    assert said(scene).count("makes do without the seats that nobody came for") == 1


def test_the_server_says_so_while_it_takes_a_step_too(scene: Scene) -> None:
    now = scene.clock + MAKE_DO_S
    assert scene.crews.tick(now) == []
    (notice,) = scene.crews.fill(now, step=3, block=b"", is_applying=True)
    assert isinstance(notice, Notice)
    assert "makes do" in notice.text


def test_whoever_is_of_no_use_breaks_nothing_up(scene: Scene) -> None:
    scene.wait(MAKE_DO_S)
    scene.settle(len(scene.trainer.journal) + 2)
    scene.join(MEMORY - 1)
    scene.settle(len(scene.trainer.journal) + 2)
    assert seats_of(scene) == [("a", "b"), ("c",)]


def test_it_is_seated_anew_once_somebody_is_there_for_every_seat(scene: Scene) -> None:
    scene.wait(MAKE_DO_S)
    scene.settle(len(scene.trainer.journal) + 2)
    scene.join()
    scene.settle(len(scene.trainer.journal) + 3)
    assert seats_of(scene) == [("a",), ("b",), ("c",)]
    assert "is seated anew: there is somebody for every seat" in said(scene)
    scene.drop(next(iter(scene.machines)))
    scene.settle()
    scene.wait(REPLAN_S)
    scene.settle()
    assert seats_of(scene) == []  # patience is as long as before


def test_who_comes_before_takes_the_empty_seat_of_a_whole_crew(scene: Scene) -> None:
    scene.wait(MAKE_DO_S / 2)
    scene.join()
    scene.settle(len(scene.trainer.journal) + 2)
    assert seats_of(scene) == [("a",), ("b",), ("c",)]
    scene.wait(MAKE_DO_S)
    scene.join()
    scene.settle(len(scene.trainer.journal) + 2)
    assert seats_of(scene) == [("a",), ("b",), ("c",)]
    assert "makes do" not in said(scene)
    assert said(scene).count("is seated anew") == 1


def test_nobody_makes_do_before_there_was_a_crew() -> None:
    scene = Scene()
    peers: list[Peer] = [scene.join() for _ in range(N_SEATS - 1)]
    scene.settle()
    scene.wait(10.0 * MAKE_DO_S)
    scene.settle()
    assert seats_of(scene) == []
    assert len(peers) == N_SEATS - 1


def test_one_that_can_not_hold_a_replica_alone_waits(scene: Scene) -> None:
    scene.drop(next(iter(scene.machines)))
    scene.wait(MAKE_DO_S)
    scene.settle()
    assert seats_of(scene) == []
    scene.join()
    scene.settle(len(scene.trainer.journal) + 2)
    assert seats_of(scene) == [("a", "b"), ("c",)]


def test_nobody_makes_do_beside_a_whole_crew() -> None:
    scene = Scene()
    peers = [scene.join() for _ in range(2 * N_SEATS)]
    scene.settle(3)
    scene.drop(peers[-1])
    scene.settle(5)
    scene.wait(REPLAN_S)
    scene.settle(7)
    scene.wait(MAKE_DO_S)
    scene.settle(9)
    assert seats_of(scene) == [("a",), ("b",), ("c",)]
    assert "makes do" not in said(scene)
    assert said(scene).count("seated anew") == 1
