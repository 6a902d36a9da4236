import socket
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedlearn.hub.bodies import RefusedError, Training
from fedlearn.hub.jobs.records import JobFolder, JobRecord
from fedlearn.hub.settings import HubSettings
from tests.hub.conftest import TEXT


def opened(folder: Path, host: str = "127.0.0.1", public_host: str = "", job_ports: range = range(0)) -> HubSettings:
    return HubSettings.open(
        folder, data=None, tasks=None, host=host, public_host=public_host, tokens="auto", job_ports=job_ports
    )


def arguments(settings: HubSettings, **changes: object) -> list[str]:
    record = JobRecord(**{"job_id": 1, "asked": TEXT, "training": Training()} | changes)  # type: ignore[arg-type]
    return settings.arguments_of(record, JobFolder(settings.jobs / "1"))


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_tokens_are_made_once_for_their_owner_only_and_are_two(tmp_path: Path) -> None:
    settings = opened(tmp_path)
    again = opened(tmp_path)
    assert (again.operator_token, again.device_token) == (settings.operator_token, settings.device_token)
    assert settings.operator_token != settings.device_token
    assert min(len(settings.operator_token), len(settings.device_token)) >= 32
    for name in ("hub-token", "device-token"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_folder_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--data: expected an existing folder"):
        HubSettings.open(
            tmp_path, data=tmp_path / "none", tasks=None, host="127.0.0.1", public_host="", tokens="always"
        )


def port_for(settings: HubSettings, taken: Sequence[int] = (), port: int = 0) -> int:
    return settings.port_for(JobRecord(job_id=1, asked=TEXT, port=port), taken)


def test_a_job_is_served_on_any_port_and_again_on_the_one_it_had_if_that_is_free(tmp_path: Path) -> None:
    settings = opened(tmp_path)
    assert port_for(settings) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert port_for(settings, port=port) == 0
    assert port_for(settings, port=port) == port
    assert value(arguments(settings, port=port), "--port") == str(port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_a_port_of_all_addresses_is_not_free_where_one_of_ipv4_has_it(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        assert port_for(opened(tmp_path, host="::"), port=taken.getsockname()[1]) == 0


def test_jobs_are_served_on_the_ports_that_they_are_given(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        settings = opened(tmp_path, job_ports=range(first, first + 3))
        found = port_for(settings)
        assert found in (first + 1, first + 2)
        assert port_for(settings, port=first + 2) == first + 2
        assert port_for(settings, [first + 1], port=1) == first + 2
        with pytest.raises(RefusedError, match=f"from {first} to {first + 2}") as refused:
            port_for(settings, [first + 1, first + 2])
    assert refused.value.status == 409


def test_no_secret_stands_in_the_arguments_and_strangers_need_the_devices_token(tmp_path: Path) -> None:
    settings = opened(tmp_path, host="0.0.0.0", public_host="hub.example.org")
    words = arguments(settings)
    assert value(words, "--token-file") == str(tmp_path / "device-token")
    assert value(words, "--public-host") == "hub.example.org"
    for token in (settings.operator_token, settings.device_token):
        assert not any(token in word for word in words)
    assert "--token-file" not in arguments(opened(tmp_path / "own"))


def test_volunteers_of_other_machines_are_told_an_encrypted_address(tmp_path: Path) -> None:
    settings = opened(tmp_path, host="0.0.0.0", public_host="hub.example.org")
    address = str(settings.security.public_address(5001, run="1"))
    assert address.startswith("fedlearn://hub.example.org:5001/1#")


def test_a_task_of_the_hubs_folder_is_named_with_its_steps(tmp_path: Path) -> None:
    settings = opened(tmp_path)
    (settings.tasks / "mine.py").write_text("task = 1")
    asked = {"model_config": {"type": "task", "task": "mine.py:task"}}
    words = arguments(settings, asked=asked, epochs=3, training=Training(learning_rate=0.5))
    assert value(words, "--task") == f"{(settings.tasks / 'mine.py').resolve()}:task"
    assert (value(words, "--steps"), value(words, "--learning-rate"), value(words, "--share")) == ("60", "0.5", "graph")
    assert "--learning-rate" not in arguments(settings, asked=asked)
    resumed = arguments(settings, asked=asked, run="4")
    assert resumed[-2:] == ["--resume", str(settings.runs / "4")]
    assert "--steps" not in resumed
    (settings.tasks / "mine.py").unlink()
    with pytest.raises(RefusedError):
        arguments(settings, asked=asked)
