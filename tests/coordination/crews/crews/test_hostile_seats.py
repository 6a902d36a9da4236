"""Seats that say what none may say: each loses its own place, and the crew goes on with a spare."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from fedlearn.coordination.crews.crew import STALL_S
from fedlearn.wire.limits import LOADING_LIMIT_S, message_limit_s
from fedlearn.wire.messages import Activations, Message, Ready, Result
from tests.coordination.crews.replica import HONEST, MEMBER_BYTES, MEMORY, N_SEATS, digest_of
from tests.coordination.crews.scene import Machine, Scene

LEASE = 64


@pytest.fixture
def scene() -> Scene:
    """A crew of three with a lease of which nothing is done, and two spares; machine 1 begins, and 3 ends."""
    made = Scene()
    for _ in range(N_SEATS + 2):
        made.join()
    made.settle(2)
    while not made.leased():
        made.do_work()
        for peer, machine in list(made.machines.items()):
            machine.hear(made.clock)
            machine.compute(made.clock)
            made.hear(peer)
    assert [machine.tensors for machine in made.machines.values()][:3] == [("a",), ("b",), ("c",)]
    return made


def activations(machine: Machine, first: int = 0, count: int = 3, n_bytes: int | None = None) -> Activations:
    payload = bytes(MEMBER_BYTES * count if n_bytes is None else n_bytes)
    return Activations(machine.step, first, count, digest_of(machine.step, machine.tensors), payload)


def result(machine: Machine, first: int = 0, count: int = 4) -> Result:
    return Result(machine.step, first, np.zeros(count, np.float32), digest_of(machine.step, machine.tensors))


CASES: dict[str, tuple[int, Callable[[Machine], Message], str]] = {
    "too short": (1, lambda m: activations(m, n_bytes=11), "expected at most 3 members and 12 bytes of 3, got 11"),
    "too long": (1, lambda m: activations(m, n_bytes=13), "expected at most 3 members and 12 bytes of 3, got 13"),
    "too many at once": (1, lambda m: activations(m, count=4), "expected at most 3 members"),
    "of others": (1, lambda m: activations(m, first=10**6), "got 3 from 1000000 on"),
    "of nobody": (1, lambda m: activations(m, first=2**63 - 4), "expected some from 0 to"),
    "that it was not given": (2, activations, "expected some from 0 to -1, got 3 from 0 on"),
    "losses of the first": (1, result, "expected activations, got Result"),
    "losses of a stem": (2, result, "expected activations, got Result"),
    "activations of a leaf": (3, activations, "expected losses, got Activations"),
    "losses that nobody gave": (3, result, "expected some from 0 to -1"),
}


@pytest.mark.parametrize("name", CASES)
def test_only_who_said_it_is_sent_away(scene: Scene, name: str) -> None:
    peer, made, answer = CASES[name]
    guilty = scene.machines[peer]
    guilty.under_way = None
    guilty.link.client.send(made(guilty))
    scene.hear(peer)
    guilty.hear(scene.clock)
    assert guilty.farewell is not None
    assert answer in guilty.farewell.reason
    goes_on_with_a_spare(scene, peer)


def test_the_first_seat_may_not_flood_the_next(scene: Scene) -> None:
    guilty = scene.machines[1]
    queued = []
    for first in range(0, LEASE, 2):
        guilty.link.client.send(activations(guilty, first, 2))
        scene.hear(1)
        if 1 not in scene.machines:
            break
        queued.append(scene.machines[2].link.server.bytes_queued)
    assert len(queued) < LEASE // 2 - 5, "the window is shorter than the lease"
    assert max(queued) < 20 * 60, "what waits for a seat that never reads"
    goes_on_with_a_spare(scene, 1)


def test_what_is_of_a_step_that_is_over_is_left_alone(scene: Scene) -> None:
    late = scene.machines[2]
    late.link.client.send(Activations(late.step - 1, 0, 3, bytes(8), b"whatever"))
    scene.hear(2)
    assert 2 in scene.machines
    steps = len(scene.trainer.journal)
    scene.settle(steps + 2)
    assert len(scene.trainer.journal) >= steps + 2


def test_what_ended_where_the_lease_begins_is_left_alone(scene: Scene) -> None:
    scene.join()
    late = None
    while late is None:
        scene.settle(len(scene.trainer.journal) + 1)
        for holder in scene.crews._holders.values():
            lease = holder.crew.assignment if holder.crew is not None else None
            if lease is not None and lease.first_member > 0 and holder.stage == 0:
                peer, late, first = holder.peer, scene.machines[holder.peer], lease.first_member
    late.link.client.send(activations(late, first - 3))
    scene.hear(peer)
    assert peer in scene.machines


def test_digests_of_steps_that_are_over_are_forgotten(scene: Scene) -> None:
    scene.settle(len(scene.trainer.journal) + 20)
    assert len({step for step, _ in scene.crews._digests}) <= 2


def test_weights_of_another_step_are_not_answered_for() -> None:
    scene = Scene()
    for _ in range(N_SEATS + 1):
        scene.join()
    liar = scene.machines[2]
    while not scene.is_loading(liar):
        scene.do_work()
        for peer, machine in list(scene.machines.items()):
            machine.hear(scene.clock)
            if not (machine is liar and scene.is_loading(liar)):
                machine.compute(scene.clock)
            scene.hear(peer)
    liar.under_way = None
    liar.link.client.send(Ready(7, digest_of(7, liar.tensors)))
    scene.hear(2)
    liar.hear(scene.clock)
    assert liar.farewell is not None
    assert liar.farewell.reason == "Ready: expected step 0, got 7"
    goes_on_with_a_spare(scene, 2)


def test_who_was_sent_a_part_and_never_answers_loses_its_place() -> None:
    scene = Scene()
    for _ in range(N_SEATS + 1):
        scene.join()
    silent = scene.machines[2]
    for _ in range(20):
        scene.do_work()
        for peer, machine in list(scene.machines.items()):
            machine.hear(scene.clock)
            if not (machine is silent and scene.is_loading(silent)):
                machine.compute(scene.clock)
            scene.hear(peer)
    assert not scene.trainer.journal
    under_way, silent.under_way = silent.under_way, None
    assert under_way is not None
    scene.wait(STALL_S + message_limit_s(MEMORY))
    scene.settle(2)
    assert not scene.trainer.journal, "its first part may take long"
    scene.wait(LOADING_LIMIT_S)
    scene.settle(2)
    assert len(scene.trainer.journal) >= 2
    assert any("volunteer 2 has not answered" in notice for notice in scene.kept.notices)


def test_nothing_but_losses_counts_of_what_the_last_seat_reports(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    client = scene.machines[3].link.client
    send = client.send

    def add(said: Message) -> None:
        send(replace(said, variance_left=0.5, n_machines=7, busy_s=1e-3) if isinstance(said, Result) else said)

    monkeypatch.setattr(client, "send", add)
    scene.settle(len(scene.trainer.journal) + 3)
    assert {metrics.variance_left for metrics in scene.kept.metrics} == {None}
    assert [(crew.n_machines, crew.exchange_s) for crew in scene.coordinator.roster.crews] == [(1, None)]


def goes_on_with_a_spare(scene: Scene, without: int) -> None:
    others = [peer for peer in scene.machines if peer != without]
    assert without not in scene.machines or scene.machines[without].farewell is not None
    steps = len(scene.trainer.journal)
    scene.settle(steps + 2)
    assert len(scene.trainer.journal) >= steps + 2
    assert [peer for peer in scene.machines if peer != without] == others


def test_losses_of_weights_that_drifted_do_not_count_however_late_digests_are_known() -> None:
    scene = Scene()
    for _ in range(N_SEATS):
        scene.join()
    scene.settle(2)
    scene.machines[2].drifts_next = True
    while len(scene.trainer.journal) < 6:
        for _ in range(60):  # the server's replica is slower than the whole crew
            for peer, machine in list(scene.machines.items()):
                machine.hear(scene.clock)
                machine.compute(scene.clock)
                scene.hear(peer)
        assert scene.do_work()
    assert set(scene.trainer.losses) == {HONEST}
    assert any("volunteer 2 drifted" in notice for notice in scene.kept.notices)
