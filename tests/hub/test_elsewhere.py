import pytest
from starlette.testclient import TestClient


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/jobs", "GET, POST"),
        ("POST", "/api/jobs/1", "DELETE, GET"),
        ("GET", "/api/network/train/1", "POST"),
        ("GET", "/api/devices/register", "DELETE, POST"),
        ("OPTIONS", "/api/devices/1/work", "GET"),
        ("STRANGE", "/api/files", "GET"),
    ],
)
def test_another_method_is_refused_with_those_that_there_are(
    client: TestClient, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert answer.json() == {"error": f"{path}: expected {allowed.replace(', ', ' or ')}, got {method}"}


@pytest.mark.parametrize("path", ["/api/", "/api/none", "/api/jobs/1/none", f"/api/{'x' * 1000}"])
def test_an_address_that_is_none_is_told(client: TestClient, path: str) -> None:
    answer = client.get(path, follow_redirects=False)
    assert (answer.status_code, list(answer.json())) == (404, ["error"])
    assert answer.json()["error"] == f"{path[:100]}: no such address; docs/hub.md lists those of a hub"


def test_addresses_of_the_board_are_answered_by_it(client: TestClient) -> None:
    assert client.get("/api/runs").json() == []
    assert client.get("/api/runs/none").text == "no such run"
    assert client.get("/api/operator").status_code in (200, 401, 403)
