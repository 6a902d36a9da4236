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
