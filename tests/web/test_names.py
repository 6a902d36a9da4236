import pytest

from fedlearn.board.serving import Reach
from fedlearn.web.names import Names, checked_name

LOOPBACK = Reach().names(55580)
PUBLIC = Reach(host="0.0.0.0", public_hosts=("board.example.org",)).names(80)


@pytest.mark.parametrize("host", ["localhost:55580", "LOCALHOST.:55580", "127.0.0.1:55580", "[::1]:55580"])
def test_loopback_board_answers_to_names_of_this_machine(host: str) -> None:
    assert LOOPBACK.has(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:55580",
        "localhost",
        "localhost:80",
        "127.0.0.1:80",
        "127.0.0.1:55581",
        "127.0.0.1",
        "[::1]:80",
        "127.0.0.2:80",
        "localhost.evil.example:55580",
        "127.0.0.1.evil.example:55580",
        "192.168.0.7:55580",
        "[2001:db8::1]:55580",
        "[::1",
        "::1:55580",
        "localhost:55580:1",
        "localhost:55580@evil.example",
    ],
)
def test_loopback_board_answers_to_nothing_else(host: str) -> None:
    assert not LOOPBACK.has(host)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("board.example.org", True),
        ("Board.Example.org:8443", True),
        ("203.0.113.5", True),
        ("[2001:db8::1]:8080", True),
        ("localhost", True),
        ("evil.example", False),
        ("board.example.org.evil.example", False),
        ("203.0.113.5.evil.example", False),
    ],
)
def test_public_board_answers_to_addresses_and_to_names_that_were_given(host: str, *, expected: bool) -> None:
    assert PUBLIC.has(host) is expected


def test_refusal_names_the_remedy_and_repeats_nothing_odd() -> None:
    assert LOOPBACK.refusal("evil.example:99").endswith("start it with: fedlearn board --public-host evil.example")
    assert LOOPBACK.refusal("<script>").endswith("--public-host NAME")
    assert "<" not in LOOPBACK.refusal("<script>")


@pytest.mark.parametrize("text", ["", "a/b", "http://a", "a:80x", "a:8080", "a b", "[::1"])
def test_name_that_no_browser_sends_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--public-host: expected a name without a port"):
        checked_name(text)
    assert [checked_name(name) for name in ("Board.Example.org", "[::1]", "10.0.0.1")] == [
        "board.example.org",
        "::1",
        "10.0.0.1",
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_board_on_an_address_of_this_machine_answers_to_no_other_port(host: str) -> None:
    names = Reach(host=host).names(55580)
    assert names.has("localhost:55580")
    assert not any(names.has(f"{name}:55581") for name in ("127.0.0.1", "localhost", "[::1]"))


def test_tunnel_that_ends_at_another_port_has_its_name_given() -> None:
    names = Reach(public_hosts=("127.0.0.1", "localhost")).names(55580)
    assert names.has("127.0.0.1:8080")
    assert names.has("localhost:8080")


def test_board_on_a_name_answers_to_that_name() -> None:
    assert Reach(host="Ada.lan").names(55580).has("ada.lan:8080")


def test_a_hub_names_its_own_command() -> None:
    hub = Names(4000, is_public=False, whose="hub")
    assert "one of this hub's own names" in hub.refusal("evil.example")
    assert hub.refusal("evil.example").endswith("fedlearn hub --public-host evil.example")
