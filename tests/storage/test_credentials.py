import base64
import os
import re
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedlearn.config import ConfigError
from fedlearn.net.tls import make_certificate
from fedlearn.storage.credentials import (
    identity_file,
    keep_secret,
    load_identity,
    own_identity,
    read_allowed,
    read_token,
    token_exposure,
)

KEY = bytes(range(32))


def test_secret_is_made_once_and_for_its_owners_eyes(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "secret"
    assert keep_secret(path, lambda: b"one") == b"one"
    assert keep_secret(path, lambda: b"two") == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_processes_that_begin_at_once_have_one_secret(tmp_path: Path) -> None:
    def make() -> bytes:
        return os.urandom(1000)

    with ThreadPoolExecutor(8) as executor:
        found = list(executor.map(lambda _: keep_secret(tmp_path / "secret", make), range(64)))
    assert len(set(found)) == 1


def test_secret_is_kept_where_files_can_not_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert keep_secret(tmp_path / "secret", lambda: b"one") == b"one"
    assert list(tmp_path.iterdir()) == [tmp_path / "secret"]


def test_nothing_stays_of_a_secret_that_could_not_be_made(tmp_path: Path) -> None:
    def fail() -> bytes:
        raise OSError("no entropy")

    with pytest.raises(OSError, match="no entropy"):
        keep_secret(tmp_path / "secret", fail)
    assert list(tmp_path.iterdir()) == []


def test_identity_is_the_same_each_time(tmp_path: Path) -> None:
    first, again = load_identity(tmp_path / "a.pem"), load_identity(tmp_path / "a.pem")
    assert first.public_key == again.public_key != load_identity(tmp_path / "b.pem").public_key
    assert first.sign(b"x") == again.sign(b"x")


def unknown_algorithm() -> bytes:
    """A key whose kind nobody knows: one bit of the identifier is another."""
    der = Ed25519PrivateKey.generate().private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    text = base64.b64encode(der.replace(b"+ep", b"+up"))
    return b"-----BEGIN PRIVATE KEY-----\n" + text + b"\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "make",
    [lambda: b"", lambda: b"no key", make_certificate, unknown_algorithm],
    ids=["empty", "text", "another kind", "unknown kind"],
)
def test_file_of_something_else_is_no_identity(tmp_path: Path, make: Callable[[], bytes]) -> None:
    (tmp_path / "a.pem").write_bytes(make())
    with pytest.raises(ConfigError, match="expected an Ed25519 key in PEM without a password"):
        own_identity(str(tmp_path / "a.pem"), {})


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"XDG_CONFIG_HOME": "/conf", "HOME": "/home/ada"}, "/conf/fedlearn/identity.pem"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/home/ada"}, "/home/ada/.config/fedlearn/identity.pem"),
        ({"HOME": "/home/ada"}, "/home/ada/.config/fedlearn/identity.pem"),
    ],
)
def test_identity_is_kept_in_the_config_folder(environ: dict[str, str], path: str) -> None:
    assert identity_file(environ) == Path(path)


def test_home_that_can_not_be_written_gives_a_key_for_this_session(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "file")}
    (one, notice, is_kept), (two, _, _) = own_identity("", environ), own_identity("", environ)
    assert not is_kept
    assert one.public_key != two.public_key
    assert notice.startswith(f"identity: {tmp_path}/file/fedlearn/identity.pem can be neither read nor made (")
    assert "name a file with --identity to keep it" in notice
    with pytest.raises(ConfigError, match="identity: expected a file that can be read or made, got"):
        own_identity(str(tmp_path / "file" / "mine.pem"), environ)


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o640, True), (0o604, True)])
def test_identity_that_others_can_read_is_told_with_its_remedy(tmp_path: Path, mode: int, is_told: bool) -> None:
    path = tmp_path / "a key.pem"
    load_identity(path)
    path.chmod(mode)
    identity, notice, is_kept = own_identity(str(path), {})
    assert (identity.public_key, is_kept) == (load_identity(path).public_key, True)
    expected = f"identity: expected a secret that only its owner can read, got {path}, .*; chmod 600 '{path}'"
    assert bool(re.fullmatch(expected, notice)) == bool(notice) == is_told


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
def test_token_that_others_can_read_is_told_with_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("hunter2hunter2")
    path.chmod(0o600)
    assert token_exposure("") == token_exposure(str(path)) == ""
    path.chmod(0o644)
    assert token_exposure(str(path)) == (
        f"token: expected a secret that only its owner can read, got {path}, which others on this machine can read "
        f"and so join with it; chmod 600 '{path}'"
    )


def test_token_is_what_the_file_says_else_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  of the file\n")
    assert read_token("", {}) == b""
    assert read_token(str(tmp_path / "token"), {}) == b"of the file"
    assert read_token("", {"FEDLEARN_TOKEN": "of the environment"}) == b"of the environment"
    assert read_token(str(tmp_path / "token"), {"FEDLEARN_TOKEN": "of the environment"}) == b"of the file"


@pytest.mark.parametrize("text", ["", "\n", "seven77"])
def test_token_that_is_short_is_no_token(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    told = "expected 8 characters or more, got .; make one with: openssl rand -hex 16"
    with pytest.raises(ConfigError, match=f"^token: {told}$"):
        read_token(str(tmp_path / "token"), {"FEDLEARN_TOKEN": "of the environment"})
    with pytest.raises(ConfigError, match=f"^FEDLEARN_TOKEN: {told}, or unset the variable$"):
        read_token("", {"FEDLEARN_TOKEN": text})


@pytest.mark.parametrize("text", ["hunter2hunter2", "hunter2\0hunter2"])
def test_token_in_place_of_its_file_is_not_shown_again(text: str) -> None:
    complaint = r"got one that can't be read \((No such file|no name).*\); it is not shown, .*never put"
    with pytest.raises(ConfigError, match=complaint) as caught:
        read_token(text, {})
    assert "hunter2" not in str(caught.value)


def test_list_holds_identities_in_either_writing_with_comments(tmp_path: Path) -> None:
    path = tmp_path / "allow"
    other = bytes([251, 255] * 16)
    lines = ["# the circle", "", f"{KEY.hex()}  # Ada", base64.b64encode(other).decode(), KEY.hex().upper()]
    lines.append(base64.urlsafe_b64encode(other).decode().rstrip("="))
    path.write_text("\n".join(lines))
    assert read_allowed(str(path)) == frozenset({KEY.hex(), other.hex()})
    path.write_text("# nobody\n")
    assert read_allowed(str(path)) == frozenset()
    assert read_allowed("") is None


def test_list_of_an_editor_that_marks_its_files_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "allow"
    path.write_bytes(f"\ufeff{KEY.hex()}\r\n".encode())
    assert read_allowed(str(path)) == frozenset({KEY.hex()})


@pytest.mark.parametrize("line", ["Ada", KEY.hex()[:-1], KEY.hex() + "00", "é" * 43])
def test_line_that_is_no_identity_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "allow"
    path.write_text(f"{KEY.hex()}\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"allow, line 2: expected an identity of 64 hexadecimal digits, got '"):
        read_allowed(str(path))


def test_list_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="allow: expected a file with one identity per line, got"):
        read_allowed(str(tmp_path / "missing"))
