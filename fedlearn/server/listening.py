"""The server's socket, which it opens before it makes a run."""

import errno
import socket

from fedlearn.config import ConfigError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; where a name has several addresses, on its first IPv4 address.

    Raises:
        ConfigError: nothing can listen there; the message gives the remedy.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port: {port} is taken by another program; stop that one, or choose another with --port"
        elif error.errno == errno.EACCES:
            message = f"port: {port} is for the system's own programs; choose another with --port"
        else:
            message = f"host: expected an address of this machine, got {host!r}, {error.strerror}; set --host"
        raise ConfigError(message) from error
