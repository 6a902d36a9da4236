from fedlearn.launch.spec import GIVE_UP_S, LaunchSpec


def test_flags_that_are_given_come_last_and_so_count() -> None:
    order = LaunchSpec(count=2, server="h:1", cpus=4, flags=("--threads", "2"))
    expected = ["join", "--server", "h:1", "--threads", "4", "--give-up", str(GIVE_UP_S), "--quiet", "--threads", "2"]
    assert order.join("--quiet") == expected


def test_memory_is_rounded_up_to_what_schedulers_count() -> None:
    assert LaunchSpec(count=1, server="h:1", memory_bytes=2**20 + 1).memory_mib == 2
