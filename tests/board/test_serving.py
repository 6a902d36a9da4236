import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from fedlearn.board import serving as module
from fedlearn.board.serving import page_address


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:80/"),
        ("::1", "http://[::1]:80/"),
        ("0.0.0.0", "http://198.51.100.7:80/"),
        ("::", "http://198.51.100.7:80/"),
    ],
)
def test_printed_address_can_be_opened(monkeypatch: pytest.MonkeyPatch, host: str, address: str) -> None:
    monkeypatch.setattr(module, "own_address", lambda: "198.51.100.7")
    assert page_address(host, 80) == address


def test_runs_that_can_only_be_read_are_shown_and_not_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "keep_secret", Mock(side_effect=PermissionError(13, "Permission denied")))
    server = Mock(side_effect=KeyboardInterrupt)  # at once
    monkeypatch.setattr(module, "server_of", lambda *_: Mock(serve=server))
    assert module.serve(tmp_path, module.Reach(), is_companion=False) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"board: {tmp_path} can't be written (Permission denied), so this page shows runs and changes none"
    assert second.startswith("see the runs in a browser: http://127.0.0.1:")


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
def test_a_token_that_others_can_read_is_told_after_the_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "server_of", lambda *_: Mock(serve=Mock(side_effect=KeyboardInterrupt)))
    (tmp_path / module.TOKEN_FILE).write_text("open sesame")
    (tmp_path / module.TOKEN_FILE).chmod(0o644)
    assert module.serve(tmp_path, module.Reach(), is_companion=False) == 0
    address, warning = capsys.readouterr().out.splitlines()
    assert address.endswith("#token=open sesame")
    assert f"got {tmp_path / module.TOKEN_FILE}, which others on this machine can read" in warning
