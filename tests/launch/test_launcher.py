from fedlearn.launch.launcher import GIVE_UP_S, Launcher, launchers, mib_of


def test_flags_that_are_given_come_last_and_so_count() -> None:
    order = Launcher(count=2, server="h:1", cpus=4, flags=("--threads", "2"))
    expected = ["join", "--server", "h:1", "--threads", "4", "--give-up", str(GIVE_UP_S), "--quiet", "--threads", "2"]
    assert order.join("--quiet") == expected


def test_memory_is_rounded_up_to_what_schedulers_count() -> None:
    assert mib_of("1025kiB") == 2


def test_each_module_of_the_room_is_a_launcher_by_its_name() -> None:
    assert {name: launcher.__name__ for name, launcher in launchers().items()} == {
        "k8s": "Kubernetes",
        "local": "LocalProcesses",
        "ray": "Ray",
        "slurm": "Slurm",
        "torchrun": "Torchrun",
    }
