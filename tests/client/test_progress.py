from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from fedlearn.client.progress import LINE_INTERVAL_S, Contribution, credit_in_short, credit_in_words, share_of
from fedlearn.coordination.effects import Apply, Begin, Build, Compute, Evaluate, Load, TakeSeat
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.parts.computation import Pass
from fedlearn.terminal.drawing import Goal
from fedlearn.wire.messages import Credit, News, Seat, Start, Welcome

LAYOUT = ParameterLayout((TensorSpec("vector", (7,)),))
SNAPSHOT = genesis(LAYOUT, np.zeros(7, dtype=np.float32), step=20)
REPLICA = Replica(LAYOUT, SNAPSHOT, seed=1, row_masks=lambda _: None)
BUILD = Build(Welcome("3", Invitation("kind", 1, {}, {})))
LOAD, BEGIN = Load(SNAPSHOT), Begin(Start(SNAPSHOT.digest, 20, 25, keeps_start=False))


def evaluation(n_members: int) -> Evaluate:
    return Evaluate(
        Trials(step=20, perturbation=Perturbation(0.1, 1), group_size=8, first_member=0, n_members=n_members), bytes(16)
    )


@pytest.fixture(params=[LOAD, BEGIN], ids=["Load", "Begin"])
def progress(request: pytest.FixtureRequest) -> Contribution:
    progress = Contribution()
    assert progress.performed(BUILD, None, None, n_steps=0, now=90.0) is None
    compute: Compute = request.param
    assert progress.performed(compute, None, REPLICA, n_steps=0, now=100.0) == "joined run 3 at step 20: 7 parameters"
    return progress


def test_joining_is_said_once(progress: Contribution) -> None:
    assert progress.performed(LOAD, None, REPLICA, n_steps=0, now=101.0) is None


def test_steps_and_own_speed_are_said_every_now_and_then(progress: Contribution) -> None:
    for now in np.arange(101.0, 100.0 + LINE_INTERVAL_S):
        assert progress.performed(evaluation(32), None, REPLICA, n_steps=4, now=now) is None
    line = progress.performed(evaluation(32), None, REPLICA, n_steps=5, now=100.0 + LINE_INTERVAL_S)
    assert line == "5 steps taken, 32 members/s of its own"
    assert progress.performed(evaluation(8), None, REPLICA, n_steps=5, now=101.0 + LINE_INTERVAL_S) is None
    line = progress.performed(evaluation(8), None, REPLICA, n_steps=6, now=100.0 + 2 * LINE_INTERVAL_S)
    assert line == "6 steps taken, 1.6 members/s of its own"


def test_a_seat_says_its_share_of_what_passes_through_its_part(progress: Contribution) -> None:
    seat = Seat(1, (2,), 1, 1, "float32", 8, 4, 0, 0)
    assert progress.performed(TakeSeat(seat), None, REPLICA, n_steps=0, now=100.0) is None
    trials = evaluation(16).trials
    for first in (0, 16, 32):
        passing = Pass(msgspec.structs.replace(trials, first_member=first), bytes(16), b"")
        progress.performed(passing, b"", REPLICA, n_steps=0, now=101.0)
    counted = SimpleNamespace(step=20, spans=((0, 96),))
    update: Any = Apply(counted)  # type: ignore[arg-type]
    progress.performed(update, None, REPLICA, n_steps=1, now=104.0)
    assert (
        dict(progress.block(21, n_steps=1, now=104.0).facts)["lends"] == "25 % of the work, 6 members/s, 1 step taken"
    )
    line = progress.performed(passing, b"", REPLICA, n_steps=1, now=100.0 + LINE_INTERVAL_S)
    assert line == "1 steps taken, 3.2 members/s, its share of the 6.4 of its crew"


def test_credit_is_said_with_the_steps(progress: Contribution) -> None:
    line = progress.performed(
        LOAD, None, REPLICA, n_steps=5, now=100.0 + LINE_INTERVAL_S, credited="it has earned a lot"
    )
    assert line == "5 steps taken, 0 members/s of its own; it has earned a lot"


def test_credit_is_said_in_a_lenders_words() -> None:
    said = "its identity is credited with 4.56M members, 18.2M trial-tokens and 5 min in all"
    assert credit_in_words(Credit(4_560_000, 18_240_000, 301, 0, 0), "tokens") == said
    checked = f"{said}; groups checked and right: 12"
    assert credit_in_words(Credit(4_560_000, 18_240_000, 301, 12, 0), "tokens") == checked
    caught = f"{checked}; results checked and false: 2"
    assert credit_in_words(Credit(4_560_000, 18_240_000, 301, 12, 2), "tokens") == caught


def test_the_greatest_credit_that_can_be_told_is_said() -> None:
    most = 2**63 - 1
    said = credit_in_words(Credit(most, most, most, most, most), "tokens")
    assert "9.22e+09G members" in said
    assert len(said) < 300


def applied(step: int, *spans: tuple[int, int]) -> Apply:
    update: Any = SimpleNamespace(step=step, spans=spans)
    return Apply(update)


def losses_of(*losses: float) -> TrialResults:
    return TrialResults(np.array(losses, dtype=np.float32))


def at_work(*, has_block: bool = True) -> Contribution:
    progress = Contribution(has_block=has_block)
    progress.performed(BUILD, None, None, n_steps=0, now=90.0)
    progress.performed(LOAD, None, REPLICA, n_steps=0, now=100.0)
    return progress


def test_where_a_block_is_shown_there_are_no_lines_besides() -> None:
    progress = at_work()
    assert progress.performed(evaluation(8), None, REPLICA, n_steps=5, now=100.0 + LINE_INTERVAL_S) is None


def test_a_block_says_what_a_lender_wants_to_know() -> None:
    progress = at_work()
    for step in range(3):
        progress.performed(evaluation(32), losses_of(1.0, 2.0), REPLICA, n_steps=step, now=102.0 + 2 * step)
        progress.performed(applied(20 + step, (0, 128)), b"", REPLICA, n_steps=step + 1, now=102.0 + 2 * step)
    progress.told(News(steps=100, left_s=None, volunteers=4, loss=1.4), 106.0)
    block = progress.block(23, n_steps=3, now=106.0, credited="8 members")
    assert block.title == "3"
    assert block.goal == Goal(23, 100, 77 * 2.0, 0.23)
    assert block.loss is not None
    assert block.loss.said == "1.4, 1.5 in own trials"
    of_text = progress.block(23, n_steps=3, now=106.0, unit="tokens").loss
    assert of_text is not None
    assert of_text.said == "1.4, 1.5 nats/token in own trials"
    assert block.facts == (
        ("lends", "25 % of the work, 16 members/s, 3 steps taken"),
        ("others", "3 other volunteers"),
        ("credit", "8 members"),
    )


def test_loss_of_the_run_is_shown_as_its_owner_sees_it() -> None:
    progress = at_work()
    progress.performed(evaluation(32), losses_of(1.5), REPLICA, n_steps=1, now=102.0)
    progress.told(News(0, None, volunteers=1, loss=1.4, shown=("bits_per_character", 2.0198)), 103.0)
    loss = progress.block(20, n_steps=1, now=104.0, unit="tokens").loss
    assert loss is not None
    assert loss.said == "2.020 bits/character, 1.5 nats/token in own trials"


def test_what_a_server_does_not_say_is_not_shown() -> None:
    progress = at_work()
    progress.told(None, 101.0)
    block = progress.block(20, n_steps=0, now=101.0)
    assert block.goal == Goal(20)
    assert block.loss is None
    assert block.facts == (("lends", "0 steps taken"),)


def test_time_left_runs_down_between_two_words_of_the_server() -> None:
    progress, news = at_work(), News(steps=0, left_s=100.0, volunteers=1, loss=None)
    progress.told(news, 110.0)
    progress.told(news, 140.0)  # the same one
    assert progress.block(20, n_steps=0, now=140.0).goal.left_s == 70.0
    assert progress.block(20, n_steps=0, now=900.0).goal.left_s == 0.0


def test_losses_that_are_not_finite_are_not_shown() -> None:
    progress = at_work()
    progress.performed(evaluation(8), losses_of(np.nan, 1.0), REPLICA, n_steps=0, now=101.0)
    assert progress.block(20, n_steps=0, now=101.0).loss is None


@pytest.mark.parametrize(
    ("steps", "share"),
    [
        ([], None),
        ([([], [(0, 64)])], None),
        ([([(0, 64)], [])], 0.0),
        ([([(0, 64), (128, 64)], [(32, 64), (128, 32)])], 0.5),
        ([([(0, 64)], [(0, 64)]), ([(0, 64)], [])], 0.5),
    ],
)
def test_the_share_is_of_members_that_counted(steps: list[tuple[Any, Any]], share: float | None) -> None:
    assert share_of(steps) == share


def test_credit_in_short_has_what_counts() -> None:
    assert (
        credit_in_short(Credit(4_560_000, 18_240_000, 301, 12, 0), "tokens")
        == "4.56M members, 18.2M trial-tokens, 5 min"
    )
    assert credit_in_short(Credit(1, 2, 3, 0, 4), "tokens").endswith(", 4 false results")
