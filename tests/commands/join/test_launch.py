"""`fedlearn launch`: what is printed, started, and refused."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

import fedlearn
from fedlearn.commands.command_line import main
from fedlearn.launch.launchers import local
from fedlearn.launch.launchers import ray as on_ray

Launch = Callable[..., str]


@pytest.fixture
def launched(capsys: pytest.CaptureFixture[str]) -> Launch:
    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["launch", *arguments])
        shown = capsys.readouterr()
        assert ended.value.code == code, shown.err
        return shown.err if code else shown.out

    return run


def test_slurm_and_kubernetes_are_printed(launched: Launch) -> None:
    common = ("--count", "7", "--server", "127.0.0.1:5", "--memory", "4GB", "--cpus", "3", "--", "--hours", "22-7")
    script = launched("slurm", *common)
    assert "--array=1-7" in script
    assert "--mem=3815M" in script
    assert "--hours 22-7" in script
    manifest: dict[str, Any] = json.loads(launched("k8s", "--image", "there/it:2", *common))
    assert manifest["spec"]["replicas"] == 7
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "there/it:2"
    assert container["resources"]["limits"] == {"cpu": "3", "memory": "3815Mi"}


def test_line_of_torchrun_is_printed(launched: Launch) -> None:
    line = launched("torchrun", "--count", "2", "--server", "127.0.0.1:5", "--task", "a.py:t", "--", "--steps", "9")
    assert line.endswith("-m fedlearn rank a.py:t --port 5 --steps 9\n")


def test_local_ones_share_this_machines_memory(launched: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    class Children:
        def __init__(self, commands: list[tuple[str, list[str]]], **_: object) -> None:
            given.extend(commands)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(local, "Children", Children)
    launched("local", "--count", "2", "--server", "127.0.0.1:5")
    assert [name for name, _ in given] == ["local-1", "local-2"]
    command = given[1][1]
    assert command[:5] == [sys.executable, "-P", "-m", "fedlearn", "join"]
    assert command[-2:] == ["--name", "local-2"]
    assert command[command.index("--max-memory") + 1] == "45.00%"


def test_ray_is_given_what_was_ordered(launched: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def ray(**order: Any) -> list[int]:  # noqa: ANN401 (whatever is given)
        given.update(order)
        return [0, 1]

    monkeypatch.setattr(on_ray, "ray", ray)
    launched(
        "ray", "--count", "2", "--server", "h:5", "--task", "a.py:t", "--memory", "1GB", "--cluster", "c:1", code=1
    )
    assert given == {
        "count": 2, "server": "h:5", "cpus": 1, "memory_bytes": 10**9, "task": "a.py:t", "address": "c:1",
    }  # fmt: skip


def test_what_follows_two_dashes_is_rays_own(launched: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[dict[str, Any]] = []

    def ray(**order: Any) -> list[int]:  # noqa: ANN401 (whatever is given)
        orders.append(order)
        return [0]

    monkeypatch.setattr(on_ray, "ray", ray)
    launched("ray", "--count", "2", "--server", "h:5", "--", "--task", "a.py:t")
    assert (orders[0]["task"], orders[0]["count"]) == ("a.py:t", 2)
    said = launched("ray", "--count", "2", "--server", "h:5", "--", "--hours", "22-7", code=2)
    assert "--hours; fedlearn launch ray --help shows what there is" in said
    assert len(orders) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["slurm", "--count", "0", "--server", "h:5"], 1, "expected a count and cpus above 0, got 0 and 1"),
        (["slurm", "--count", "1", "--server", "h"], 1, "server: expected fedlearn://"),
        (["k8s", "--count", "1", "--server", "h:5", "--", "--thread", "1", "--no"], 2, "join: "),
        (["local", "--count", "1", "--server", "h:5", "--", "--hurs", "1"], 2, "unrecognized arguments: --hurs"),
        (["local", "--count", "1", "--server", "h:5", "--", "h:6"], 1, "expected addresses once"),
        (["slurm", "--count", "1", "--server", "h:5", "--memory", "5%"], 1, "--memory: expected a size such as 4GB"),
        (["torchrun", "--count", "1", "--server", "h:5"], 2, "expected --task, got none"),
        (
            ["moon", "--count", "1", "--server", "h:5"],
            2,
            "expected one of k8s, local, ray, slurm, torchrun, got 'moon'",
        ),
    ],
)
def test_wrong_orders_are_refused_before_anything_is_started(
    launched: Launch, arguments: list[str], code: int, expected: str
) -> None:
    assert expected in launched(*arguments, code=code)


def test_room_is_found_in_the_package() -> None:
    assert callable(fedlearn.launch.ray)
    with pytest.raises(ValueError, match="count: expected at least one volunteer, got 0"):
        fedlearn.launch.ray(count=0, server="h:5")
