from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fedlearn.net.tls import make_certificate, read_certificate, server_context
from tests.net.certificates import issued, write_pem


def test_own_certificate_is_valid_whatever_clocks_say() -> None:
    certificate = x509.load_pem_x509_certificate(make_certificate().partition(b"-----END PRIVATE KEY-----\n")[2])
    assert certificate.not_valid_before_utc.year == 2000
    assert certificate.not_valid_after_utc.year == 9999


def test_no_two_certificates_are_the_same() -> None:
    assert make_certificate() != make_certificate()


def test_certificate_may_have_its_key_in_another_file(tmp_path: Path) -> None:
    secret, end, certificate = make_certificate().partition(b"-----END PRIVATE KEY-----\n")
    (tmp_path / "key.pem").write_bytes(secret + end)
    (tmp_path / "cert.pem").write_bytes(certificate)
    server_context(tmp_path / "cert.pem", tmp_path / "key.pem")
    with pytest.raises(
        ValueError, match=r"expected the key of .*cert\.pem, without a password: .*; name it with --tls-key"
    ):
        server_context(tmp_path / "cert.pem", tmp_path / "cert.pem")


def test_certificate_that_is_none_is_told(tmp_path: Path) -> None:
    for text in ("", "no certificate"):
        (tmp_path / "cert.pem").write_text(text)
        with pytest.raises(ValueError, match="expected a certificate in PEM"):
            read_certificate(tmp_path / "cert.pem")
    with pytest.raises(ValueError, match=r"expected a certificate in PEM: .*No such file"):
        read_certificate(tmp_path / "missing.pem")


def test_certificate_that_has_expired_is_told_to_its_owner(tmp_path: Path) -> None:
    path = write_pem(tmp_path / "old.pem", issued("localhost", begins=timedelta(-9), ends=timedelta(-1)))
    with pytest.raises(ValueError, match=r"expected one that is valid today, got one from .* to .*; renew it"):
        read_certificate(path)
