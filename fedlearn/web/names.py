"""Names that a board answers to.

A page elsewhere may give its own name this machine's address (DNS rebinding), and then reads from here as if it were
the board's own page; what tells it from that is the name in the Host header.
"""

import ipaddress
import re
from typing import Literal

import msgspec

from fedlearn.net.address import is_loopback

_HTTP_PORT = 80
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")


class Names(msgspec.Struct, frozen=True):
    """The names of a board."""

    port: int
    """The port at which it listens."""
    is_public: bool
    """True where other machines reach it."""
    given: tuple[str, ...] = ()
    """Additional names that its operator gave it, with any port: a proxy may have another."""
    whose: Literal["board", "hub"] = "board"
    """The command that starts it."""

    def has(self, host: str) -> bool:
        """Checks that a Host header means this board.

        Of a public one every numeric address does: it may stand behind another one, and only a name can be given
        somebody else's address.
        """
        name, port = _split(host)
        if name in self.given:
            return True
        if self.is_public and is_address(name):
            return True
        return (name == "localhost" or (is_address(name) and is_loopback(name))) and port == self.port

    def refusal(self, host: str) -> str:
        """A sentence about what to do about a name that is not the board's."""
        name, _ = _split(host)
        shown = name if re.fullmatch(r"[a-z0-9.:_-]{1,253}", name) else "NAME"
        got = shown if shown != "NAME" else "none that is one"
        return (
            f"Host: expected one of this {self.whose}'s own names, got {got}; "
            f"if the {self.whose} should answer to it, start it with: fedlearn {self.whose} --public-host {shown}"
        )


def checked_name(text: str) -> str:
    """The name as `given` holds it.

    Raises:
        ValueError: no browser would send such a name.
    """
    name, port = _split(text.lower())
    if not name or port != _HTTP_PORT or not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:.]+", name):
        raise ValueError(f"--public-host: expected a name without a port, such as board.example.org, got {text!r}")
    return name


def _split(host: str) -> tuple[str, int]:
    """Name and port; an empty name where it is neither a name nor an address."""
    if (found := _HOST.fullmatch(host.lower())) is None:
        return "", 0
    return found[1].strip("[]").rstrip("."), int(found[2] or _HTTP_PORT)


def is_address(name: str) -> bool:
    """Checks for a numeric address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
