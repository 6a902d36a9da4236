"""Reloads files that the owner may change while a server runs: the list of identities, and a renewed certificate."""

import ssl
from pathlib import Path
from typing import final

import msgspec

from fedlearn.config import ConfigError
from fedlearn.net.tls import load_chain, read_certificate
from fedlearn.server.security import ServerSecurity
from fedlearn.storage.credentials import read_allowed
from fedlearn.system.files import mark_of

INTERVAL_S = 2.0
"""Seconds between two looks at the files."""


@final
class Renewal:
    """Watches the files of a server's security."""

    def __init__(self, security: ServerSecurity) -> None:
        settings = security.settings
        self._security = security
        self._paths = [Path(name) for name in (settings.allow, settings.tls_cert, settings.tls_key) if name]
        self._seen = [*map(mark_of, self._paths)]
        self._due = 0.0

    def changed(self, now: float) -> ServerSecurity | None:
        """The security by the changed files, None where nothing has changed; the TLS context stays the same object.

        Raises:
            ConfigError: a file cannot be used; the security then stays as it is until the files change again.
        """
        if not self._paths or now < self._due:
            return None
        self._due = now + INTERVAL_S
        seen = [*map(mark_of, self._paths)]
        if seen == self._seen:
            return None
        self._seen = seen
        self._security = _renewed(self._security)
        return self._security


def _renewed(security: ServerSecurity) -> ServerSecurity:
    settings = security.settings
    rules = msgspec.structs.replace(security.rules, allowed=read_allowed(settings.allow))
    if security.context is None or not settings.tls_cert:
        return msgspec.structs.replace(security, rules=rules)
    certificate, key = Path(settings.tls_cert), Path(settings.tls_key or settings.tls_cert)
    try:
        der = read_certificate(certificate)
        load_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)  # tried in a context that nobody uses
        load_chain(security.context, certificate, key)
    except ValueError as error:
        raise ConfigError(f"tls: {error}") from error
    return msgspec.structs.replace(security, rules=rules, certificate=der)
