from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.wire.messages import Ready
from fedlearn.wire.states import State
from tests.coordination.coordinator.scene import BLOCKS, GROUP, TIME_PER_STEP, WRONG_DIGEST, Scene, digest_of

EVENTS = st.tuples(
    st.sampled_from(
        ["greet", "ready", "report", "report", "all", "drift", "drop", "goodbye", "apply", "wait", "verdict"]
    ),
    st.integers(0, 5),
)


@given(st.lists(EVENTS, max_size=60), st.sampled_from([BLOCKS, (NO_BLOCK,)]), st.integers(0, 2), st.booleans())
@settings(deadline=None)
def test_run_goes_on_and_counts_only_what_was_leased_and_right(
    events: list[tuple[str, int]], blocks: tuple[bytes, ...], steps_per_block: int, replays: bool
) -> None:
    scene = Scene(blocks=blocks, steps_per_block=steps_per_block, replays=replays)
    play(scene, events)


@given(st.lists(EVENTS, max_size=60), st.integers(0, 2**32), st.sets(st.integers(1, 6)))
@settings(deadline=None)
def test_the_same_holds_where_volunteers_check_one_another(
    events: list[tuple[str, int]], seed: int, proven: set[int]
) -> None:
    play(Scene(audit=0.5, lottery=Random(seed), proven=proven), events)


def play(scene: Scene, events: list[tuple[str, int]]) -> None:
    for event, number in [("greet", 0), ("ready", 0), ("all", 0), *events]:
        happen(scene, event, number)
    n_steps = scene.step
    for event in ("verdict", "apply", "ready", "wait", "apply", "all", "verdict", "wait", "apply"):
        for index in range(len(scene.followers)):
            happen(scene, event, index if event != "wait" else 2)
    assert not scene.followers or scene.step > n_steps
    assert [update.step for update in scene.journal] == list(range(len(scene.journal)))
    for update in scene.journal:
        assert all(first % GROUP == 0 and count % GROUP == 0 for first, count in update.spans)
        assert all(first + count < following for (first, count), (following, _) in pairwise(update.spans))
        members = {member for first, count in update.spans for member in range(first, first + count)}
        assert len(members) == update.utilities.size
        assert members <= set().union(*(m for (step, _), m in scene.reported.items() if step == update.step))


def happen(scene: Scene, event: str, number: int) -> None:
    """Lets something happen to one of the followers, if it can."""
    if event == "greet":
        scene.greet(1 + scene.n_peers)
    elif event == "apply":
        if scene.is_applying:
            scene.applied()
    elif event == "wait":
        scene.wait(TIME_PER_STEP / 2 * number)
    elif event == "verdict":
        while scene.claims:
            claim = scene.claims.pop()
            scene.recomputed(claim, claim.losses)
    elif scene.followers:
        peer = list(scene.followers)[number % len(scene.followers)]
        left = scene.remaining(peer)
        match event, scene.state_of(peer):
            case "ready", State.SYNCING:
                scene.say(peer, Ready(scene.synchronised[peer], digest_of(scene.synchronised[peer])))
            case (("report" | "all" | "drift"), State.ACTIVE) if left > 0:
                count = left if event == "all" else min(left, GROUP * (1 + number))
                digest = WRONG_DIGEST if event == "drift" else digest_of(scene.assignments[peer].step)
                scene.report(peer, count, digest=digest)
            case "goodbye", _:
                scene.leave(peer)
            case "drop", _:
                scene.drop(peer)
            case _:
                pass
