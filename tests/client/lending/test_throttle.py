from fedlearn.client.lending.throttle import CpuThrottle


def test_half_of_one_processor_rests_as_long_as_it_works() -> None:
    throttle = CpuThrottle(0.5, 1)
    assert throttle.rest_s(cpu_s=10.0, now=100.0) == 0.0
    assert throttle.rest_s(cpu_s=11.0, now=101.0) == 1.0
    # It rested, and works for another second.
    assert throttle.rest_s(cpu_s=12.0, now=103.0) == 1.0


def test_share_is_of_all_processors() -> None:
    throttle = CpuThrottle(0.5, 4)
    throttle.rest_s(cpu_s=0.0, now=0.0)
    assert throttle.rest_s(cpu_s=2.0, now=1.0) == 0.0
    assert throttle.rest_s(cpu_s=6.0, now=2.0) == 1.0


def test_time_that_was_not_used_is_not_saved_up() -> None:
    throttle = CpuThrottle(0.5, 1)
    throttle.rest_s(cpu_s=0.0, now=0.0)
    assert throttle.rest_s(cpu_s=0.0, now=1000.0) == 0.0
    assert throttle.rest_s(cpu_s=1.0, now=1001.0) == 1.0


def test_rest_that_was_cut_short_is_still_owed() -> None:
    throttle = CpuThrottle(0.25, 1)
    throttle.rest_s(cpu_s=0.0, now=0.0)
    assert throttle.rest_s(cpu_s=1.0, now=1.0) == 3.0
    assert throttle.rest_s(cpu_s=1.0, now=2.0) == 2.0


def test_over_a_long_time_the_share_is_kept() -> None:
    throttle, cpu_s, now = CpuThrottle(0.3, 2), 0.0, 0.0
    for slice_s in (0.25, 0.1, 0.4) * 100:
        cpu_s, now = cpu_s + 2 * slice_s, now + slice_s
        now += throttle.rest_s(cpu_s, now)
    assert abs(cpu_s / (2 * now) - 0.3) < 0.01
