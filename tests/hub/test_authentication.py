import pytest

from fedlearn.hub.authentication import role_for


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/", None),
        ("GET", "/jobs", None),
        ("GET", "/board.js", None),
        ("GET", "/api/jobs", "operator"),
        ("GET", "/api", "operator"),
        ("GET", "/api/runs/1/weights", "operator"),
        ("GET", "/api/none", "operator"),
        ("HEAD", "/api/jobs/1", "operator"),
        ("GET", "/metrics", "operator"),
        ("GET", "/api/devices", "operator"),
        ("GET", "/api/devices/teraflops", "operator"),
        ("POST", "/api/devices/register", "device"),
        ("GET", "/api/devices/7/work", "device"),
        ("DELETE", "/api/devices/7", "device"),
        ("POST", "/api/devices/7/verbs/restart", "operator"),
        ("POST", "/api/devices/7/verbs/calls", "operator"),
        ("GET", "/api/devices/7/calls/1", "operator"),
        ("POST", "/api/devices/7/calls/1", "device"),
        ("POST", "/api/devices/calls/1", "operator"),
        ("POST", "/api/devices/7/log", "device"),
        ("GET", "/api/devices/7/log", "operator"),
        ("DELETE", "/api/devices/7/x", "operator"),
        ("GET", "/api/devices/7", "operator"),
    ],
)
def test_all_but_pages_is_for_somebody(method: str, path: str, role: str | None) -> None:
    assert role_for(method, path) == role
