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
