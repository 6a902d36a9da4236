from datetime import timedelta
from pathlib import Path

import pytest

from fedlearn.config import ConfigError
from fedlearn.net.tls import read_certificate
from fedlearn.server.renewal import INTERVAL_S, Renewal
from fedlearn.server.security import ServerSecurity
from tests.net.certificates import issued, write_pem
from tests.server.test_security import opened

ANNA, BEN = "ab" * 32, "cd" * 32


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a list and a certificate."""
    (tmp_path / "allow").write_text(ANNA)
    write_pem(tmp_path / "real.pem", issued("lab.example"))
    return tmp_path


def gate_of(files: Path) -> ServerSecurity:
    return opened(files, allow=str(files / "allow"), tls_cert=str(files / "real.pem"))


def test_gate_that_has_no_files_never_changes(tmp_path: Path) -> None:
    renewal = Renewal(opened(tmp_path))
    assert renewal.changed(0.0) is renewal.changed(1e6) is None


def test_files_that_stay_as_they_are_change_nothing(files: Path) -> None:
    renewal = Renewal(gate_of(files))
    assert renewal.changed(0.0) is renewal.changed(INTERVAL_S) is None


def test_list_that_is_another_one_is_read_again_at_the_next_look(files: Path) -> None:
    renewal = Renewal(gate_of(files))
    assert renewal.changed(0.0) is None
    (files / "allow").write_text(f"{ANNA}\n{BEN}")
    assert renewal.changed(INTERVAL_S - 0.01) is None
    security = renewal.changed(INTERVAL_S)
    assert security is not None
    assert security.rules.allowed == frozenset({ANNA, BEN})
    assert renewal.changed(2 * INTERVAL_S) is None


def test_certificate_that_was_renewed_is_shown_to_callers_from_then_on(files: Path) -> None:
    before = gate_of(files)
    renewal = Renewal(before)
    write_pem(files / "real.pem", issued("lab.example"))
    security = renewal.changed(0.0)
    assert security is not None
    assert security.certificate == read_certificate(files / "real.pem") != before.certificate
    assert security.context is before.context
    assert security.rules == before.rules


def test_files_that_can_not_be_used_are_told_once_and_the_next_good_ones_are_taken(files: Path) -> None:
    renewal = Renewal(gate_of(files))
    (files / "allow").write_text("nobody")
    with pytest.raises(ConfigError, match="line 1: expected an identity"):
        renewal.changed(0.0)
    assert renewal.changed(INTERVAL_S) is None
    (files / "allow").write_text(BEN)
    security = renewal.changed(2 * INTERVAL_S)
    assert security is not None
    assert security.rules.allowed == frozenset({BEN})


def test_certificate_without_its_key_is_told_and_not_taken(files: Path) -> None:
    before = gate_of(files)
    renewal = Renewal(before)
    certificate = write_pem(files / "other.pem", issued("lab.example")).read_bytes().partition(b"PRIVATE KEY-----\n")[2]
    secret = (files / "real.pem").read_bytes().partition(b"-----BEGIN CERTIFICATE")[0]
    (files / "real.pem").write_bytes(
        secret + b"-----BEGIN CERTIFICATE" + certificate.partition(b"BEGIN CERTIFICATE")[2]
    )
    with pytest.raises(ConfigError, match=r"tls: .*expected the key of .*real\.pem"):
        renewal.changed(0.0)
    assert renewal.changed(INTERVAL_S) is None


def test_certificate_that_is_out_of_date_is_told_and_not_taken(files: Path) -> None:
    renewal = Renewal(gate_of(files))
    write_pem(files / "real.pem", issued("lab.example", begins=timedelta(-9), ends=timedelta(-1)))
    with pytest.raises(ConfigError, match="expected one that is valid today"):
        renewal.changed(0.0)


def test_file_that_is_gone_is_told(files: Path) -> None:
    renewal = Renewal(gate_of(files))
    (files / "allow").unlink()
    with pytest.raises(ConfigError, match="allow: expected a file"):
        renewal.changed(0.0)
