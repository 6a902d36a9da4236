import logging
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from fedlearn.board.serving import Reach
from fedlearn.hub.app import Hub
from fedlearn.hub.serving import introduction, serve
from fedlearn.hub.settings import HubSettings
from fedlearn.storage.durable import StorageError
from fedlearn.system.files import lock_file
from fedlearn.system.invocation import invocation
from tests.board.live import serving
from tests.patience import until


def opened(folder: Path, host: str, tokens: str = "auto") -> HubSettings:
    return HubSettings.open(folder, data=None, tasks=None, host=host, public_host="", tokens=tokens)


def test_a_folder_has_one_hub_at_a_time(settings: HubSettings) -> None:
    with open(settings.folder / "lock", "a+") as held:
        assert lock_file(held.fileno())
        with pytest.raises(StorageError, match="expected a folder that no hub uses"):
            serve(settings, Reach())


def test_the_first_lines_are_for_operators_and_devices(tmp_path: Path) -> None:
    settings = opened(tmp_path, "127.0.0.1")
    lines = introduction(settings, 4000)
    assert lines[:3] == [
        "hub: http://127.0.0.1:4000/",
        f"start and stop jobs in a browser: http://127.0.0.1:4000/jobs#token={settings.operator_token}",
        f"devices join with: {invocation('join')} --hub http://127.0.0.1:4000",
    ]
    assert "need no token" in lines[4]
    assert len(lines) == 5


def test_a_hub_for_others_says_where_tokens_are_and_what_is_not_encrypted(tmp_path: Path) -> None:
    lines = introduction(opened(tmp_path, "0.0.0.0", "always"), 4000)
    assert f"{tmp_path / 'device-token'}; HTTP is not encrypted" in lines[-1]
    assert not any("need no token" in line for line in lines)


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
def test_a_hub_says_which_token_others_can_read(tmp_path: Path) -> None:
    settings = opened(tmp_path, "127.0.0.1")
    (tmp_path / "device-token").chmod(0o644)
    *_, last = introduction(settings, 4000)
    assert f"got {tmp_path / 'device-token'}, which others on this machine can read" in last


def test_a_hub_that_ends_answers_devices_that_wait(settings: HubSettings, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as devices:
        port = listening.getsockname()[1]
        hub, url = Hub(settings, Reach().names(port)), f"http://127.0.0.1:{port}/api/devices"
        with serving(hub.app(), listening):
            urlopen(Request(f"{url}/register", b"{}", {"Content-Type": "application/json"})).close()
            seen = hub._devices.get(1).seen
            waiting = devices.submit(lambda: urlopen(f"{url}/1/work").read())
            until(lambda: hub._devices.get(1).seen != seen)
        assert b'"wait"' in waiting.result()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
