import math
from functools import partial

from fedlearn.simulation.timeline import Lane, SimulatedLink, Timeline


def test_events_happen_in_the_order_of_their_time_and_then_of_asking() -> None:
    timeline, seen = Timeline(), list[tuple[str, float]]()

    def note(name: str) -> None:
        seen.append((name, timeline.now))

    for name, duration_s in (("late", 2.0), ("first", 1.0), ("second", 1.0)):
        timeline.after(duration_s, partial(note, name))
    while timeline.advance():
        pass
    assert seen == [("first", 1.0), ("second", 1.0), ("late", 2.0)]
    assert not timeline.advance()


def test_an_event_may_ask_for_others() -> None:
    timeline, seen = Timeline(), list[float]()
    timeline.after(1.0, lambda: timeline.after(0.5, lambda: seen.append(timeline.now)))
    assert timeline.advance()
    assert seen == []
    assert timeline.advance()
    assert seen == [1.5]


def test_a_lane_takes_one_thing_after_another() -> None:
    timeline, ends = Timeline(), list[float]()
    lane = Lane(timeline)
    lane.take(2.0, lambda: ends.append(timeline.now))
    lane.take(1.0)
    lane.take(0.5, lambda: ends.append(timeline.now))
    timeline.after(10.0, lambda: lane.take(1.0, lambda: ends.append(timeline.now)))
    while timeline.advance():
        pass
    assert ends == [2.0, 3.5, 11.0]


def test_bytes_leave_one_after_another_and_are_on_their_way_together() -> None:
    timeline, arrivals = Timeline(), list[tuple[float, bytes]]()
    line = SimulatedLink(timeline, 8.0, 3.0)  # a megabyte per second
    for data in (bytes(1_000_000), bytes(500_000)):
        line.carry(data, lambda data: arrivals.append((timeline.now, data)))
    while timeline.advance():
        pass
    assert [(at, len(data)) for at, data in arrivals] == [(4.0, 1_000_000), (4.5, 500_000)]


def test_a_line_without_a_limit_takes_no_time() -> None:
    timeline, arrivals = Timeline(), list[float]()
    SimulatedLink(timeline, math.inf).carry(bytes(1_000_000), lambda _: arrivals.append(timeline.now))
    timeline.advance()
    timeline.advance()
    assert arrivals == [0.0]
