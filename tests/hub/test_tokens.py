import pytest
from starlette.requests import Request

from fedlearn.hub import tokens as module
from fedlearn.hub.bodies import RefusedError
from fedlearn.hub.tokens import COOKIE, TokenAuthentication, is_of_this_machine
from fedlearn.web.names import Names

OWN = Names(4000, is_public=False)


def asked(*, client: str = "127.0.0.1", **headers: str) -> Request:
    named = {"host": "localhost:4000"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(
        {
            "type": "http",
            "method": "POST",
            "path": "/api/jobs",
            "query_string": b"",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
            "client": (client, 50000),
        }
    )


@pytest.fixture
def door() -> TokenAuthentication:
    return TokenAuthentication(operator_token="operator's", device_token="device's", open_to=OWN)


@pytest.mark.parametrize("host", ["localhost:4000", "127.0.0.1:4000", "127.0.0.2:4000", "[::1]:4000", "LOCALHOST:4000"])
def test_this_machine_under_its_own_name_needs_no_token(door: TokenAuthentication, host: str) -> None:
    for role in ("operator", "device"):
        door.check(asked(host=host), role)
    door.check(asked(host=host, origin=f"http://{host}"), "operator")


@pytest.mark.parametrize(
    "headers",
    [
        {"client": "10.0.0.1"},
        {"client": ""},
        {"host": "example.org"},
        {"host": "localhost.example.org"},
        {"host": "evil@localhost:4000.example.org"},
        {"host": ""},
        {"host": "[::1"},
        {"host": "localhost"},
        {"host": "10.0.0.1:4000"},
        {"origin": "http://example.org"},
        {"origin": "http://localhost:5000"},
        {"origin": "null"},
        {"origin": "https://localhost:4000"},
        {"x_forwarded_for": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"via": "1.1 proxy"},
        {"x_real_ip": "127.0.0.1"},
        {"x_forwarded_host": "localhost"},
    ],
)
def test_whoever_may_be_somebody_else_needs_a_token(door: TokenAuthentication, headers: dict[str, str]) -> None:
    request = asked(**headers)
    assert not is_of_this_machine(request, OWN)
    with pytest.raises(RefusedError) as refused:
        door.check(request, "device")
    assert refused.value.status == 401
    door.check(asked(**headers, authorization="Bearer operator's"), "operator")


def test_two_names_at_once_are_none() -> None:
    request = asked()
    request.scope["headers"].append((b"host", b"localhost:4000"))
    assert not is_of_this_machine(Request(request.scope), OWN)


def test_each_role_has_a_token_and_operators_may_do_what_devices_may(door: TokenAuthentication) -> None:
    far = {"client": "10.0.0.1"}
    door.check(asked(**far, authorization="Bearer device's"), "device")
    door.check(asked(**far, authorization="bearer operator's"), "device")
    door.check(asked(**far, cookie=f"{COOKIE}=operator's"), "operator")
    for given in ("Bearer device's", "Basic operator's", "Bearer", "Bearer \xe9", "operator's"):
        with pytest.raises(RefusedError, match="hub's token for operators"):
            door.check(asked(**far, authorization=given), "operator")


def test_tokens_may_be_asked_of_everybody() -> None:
    door = TokenAuthentication(operator_token="operator's", device_token="device's", open_to=None)
    with pytest.raises(RefusedError):
        door.check(asked(), "operator")
    door.check(asked(authorization="Bearer operator's"), "operator")


def test_wrong_tokens_of_one_address_are_few(door: TokenAuthentication) -> None:
    def status(**headers: str) -> int:
        with pytest.raises(RefusedError) as refused:
            door.check(asked(**headers), "operator")
        return refused.value.status

    guess = {"client": "10.0.0.1", "authorization": "Bearer guess"}
    assert [status(**guess) for _ in range(module.GUESSES_PER_MINUTE + 1)] == [401] * module.GUESSES_PER_MINUTE + [429]
    assert status(client="10.0.0.1") == 401  # without a guess nothing is counted
    assert status(**guess | {"client": "10.0.1.1"}) == 401
