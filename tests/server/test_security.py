import ssl
import stat
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from fedlearn.config import ConfigError, ServerSettings
from fedlearn.net.address import Address, fingerprint_of
from fedlearn.net.tls import read_certificate
from fedlearn.server import security as module
from fedlearn.server.security import CERTIFICATE_FILE, ServerSecurity, open_security, with_local
from fedlearn.storage.credentials import load_identity
from fedlearn.storage.durable import StorageError
from tests.net.certificates import issued, write_pem


def opened(folder: Path, host: str = "127.0.0.1", **settings: str | int) -> ServerSecurity:
    given = msgspec.convert({"host": host, **settings}, ServerSettings)
    return open_security(given, folder, {})


@pytest.mark.parametrize(
    ("host", "tls", "has_tls"),
    [
        ("127.0.0.1", "auto", False),
        ("localhost", "auto", False),
        ("::1", "auto", False),
        ("0.0.0.0", "auto", True),
        ("::", "auto", True),
        ("10.1.2.3", "auto", True),
        ("lab.example", "auto", True),
        ("127.0.0.1", "on", True),
        ("10.1.2.3", "off", False),
    ],
)
def test_encryption_is_on_unless_nobody_else_can_come_or_it_is_off(
    tmp_path: Path, host: str, tls: str, has_tls: bool
) -> None:
    security = opened(tmp_path, host, tls=tls)
    assert (security.context is not None) == has_tls == (tmp_path / CERTIFICATE_FILE).exists()
    assert (len(security.binding) == 32) == has_tls


def test_encryption_that_is_off_is_said_once_with_what_it_means(tmp_path: Path) -> None:
    (notice,) = opened(tmp_path, "10.1.2.3", tls="off").notices
    assert notice.startswith("tls is off: whoever is on the way reads the data and the weights")
    assert opened(tmp_path, "10.1.2.3").notices == []


@pytest.mark.parametrize("tls", ["off", "on"])
def test_nothing_need_be_known_of_an_address_that_nobody_else_reaches(tmp_path: Path, tls: str) -> None:
    assert opened(tmp_path, tls=tls).notices == []


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
def test_secrets_that_others_can_read_are_told(tmp_path: Path) -> None:
    token, certificate, local = (tmp_path / name for name in ("token", CERTIFICATE_FILE, "local.pem"))
    token.write_text("open sesame")
    token.chmod(0o600)
    settings = {"token_file": str(token)}
    assert with_local(opened(tmp_path, "10.1.2.3", **settings), local).notices == []
    for path in (token, certificate, local):
        path.chmod(0o640)
    told = with_local(opened(tmp_path, "10.1.2.3", **settings), local).notices
    assert [
        (notice.partition(":")[0], str(path) in notice)
        for notice, path in zip(told, (token, certificate, local), strict=True)
    ] == [("token", True), ("tls_key", True), ("identity", True)]
    assert len(opened(tmp_path, **settings).notices) == 1
    assert len(opened(tmp_path, "10.1.2.3", tls="off", **settings).notices) == 2


def test_certificate_stays_the_same_and_its_key_is_the_owners(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    first, again = opened(root, "0.0.0.0"), opened(root, "0.0.0.0")
    assert first.binding == again.binding != opened(tmp_path / "others", "0.0.0.0").binding
    assert stat.S_IMODE((root / CERTIFICATE_FILE).stat().st_mode) == 0o600


def test_line_for_volunteers_has_the_fingerprint_and_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "own_address", lambda: "198.51.100.7")
    fingerprint = fingerprint_of(opened(tmp_path, "0.0.0.0").certificate)
    line = f"fedlearn://198.51.100.7:5/7#{fingerprint}"
    assert str(opened(tmp_path, "0.0.0.0").public_address(5, run="7")) == line
    assert str(opened(tmp_path, "10.1.2.3").public_address(5, run="7")) == line.replace("198.51.100.7", "10.1.2.3")
    named = opened(tmp_path, "0.0.0.0", public_host="lab.example").public_address(5, run="7")
    assert str(named) == line.replace("198.51.100.7", "lab.example")
    assert str(opened(tmp_path, "10.1.2.3", tls="off").public_address(5, run="7")) == "fedlearn+plain://10.1.2.3:5/7"
    assert str(opened(tmp_path).public_address(5, run="7")) == "127.0.0.1:5"


@pytest.mark.parametrize(("host", "told"), [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("10.1.2.3", "10.1.2.3")])
def test_own_volunteers_are_told_an_address_of_this_machine(tmp_path: Path, host: str, told: str) -> None:
    security = opened(tmp_path, host)
    assert security.local_address(5) == Address(told, 5, True, fingerprint_of(security.certificate))
    assert str(opened(tmp_path, host, tls="off").local_address(5)) in (f"{told}:5", f"fedlearn+plain://{told}:5")


def test_own_address_is_one_of_this_machine_or_left_open() -> None:
    assert module.own_address() == "HOST" or module.own_address().count(".") == 3


def test_certificate_that_authorities_vouch_for_needs_no_fingerprint(tmp_path: Path) -> None:
    path = write_pem(tmp_path / "real.pem", issued("lab.example"))
    security = opened(tmp_path, "127.0.0.1", tls_cert=str(path), public_host="lab.example")
    assert str(security.public_address(5, run="7")) == "fedlearn://lab.example:5/7"
    assert security.local_address(5).fingerprint == fingerprint_of(read_certificate(path))
    assert isinstance(security.context, ssl.SSLContext)


def test_key_of_a_certificate_may_lie_in_a_file_of_its_own(tmp_path: Path) -> None:
    both = write_pem(tmp_path / "both.pem", issued("lab.example")).read_bytes()
    secret, end, certificate = both.partition(b"-----END PRIVATE KEY-----\n")
    (tmp_path / "cert.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(secret + end)
    security = opened(tmp_path, tls_cert=str(tmp_path / "cert.pem"), tls_key=str(tmp_path / "key.pem"))
    assert security.certificate == read_certificate(tmp_path / "both.pem")


def test_own_certificate_that_is_damaged_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / CERTIFICATE_FILE).write_bytes(b"torn")
    with pytest.raises(ConfigError, match=r"move .*certificate\.pem away: the next one gives volunteers a new line"):
        opened(tmp_path, "0.0.0.0")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"tls_key": "key.pem"}, "tls_cert: expected the certificate of tls_key, got none"),
        ({"tls_cert": "missing.pem"}, "tls: missing.pem: expected a certificate .*name it with --tls-cert"),
        ({"tls_cert": "missing.pem", "tls_key": "old.pem"}, "tls: missing.pem: expected a certificate"),
        ({"tls_cert": "old.key", "tls_key": "old.pem"}, "tls: old.key: expected a certificate in PEM"),
        ({"tls_cert": "old.pem"}, "tls: .*expected one that is valid today"),
        ({"tls_cert": "old.pem", "tls": "off"}, "tls: expected on with tls_cert, got off"),
        ({"allow": "missing"}, "allow: expected a file"),
        ({"token_file": "missing"}, "token: expected the name of a file"),
    ],
)
def test_setting_that_can_not_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_pem(tmp_path / "old.pem", issued("lab.example", begins=timedelta(-9), ends=timedelta(-1)))
    secret, end, _ = path.read_bytes().partition(b"-----END PRIVATE KEY-----\n")
    (tmp_path / "old.key").write_bytes(secret + end)
    with pytest.raises(ConfigError, match=complaint):
        opened(tmp_path, **settings)


def test_rules_are_those_of_the_settings_and_files(tmp_path: Path) -> None:
    (tmp_path / "allow").write_text("ab" * 32)
    (tmp_path / "token").write_text("open sesame")
    security = opened(tmp_path, allow=str(tmp_path / "allow"), token_file=str(tmp_path / "token"), joins_per_minute=3)
    rules = security.rules
    assert (rules.allowed, rules.token, rules.joins_per_minute) == (frozenset(["ab" * 32]), b"open sesame", 3)
    assert (rules.connections_per_address, rules.connections_per_identity) == (256, 128)


def test_own_volunteers_have_an_identity_in_the_runs_folder(tmp_path: Path) -> None:
    security = with_local(opened(tmp_path), tmp_path / "identity.pem")
    assert security.rules.local == load_identity(tmp_path / "identity.pem").public_key.hex()


def test_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"certificate\.pem: expected a file that can be read or made"):
        opened(tmp_path / "file", "0.0.0.0")
    with pytest.raises(StorageError, match=r"identity\.pem: expected a file that can be made"):
        with_local(opened(tmp_path), tmp_path / "file" / "identity.pem")


@pytest.mark.parametrize("name", ["a b", "http://lab.example", "lab.example:55551", "lab/example", "lab#1"])
def test_public_host_that_no_line_could_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="public_host: expected a name or an address without a port"):
        opened(tmp_path, "0.0.0.0", public_host=name)


@pytest.mark.parametrize("name", ["lab.example", "2001:db8::7", "192.0.2.7", "l\u00e4b.example"])
def test_public_host_may_be_a_name_or_an_address(tmp_path: Path, name: str) -> None:
    assert opened(tmp_path, "0.0.0.0", public_host=name).public_address(5, run="7").host == name
