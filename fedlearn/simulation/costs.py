"""What computing and sending take in virtual time."""

import math

import msgspec


class Costs(msgspec.Struct, frozen=True):
    """Seconds of one core, for a network of one size."""

    member_s: float
    """A trial."""
    noise_s: float = 0.0
    """Making a member's noise again, for a sum of one's own members or to replay everybody's."""
    step_s: float = 0.0
    """Taking a step, beside the noise: decoding the Update, optimizer, digest."""
    take_s: float = 0.0
    """Server: decoding, checking and adding up a Result."""
    close_s: float = 0.0
    """Server: making and encoding an Update."""
    send_s: float = 0.0
    """Server: sending a message to one peer."""


class LinkSpeeds(msgspec.Struct, frozen=True):
    """The line of each volunteer, and that of the server, which all share."""

    up_mbit: float = 10.0
    """Megabits per second from a volunteer."""
    down_mbit: float = 50.0
    """And to it."""
    latency_s: float = 0.05
    """Seconds that each message is on its way beside that, in either direction."""
    server_mbit: float = math.inf
    """In each direction."""
