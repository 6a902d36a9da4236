"""Whose fault it was when a conversation breaks."""


class ProtocolError(Exception):
    """The rules of `docs/protocol.md` were broken."""


class LocalProtocolError(ProtocolError):
    """By us: nothing was sent, the connection is as before; a defect in this program."""


class RemoteProtocolError(ProtocolError):
    """By the peer: log the reason and close the connection; what it sends next cannot be trusted."""


class FloodError(RemoteProtocolError):
    """By a peer that says more than any honest one would: have nothing to do with it for a while."""
