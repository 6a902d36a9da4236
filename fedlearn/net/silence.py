"""Explains why nobody answers at an address, for the person who wants to join."""

import errno
import os
import re
import socket

_NO_WAY = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})
_NUMBER = re.compile(r"\[(?:Errno|WinError) (\d+)\]")


def why_silent(error: OSError, place: str) -> str:
    """The reason why `place`, a host and its port, could not be called; an error that is not the system's is given as
    it is."""
    if isinstance(error, socket.gaierror):
        return f"the name in {place} can't be looked up ({error.strerror or error})"
    # asyncio puts the errors of several addresses of one name into the text of one.
    number = error.errno or next((int(found) for found in _NUMBER.findall(str(error))[::-1]), 0)
    if isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        return f"nothing comes back from {place}"
    if number == errno.ECONNREFUSED:
        return f"nothing listens at {place}"
    if number in _NO_WAY:
        return f"this machine has no way to {place}"
    return f"{place}: {os.strerror(number)}" if number else str(error)
