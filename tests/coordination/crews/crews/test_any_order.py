"""Whatever comes when: crews go on, every replica takes every step, and nothing that drifted counts."""

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fedlearn.coordination.crews.crew import STALL_S
from fedlearn.coordination.crews.crews import REPLAN_S
from fedlearn.wire.states import State
from tests.coordination.coordinator.scene import TIME_PER_STEP
from tests.coordination.crews.replica import HONEST, MEMORY, N_SEATS
from tests.coordination.crews.scene import Scene

EVENTS = st.tuples(
    st.sampled_from(
        ["join", "whole", "drop", "goodbye", "drift", "behind", "pause", "go on", "send away"]
        + ["wait", "work", "work", "machine hears", "computes", "server hears"] * 4
        + ["all hear", "all compute", "server hears all"] * 4
        + ["line carries", "all lines carry"] * 3
        + ["line breaks"]
    ),
    st.integers(0, 7),
)


@given(
    st.lists(EVENTS, max_size=120), st.integers(1, 6), st.sampled_from([0.0, 0.5]), st.booleans(), st.integers(0, 2**32)
)
@settings(deadline=None, max_examples=60, phases=set(Phase) - {Phase.explain})
def test_crews_go_on_whatever_happens(
    events: list[tuple[str, int]], n: int, audit: float, is_direct: bool, seed: int
) -> None:
    scene = Scene(audit=audit, seed=seed, is_direct=is_direct)
    for _ in range(n):
        scene.join()
    for event, number in events:
        happen(scene, event, number)
    recover(scene)


@given(st.lists(EVENTS, max_size=60), st.lists(EVENTS, max_size=20))
@settings(deadline=None, max_examples=60, phases=set(Phase) - {Phase.explain})
def test_a_run_ends_whatever_is_under_way(events: list[tuple[str, int]], after: list[tuple[str, int]]) -> None:
    scene = Scene()
    for _ in range(N_SEATS + 1):
        scene.join()
    for event, number in events:
        happen(scene, event, number)
    scene.performer.perform(scene.coordinator.stop("Ctrl-C"))
    for event, number in after:
        happen(scene, event, number)
    scene.settle()
    assert scene.reason == "Ctrl-C"


def recover(scene: Scene) -> None:
    """Enough machines are there and nothing happens but work: steps are taken, and all weights are right."""
    happen(scene, "go on", 0)
    scene.settle(len(scene.trainer.journal) + 2)
    while len(scene.machines) < 2 * N_SEATS:
        scene.join()
    n_steps = len(scene.trainer.journal)
    scene.settle_for(TIME_PER_STEP, REPLAN_S, STALL_S, STALL_S)
    assert len(scene.trainer.journal) >= n_steps + 4
    assert scene.trainer.losses[-1] == HONEST
    assert set(scene.trainer.losses) == {HONEST}, "losses of weights that drifted counted"


def happen(scene: Scene, event: str, number: int) -> None:
    """Lets something happen to one of the machines, if it can."""
    machines = list(scene.machines.items())
    match event:
        case "join" | "whole":
            if len(machines) < 8:
                scene.join(MEMORY if event == "join" else 0)
        case "wait":
            scene.wait(TIME_PER_STEP / 2 * number)
        case "work":
            scene.do_work()
        case "pause":
            scene.performer.perform(scene.operator.pause("Ada"))
        case "go on":
            scene.performer.perform(scene.operator.go_on("Ada", scene.clock))
        case "all lines carry":
            for peer in list(scene.machines):
                scene.carry(peer)
        case "all hear":
            for machine in scene.machines.values():
                machine.hear(scene.clock)
        case "all compute":
            for machine in scene.machines.values():
                machine.compute(scene.clock)
        case "server hears all":
            for peer in list(scene.machines):
                scene.hear(peer)
        case _ if machines:
            happen_to(scene, event, machines[number % len(machines)][0])
        case _:
            pass


def happen_to(scene: Scene, event: str, peer: int) -> None:
    machine = scene.machines[peer]
    match event:
        case "drop":
            scene.drop(peer)
        case "goodbye":
            machine.perform(machine.worker.stop("it leaves"))
            scene.hear(peer)
        case "drift":
            machine.drifts_next = True
        case "behind":
            if machine.link.server.state is State.ACTIVE:
                scene.performer.fell_behind(peer)
        case "send away":
            scene.send_away(peer)
        case "line carries":
            scene.carry(peer)
        case "line breaks":
            scene.cut(peer)
        case "machine hears":
            machine.hear(scene.clock)
        case "computes":
            machine.compute(scene.clock)
        case "server hears":
            scene.hear(peer)
        case _:
            raise AssertionError(event)
