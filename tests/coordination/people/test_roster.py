import pytest

from fedlearn.coordination.people.roster import KEPT_BLOCKS, KEPT_EXCHANGES, Phase, Roster, Volunteer


def test_speed_forgets_half_of_what_it_was_with_each_measurement() -> None:
    volunteer = Volunteer(1)
    volunteer.measure(100, 0.5)
    assert volunteer.members_per_s == pytest.approx(200)
    volunteer.measure(0, 5.0)
    assert volunteer.members_per_s == pytest.approx(100)


def test_speed_of_a_step_without_duration_is_a_number() -> None:
    volunteer = Volunteer(1)
    volunteer.measure(64, 0.0)
    assert volunteer.members_per_s is not None
    assert 0 < volunteer.members_per_s < float("inf")


def test_updates_follow_the_weights() -> None:
    followers = [phase for phase in Phase if Volunteer(1, phase=phase).follows_updates]
    assert followers == [Phase.SYNCING, Phase.READY]


def test_only_the_last_blocks_count_as_held() -> None:
    volunteer = Volunteer(1)
    sent = [bytes([number]) for number in range(KEPT_BLOCKS + 1)]
    volunteer.blocks.extend(sent)
    assert list(volunteer.blocks) == sent[1:]


def test_exchange_is_what_passed_besides_the_work_and_is_forgotten_by_half() -> None:
    volunteer = Volunteer(1)
    volunteer.time_exchange(5, 0.5, 0.25)
    assert (volunteer.exchange_s, volunteer.member_s) == (0.25, 0.05)
    volunteer.time_exchange(10, 2.0, 1.0)
    assert volunteer.exchange_s == 0.625
    assert volunteer.member_s == pytest.approx(0.075)
    volunteer.time_exchange(40, 2.0, 1.0, n_machines=5)
    assert volunteer.n_machines == 5
    assert volunteer.member_s == pytest.approx(0.1)


def test_the_least_of_the_last_exchanges_is_what_the_line_takes() -> None:
    volunteer = Volunteer(1)
    assert volunteer.line_s is None
    found: list[float | None] = []
    for passed_s in (2.0, 1.0, *[3.0] * KEPT_EXCHANGES):
        volunteer.time_exchange(1, 1.0 + passed_s, 1.0)
        found.append(volunteer.line_s)
    assert found == [2.0, *[1.0] * KEPT_EXCHANGES, 3.0]


@pytest.mark.parametrize("busy_s", [0.0, -1.0, 1.5, float("nan"), float("inf"), -float("inf")])
def test_exchange_that_cannot_be_is_not_believed(busy_s: float) -> None:
    volunteer = Volunteer(1)
    volunteer.time_exchange(1, 1.0, busy_s)
    assert volunteer.exchange_s is None
    assert volunteer.member_s is None


def test_phases_follow_each_other_by_the_table() -> None:
    volunteer = Volunteer(1)
    for phase in (Phase.WAITING, Phase.SYNCING, Phase.READY, Phase.WAITING, Phase.SYNCING, Phase.WAITING, Phase.GONE):
        volunteer.enter(phase)
        assert volunteer.phase is phase
    for phase in Phase:
        with pytest.raises(AssertionError, match=r"after Phase\.GONE"):
            volunteer.enter(phase)
    with pytest.raises(AssertionError, match=r"Phase\.READY after Phase\.WAITING"):
        Volunteer(1, phase=Phase.WAITING).enter(Phase.READY)


def test_whoever_has_a_seat_is_leased_nothing_itself() -> None:
    whole, seat = Volunteer(1, phase=Phase.READY), Volunteer(2, phase=Phase.READY, is_seated=True)
    late = Volunteer(3, phase=Phase.SYNCING)
    assert Roster({1: whole, 2: seat, 3: late}).ready == [whole]
