"""Places in gangs, from what torchrun and Slurm leave in the environment."""

import pytest

from fedlearn.commands.command_line import _parser
from fedlearn.launch.gang import GangRank, server_arguments, volunteer_arguments

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "localhost"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_STEP_NODELIST": "gpu[03-04]"}
ALONE = GangRank(0, 1, 1, "127.0.0.1")
HERE, ELSEWHERE = GangRank(1, 3, 3, "n1"), GangRank(1, 3, 1, "n1")


def test_place_is_torchruns() -> None:
    assert GangRank.of(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"}) == GangRank(2, 3, 3, "localhost", 1)
    assert GangRank.of({"RANK": "0"}) == ALONE


def test_place_is_slurms() -> None:
    assert GangRank.of(SLURM) == GangRank(1, 8, 4, "gpu03")
    assert GangRank.of({"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_RESTART_COUNT": "2"}) == GangRank(
        0, 3, 3, "127.0.0.1", 2
    )


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a1", "a1"), ("a[1,5]", "a1"), ("a[007-9],b", "a007"), ("b,a[1-2]", "b"), ("n-1.x[2]", "n-1.x2")],
)
def test_master_is_the_first_of_slurms_machines(nodes: str, first: str) -> None:
    assert GangRank.of(SLURM | {"SLURM_STEP_NODELIST": nodes}).master == first


def test_process_outside_of_a_gang_is_told_what_starts_one() -> None:
    with pytest.raises(ValueError, match="start it with torchrun -m fedlearn rank TASK, or with srun"):
        GangRank.of({})
    with pytest.raises(ValueError, match="expected a number in the variable WORLD_SIZE, got 'x'"):
        GangRank.of(TORCHRUN | {"WORLD_SIZE": "x"})


def served(place: GangRank, *flags: str, has_run: bool = True) -> tuple[list[str], dict[str, object]]:
    arguments = server_arguments(place, "f.py:t", 5, list(flags), has_run=has_run)
    options, unknown = _parser("fedlearn").parse_known_args(arguments)
    assert unknown == []
    return arguments, vars(options)


def test_server_on_one_machine_listens_to_nobody_else() -> None:
    arguments, options = served(HERE, "--steps", "7")
    assert (options["task"], options["host"], options["port"], options["steps"]) == ("f.py:t", "127.0.0.1", "5", "7")
    assert (options["volunteers"], options["resume"]) == ("0", None)
    assert "--tls" not in arguments


def test_server_of_several_machines_listens_to_all() -> None:
    _, options = served(ELSEWHERE)
    assert (options["host"], options["tls"]) == ("0.0.0.0", "off")


def test_server_alone_has_volunteers_of_its_own() -> None:
    assert "volunteers" not in served(ALONE)[1]


def test_flags_that_are_given_come_last_and_so_count() -> None:
    assert served(ELSEWHERE, "--tls", "on")[1]["tls"] == "on"


def test_gang_that_was_started_again_goes_on_with_its_run() -> None:
    again = GangRank(0, 3, 3, "n1", n_restarts=1)
    assert served(again)[1]["resume"] == "latest"
    assert served(again, has_run=False)[1]["resume"] is None, "it had died before there was one"


@pytest.mark.parametrize(("place", "server"), [(HERE, "127.0.0.1:5"), (ELSEWHERE, "fedlearn+plain://n1:5")])
def test_volunteer_joins_the_machine_of_rank_0(place: GangRank, server: str) -> None:
    arguments = volunteer_arguments(place, "f.py:t", 5, threads=2)
    options, unknown = _parser("fedlearn").parse_known_args(arguments)
    assert unknown == []
    assert (options.server, options.name, options.threads, options.task) == ([server], "rank-1", 2, "f.py:t")
    assert options.give_up == 300.0
    assert "--task" not in volunteer_arguments(place, "rnn", 5, threads=2), "a kind, and no file"
