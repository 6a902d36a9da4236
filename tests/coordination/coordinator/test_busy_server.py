"""A server that takes its time for each of hundreds, by a scripted clock: what is left to them for evaluating."""

import heapq

import msgspec
import numpy as np
import pytest

from tests.coordination.coordinator.scene import GROUP, STRATEGY, Scene

SENDING_S, TAKING_S = 40e-6, 60e-6
"""Of a server, for each volunteer and step."""

MEMBER_S = 1e-3
WARM_UP, STEPS = 24, 6


def take_step(scene: Scene) -> float:
    """Everybody evaluates from when its Assignment left; gives for how long all did what counts, together."""
    opened_at, evaluated_s = scene.now, 0.0
    arrivals: list[tuple[float, int, float]] = []
    for place, (peer, assignment) in enumerate(scene.assignments.items(), start=1):
        busy_s = assignment.quota * MEMBER_S
        arrivals.append((opened_at + place * SENDING_S + busy_s, peer, busy_s))
    heapq.heapify(arrivals)
    while arrivals and not scene.is_applying:  # whoever comes later is too late
        arrived_at, peer, busy_s = heapq.heappop(arrivals)
        scene.now = max(scene.now, arrived_at, opened_at + len(scene.assignments) * SENDING_S) + TAKING_S
        losses = np.resize(np.arange(GROUP, dtype=np.float32), scene.assignments[peer].quota)
        scene.report(peer, busy_s=busy_s, losses=losses)
        evaluated_s += busy_s
    scene.applied()
    return evaluated_s


def evaluating(n_volunteers: int) -> tuple[float, float]:
    """Share of their time that volunteers evaluate, and seconds of a step, once the pace is found."""
    scene = Scene(strategy=msgspec.structs.replace(STRATEGY, max_population=10**7))
    for peer in range(1, n_volunteers + 1):
        scene.join(peer)
    while len(scene.assignments) < n_volunteers:  # those who came while the first step was open
        take_step(scene)
    for _ in range(WARM_UP):
        take_step(scene)
    began = scene.now
    evaluated_s = sum(take_step(scene) for _ in range(STEPS))
    return evaluated_s / n_volunteers / (scene.now - began), (scene.now - began) / STEPS


@pytest.mark.parametrize("n_volunteers", [1, 45, 150])
def test_steps_are_so_long_that_volunteers_evaluate_five_sixths_of_their_time(n_volunteers: int) -> None:
    share, step_s = evaluating(n_volunteers)
    print(f"{n_volunteers} volunteers evaluate {share:.1%} of their time, in steps of {1e3 * step_s:.0f} ms")
    assert share >= 5 / 6
