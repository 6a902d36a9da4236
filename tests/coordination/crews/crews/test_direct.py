"""Seats that send to each other without the server, and what it makes of lines that fail."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fedlearn.coordination.crews.crew import STALL_S
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.messages import Activations
from tests.coordination.crews.replica import HONEST, MEMBER_BYTES, N_SEATS
from tests.coordination.crews.scene import Scene


@pytest.fixture
def scene() -> Scene:
    """A crew of three that has taken two steps."""
    made = Scene(is_direct=True)
    for _ in range(N_SEATS):
        made.join()
    made.settle(2)
    return made


def bytes_by_cut(scene: Scene) -> list[tuple[bool, bool]]:
    """Of each cut, whether anything crossed it in the last step through the server, and directly."""
    return [(relayed > 0, direct > 0) for _, (_, relayed, direct) in sorted(scene.trainer.relayed[-1].items())]


def test_nothing_but_word_of_members_goes_through_the_server(scene: Scene) -> None:
    relayed = scene.trainer.relayed[-1]
    assert list(relayed) == ["crew 1, cut 1", "crew 1, cut 2"]
    for n_members, n_relayed, n_direct in relayed.values():
        assert n_relayed == 0
        assert n_direct == MEMBER_BYTES * n_members > 0
    assert set(scene.trainer.losses) == {HONEST}
    assert scene.trainer.losses
    assert any("straight to the next seat" in notice for notice in scene.kept.notices)


def test_what_crews_send_is_told_again_once_they_are_of_other_shards(scene: Scene) -> None:
    for shards in (1, 2):
        scene.planner.shards = shards
        for _ in range(N_SEATS):
            scene.join()
        scene.settle(len(scene.trainer.journal) + 2)
    told = [notice.split()[:5] for notice in scene.kept.notices if "bytes a member" in notice]
    assert told == [["crew", number, "sends", "bytes", "a"] for number in ("1", "3")]


@pytest.mark.parametrize(("deaf", "expected"), [(1, [True, False]), (2, [True, True]), (3, [False, True])])
def test_who_does_not_consent_is_neither_called_nor_told_to_call(deaf: int, expected: list[bool]) -> None:
    scene = Scene(is_direct=True)
    for number in range(1, N_SEATS + 1):
        scene.join(listens_at=0 if number == deaf else 55552)
    scene.settle(2)
    assert bytes_by_cut(scene) == [(is_relayed, not is_relayed) for is_relayed in expected]
    assert scene.machines[deaf].neighbours.line == 0, "who has not consented hears of no neighbour"


def test_a_server_that_was_not_asked_names_nobody() -> None:
    scene = Scene()
    for _ in range(N_SEATS):
        scene.join()
    scene.settle(2)
    assert bytes_by_cut(scene) == [(True, False), (True, False)]


@pytest.mark.parametrize("cut", [1, 2])
def test_a_line_that_breaks_in_mid_step_costs_the_lease_and_the_server_stands_in(scene: Scene, cut: int) -> None:
    until(scene, lambda: bool(scene.machines[cut].forwarded))
    scene.cut(cut)
    scene.settle(len(scene.trainer.journal) + 3)
    assert bytes_by_cut(scene) == [(cut == 1, cut == 2), (cut == 2, cut == 1)]
    assert set(scene.trainer.losses) == {HONEST}
    (said,) = [notice for notice in scene.kept.notices if "left:" in notice]
    assert f"activations behind seat {cut} go through this server from now on: the line broke" in said


def test_a_new_neighbour_is_called_again(scene: Scene) -> None:
    scene.cut(1)
    scene.settle(4)
    scene.drop(2)
    scene.join()
    scene.settle(len(scene.trainer.journal) + 3)
    assert bytes_by_cut(scene) == [(False, True), (False, True)]


def test_who_stalls_behind_a_line_keeps_its_seat_once(scene: Scene) -> None:
    """Only the two know whether anything was sent: through the server it is seen."""
    machine = scene.machines[2]
    machine.worker.rest(1e12)
    scene.settle(9)
    scene.wait(STALL_S)
    assert "volunteer 2 has not answered for 30 s" in scene.kept.notices[-2]
    unanswered = "volunteer 2 has a seat and does not answer, and nobody else is there for it"
    assert unanswered not in scene.performer.waiting
    scene.settle(9)
    scene.wait(STALL_S)
    assert unanswered in scene.performer.waiting


def test_a_seat_before_that_sends_something_else_is_heard_no_more(scene: Scene) -> None:
    until(scene, lambda: bool(scene.machines[1].forwarded))
    said = scene.machines[1].forwarded[0]
    scene.machines[1].forwarded[0] = replace(said, payload=said.payload + b"!")
    scene.settle(6)
    assert bytes_by_cut(scene) == [(True, False), (False, True)]
    assert all(machine.farewell is None for machine in scene.machines.values()), "the server has not seen who lied"


def test_payload_for_the_server_of_what_went_directly_is_refused(scene: Scene) -> None:
    machine = scene.machines[1]
    until(scene, lambda: bool(machine.forwarded))
    activations = machine.forwarded[0]
    machine.link.client.data_to_send(2**30)  # its word of them gets lost
    machine.link.client.send(activations)
    scene.hear(1)
    assert f"expected none here, got {len(activations.payload)} bytes" in " ".join(scene.kept.notices)
    assert 1 not in scene.machines


def until(scene: Scene, is_there: Callable[[], bool]) -> None:
    """Goes on, one thing after another, until something is there."""
    for _ in range(10_000):
        if is_there():
            return
        scene.do_work()
        for peer, machine in list(scene.machines.items()):
            machine.hear(scene.clock)
            machine.compute(scene.clock)
            if is_there():
                return
            scene.hear(peer)
            if is_there():
                return
            scene.carry(peer)
    raise AssertionError("it never came")


def test_activations_without_a_payload_are_small() -> None:
    said = Activations(2**31, 2**40, 64, bytes(8), bytes(10**6))
    assert len(encode(replace(said, payload=b""))) < 40
