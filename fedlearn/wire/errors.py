"""Errors of a conversation, by whose fault it was."""


class ProtocolError(Exception):
    """A rule of `docs/protocol.md` was broken."""


class LocalProtocolError(ProtocolError):
    """We broke it: nothing was sent and the connection is as before. It is a defect of this program."""


class RemoteProtocolError(ProtocolError):
    """The peer broke it: log the reason and close the connection, since nothing that follows can be trusted."""


class FloodError(RemoteProtocolError):
    """The peer sends more than an honest one would: refuse its address for a while."""
