import pytest

from fedlearn.net import channel
from tests.net.scene import NEVER_S


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens to a channel just because time goes by, unless a test says so."""
    for name in ("TICK_S", "PARTING_S", "STALL_S"):
        monkeypatch.setattr(channel, name, NEVER_S)
