"""Keys, tokens and lists of identities in files; only their owner may read the secret ones."""

import base64
import binascii
import os
import secrets
import shlex
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fedlearn.config import ConfigError
from fedlearn.system.files import may_others_read, settings_folder
from fedlearn.wire.proof import KEY_BYTES, Identity

TOKEN_VARIABLE = "FEDLEARN_TOKEN"
LEAST_TOKEN_BYTES = 8


def keep_secret(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a file; a missing file is made with the result of `make`, and only its owner may read it.

    Processes that begin at the same time agree on one content.

    Raises:
        OSError: the file can be neither read nor made.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # readable for its owner only
    try:
        with open(descriptor, "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass  # another process was faster
        except OSError:  # a file system without links
            os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path.read_bytes()


def load_identity(path: Path) -> Identity:
    """The identity in a file, which is made where there is none.

    Raises:
        OSError: the file can be neither read nor made.
        ConfigError: the file holds something else.
    """
    payload = keep_secret(path, _new_key)
    try:
        key = load_pem_private_key(payload, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _no_key(path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path)
    return Identity(key)


def identity_file(environ: Mapping[str, str]) -> Path:
    """The path of a person's identity, unless another is given."""
    return settings_folder(environ) / "fedlearn" / "identity.pem"


class OwnIdentity(NamedTuple):
    """The identity of whoever runs this process."""

    identity: Identity
    notice: str
    """A sentence for the person; empty where all is well."""
    is_kept: bool
    """Whether it is in a file, so that the next session has the same."""


def own_identity(given: str, environ: Mapping[str, str]) -> OwnIdentity:
    """The identity in the given file, otherwise the person's own.

    Raises:
        ConfigError: the file cannot be used.
    """
    path = Path(given) if given else identity_file(environ)
    try:
        return OwnIdentity(load_identity(path), exposure(path, "identity", "pose as this volunteer"), is_kept=True)
    except OSError as error:
        if given:
            raise ConfigError(
                f"identity: expected a file that can be read or made, got {given!r}: {error.strerror}; name another"
            ) from error
        notice = (
            f"identity: {path} can be neither read nor made ({error.strerror}), so this session has one of its own, "
            "which no server knows; name a file with --identity to keep it"
        )
        return OwnIdentity(Identity.of_seed(secrets.token_bytes(KEY_BYTES)), notice, is_kept=False)


def exposure(path: Path, what: str, harm: str) -> str:
    """A warning that others can read a file with a secret; empty where they can't.

    It is no error: some file systems, and volumes of secrets in clusters, let no mode be chosen.
    """
    if not may_others_read(path.stat()):
        return ""
    return (
        f"{what}: expected a secret that only its owner can read, got {path}, which others on this machine can read "
        f"and so {harm}; chmod 600 {shlex.quote(str(path))}"
    )


def token_exposure(file: str) -> str:
    """A warning that others can read the file of the token; empty where they can't, or no file is given."""
    return exposure(Path(file), "token", "join with it") if file else ""


def read_token(file: str, environ: Mapping[str, str]) -> bytes:
    """The token in the file, otherwise in the environment; empty where neither is given.

    Raises:
        ConfigError: the file holds none. No message quotes what was given, which may be the token itself.
    """
    text = environ.get(TOKEN_VARIABLE, "").encode(errors="surrogateescape")
    if file:
        try:
            text = Path(file).read_bytes()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no name of a file"
            raise ConfigError(
                f"token: expected the name of a file that holds it, got one that can't be read ({why}); it is not "
                "shown, in case it is the token: never put the token itself on a command line, which everybody on this "
                f"machine sees, but into a file, or into {TOKEN_VARIABLE}"
            ) from error
    token = text.strip()
    if (file or TOKEN_VARIABLE in environ) and len(token) < LEAST_TOKEN_BYTES:
        source, other = ("token", "") if file else (TOKEN_VARIABLE, ", or unset the variable")
        raise ConfigError(
            f"{source}: expected {LEAST_TOKEN_BYTES} characters or more, got {len(token)}; "
            f"make one with: openssl rand -hex 16{other}"
        )
    return token


def read_allowed(file: str) -> frozenset[str] | None:
    """The identities that a file lists, one a line, where `#` begins a comment; None where no file is given.

    Raises:
        ConfigError: a line, which the message names, is no identity.
    """
    if not file:
        return None
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()  # some editors begin a file with a mark
    except (OSError, ValueError) as error:
        raise ConfigError(f"allow: expected a file with one identity per line, got {file!r}: {error}") from error
    given = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    return frozenset(_public_key(text, f"{file}, line {number}") for number, text in given if text)


def _public_key(text: str, source: str) -> str:
    """The key as hexadecimal digits, whether it is written in those or in base64."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        try:
            key = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_" if set(text) & set("-_") else None)
        except (ValueError, binascii.Error):
            key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{source}: expected an identity of 64 hexadecimal digits, got {text[:80]!r}; a volunteer sees its own "
            "with: fedlearn identity"
        )
    return key.hex()


def _new_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _no_key(path: Path) -> ConfigError:
    return ConfigError(
        f"{path}: expected an Ed25519 key in PEM without a password, got something else; move it away for a new "
        "identity, or name another file with --identity"
    )
