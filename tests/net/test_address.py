import pytest

from fedlearn.net.address import Address, fingerprint_of, has_fingerprint, is_loopback, parse_address

PRINT = fingerprint_of(b"a certificate")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:55551", Address("127.0.0.1", 55551)),
        ("localhost:1", Address("localhost", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        ("::1:65535", Address("::1", 65535)),
        ("fe80::1%eth0:1", Address("fe80::1%eth0", 1, has_tls=True)),
        ("rechner_7.börse.example.:1", Address("rechner_7.börse.example.", 1, has_tls=True)),
        ("volunteers.example:1", Address("volunteers.example", 1, has_tls=True)),
        ("192.168.0.9:1", Address("192.168.0.9", 1, has_tls=True)),
        ("fedlearn://far:1/7", Address("far", 1, True, "", "7")),
        ("fedlearn://far", Address("far", 55551, True)),
        ("fedlearn://127.0.0.1:1", Address("127.0.0.1", 1, True)),
        (f"fedlearn://far:1/7#{PRINT}", Address("far", 1, True, PRINT, "7")),
        (f"fedlearn://[2001:db8::1]:1#{PRINT}", Address("2001:db8::1", 1, True, PRINT)),
        ("fedlearn+plain://far:1/7", Address("far", 1, False, "", "7")),
    ],
)
def test_address_says_whether_the_line_is_encrypted(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", "host:", ":55551", "host:port", "host:0", "host:65536", "host:-1", "127.0.0.1#x:1"),
        *("fedlearn://", "fedlearn://:1", "fedlearn://h:0", "fedlearn://h:70000", "fedlearn://h:x", "http://h:1"),
        *("[::1", "[::1:5", "::1]:5", "[h:5", "1:2:3", "fedlearn join far:1", "fedlearn://a b:1", "h/7:1"),
        *("fedlearn://user@h:1", "fedlearn://h:1?q", f"fedlearn-plain://h:1#{PRINT}"),
    ],
)
def test_what_is_no_address_is_told_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"^server: expected fedlearn://HOST:PORT/RUN#FINGERPRINT as .*, got '"):
        parse_address(text)


@pytest.mark.parametrize("fingerprint", ["A", PRINT[:20], PRINT[:21], PRINT + "!", "A" * 44, PRINT[:-1] + " "])
def test_fingerprint_of_less_than_128_bits_or_of_other_characters_is_no_fingerprint(fingerprint: str) -> None:
    with pytest.raises(ValueError, match="copy the whole line that the server prints"):
        parse_address(f"fedlearn://far:1/7#{fingerprint}")


def test_fingerprint_is_never_left_aside_for_a_plain_line() -> None:
    with pytest.raises(ValueError, match="expected no fingerprint with fedlearn"):
        parse_address(f"fedlearn+plain://far:1/7#{PRINT}")


def test_fingerprint_is_the_beginning_of_sha_256_in_base64_for_urls() -> None:
    assert fingerprint_of(b"abc") == "ungWv48Bz-pBQUDeXa4iI7AD"


def test_fingerprint_of_any_length_is_compared_whole() -> None:
    assert has_fingerprint(b"a certificate", PRINT)
    assert has_fingerprint(b"a certificate", PRINT[:22])
    assert not has_fingerprint(b"another certificate", PRINT)
    last = "A" if PRINT[-1] != "A" else "B"
    assert not has_fingerprint(b"a certificate", PRINT[:-1] + last)


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("LocalHost", True)),
        *(("0.0.0.0", False), ("localhost.evil.example", False), ("10.0.0.1", False), ("::", False)),
    ],
)
def test_loopback_is_told_without_asking_anybody(host: str, is_it: bool) -> None:
    assert is_loopback(host) == is_it
